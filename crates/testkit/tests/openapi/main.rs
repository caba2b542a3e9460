//! The served document: its copy in `specs`, and its differences from the contract.

mod differences;
mod facts;

use std::path::PathBuf;

use serde_json::Value;

fn specs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../specs")
        .join(name)
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(specs(name)).expect("the file is part of the project");
    serde_json::from_str(&text).expect("the file is JSON")
}

#[test]
fn the_checked_in_document_is_the_served_one() {
    let path = specs("lifecycle.json");
    let made = osb_server::http::document().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("UPDATE_SPECS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "specs/lifecycle.json differs from the code; look at the change, then run \
         UPDATE_SPECS=1 cargo test -p osb-testkit --test openapi"
    );
}

/// Each operation, parameter and field of the contract is served with the same type, requirement
/// and values, unless the difference is listed with its reason.
#[test]
fn the_served_document_differs_from_the_contract_only_as_listed() {
    let document = serde_json::to_value(osb_server::http::document()).unwrap();
    let served = facts::of(&document, "");
    let mut contract = facts::of(&read("contract/lifecycle.json"), "/v1");
    contract.extend(facts::of(&read("contract/diagnostics.json"), "/v1"));
    // The newest generation wins.
    contract.extend(facts::of(&read("contract/server-1.1.1.json"), ""));
    let mut found = Vec::new();
    for (key, want) in &contract {
        match served.get(key) {
            None => found.push(format!("- {key}: {want}")),
            Some(have) if have != want => found.push(format!("~ {key}: {want} -> {have}")),
            Some(_) => {}
        }
    }
    let added = served
        .iter()
        .filter(|(key, _)| !contract.contains_key(*key));
    found.extend(added.map(|(key, have)| format!("+ {key}: {have}")));
    differences::check(&found);
}

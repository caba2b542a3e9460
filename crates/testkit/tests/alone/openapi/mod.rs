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
         UPDATE_SPECS=1 cargo test -p osb-testkit --test alone openapi"
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

/// What authentication and authorisation answer, and a runtime or store that is away.
#[test]
fn every_operation_with_a_key_documents_its_refusals() {
    let document = serde_json::to_value(osb_server::http::document()).unwrap();
    let mut seen = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().iter();
        let operations = methods.filter(|(_, operation)| operation["responses"].is_object());
        for (method, operation) in operations.filter(|_| path.starts_with("/v1/")) {
            seen += 1;
            let has = |status: &str| operation["responses"][status].is_object();
            assert!(has("401"), "{method} {path} lacks 401");
            // Reports of SDKs are the only write that any role may make.
            let is_report = path == "/v1/metrics/events";
            assert!(
                method == "get" || is_report || has("403"),
                "{method} {path} lacks 403"
            );
            let is_of_sandboxes = path.starts_with("/v1/sandboxes");
            assert!(!is_of_sandboxes || has("503"), "{method} {path} lacks 503");
        }
    }
    assert!(seen > 25, "{seen} operations");
}

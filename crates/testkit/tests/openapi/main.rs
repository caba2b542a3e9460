//! `specs/lifecycle.json` matches the served document. `UPDATE_SPECS=1` writes it.

use std::path::Path;

#[test]
fn the_checked_in_document_is_the_served_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/lifecycle.json");
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

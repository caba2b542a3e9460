//! Every test that docs/execd-tests.md names exists.

use std::{fs, path::Path};

/// Path of the file that holds a test, from its kind and the name before `::`.
fn file_of(kind: &str, module: &str) -> Option<String> {
    Some(match kind {
        "unit" => format!("execd/src/{module}.rs"),
        "log" | "otlp" => format!("crates/{kind}/src/{module}.rs"),
        "daemon" => format!("execd/tests/daemon/{module}.rs"),
        "contract" | "sdk" => format!("end2end/{kind}/{module}.py"),
        _ => return None,
    })
}

#[test]
fn every_test_that_the_checklist_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table = fs::read_to_string(root.join("docs/execd-tests.md")).unwrap();
    let mut named = 0;
    let mut missing = Vec::new();
    for name in table.split('`').skip(1).step_by(2) {
        let Some((kind, test)) = name.split_once(' ') else {
            continue;
        };
        let Some((module, function)) = test.split_once("::") else {
            continue;
        };
        let file = file_of(kind, module).unwrap_or_else(|| panic!("what kind is `{name}`?"));
        let text = fs::read_to_string(root.join(&file)).unwrap_or_default();
        let defined = [format!("fn {function}("), format!("def {function}(")];
        if !defined
            .iter()
            .any(|defined| text.contains(defined.as_str()))
        {
            missing.push(name);
        }
        named += 1;
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named > 50, "only {named} tests are named");
}

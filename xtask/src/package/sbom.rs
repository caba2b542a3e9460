//! Software bills of materials in the format `CycloneDX` 1.5: what a program consists of, for tools that
//! look for known defects.

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    component::{Component, Origin, purl},
    inventory::Inventory,
    release::Release,
};
use crate::step::hex;

/// Writes the bill of one program, whose SHA-256 is known if it was built.
pub(super) fn render(
    inventory: &Inventory,
    release: &Release,
    sha256: Option<&str>,
) -> Result<String> {
    let name = inventory.program.name;
    let reference = purl("generic", name, release.version());
    let mut program = json!({
        "type": "application",
        "bom-ref": reference,
        "name": name,
        "version": release.version(),
        "licenses": [{"expression": "Apache-2.0"}],
    });
    if let Some(sha256) = sha256 {
        program["hashes"] = hashes(sha256);
    }
    let components: Vec<Value> = inventory.components.values().map(component).collect();
    let mut dependencies = vec![json!({"ref": reference, "dependsOn": inventory.roots})];
    for part in inventory.components.keys() {
        let uses = inventory.uses.get(part);
        let mut dependency = json!({"ref": part});
        if let Some(uses) = uses.filter(|uses| !uses.is_empty()) {
            dependency["dependsOn"] = json!(uses);
        }
        dependencies.push(dependency);
    }
    let content = json!({
        "metadata": {
            "timestamp": release.rfc3339(),
            "tools": {"components": [{"type": "application", "name": "cargo xtask package"}]},
            "component": program,
        },
        "components": components,
        "dependencies": dependencies,
    });
    let mut bill = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": format!("urn:uuid:{}", uuid(&serde_json::to_vec(&content)?)),
        "version": 1,
    });
    if let (Value::Object(bill), Value::Object(content)) = (&mut bill, content) {
        bill.extend(content);
    }
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn component(component: &Component) -> Value {
    let purl = component.purl();
    let mut value = json!({
        "type": "library",
        "bom-ref": purl,
        "name": component.name,
        "version": component.version,
        "licenses": [{"expression": component.licence.to_spdx()}],
    });
    // npm's scope is a group there.
    if let Some((group, name)) = component.name.split_once('/') {
        value["group"] = json!(group);
        value["name"] = json!(name);
    }
    // No registry has the project's own crates.
    if component.origin != Origin::Own {
        value["purl"] = json!(purl);
    }
    if let Some(sha256) = &component.sha256 {
        value["hashes"] = hashes(sha256);
    }
    if let Some(repository) = &component.repository {
        value["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    value
}

fn hashes(sha256: &str) -> Value {
    json!([{"alg": "SHA-256", "content": sha256}])
}

/// A UUID that names this content: version 8, whose bits are the project's own.
fn uuid(content: &[u8]) -> String {
    let mut bytes: Vec<u8> = Sha256::digest(content).iter().take(16).copied().collect();
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let digits = hex(&bytes);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| digits[part].to_owned()).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::inventory::tests::{execd_of, part};

    fn bill(parts: &[Component]) -> Value {
        let release = Release::at("1.2.3", 1_795_688_100);
        let mut inventory = execd_of(parts);
        let [user, used] = ["pkg:cargo/a@1.0.0", "pkg:cargo/b@1.0.0"].map(str::to_owned);
        inventory.uses.insert(user, [used].into());
        let text = render(&inventory, &release, Some("00ff")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn parts() -> [Component; 4] {
        let mut one = part(Origin::Crates, "a", "MIT/Apache-2.0");
        one.sha256 = Some("0a".to_owned());
        one.repository = Some("https://example.org/a".to_owned());
        [
            one,
            part(Origin::Crates, "b", "MIT"),
            part(Origin::Npm, "@xterm/xterm", "MIT"),
            part(Origin::Own, "osb-log", "Apache-2.0"),
        ]
    }

    #[test]
    fn a_bill_names_the_program_its_parts_and_what_they_use() {
        let bill = bill(&parts());
        assert_eq!(bill["specVersion"], "1.5");
        assert_eq!(bill["metadata"]["timestamp"], "2026-11-26T10:15:00Z");
        let program = &bill["metadata"]["component"];
        assert_eq!(program["bom-ref"], "pkg:generic/execd@1.2.3");
        assert_eq!(program["hashes"][0]["content"], "00ff");
        let component = |purl: &str| {
            let all = bill["components"].as_array().unwrap().iter();
            let mut found = all.filter(|it| it["bom-ref"] == purl);
            found.next().unwrap().clone()
        };
        let one = component("pkg:cargo/a@1.0.0");
        assert_eq!(one["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(one["hashes"][0]["content"], "0a");
        assert_eq!(one["externalReferences"][0]["url"], "https://example.org/a");
        let scoped = component("pkg:npm/%40xterm/xterm@1.0.0");
        assert_eq!(
            (&scoped["group"], &scoped["name"]),
            (&json!("@xterm"), &json!("xterm"))
        );
        assert!(component("pkg:generic/osb-log@1.0.0").get("purl").is_none());
        let dependencies = bill["dependencies"].as_array().unwrap();
        assert_eq!(dependencies.len(), 5);
        assert_eq!(dependencies[0]["ref"], program["bom-ref"]);
        assert_eq!(dependencies[0]["dependsOn"].as_array().unwrap().len(), 4);
        let uses = json!({"ref": "pkg:cargo/a@1.0.0", "dependsOn": ["pkg:cargo/b@1.0.0"]});
        assert!(dependencies.contains(&uses), "{dependencies:?}");
    }

    #[test]
    fn the_serial_number_follows_from_the_content() {
        let number = |parts: &[Component]| bill(parts)["serialNumber"].clone();
        let all = parts();
        assert_eq!(number(&all), number(&all));
        assert_ne!(number(&all), number(&all[..2]));
        let text = number(&all).as_str().unwrap().to_owned();
        let digits = text.strip_prefix("urn:uuid:").unwrap();
        let lengths: Vec<_> = digits.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        let version = digits.split('-').nth(2).unwrap();
        assert!(version.starts_with('8'), "{digits}");
    }
}

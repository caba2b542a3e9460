//! What an `OpenAPI` document says about the wire, as lines that can be compared: operations,
//! parameters and fields, each with its type, whether it is required, and its values.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Operations, parameters and fields by name. Fields have the path of their names, such as
/// `POST /v1/sandboxes body.image.uri`.
pub(crate) type Facts = BTreeMap<String, String>;

/// Schemas within one another beyond this are recursive.
const DEPTH: usize = 12;

/// Reads a document. `prefix` is what its servers put before each path.
pub(crate) fn of(document: &Value, prefix: &str) -> Facts {
    let mut reader = Reader {
        document,
        facts: Facts::new(),
    };
    for (path, item) in object(&document["paths"]) {
        let shared = item["parameters"].as_array().cloned().unwrap_or_default();
        for method in ["get", "post", "put", "patch", "delete"] {
            if let Some(operation) = item.get(method) {
                let name = format!("{} {prefix}{}", method.to_uppercase(), anonymous(path));
                reader.operation(&name, operation, &shared);
            }
        }
    }
    reader.facts
}

/// Path without the names of its parameters, which differ between documents.
fn anonymous(path: &str) -> String {
    let segment = |segment: &str| match segment.strip_prefix('{') {
        Some(_) => "{}".to_owned(),
        None => segment.to_owned(),
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

struct Reader<'a> {
    document: &'a Value,
    facts: Facts,
}

impl<'a> Reader<'a> {
    fn operation(&mut self, name: &str, operation: &'a Value, shared: &[Value]) {
        self.facts.insert(name.to_owned(), "operation".to_owned());
        let own = operation["parameters"].as_array().cloned();
        for parameter in shared.iter().chain(own.iter().flatten()) {
            let parameter = self.resolved_owned(parameter);
            let kind = parameter["in"].as_str().unwrap_or_default();
            // Parameters in a path have no names on the wire.
            if kind == "path" {
                continue;
            }
            let parameter_name = parameter["name"].as_str().unwrap_or_default();
            let key = format!("{name} {kind} {}", parameter_name.to_lowercase());
            let required = parameter["required"] == true;
            let schema = parameter["schema"].clone();
            let described = self.describe(&schema);
            self.facts.insert(key, with_required(described, required));
        }
        let body = self.resolved(&operation["requestBody"]);
        self.content(&format!("{name} body"), body);
        for (status, response) in object(&operation["responses"]) {
            if status.starts_with('2') {
                let key = format!("{name} {status}");
                self.facts.insert(key.clone(), "response".to_owned());
                let response = self.resolved(response);
                self.content(&key, response);
            }
        }
    }

    fn content(&mut self, key: &str, holder: &'a Value) {
        let schema = &holder["content"]["application/json"]["schema"];
        if !schema.is_null() {
            self.fields(key, schema, DEPTH);
        }
    }

    /// Records the fields of a schema under a key.
    fn fields(&mut self, key: &str, schema: &'a Value, depth: usize) {
        if depth == 0 {
            return;
        }
        for schema in self.alternatives(schema) {
            let required: Vec<_> = schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            for (name, field) in object(&schema["properties"]) {
                let key = format!("{key}.{name}");
                let is_required = required.contains(&name.as_str());
                let described = with_required(self.describe(field), is_required);
                self.facts.insert(key.clone(), described);
                self.fields(&key, field, depth - 1);
            }
            if schema["items"].is_object() {
                self.fields(&format!("{key}[]"), &schema["items"], depth - 1);
            }
            if schema["additionalProperties"].is_object() {
                let values = &schema["additionalProperties"];
                let described = self.describe(values);
                self.facts.insert(format!("{key}.*"), described);
                self.fields(&format!("{key}.*"), values, depth - 1);
            }
        }
    }

    /// Types of a schema without `null`, and its values if they are listed.
    fn describe(&self, schema: &Value) -> String {
        let mut types = Vec::new();
        let mut values = Vec::new();
        for schema in self.alternatives_owned(schema) {
            match &schema["type"] {
                Value::String(one) => types.push(one.clone()),
                Value::Array(several) => {
                    types.extend(several.iter().filter_map(Value::as_str).map(str::to_owned));
                }
                _ if schema["properties"].is_object() => types.push("object".to_owned()),
                _ => {}
            }
            for value in schema["enum"].as_array().into_iter().flatten() {
                values.push(value.to_string());
            }
            if schema["items"].is_object() {
                let items = self.describe(&schema["items"]);
                types.retain(|kind| kind != "array");
                types.push(format!("array of {items}"));
            }
        }
        types.retain(|kind| kind != "null");
        values.retain(|value| value != "null");
        for list in [&mut types, &mut values] {
            list.sort();
            list.dedup();
        }
        let types = if types.is_empty() {
            "any".to_owned()
        } else {
            types.join(" or ")
        };
        if values.is_empty() {
            return types;
        }
        format!("{types} of {}", values.join(", "))
    }

    /// The schema itself, or the alternatives and parts that it consists of, without references.
    fn alternatives(&self, schema: &'a Value) -> Vec<&'a Value> {
        let schema = self.resolved(schema);
        let mut found = vec![schema];
        for word in ["anyOf", "oneOf", "allOf"] {
            for part in schema[word].as_array().into_iter().flatten() {
                found.extend(self.alternatives(part));
            }
        }
        found
    }

    fn alternatives_owned(&self, schema: &Value) -> Vec<Value> {
        let schema = self.resolved_owned(schema);
        let mut found = Vec::new();
        for word in ["anyOf", "oneOf", "allOf"] {
            for part in schema[word].as_array().into_iter().flatten() {
                found.extend(self.alternatives_owned(part));
            }
        }
        found.push(schema);
        found
    }

    fn resolved(&self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => self.target(reference),
            None => value,
        }
    }

    fn resolved_owned(&self, value: &Value) -> Value {
        match value["$ref"].as_str() {
            Some(reference) => self.target(reference).clone(),
            None => value.clone(),
        }
    }

    fn target(&self, reference: &str) -> &'a Value {
        let pointer = reference.trim_start_matches('#');
        let target = self.document.pointer(pointer);
        target.unwrap_or_else(|| panic!("the document has no {reference}"))
    }
}

fn with_required(described: String, required: bool) -> String {
    if required {
        described + ", required"
    } else {
        described
    }
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

//! Types and ranges, by JSON Schema.

use std::sync::LazyLock;

use jsonschema::{
    Validator,
    error::{TypeKind, ValidationError, ValidationErrorKind},
    paths::LocationSegment,
};
use osb_protocol::{FieldError, error::Loc};
use serde_json::Value;

use super::REPORTED;

/// Kind of an error about an unknown member.
pub(super) const UNKNOWN: &str = "extra_forbidden";
/// Its rule.
const NOT_KNOWN: &str = "is not a known member";

/// The schema of a request to create.
pub(super) static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("create.schema.json"));
    schema.expect("the schema beside this file is JSON")
});

static TEMPLATE: LazyLock<Validator> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("template.schema.json"));
    let schema: Value = schema.expect("the schema beside this file is JSON");
    jsonschema::validator_for(&schema).expect("the schema beside this file is a schema")
});

static CREATE: LazyLock<Validator> = LazyLock::new(|| {
    jsonschema::validator_for(&SCHEMA).expect("the schema beside this file is a schema")
});

/// All members that break the schema.
pub(super) fn check(body: &Value) -> impl Iterator<Item = FieldError> {
    CREATE.iter_errors(body).map(|error| field_error(&error))
}

/// All members of a template that break its schema, each unknown one on its own.
pub(super) fn check_template(body: &Value) -> impl Iterator<Item = FieldError> {
    TEMPLATE.iter_errors(body).flat_map(|error| {
        let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() else {
            return vec![field_error(&error)];
        };
        let place = place(&error);
        let each = unexpected.iter().take(REPORTED).map(|name| {
            let path = place.iter().cloned().chain([Loc::Name(name.clone())]);
            FieldError::body(UNKNOWN, path, NOT_KNOWN)
        });
        each.collect()
    })
}

/// Where the value is that an error is about.
fn place(error: &ValidationError<'_>) -> Vec<Loc> {
    let segments = error.instance_path().iter();
    segments
        .map(|segment| match segment {
            LocationSegment::Property(name) => Loc::Name(name.into_owned()),
            LocationSegment::Index(index) => Loc::Index(index),
        })
        .collect()
}

/// The error in the contract's form. Values are never repeated: they may be secrets.
fn field_error(error: &ValidationError<'_>) -> FieldError {
    let mut path = place(error);
    let (kind, message) = match error.kind() {
        ValidationErrorKind::Required { property } => {
            path.push(Loc::Name(property.as_str().unwrap_or_default().to_owned()));
            ("missing", "is required".to_owned())
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            if let [name] = unexpected.as_slice() {
                path.push(Loc::Name(name.clone()));
            }
            (UNKNOWN, NOT_KNOWN.to_owned())
        }
        ValidationErrorKind::Type { kind } => type_error(kind),
        ValidationErrorKind::Minimum { limit } => {
            ("greater_than_equal", format!("must be at least {limit}"))
        }
        ValidationErrorKind::Maximum { limit } => {
            ("less_than_equal", format!("must be at most {limit}"))
        }
        ValidationErrorKind::MinItems { limit } => {
            ("too_short", format!("must have at least {limit} element"))
        }
        ValidationErrorKind::MinLength { limit } => (
            "string_too_short",
            format!("must have at least {limit} characters"),
        ),
        ValidationErrorKind::MaxLength { limit } => (
            "string_too_long",
            format!("must have at most {limit} characters"),
        ),
        ValidationErrorKind::Pattern { pattern } => {
            ("string_pattern_mismatch", format!("must match {pattern}"))
        }
        ValidationErrorKind::Enum { options } => {
            ("literal_error", format!("must be one of {options}"))
        }
        _ => ("value_error", "is not valid".to_owned()),
    };
    FieldError::body(kind, path, message)
}

fn type_error(kind: &TypeKind) -> (&'static str, String) {
    let wanted = match kind {
        TypeKind::Single(kind) => kind.to_string(),
        // The only unions of the schema are with null, which means absent.
        TypeKind::Multiple(kinds) => {
            let names: Vec<String> = kinds.iter().map(|kind| kind.to_string()).collect();
            names
                .into_iter()
                .find(|name| name != "null")
                .unwrap_or_default()
        }
    };
    match wanted.as_str() {
        "string" => ("string_type", "must be a string".to_owned()),
        "integer" => ("int_type", "must be a whole number".to_owned()),
        "boolean" => ("bool_type", "must be true or false".to_owned()),
        "array" => ("list_type", "must be a list".to_owned()),
        "object" => ("dict_type", "must be an object".to_owned()),
        other => ("type_error", format!("must be of type {other}")),
    }
}

//! Members of a JSON body, read one by one.

use osb_protocol::{FieldError, WireTime, identity::Role};
use serde_json::{Map, Value};

use super::{error::ApiError, extract::JsonBody};

/// Members of a body. Collects everything that is wrong; values, which may be secrets, are not
/// repeated.
pub(super) struct Fields {
    members: Map<String, Value>,
    wrong: Vec<FieldError>,
}

impl Fields {
    /// The members of an object.
    pub(super) fn of(body: JsonBody) -> Result<Self, ApiError> {
        Ok(Self {
            members: body.into_members()?,
            wrong: Vec::new(),
        })
    }

    fn refuse(&mut self, kind: &str, name: &str, rule: &str) {
        self.wrong.push(FieldError::body(kind, [name], rule));
    }

    /// A text; `None` when it is absent or null.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        match self.members.remove(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(_) => {
                self.refuse("string_type", name, "must be a string");
                None
            }
        }
    }

    /// A list of texts; empty when it is absent or null.
    pub(super) fn texts(&mut self, name: &str) -> Vec<String> {
        let entries = match self.members.remove(name) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(_) => {
                self.refuse("list_type", name, "must be a list");
                return Vec::new();
            }
        };
        let texts: Option<Vec<String>> = entries
            .into_iter()
            .map(|entry| match entry {
                Value::String(text) => Some(text),
                _ => None,
            })
            .collect();
        if texts.is_none() {
            self.refuse("string_type", name, "must be a list of strings");
        }
        texts.unwrap_or_default()
    }

    /// A text that must be there.
    pub(super) fn required(&mut self, name: &str) -> String {
        let before = self.wrong.len();
        let text = self.text(name);
        if text.is_none() && self.wrong.len() == before {
            self.refuse("missing", name, "is required");
        }
        text.unwrap_or_default()
    }

    /// A text that null takes away.
    pub(super) fn nullable(&mut self, name: &str) -> Option<Option<String>> {
        let is_there = self.members.contains_key(name);
        let text = self.text(name);
        is_there.then_some(text)
    }

    /// The member `role`.
    pub(super) fn role(&mut self) -> Option<Role> {
        let role = self.text("role")?.parse();
        role.map_err(|rule: osb_protocol::identity::NotARole| {
            self.refuse("enum", "role", &rule.to_string());
        })
        .ok()
    }

    /// True or false; `None` when it is absent or null.
    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        match self.members.remove(name) {
            None | Some(Value::Null) => None,
            Some(Value::Bool(flag)) => Some(flag),
            Some(_) => {
                self.refuse("bool_type", name, "must be true or false");
                None
            }
        }
    }

    /// A time; `None` when it is absent or null.
    pub(super) fn time(&mut self, name: &str) -> Option<WireTime> {
        let time = WireTime::parse(&self.text(name)?);
        time.map_err(|_| self.refuse("datetime_parsing", name, "must be a time (RFC 3339)"))
            .ok()
    }

    /// Refuses the body if a member was wrong.
    pub(super) fn finish(self) -> Result<(), ApiError> {
        match self.wrong.is_empty() {
            true => Ok(()),
            false => Err(ApiError::invalid(self.wrong)),
        }
    }
}

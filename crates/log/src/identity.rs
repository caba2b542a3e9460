//! Members of every line: the name of the logger, and attributes that the operator sets.

use crate::escape::escaped;

/// Members that a line has in any case.
const RESERVED: [&str; 5] = ["level", "ts", "logger", "msg", "left_out"];

/// Says in every line which daemon it comes from. The default says nothing.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Member `logger` with a comma before it; empty without a name.
    logger: String,
    attributes: Vec<Attribute>,
}

#[derive(Clone, Debug)]
struct Attribute {
    name: String,
    /// The member with a comma before it.
    member: String,
}

impl Identity {
    /// The name of the logger, and attributes by name. An attribute replaces an earlier one of the
    /// same name. Names that every line has are left out.
    #[must_use]
    pub fn new<'a>(logger: &str, attributes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut own: Vec<Attribute> = Vec::new();
        for (name, value) in attributes {
            if RESERVED.contains(&name) {
                continue;
            }
            own.retain(|known| known.name != name);
            own.push(Attribute {
                name: name.to_owned(),
                member: member(name, value),
            });
        }
        Self {
            logger: member("logger", logger),
            attributes: own,
        }
    }

    pub(crate) fn logger(&self) -> &str {
        &self.logger
    }

    /// Members of a line whose event has other members of its own.
    pub(crate) fn attributes(
        &self,
        is_in_event: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = &str> {
        let others = self.attributes.iter();
        let others = others.filter(move |attribute| !is_in_event(&attribute.name));
        others.map(|attribute| &*attribute.member)
    }
}

fn member(name: &str, value: &str) -> String {
    let mut member = String::from(",\"");
    escaped(&mut member, format_args!("{name}"));
    member.push_str("\":\"");
    escaped(&mut member, format_args!("{value}"));
    member.push('"');
    member
}

/// Value of a field that is neither a text nor a number, such as a list.
///
/// Fields of events have no lists. This one passes as an error, the only kind of value whose type
/// the log can recognise; no line says that it is one.
#[derive(Debug)]
pub struct Json(String);

impl Json {
    /// Any value that JSON can express; null for others.
    #[must_use]
    pub fn of(value: &(impl serde::Serialize + ?Sized)) -> Self {
        Self(serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned()))
    }

    /// The value of a field.
    #[must_use]
    pub fn value(&self) -> &(dyn std::error::Error + 'static) {
        self
    }
}

impl std::fmt::Display for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Json {}

//! Format of a line: a JSON object with `level`, `ts`, the logger and `msg`, followed by the daemon's
//! attributes and the other fields of the event.

use std::{
    error::Error,
    fmt::{self, Write},
};

use jiff::Timestamp;
use osb_service::ErrorChain;
use tracing::{
    Event, Level,
    field::{Field, Visit},
};

use crate::{
    escape::escaped,
    identity::{Identity, Json},
};

/// Field with the message of an event.
const TEXT: &str = "message";

/// Line under construction at the end of a buffer.
pub(crate) struct Line<'a> {
    out: &'a mut String,
    of: &'a Identity,
    /// Range of the message in the buffer.
    text: std::ops::Range<usize>,
}

impl<'a> Line<'a> {
    /// Begins the line of an event with the members that sampling compares.
    pub(crate) fn begin(
        out: &'a mut String,
        of: &'a Identity,
        event: &Event<'_>,
        at: Timestamp,
    ) -> Self {
        let (level, logger) = (name(*event.metadata().level()), of.logger());
        let start = write!(
            out,
            "{{\"level\":\"{level}\",\"ts\":\"{at:.3}\"{logger},\"msg\":\""
        );
        start.expect("strings take everything");
        let from = out.len();
        event.record(&mut Text(out));
        let text = from..out.len();
        out.push('"');
        Self { out, of, text }
    }

    /// Escaped message of the event.
    pub(crate) fn text(&self) -> &str {
        &self.out[self.text.clone()]
    }

    /// Completes the line with the other members, and the number of similar lines dropped before.
    pub(crate) fn end(self, event: &Event<'_>, left_out: u32) {
        let fields = event.metadata().fields();
        for member in self.of.attributes(|name| fields.field(name).is_some()) {
            self.out.push_str(member);
        }
        event.record(&mut Members(self.out));
        if left_out > 0 {
            let written = write!(self.out, ",\"left_out\":{left_out}");
            written.expect("strings take everything");
        }
        self.out.push_str("}\n");
    }
}

fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// Visitor that writes the message of an event.
struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == TEXT {
            escaped(self.0, format_args!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == TEXT {
            escaped(self.0, format_args!("{value}"));
        }
    }
}

/// Visitor that writes all fields except the message as members of an object.
struct Members<'a>(&'a mut String);

impl Members<'_> {
    /// Writes what is JSON already, such as a number.
    fn bare(&mut self, field: &Field, value: impl fmt::Display) {
        let written = write!(self.0, ",\"{}\":{value}", field.name());
        written.expect("strings take everything");
    }

    fn quoted(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if field.name() == TEXT {
            return;
        }
        let opened = write!(self.0, ",\"{}\":\"", field.name());
        opened.expect("strings take everything");
        escaped(self.0, value);
        self.0.push('"');
    }
}

impl Visit for Members<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.quoted(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.quoted(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        match value.downcast_ref::<Json>() {
            Some(json) => self.bare(field, json),
            None => self.quoted(field, format_args!("{}", ErrorChain(value))),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.bare(field, value),
            // JSON has no infinity and no NaN.
            false => self.quoted(field, format_args!("{value}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    proptest! {
        #[test]
        fn every_text_is_a_json_string(text in any::<String>()) {
            let mut out = String::from("\"");
            escaped(&mut out, format_args!("{text}"));
            out.push('"');
            let read: Value = serde_json::from_str(&out).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}

//! Text in JSON strings.

use std::fmt::{self, Write};

/// Writer that escapes text for a JSON string.
pub(crate) fn escaped(out: &mut String, value: fmt::Arguments<'_>) {
    if let Err(fmt::Error) = Escaped(out).write_fmt(value) {
        // A failing `Display` loses this member, not the line.
        out.push_str("(unprintable)");
    }
}

struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut done = 0;
        for (at, byte) in text.bytes().enumerate() {
            let short = match byte {
                b'"' => "\\\"",
                b'\\' => "\\\\",
                b'\n' => "\\n",
                b'\r' => "\\r",
                b'\t' => "\\t",
                0..=0x1f | 0x7f => "",
                _ => continue,
            };
            self.0.push_str(&text[done..at]);
            done = at + 1;
            match short {
                "" => write!(self.0, "\\u{byte:04x}")?,
                short => self.0.push_str(short),
            }
        }
        self.0.push_str(&text[done..]);
        Ok(())
    }
}

//! Masking of secrets in logged texts (contract: execd §1.4).
//!
//! The texts are commands for any shell, lists of arguments and scripts, so no exact parser exists.
//! This module searches for names that usually denote secrets, and masks the values after them. If
//! the end of a value is unclear, it masks too much rather than too little.

use std::{borrow::Cow, fmt, ops::Range};

use http::Uri;
use percent_encoding::percent_decode_str;

use crate::limits;

const MASK: &str = "***";

/// Words that denote a secret as part of a name between underscores.
const SECRET_PARTS: &[&str] = &[
    "AK",
    "APIKEY",
    "AUTH",
    "CREDENTIAL",
    "CREDENTIALS",
    "PASS",
    "PASSPHRASE",
    "SECRETS",
    "SK",
];
/// Words that denote a secret also at the end of a longer part, as in `accessToken`.
const SECRET_ENDINGS: &[&str] = &["TOKEN", "SECRET", "PASSWORD", "PASSWD"];
/// Words that denote a secret anywhere in a name.
const SECRET_PIECES: &[&str] = &[
    "ACCESSKEY",
    "ACCESS_KEY",
    "ACCOUNTKEY",
    "API_KEY",
    "APIKEY",
    "PASSWORD",
    "PRIVATE_KEY",
    "SECRET_",
    "SHAREDACCESSSIGNATURE",
    "_PWD",
];
/// Prefixes of names of secrets.
const SECRET_BEGINNINGS: &[&str] = &["AWS_", "ALIBABA_CLOUD_", "SECRET"];
/// Words that denote a secret in names of query parameters.
const QUERY_PARTS: &[&str] = &["CODE", "JWT", "PWD", "SESSION", "SID", "SIG", "SIGNATURE"];
/// Suffix of such names, as in `authKey`. It also matches harmless names such as `monkey`.
const QUERY_ENDING: &str = "KEY";
/// Prefixes that occur only in key ids.
const KEY_IDS: &[&str] = &["LTAI", "AKIA", "AKID"];
/// Minimum length of such an id.
const KEY_ID: usize = 12;

/// Returns a command for the log: secrets masked, truncated to [`limits::COMMAND`] bytes.
#[must_use]
pub fn shown(text: &str) -> String {
    masked(text, limits::COMMAND)
}

/// Returns a request target for the log: secrets masked, truncated to [`limits::ADDRESS`] bytes.
/// The text is produced only when it is displayed.
#[must_use]
pub fn address(uri: &Uri) -> Address<'_> {
    let foreign = false;
    Address { uri, foreign }
}

/// Returns the target of a request that is forwarded to the user's server, for the log. All values
/// of its query are masked, because execd does not know their meaning.
#[must_use]
pub fn foreign_address(uri: &Uri) -> Address<'_> {
    let foreign = true;
    Address { uri, foreign }
}

/// Displayed request target, see [`address`].
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    uri: &'a Uri,
    foreign: bool,
}

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, query) = (self.uri.path(), self.uri.query());
        // Most targets contain nothing that needs masking.
        let plain = query.is_none() && !path.contains(['@', '=', ':', '%']);
        if plain && path.len() <= limits::ADDRESS {
            return f.write_str(path);
        }
        let foreign = self.foreign;
        let mut text = without_secrets(path).to_owned();
        for (pair, mark) in query
            .into_iter()
            .flat_map(|query| query.split('&'))
            .zip(std::iter::once('?').chain(std::iter::repeat('&')))
        {
            text.push(mark);
            match pair.split_once('=') {
                Some((name, value)) => {
                    text.push_str(without_secrets(name));
                    text.push('=');
                    let secret = foreign || is_secret_parameter(&decoded(name));
                    let masked = secret && !value.is_empty();
                    text.push_str(if masked { MASK } else { without_secrets(value) });
                }
                // A part without `=` may be a value without a name.
                None if foreign && !pair.is_empty() => text.push_str(MASK),
                None => text.push_str(without_secrets(pair)),
            }
            if text.len() > limits::ADDRESS {
                break;
            }
        }
        if text.len() > limits::ADDRESS {
            text.truncate(text.floor_char_boundary(limits::ADDRESS));
            text.push('…');
        }
        f.write_str(&text)
    }
}

/// Whether a query parameter contains a secret. Signed URLs have shorter names than commands.
fn is_secret_parameter(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let known = |part: &str| QUERY_PARTS.contains(&part) || part.ends_with(QUERY_ENDING);
    is_secret(name) || upper.split(['-', '_', '.', '[', ']']).any(known)
}

/// Returns a part of an address, or a mask if its decoded form contains a secret.
fn without_secrets(part: &str) -> &str {
    let text = decoded(part);
    match masked(&text, usize::MAX) == *text {
        true => part,
        false => MASK,
    }
}

/// Decodes a part of an address.
fn decoded(part: &str) -> Cow<'_, str> {
    if !part.contains(['%', '+']) {
        return Cow::Borrowed(part);
    }
    let spaced = part.replace('+', " ");
    let text = percent_decode_str(&spaced).decode_utf8_lossy();
    Cow::Owned(text.into_owned())
}

/// Masks secrets, and truncates the result to `limit` bytes with an ellipsis.
fn masked(text: &str, limit: usize) -> String {
    let mut out = String::new();
    // Offset up to which the text is in `out`.
    let mut copied = 0;
    let mut at = 0;
    while at < text.len() && out.len() + (at - copied) <= limit {
        let word = word(text, at);
        match secret(text, &word) {
            Some(secret) => {
                out.push_str(&text[copied..secret.start]);
                out.push_str(MASK);
                copied = secret.end;
                at = secret.end;
            }
            None if word.is_empty() => at = text.ceil_char_boundary(at + 1),
            None => at = word.end,
        }
    }
    let end = at.min(copied.saturating_add(limit).saturating_add(1));
    out.push_str(&text[copied..text.floor_char_boundary(end)]);
    if out.len() > limit {
        out.truncate(out.floor_char_boundary(limit));
        out.push('…');
    }
    out
}

/// Name or number at the start of a text; may be empty.
fn word(text: &str, at: usize) -> Range<usize> {
    let of_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let len = text.as_bytes()[at..]
        .iter()
        .take_while(|byte| of_word(byte));
    at..at + len.count()
}

/// Range of the secret that a word announces. It begins in the word or after it.
fn secret(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let name = &text[word.clone()];
    let found = if name.is_empty() {
        return None;
    } else if text[word.end..].starts_with("://") {
        user_info(text, word.end + 3)
    } else if is_key_id(name) {
        Some(word.start + 4..word.end)
    } else if name.to_ascii_lowercase().ends_with("authorization") {
        // The scheme and the secret are separate words.
        assigned(text, word).map(|value| value.line(text))
    } else if is_secret(name) {
        let value = assigned(text, word).or_else(|| argument(text, word));
        value.map(|value| value.word(text))
    } else {
        None
    };
    found.filter(|secret| !secret.is_empty())
}

fn is_key_id(name: &str) -> bool {
    let known = KEY_IDS.iter().any(|id| name.starts_with(id));
    known && name.len() >= KEY_ID && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_uppercase();
    let name = name.replace('-', "_");
    if name.ends_with("_STDIN") {
        return false;
    }
    let ends = |part: &str| SECRET_ENDINGS.iter().any(|ending| part.ends_with(ending));
    name.split('_')
        .any(|part| SECRET_PARTS.contains(&part) || ends(part))
        || SECRET_PIECES.iter().any(|piece| name.contains(piece))
        || SECRET_BEGINNINGS
            .iter()
            .any(|start| name.starts_with(start))
}

/// User and password of an address.
fn user_info(text: &str, start: usize) -> Option<Range<usize>> {
    let ends = |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'');
    let rest = &text[start..];
    let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
    authority.rfind('@').map(|at| start..start + at)
}

/// Start of a value, and how to find its end.
struct Value {
    start: usize,
    /// Quote that was opened before the value and closes after it.
    within: Option<Quote>,
    /// Whether the value is an element of a list or an object, which ends with its own quotes.
    element: bool,
}

/// Quotation mark, perhaps escaped because it is inside another quotation.
#[derive(Clone, Copy)]
struct Quote {
    mark: u8,
    escaped: bool,
}

/// Quotation mark at an offset, and the offset after it.
fn quote(text: &str, at: usize) -> Option<(Quote, usize)> {
    let bytes = text.as_bytes();
    let escaped = bytes.get(at) == Some(&b'\\');
    let at = at + usize::from(escaped);
    let mark = *bytes.get(at).filter(|byte| matches!(byte, b'"' | b'\''))?;
    Some((Quote { mark, escaped }, at + 1))
}

/// Quotation mark right before an offset.
fn quote_before(text: &str, at: usize) -> Option<Quote> {
    let before = &text.as_bytes()[..at];
    let (mark, before) = before.split_last()?;
    let escaped = before.last() == Some(&b'\\');
    matches!(mark, b'"' | b'\'').then_some(Quote {
        mark: *mark,
        escaped,
    })
}

/// Value of `name=value`, `name: value` or `"name": "value"`.
fn assigned(text: &str, name: &Range<usize>) -> Option<Value> {
    let closed = quote(text, name.end);
    let at = closed.map_or(name.end, |(_, end)| end);
    let sign = skip_blanks(text, at);
    let element = match text.as_bytes().get(sign)? {
        b'=' if sign == at => false,
        b':' => true,
        _ => return None,
    };
    Some(Value {
        start: if element {
            skip_blanks(text, sign + 1)
        } else {
            sign + 1
        },
        within: quote_before(text, name.start).filter(|_| closed.is_none()),
        element,
    })
}

/// Value of `--name value` or `"--name","value"`.
fn argument(text: &str, name: &Range<usize>) -> Option<Value> {
    if !text[name.clone()].starts_with('-') {
        return None;
    }
    let at = quote(text, name.end).map_or(name.end, |(_, end)| end);
    let comma = skip_blanks(text, at);
    let element = text.as_bytes().get(comma) == Some(&b',');
    let start = match element {
        true => skip_blanks(text, comma + 1),
        false => comma,
    };
    (start > at).then_some(Value {
        start,
        within: None,
        element,
    })
}

/// Skips blanks and line continuations.
fn skip_blanks(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    loop {
        at += match bytes.get(at..) {
            Some([b' ' | b'\t' | b'\n' | b'\r', ..]) => 1,
            Some([b'\\', b'\n', ..]) => 2,
            _ => return at,
        };
    }
}

impl Value {
    /// End of a value that is one word, which may be quoted.
    fn word(&self, text: &str) -> Range<usize> {
        if let Some(quote) = self.within {
            return self.start..quote.close(text, self.start);
        }
        match quote(text, self.start) {
            Some((quote, inside)) if self.element || quote.escaped => {
                inside..quote.close(text, inside)
            }
            _ => self.start..end_of_word(text, self.start),
        }
    }

    /// End of a value at the end of its quotes or of its line.
    fn line(&self, text: &str) -> Range<usize> {
        match (self.within, quote(text, self.start)) {
            (Some(quote), _) => self.start..quote.close(text, self.start),
            (None, Some((quote, inside))) => inside..quote.close(text, inside),
            (None, None) => {
                let line = text[self.start..].find('\n');
                self.start..line.map_or(text.len(), |at| self.start + at)
            }
        }
    }
}

impl Quote {
    /// Offset of the closing quote, or the end of the text.
    fn close(self, text: &str, from: usize) -> usize {
        let bytes = text.as_bytes();
        let mut at = from;
        while at < bytes.len() {
            let escape = bytes[at] == b'\\' && (self.escaped || self.mark == b'"');
            match bytes.get(at + usize::from(escape)) {
                Some(byte) if *byte == self.mark && escape == self.escaped => return at,
                _ => at += 1 + usize::from(escape),
            }
        }
        text.len()
    }
}

/// End of a shell word, including quotes and escapes in it.
fn end_of_word(text: &str, from: usize) -> usize {
    let bytes = text.as_bytes();
    let mut open: Option<u8> = None;
    let mut at = from;
    while at < bytes.len() {
        match (bytes[at], open) {
            (b'\\', None | Some(b'"')) => at += 1,
            (mark, Some(opened)) if mark == opened => open = None,
            (_, Some(_)) => {}
            (mark @ (b'"' | b'\''), None) => open = Some(mark),
            (
                b' ' | b'\t' | b'\n' | b'\r' | b';' | b'|' | b'&' | b'(' | b')' | b'<' | b'>',
                None,
            ) => {
                return at;
            }
            _ => {}
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redact(text: &str) -> String {
        masked(text, usize::MAX)
    }

    /// Forms in which a secret may occur, with `@` in its place.
    const FORMS: &[&str] = &[
        "git clone https://user:@@host/x",
        "git clone git+ssh://@@host",
        "curl -H 'Authorization: Bearer @' http://h",
        "curl -H \"authorization: Basic @\" http://h",
        "curl -H Authorization:\\ Bearer\\ @",
        "curl -H \"Proxy-Authorization: @\"",
        "curl -d '{\"Authorization\": \"Bearer @\"}'",
        "sh -c \"curl -H \\\"Authorization: Bearer @\\\"\"",
        "az --connection 'AccountName=a;AccountKey=@;EndpointSuffix=x'",
        "az 'Endpoint=sb://x/;SharedAccessKey=@'",
        "login --password @ --user me",
        "login --password=@",
        "login --password '@ x'",
        "login --api-key \\\n  @",
        "login --secret-id @ --token=\"@\" --access-key-id @ --ak @ --sk=@",
        "PASSWORD=@ TOKEN='@' API_KEY=\"a $X @\" env",
        "export AWS_SESSION=@; export ALIBABA_CLOUD_X=@",
        "docker run -e DOCKER_PASSWORD=@ -e \"GITHUB_TOKEN=a @\" x",
        "sh -c 'MYSQL_PWD=a\\ @ mysql'",
        "curl 'http://h/?access_token=@&x=1'",
        "curl -H 'X-Api-Key: @'",
        "curl -d '{\"password\":\"a @\",\"user\":\"x\"}'",
        "curl -d \"{\\\"clientSecret\\\":\\\"a @\\\"}\"",
        "[\"curl\",\"--token\",\"a @\",\"http://h\"]",
        "[\"env\",\"TOKEN=a @\",\"x\"]",
        "[\"env\",\"TOKEN=a \\\"@\",\"x\"]",
    ];

    #[test]
    fn only_secrets_are_masked() {
        for (text, want) in [
            (
                "git clone https://me:pw@host/x@1",
                "git clone https://***@host/x@1",
            ),
            (
                "curl -H 'Authorization: Bearer x' http://h",
                "curl -H 'Authorization: ***' http://h",
            ),
            (
                "login --password x --user me",
                "login --password *** --user me",
            ),
            (
                "login --password-stdin --user me",
                "login --password-stdin --user me",
            ),
            ("TOKEN=\"a b\" make; ls", "TOKEN=*** make; ls"),
            (
                "[\"a\",\"--token\",\"x y\",\"b\"]",
                "[\"a\",\"--token\",\"***\",\"b\"]",
            ),
            (
                "{\"password\": \"x\", \"user\": \"y\"}",
                "{\"password\": \"***\", \"user\": \"y\"}",
            ),
            (
                "echo LTAI5tAbCdEfGhIj AKIAIOSFODNN7EXAMPLE",
                "echo LTAI*** AKIA***",
            ),
            ("AKIDs are AKIA-like", "AKIDs are AKIA-like"),
            (
                "AccountName=a;AccountKey=k==;X=y",
                "AccountName=a;AccountKey=***;X=y",
            ),
            (
                "cd $PWD && OLDPWD=/x ls --color=auto # é token",
                "cd $PWD && OLDPWD=/x ls --color=auto # é token",
            ),
            ("TOKEN= make", "TOKEN= make"),
            (
                "python train.py --tokenizer gpt",
                "python train.py --tokenizer gpt",
            ),
        ] {
            assert_eq!(redact(text), want, "{text}");
        }
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (text, want) in [
            (
                "/files/info?path=/a%20b&path=c",
                "/files/info?path=/a%20b&path=c",
            ),
            (
                "/x?token=a&y=1&access_token=b",
                "/x?token=***&y=1&access_token=***",
            ),
            ("/x?token=&y", "/x?token=&y"),
            (
                "/x?X-Amz-Signature=a&sig=b&key=c",
                "/x?X-Amz-Signature=***&sig=***&key=***",
            ),
            ("/x?keyword=a&design=b", "/x?keyword=a&design=b"),
            (
                "/x?authKey=a&privateKey=b&api.key=c&KEY=d&subscription-key=e",
                "/x?authKey=***&privateKey=***&api.key=***&KEY=***&subscription-key=***",
            ),
            (
                "/x?pwd=a&jwt=b&code=c&session=d&sid=e&SID=f&session_id=g",
                "/x?pwd=***&jwt=***&code=***&session=***&sid=***&SID=***&session_id=***",
            ),
            (
                "/x?side=a&encode=b&sessions=c",
                "/x?side=a&encode=b&sessions=c",
            ),
            ("/x?next=https%3A%2F%2Fme%3Apw%40host%2Fx", "/x?next=***"),
            ("/x?q=a+--password+b", "/x?q=***"),
            ("/x?acc%65ss_token=a", "/x?acc%65ss_token=***"),
            ("/x?AKIAIOSFODNN7EXAMPLE", "/x?***"),
            ("/x/https://me:pw@host/x", "***"),
            ("/x?a=%&b=%f&c=%zz", "/x?a=%&b=%f&c=%zz"),
            ("/", "/"),
        ] {
            let shown = address(&text.parse().unwrap()).to_string();
            assert_eq!(shown, want, "{text}");
        }
        for (text, want) in [
            (
                "/proxy/80/x?a=b&c=&d&&e=f=g",
                "/proxy/80/x?a=***&c=&***&&e=***",
            ),
            ("/proxy/80/x", "/proxy/80/x"),
            ("/proxy/80/https://me:pw@host/x", "***"),
        ] {
            let shown = foreign_address(&text.parse().unwrap()).to_string();
            assert_eq!(shown, want, "{text}");
        }
        let long = format!("/{}?a={0}&token=hunter2", "x".repeat(700));
        let shown = address(&long.parse().unwrap()).to_string();
        assert!(shown.len() < 1100 && shown.ends_with('…'), "{shown}");
    }

    #[test]
    fn long_commands_are_truncated_and_their_secrets_masked() {
        let text = format!(
            "{} https://me:secret{}@host",
            "é".repeat(8),
            "x".repeat(100)
        );
        assert_eq!(masked(&text, 9), "éééé…");
        assert_eq!(masked(&text, 28), "éééééééé https://***…");
        assert_eq!(masked("short", 5), "short");
    }

    proptest! {
        #[test]
        fn no_secret_survives(secret in "[A-Za-z0-9+=_.%~]{8,40}") {
            for form in FORMS {
                let text = form.replacen("@@", &format!("{secret}@"), 1);
                let text = match text == *form {
                    true => form.replace('@', &secret),
                    false => text,
                };
                let shown = redact(&text);
                prop_assert!(!shown.contains(&secret), "{text} is shown as {shown}");
            }
        }

        #[test]
        fn nothing_panics(text in "([-=:,;@/?# \\\\\"'\n&é]|--token|Authorization|A_PASSWORD|://|x){0,24}", limit in 0usize..40) {
            masked(&text, limit);
        }
    }
}

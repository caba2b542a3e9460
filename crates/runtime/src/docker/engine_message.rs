//! What an engine says about a failed call, for the code that decides by its words.
//!
//! A message has more than the engine's own words: mount paths, names of images and volumes, and what the
//! image says of users and directories. A client chooses those, and could put the engine's words into
//! them. So:
//!
//! - A decision that reaches beyond one create needs a fact instead. Whether execd's volume is lost, the
//!   volume itself shows ([`super::execd_volume`]). That the kernel has no IPv6 is remembered only after
//!   the start of a sidecar that belongs to no client yet ([`super::warm`]).
//! - A decision about one create compares the engine's whole sentence, from the start of the message
//!   ([`EngineMessage::begins_with`]): ports, networks and devices fail before anything of a client's is
//!   mentioned. A client can neither get ahead of these words nor hide them.
//! - The explanation for the client searches for words anywhere ([`EngineMessage::cause`]), but not in the
//!   texts of the request. A text with separators, such as a path, is taken out wherever it stands between
//!   other words. A plain word, which may just as well be the engine's, only where engines put names: in
//!   quotes, in paths, or after words such as `image`. So an image called `port` hides no taken port.
//!
//! Texts of an image (its user, its directories) are not known here. They can only change the explanation
//! of a create from that image.

use std::collections::BTreeSet;

use bollard::errors::Error;

use super::error;
use crate::{Cause, CreateSpec, Reason, Source};

/// Longest part of a message that is read, in bytes.
const MAX_READ: usize = 8 << 10;
/// Most texts of a request that are looked for. The cause of a create with more is not explained.
const MAX_TEXTS: usize = 8192;
/// What a client's text is replaced by.
const TAKEN_OUT: char = '\u{fffd}';
/// What engines write before their own sentence.
const FRAMES: [&str; 2] = [
    "error response from daemon: ",
    "failed to set up container networking: ",
];
/// Words before a name that engines do not quote.
const BEFORE_NAMES: [&str; 15] = [
    "create ",
    "for ",
    "get ",
    "group ",
    "image ",
    "image: ",
    "linux/",
    "mode ",
    "name: ",
    "reference ",
    "specified ",
    "user ",
    "variable: ",
    "volume ",
    "wanted ",
];

/// How a text of a client stands in messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A path, or one of the directories above it, below any other.
    Path,
    /// Anywhere between other words.
    Anywhere,
    /// In the place of a name.
    Name,
}

/// What a client chose of a call, in lower case.
#[derive(Default)]
pub(super) struct ClientTexts(BTreeSet<(Kind, String)>);

impl ClientTexts {
    /// The texts of a create that may get into messages of the engine.
    pub(super) fn of(spec: &CreateSpec) -> Self {
        let origin = &spec.origin;
        let mut texts = Self::default();
        if let Source::Image(image) = &origin.source {
            let (name, tag) = super::image::split_reference(image);
            texts.add(image);
            texts.add(name);
            texts.add(tag);
            texts.add(&format!("{name}:{tag}"));
        }
        if let Some(platform) = &origin.platform {
            texts.add_platform(&super::image::platform_name(platform));
        }
        let pairs = [&origin.resources, &origin.metadata, &origin.extensions];
        let pairs = pairs.into_iter().flatten();
        let variables = spec.network_policy.iter();
        let variables = variables.flat_map(|policy| &policy.variables);
        for (key, value) in pairs.chain(variables) {
            texts.add_pair(key, Some(value));
        }
        for (key, value) in &spec.env {
            texts.add_pair(key, value.as_ref());
        }
        for word in &origin.entrypoint {
            texts.put(Kind::Name, word);
        }
        for volume in spec.volumes.iter().chain(&origin.volumes) {
            texts.add_path(&volume.mount_path);
            if let Some(path) = &volume.sub_path {
                texts.add_path(path);
            }
            if let Some(host) = &volume.host {
                texts.add_path(&host.path);
            }
            if let Some(claim) = &volume.pvc {
                texts.add(&claim.claim_name);
            }
            if let Some(bucket) = &volume.ossfs {
                texts.add(&bucket.bucket);
            }
        }
        texts
    }

    /// The platform of a pull. The name of its image is [`crate::PullFault`]'s concern.
    pub(super) fn of_pull(platform: Option<&str>) -> Self {
        let mut texts = Self::default();
        if let Some(platform) = platform {
            texts.add_platform(platform);
        }
        texts
    }

    fn add_platform(&mut self, platform: &str) {
        self.add(platform);
        for part in platform.split('/') {
            self.put(Kind::Name, part);
        }
    }

    /// A name and its value, which engines show as names or as one entry of the environment.
    fn add_pair(&mut self, key: &str, value: Option<&String>) {
        self.put(Kind::Name, key);
        if let Some(value) = value {
            self.put(Kind::Name, value);
            self.put(Kind::Name, &format!("{key}={value}"));
        }
    }

    fn add(&mut self, text: &str) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        match text.bytes().all(is_plain) {
            true => self.put(Kind::Name, text),
            false => self.put(Kind::Anywhere, text),
        }
    }

    /// A path as engines write it: without empty parts and dots.
    fn add_path(&mut self, path: &str) {
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
        let clean = parts.fold(String::new(), |clean, part| clean + "/" + part);
        if path.starts_with('/') {
            self.put(Kind::Path, &clean);
        } else if let Some(relative) = clean.strip_prefix('/') {
            // It follows another path.
            self.put(Kind::Path, &clean);
            self.add(relative);
        }
        self.put(Kind::Name, path);
    }

    /// Adds a text as it is, quoted, and quoted in quotes.
    fn put(&mut self, kind: Kind, text: &str) {
        let mut text = text.to_ascii_lowercase();
        if !text.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
            return;
        }
        for _ in 0..3 {
            let quoted = quoted(&text);
            let is_last = quoted == text;
            self.0.insert((kind, text));
            if is_last {
                return;
            }
            text = quoted;
        }
    }

    /// Takes the client's texts out of a message in lower case.
    fn taken_out_of(&self, message: &str) -> String {
        if self.0.len() > MAX_TEXTS {
            return String::new();
        }
        let mut hidden = vec![false; message.len()];
        for (kind, text) in &self.0 {
            let ends = ends(text, *kind);
            if !message.contains(&text[..ends[0]]) {
                continue;
            }
            let same = common_lengths(text.as_bytes(), message.as_bytes());
            for (found, _) in message.char_indices() {
                let fitting = &ends[..ends.partition_point(|end| *end <= same[found])];
                let mut fitting = fitting.iter().rev().map(|end| found + end);
                if let Some(end) = fitting.find(|end| is_apart(message, found, *end))
                    && (*kind != Kind::Name || is_name(message, found, end))
                {
                    hidden[found..end].fill(true);
                }
            }
        }
        let mut kept = String::with_capacity(message.len());
        for (at, letter) in message.char_indices() {
            if !hidden[at] {
                kept.push(letter);
            } else if !kept.ends_with(TAKEN_OUT) {
                kept.push(TAKEN_OUT);
            }
        }
        kept
    }
}

/// A text as Go's `%q` has it, without the quotes around it.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ if letter.is_ascii_control() => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(letter)));
            }
            _ => quoted.push(letter),
        }
    }
    quoted
}

/// Returns where a text may end in a message: a path also after each of the directories above it.
fn ends(text: &str, kind: Kind) -> Vec<usize> {
    let above = text.match_indices('/').map(|(end, _)| end).skip(1);
    let above = above.filter(|_| kind == Kind::Path);
    above.chain([text.len()]).collect()
}

/// Counts the bytes of a text that stand at each place of a message, in time that grows with the sum of both
/// lengths (the Z algorithm): a client chooses the text, and a part of the message.
fn common_lengths(text: &[u8], message: &[u8]) -> Vec<usize> {
    let both = [text, message].concat();
    let mut lengths = vec![0; both.len()];
    // What is known to stand at the start as well.
    let (mut from, mut to) = (0, 0);
    for at in 1..both.len() {
        let mut length = match at < to {
            true => lengths[at - from].min(to - at),
            false => 0,
        };
        while both
            .get(at + length)
            .is_some_and(|byte| *byte == both[length])
        {
            length += 1;
        }
        if at + length > to {
            (from, to) = (at, at + length);
        }
        lengths[at] = length;
    }
    lengths.split_off(text.len())
}

/// Whether what stands there is not a part of longer words.
fn is_apart(message: &str, from: usize, end: usize) -> bool {
    let bytes = message.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || !byte.is_ascii();
    let joins = |left: Option<&u8>, right: Option<&u8>| {
        left.is_some_and(|byte| is_word(*byte)) && right.is_some_and(|byte| is_word(*byte))
    };
    let before = from.checked_sub(1).and_then(|at| bytes.get(at));
    let last = end.checked_sub(1).and_then(|at| bytes.get(at));
    !joins(before, bytes.get(from)) && !joins(last, bytes.get(end))
}

/// Whether engines put names there.
fn is_name(message: &str, from: usize, end: usize) -> bool {
    let (before, after) = (&message[..from], &message[end..]);
    let after = after.strip_prefix('\\').unwrap_or(after);
    let is_quoted = ['"', '\'', '`']
        .iter()
        .any(|quote| before.ends_with(*quote) && after.starts_with(*quote));
    let is_part = before.ends_with('/') && after.starts_with('/');
    let is_introduced = BEFORE_NAMES.iter().any(|words| before.ends_with(words));
    let ends = after.is_empty() || after.starts_with([':', ',', ' ', ')', ';']);
    is_quoted || is_part || (is_introduced && ends)
}

/// A message of the engine about a call.
#[derive(Debug)]
pub(super) struct EngineMessage {
    /// As clients see it.
    text: String,
    /// In lower case, without frames.
    whole: String,
    /// The same without the client's texts.
    own: String,
}

impl EngineMessage {
    /// Reads the message of a call that failed.
    pub(super) fn of(failure: &Error, texts: &ClientTexts) -> Self {
        Self::of_text(&error::message(failure), texts)
    }

    /// Reads a message that was not the answer to a call.
    pub(super) fn of_text(message: &str, texts: &ClientTexts) -> Self {
        let read = &message[..message.floor_char_boundary(MAX_READ)];
        let whole = read.to_ascii_lowercase();
        let own = texts.taken_out_of(&whole);
        Self {
            text: error::shortened(message),
            whole: unframed(whole.trim()).to_owned(),
            own: unframed(own.trim()).to_owned(),
        }
    }

    /// The message as clients see it, shortened.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The engine's own words, in lower case.
    pub(super) fn own_words(&self) -> &str {
        &self.own
    }

    /// Whether the engine's own sentence begins with these words.
    pub(super) fn begins_with(&self, words: &str) -> bool {
        self.whole.starts_with(words)
    }

    /// Whether this stands anywhere, also in a client's text: a reason to look at facts, and no more.
    pub(super) fn mentions(&self, what: &str) -> bool {
        self.whole.contains(what)
    }

    /// The cause that the engine's own words reveal.
    fn cause(&self) -> Option<Cause> {
        Cause::of_message(&self.own)
    }

    /// The message for clients, with its cause.
    pub(super) fn into_reason(self) -> Reason {
        let cause = self.cause();
        Reason::new(self.text, cause)
    }

    /// The message for clients after words of this crate, with its cause.
    pub(super) fn into_reason_after(self, words: &str) -> Reason {
        let cause = self.cause();
        Reason::new(format!("{words}{}", self.text), cause)
    }
}

/// A message in lower case from the engine's own sentence on.
pub(super) fn unframed(message: &str) -> &str {
    let mut rest = message.trim_start();
    while let Some(inner) = FRAMES.iter().find_map(|frame| rest.strip_prefix(frame)) {
        rest = inner;
    }
    rest
}

#[cfg(test)]
mod tests;

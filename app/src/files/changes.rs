//! Changes of entries, with their results as messages.

use std::future::Future;

use leptos::{prelude::*, task::spawn_local};

use crate::{error::ConsoleError, frame::Toasts, ui::Unit};

/// Does something, reports how it ended, and runs `then` after a success.
pub(super) fn act<F>(
    what: String,
    toasts: Toasts,
    busy: RwSignal<bool>,
    doing: F,
    then: Callback<()>,
) where
    F: Future<Output = Result<Result<(), String>, ConsoleError>> + 'static,
{
    busy.set(true);
    spawn_local(async move {
        let end = doing.await;
        busy.try_set(false);
        match end {
            Ok(Ok(())) => {
                toasts.good(what);
                then.try_run(());
            }
            Ok(Err(why)) => toasts.bad(why),
            Err(error) => toasts.bad(error.to_string()),
        }
    });
}

/// Bytes as people read them.
pub(super) fn size_text(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    Unit::Bytes.text(bytes as f64)
}

/// Permission bits, written in decimal, as `rw-r--r--`. Special bits are shown as `ls` does.
pub(super) fn mode_text(mode: u32) -> String {
    let class = |digit: u32, is_special: bool, special: char| {
        let bit = |bit: u32, letter: char| if digit & bit != 0 { letter } else { '-' };
        let execute = match (is_special, digit & 1 != 0) {
            (false, _) => bit(1, 'x'),
            (true, true) => special,
            (true, false) => special.to_ascii_uppercase(),
        };
        [bit(4, 'r'), bit(2, 'w'), execute]
    };
    let special = mode / 1000;
    let classes = [
        class(mode / 100 % 10, special & 4 != 0, 's'),
        class(mode / 10 % 10, special & 2 != 0, 's'),
        class(mode % 10, special & 1 != 0, 't'),
    ];
    classes.into_iter().flatten().collect()
}

/// Permission bits of a text such as `644`; `None` unless it is one to four octal digits, not all 0.
pub(super) fn mode_of(text: &str) -> Option<u32> {
    let text = text.trim();
    let is_octal = text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    (is_octal && (1..=4).contains(&text.len()))
        .then(|| text.parse().ok())?
        .filter(|mode| (1..=7777).contains(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_shown_and_read() {
        for (mode, text) in [
            (644, "rw-r--r--"),
            (755, "rwxr-xr-x"),
            (7, "------rwx"),
            (1777, "rwxrwxrwt"),
            (4755, "rwsr-xr-x"),
            (2750, "rwxr-s---"),
            (7640, "rwSr-S--T"),
        ] {
            assert_eq!(mode_text(mode), text);
        }
        for (text, mode) in [
            ("644", Some(644)),
            (" 0755 ", Some(755)),
            ("7", Some(7)),
            ("1777", Some(1777)),
        ] {
            assert_eq!(mode_of(text), mode, "{text}");
        }
        for bad in ["", "0", "888", "rwx", "-1", "77777", "1778"] {
            assert_eq!(mode_of(bad), None, "{bad}");
        }
    }
}

//! One line of a log.

use leptos::prelude::*;
use osb_protocol::WireTime;

use super::{
    buffer::Line,
    kind::{Origin, Severity},
};
use crate::ui::ansi;

/// One line, with how many before it were left out.
pub(super) fn row(line: &Line, offset_minutes: RwSignal<i64>) -> AnyView {
    let skipped = (line.skipped > 0).then(|| {
        let skipped = line.skipped;
        view! {
            <div class="log-skipped">
                {format!("{skipped} lines left out: they came faster than they can be shown")}
            </div>
        }
    });
    let stream = match line.kind.origin {
        Origin::Output => None,
        Origin::Error => Some("error"),
        Origin::Daemon => Some("execd"),
    };
    let severity = line.kind.severity;
    let severity = (severity != Severity::Other).then(|| severity.key());
    let at = line.at;
    let time = (at != 0).then(|| {
        let exact = WireTime::from_unix_us(at).map(|at| at.to_string());
        view! {
            <time class="log-time" title=exact>
                {move || clock_time(at, offset_minutes.get())}
            </time>
        }
    });
    let pieces = ansi::pieces(&line.text)
        .into_iter()
        .map(|piece| match piece.class.as_str() {
            "" => piece.text.into_any(),
            _ => view! { <span class=piece.class>{piece.text}</span> }.into_any(),
        });
    view! {
        {skipped}
        <div class="log-line" data-stream=stream data-severity=severity>
            {time}
            {pieces.collect_view()}
        </div>
    }
    .into_any()
}

/// `09:31:02.125 ` at this many minutes east of UTC: [`TIME_WIDTH`] characters.
fn clock_time(us: i64, offset_minutes: i64) -> String {
    let ms = us.div_euclid(1_000) + offset_minutes * 60_000;
    let (second, ms) = (ms.div_euclid(1_000), ms.rem_euclid(1_000));
    let of_day = second.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{hour:02}:{minute:02}:{second:02}.{ms:03} ")
}

/// Characters of the time before a line.
pub(super) const TIME_WIDTH: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_long_as_the_layout_assumes() {
        let at = 1_700_000_000_125_000;
        assert_eq!(clock_time(at, 0), "22:13:20.125 ");
        assert_eq!(clock_time(at, 120), "00:13:20.125 ");
        assert_eq!(clock_time(at, -330), "16:43:20.125 ");
        assert_eq!(clock_time(at, 0).len(), TIME_WIDTH);
    }
}

//! What a command wrote, as far as the page keeps it.

use std::collections::VecDeque;

use leptos::{html::Div, prelude::*};

use super::{
    tab::{Phase, Runner},
    wire::RunLine,
};
use crate::{live::LogStream, ui::ansi};

/// Lines that are kept.
const LINES: usize = 2_000;
/// Bytes that are kept.
const BYTES: usize = 2 << 20;
/// How near the end the view follows it, in pixels.
const NEAR: i32 = 40;

/// The last lines of an output.
#[derive(Debug, Default)]
pub(super) struct Output {
    lines: VecDeque<(u64, RunLine)>,
    bytes: usize,
    /// Lines in all.
    total: u64,
}

impl Output {
    pub(super) fn add(&mut self, lines: Vec<RunLine>) {
        for line in lines {
            self.bytes += line.1.len();
            self.lines.push_back((self.total, line));
            self.total += 1;
            // The last line stays, however long it is.
            while self.lines.len() > LINES || (self.bytes > BYTES && self.lines.len() > 1) {
                if let Some((_, RunLine(_, text))) = self.lines.pop_front() {
                    self.bytes -= text.len();
                }
            }
        }
    }

    /// The kept lines with their numbers.
    fn lines(&self) -> Vec<(u64, RunLine)> {
        self.lines.iter().cloned().collect()
    }

    /// Lines that are no longer kept.
    fn dropped(&self) -> u64 {
        self.total - self.lines.len() as u64
    }

    /// The kept text.
    pub(super) fn text(&self) -> String {
        let mut text = String::with_capacity(self.bytes + self.lines.len());
        for (_, RunLine(_, line)) in &self.lines {
            text.push_str(&ansi::plain(line));
            text.push('\n');
        }
        text
    }
}

/// Shows the output, and follows its end unless the reader went up.
#[component]
pub(super) fn OutputView(runner: Runner) -> impl IntoView {
    let place = NodeRef::<Div>::new();
    let follows = StoredValue::new(true);
    let lines = Memo::new(move |_| {
        runner.revision.track();
        runner.output.with_value(Output::lines)
    });
    let dropped = move || {
        runner.revision.track();
        let dropped = runner.output.with_value(Output::dropped);
        (dropped > 0).then(|| {
            view! {
                <div class="log-skipped">{format!("{dropped} earlier lines are not shown")}</div>
            }
        })
    };
    let moved = move |_| {
        if let Some(place) = place.get_untracked() {
            let below = place.scroll_height() - place.scroll_top() - place.client_height();
            follows.set_value(below < NEAR);
        }
    };
    Effect::new(move |_| {
        lines.track();
        // The rows of this change are in the page only after this effect.
        request_animation_frame(move || {
            let end = place.try_get_untracked().flatten();
            if let Some(place) = end.filter(|_| follows.try_get_value() == Some(true)) {
                place.set_scroll_top(place.scroll_height());
            }
        });
    });
    let is_silent = move || {
        runner.revision.track();
        let ended = matches!(&*runner.phase.read(), Phase::Ended(_));
        ended && runner.output.with_value(|output| output.total == 0)
    };
    view! {
        <div
            class="run-output"
            node_ref=place
            tabindex="0"
            role="log"
            aria-live="off"
            aria-label="Output"
            on:scroll=moved
        >
            {dropped}
            <For each=move || lines.get() key=|(number, _)| *number let((_, line))>
                {row(&line)}
            </For>
            <Show when=is_silent>
                <div class="log-skipped">"It wrote nothing."</div>
            </Show>
        </div>
    }
    .into_any()
}

fn row(RunLine(stream, text): &RunLine) -> AnyView {
    let stream = (*stream == LogStream::Error).then_some("error");
    let pieces = ansi::pieces(text)
        .into_iter()
        .map(|piece| match piece.class.as_str() {
            "" => piece.text.into_any(),
            _ => view! { <span class=piece.class>{piece.text}</span> }.into_any(),
        });
    view! {
        <div class="log-line" data-stream=stream>
            {pieces.collect_view()}
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: impl Into<String>) -> RunLine {
        RunLine(LogStream::Output, text.into())
    }

    #[test]
    fn the_last_lines_are_kept_with_their_numbers() {
        let mut output = Output::default();
        output.add((0..LINES + 5).map(|it| line(it.to_string())).collect());
        assert_eq!((output.lines.len(), output.dropped()), (LINES, 5));
        assert_eq!(output.lines()[0], (5, line("5")));
        assert!(output.text().starts_with("5\n6\n"));
    }

    #[test]
    fn long_lines_count_by_their_bytes() {
        let mut output = Output::default();
        output.add(vec![line("a".repeat(BYTES)), line("b"), line("c")]);
        assert_eq!((output.lines.len(), output.dropped()), (2, 1));
        output.add(vec![line("d".repeat(2 * BYTES))]);
        assert_eq!((output.lines.len(), output.bytes), (1, 2 * BYTES));
    }

    #[test]
    fn copied_text_has_no_control_sequences() {
        let mut output = Output::default();
        output.add(vec![line("\u{1b}[31mred\u{1b}[0m")]);
        assert_eq!(output.text(), "red\n");
    }
}

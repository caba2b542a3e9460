//! The view of what a command wrote.

use leptos::{html::Div, prelude::*};

use super::{
    buffer::Output,
    runner::{Phase, Runner},
    wire::RunLine,
};
use crate::{live::LogStream, ui::ansi};

/// How near the end the view follows it, in pixels.
const NEAR: i32 = 40;

/// Id of the output.
pub(super) const OUTPUT: &str = "run-output";

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
        let gap = runner.output.with_value(Output::gap);
        gap.map(|gap| view! { <div class="log-skipped">{gap}</div> })
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
        ended && runner.output.with_value(|output| output.is_empty())
    };
    view! {
        <div
            id=OUTPUT
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

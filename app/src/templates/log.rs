//! The log of a build.

use leptos::{ev, html, prelude::*};

use crate::view::TemplateDetail;

/// Distance from the end, in pixels, at which the log still follows it.
const NEAR: i32 = 8;

/// What the build of a template has written. It stays at the end while that is in view.
#[component]
pub(super) fn BuildLog(current: RwSignal<TemplateDetail>) -> impl IntoView {
    let text = Memo::new(move |_| plain(&current.read().log));
    let place = NodeRef::<html::Pre>::new();
    let follows = StoredValue::new(true);
    let moved = move |_: ev::Event| {
        if let Some(place) = place.get_untracked() {
            let below = place.scroll_height() - place.scroll_top() - place.client_height();
            follows.set_value(below <= NEAR);
        }
    };
    Effect::new(move |_| {
        text.track();
        // The text of this change is in the page only after this effect.
        request_animation_frame(move || {
            let end = place.try_get_untracked().flatten();
            if let Some(place) = end.filter(|_| follows.try_get_value() == Some(true)) {
                place.set_scroll_top(place.scroll_height());
            }
        });
    });
    let nothing = move || {
        let is_empty = text.read().is_empty();
        is_empty.then(|| view! { <p class="help">"The build has written nothing yet."</p> })
    };
    view! {
        <section class="card" aria-labelledby="log-title">
            <h2 id="log-title">"Log of the build"</h2>
            {nothing}
            <pre
                node_ref=place
                class="template-log"
                class:is-empty=move || text.read().is_empty()
                role="log"
                aria-live="off"
                aria-label="Output of the build"
                tabindex="0"
                on:scroll=moved
            >
                <code>{text}</code>
            </pre>
            <p class="help">"The last 64 KiB."</p>
        </section>
    }
    .into_any()
}

/// The text of a log without the control language of terminals.
fn plain(log: &str) -> String {
    let mut text = String::with_capacity(log.len());
    let mut chars = log.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.next_if_eq(&'[').is_some() => {
                // Parameters, then one letter.
                while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
            }
            '\n' | '\t' => text.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => text.push('\n'),
            c if c.is_control() => {}
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_plain_text() {
        let log = "Step 1\r\n\u{1b}[1;31mred\u{1b}[0m\ta\u{7}b\r50%\u{1b}[K\r100%\n<i>";
        assert_eq!(plain(log), "Step 1\nred\tab\n50%\n100%\n<i>");
        assert_eq!(plain("\u{1b}[3"), "");
    }
}

//! A text with the numbers of its lines, one of which may be marked.

use leptos::{html, prelude::*};

/// The text of a file of this name. `first` is the number of its first line, where it is known.
#[component]
pub(super) fn TextView(
    name: String,
    text: String,
    first: Option<u64>,
    marked: Option<u64>,
) -> impl IntoView {
    let shown = shown(&text);
    let count = lines(&shown);
    let marked =
        marked.filter(|line| first.is_some_and(|first| (first..first + count).contains(line)));
    let numbers = first.map(|first| view! { <Numbers first count marked /> });
    let label = match marked {
        Some(line) => format!("{name}, line {line} is marked"),
        None => name.clone(),
    };
    let code = NodeRef::<html::Code>::new();
    Effect::new(move |_| {
        if let Some(code) = code.get() {
            paint(code, name.clone());
        }
    });
    // A text that begins with an empty line keeps it: HTML drops a line end only right after `<pre>`.
    view! {
        <div class="file-text" tabindex="0" role="region" aria-label=label>
            {numbers}
            <pre><code node_ref=code>{shown}</code></pre>
        </div>
    }
    .into_any()
}

#[component]
fn Numbers(first: u64, count: u64, marked: Option<u64>) -> impl IntoView {
    let mark = NodeRef::<html::Span>::new();
    Effect::new(move |_| {
        if let Some(mark) = mark.get() {
            let options = web_sys::ScrollIntoViewOptions::new();
            options.set_block(web_sys::ScrollLogicalPosition::Center);
            mark.scroll_into_view_with_scroll_into_view_options(&options);
        }
    });
    let end = first + count;
    let numbers = match marked {
        None => numbers(first, end).into_any(),
        Some(line) => {
            let before = (line > first).then(|| numbers(first, line) + "\n");
            let after = (line + 1 < end).then(|| format!("\n{}", numbers(line + 1, end)));
            view! { {before} <span class="at" id="line" node_ref=mark>{line}</span> {after} }
                .into_any()
        }
    };
    view! { <pre class="gutter num" aria-hidden="true">{numbers}</pre> }.into_any()
}

/// Numbers from `first` to before `end`, each in its line.
fn numbers(first: u64, end: u64) -> String {
    let numbers: Vec<String> = (first..end).map(|line| line.to_string()).collect();
    numbers.join("\n")
}

/// A text as a page shows it: parsers of HTML make each kind of line end a line feed, so a carriage
/// return alone is made visible.
fn shown(text: &str) -> String {
    match text.contains('\r') {
        true => text.replace("\r\n", "\n").replace('\r', "␍"),
        false => text.to_owned(),
    }
}

/// Lines of a text; an empty one has one.
fn lines(text: &str) -> u64 {
    text.lines().count().max(1) as u64
}

/// Colours the text in an element, that of a file with this name (style/highlight.mjs).
#[cfg(feature = "hydrate")]
fn paint(element: web_sys::HtmlElement, name: String) {
    use wasm_bindgen::JsValue;
    leptos::task::spawn_local(async move {
        // Without its script, the text is shown plain.
        if let Ok(highlight) = crate::vendor::export(("highlight.mjs", "highlight")).await {
            let _ = highlight.call2(&JsValue::UNDEFINED, &element, &name.into());
        }
    });
}

#[cfg(not(feature = "hydrate"))]
fn paint(_element: web_sys::HtmlElement, _name: String) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_as_they_are_shown() {
        for (text, count) in [("", 1), ("a", 1), ("a\n", 1), ("\n\na\n", 3), ("a\n\n", 2)] {
            assert_eq!(lines(text), count, "{text:?}");
        }
        assert_eq!(shown("a\r\nb\rc"), "a\nb␍c");
        assert_eq!(numbers(9, 12), "9\n10\n11");
        assert_eq!(numbers(3, 3), "");
    }
}

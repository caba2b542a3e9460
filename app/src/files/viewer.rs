//! A file: what is in it, part by part.

use leptos::prelude::*;

use super::{
    Content, FileView,
    changes::{mode_text, size_text},
    editor::{Editor, MAX},
    here::Here,
    path,
    table::{TableView, is_table},
    text::TextView,
};
use crate::{
    browser,
    ui::{AtMinute, CopyButton, Icon},
};

/// Id of the button that opens the editor.
const EDIT: &str = "file-edit";

/// Endings of images that browsers show.
const IMAGES: [&str; 7] = ["png", "jpg", "jpeg", "gif", "webp", "avif", "bmp"];
/// Bytes of a part; the server sends no more at once.
pub(super) const PART: u64 = 256 * 1024;
/// Bytes of a part that is shown as bytes.
pub(super) const BYTES_PART: u64 = 4 * 1024;

/// How a file is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct How {
    /// The line that is marked; the first one of a part that does not begin with the file.
    pub(super) line: Option<u64>,
    /// Whether a text is shown as such that could be shown otherwise.
    pub(super) as_text: bool,
}

/// The shown part, or an editor of the whole.
#[component]
pub(super) fn FileViewer(here: Here, file: FileView, how: How) -> impl IntoView {
    let editing = RwSignal::new(false);
    if here.saved.get_value() {
        here.saved.set_value(false);
        browser::focus_if_lost(EDIT);
    }
    let file = StoredValue::new(file);
    let shown = here.clone();
    let content = move || match (editing.get(), file.get_value()) {
        (true, file) => view! { <Editor here=shown.clone() file editing /> }.into_any(),
        (false, file) => view! { <Shown here=shown.clone() file how editing /> }.into_any(),
    };
    view! {
        <Facts file=file.get_value() />
        {content}
    }
    .into_any()
}

#[component]
fn Facts(file: FileView) -> impl IntoView {
    let entry = &file.entry;
    let exact = format!("{} bytes", file.size);
    view! {
        <p class="file-facts fine">
            <span class="num" title=exact>{size_text(file.size)}</span>
            <span class="mono">{mode_text(entry.mode)}</span>
            <span>{format!("{}:{}", entry.owner, entry.group)}</span>
            <span>"Changed " <AtMinute at=entry.modified_at /></span>
        </p>
    }
    .into_any()
}

#[component]
fn Shown(here: Here, file: FileView, how: How, editing: RwSignal<bool>) -> impl IntoView {
    let is_text = matches!(file.content, Content::Text(_));
    let is_image = is_image(&file.path);
    let as_bytes = path::address(&here.id, &file.path, "as=bytes");
    let plain = path::address(&here.id, &file.path, "");
    let edit = (is_text && file.is_whole() && file.size <= MAX).then(|| {
        view! {
            <button
                id=EDIT
                type="button"
                class="button primary needs-script"
                on:click=move |_| editing.set(true)
            >
                <Icon name="pencil" />
                "Edit"
            </button>
        }
    });
    let copy = match &file.content {
        Content::Text(text) if file.is_whole() => {
            let text = text.clone();
            Some(view! { <CopyButton text what="the text" /> })
        }
        _ => None,
    };
    // A marked line is one of the text.
    let can_be_table = is_text && is_table(&file.path) && file.from == 0;
    let is_table = can_be_table && !how.as_text && how.line.is_none() && file.size > 0;
    let other = |href: String, name: &'static str| view! { <a class="button" href=href>{name}</a> };
    let others = match (is_text, can_be_table) {
        (true, false) => (other(as_bytes, "As bytes"), None),
        (true, true) if is_table => {
            let as_text = path::address(&here.id, &file.path, "as=text");
            (other(as_text, "As text"), Some(other(as_bytes, "As bytes")))
        }
        (true, true) => (other(plain, "As table"), Some(other(as_bytes, "As bytes"))),
        (false, _) => (other(plain, "As text or image"), None),
    };
    let image = (is_image && !is_text && file.from == 0).then(|| {
        let source = path::route(&here.id, "image", &file.path);
        view! { <img class="file-image" src=source alt=path::name(&file.path).to_owned() /> }
    });
    let download = path::route(&here.id, "download", &file.path);
    let parts = view! { <Parts here file=file.clone() /> };
    let name = path::name(&file.path).to_owned();
    let body = match file.content {
        Content::Text(text) if text.is_empty() && file.size == 0 => {
            view! { <p class="help">"This file is empty."</p> }.into_any()
        }
        Content::Text(text) if is_table => {
            let is_part = file.length < file.size;
            view! { <TableView name text is_part /> }.into_any()
        }
        Content::Text(text) => {
            let first = if file.from == 0 { Some(1) } else { how.line };
            view! { <TextView name text first marked=how.line /> }.into_any()
        }
        Content::Bytes(lines) => view! {
            <div class="file-text" tabindex="0" role="region" aria-label=name>
                <pre>{lines.join("\n")}</pre>
            </div>
        }
        .into_any(),
    };
    view! {
        <div class="choices file-bar">
            {edit}
            <a class="button" rel="external" download href=download>
                <Icon name="download" />
                "Download"
            </a>
            {others}
            {copy}
        </div>
        {image}
        {body}
        {parts}
    }
    .into_any()
}

/// Whether browsers show a file with this name as an image.
fn is_image(path: &str) -> bool {
    let ending = path
        .rsplit_once('.')
        .map(|(_, ending)| ending.to_lowercase());
    ending.is_some_and(|ending| IMAGES.contains(&ending.as_str()))
}

/// Links to the other parts of a large file.
#[component]
fn Parts(here: Here, file: FileView) -> impl IntoView {
    if file.is_whole() {
        return ().into_any();
    }
    let (part, kind) = match file.content {
        Content::Text(_) => (PART, ""),
        Content::Bytes(_) => (BYTES_PART, "&as=bytes"),
    };
    let link = |from: u64, text: &'static str| {
        let href = path::address(&here.id, &file.path, &format!("from={from}{kind}"));
        view! { <a class="button" href=href>{text}</a> }
    };
    let end = file.from + file.length;
    let is_last = end >= file.size;
    let before = (file.from > 0).then(|| {
        view! {
            {link(0, "First")}
            {link(file.from.saturating_sub(part), "Previous")}
        }
    });
    let after = (!is_last).then(|| {
        view! {
            {link(end, "Next")}
            {link(file.size.saturating_sub(part), "Last")}
        }
    });
    view! {
        <nav class="pager" aria-label="Parts of the file">
            <p class="fine num">
                {format!("Bytes {} to {end} of {}", file.from, file.size)}
            </p>
            {before}
            {after}
        </nav>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_their_ending() {
        for (path, expected) in [
            ("/a/b.png", true),
            ("/a/B.JPG", true),
            ("/a/b.svg", false),
            ("/png", false),
        ] {
            assert_eq!(is_image(path), expected, "{path}");
        }
    }
}

//! Uploads into a folder: files, or folders with all that is in them.

use leptos::{ev, html, prelude::*, task::spawn_local};
use osb_protocol::SandboxId;

use super::{
    drop::{self, Pending},
    here::Here,
    path,
    sending::{Upload, cancel, part, text},
};
use crate::{
    frame::{Toasts, UploadPlace, Uploading},
    ui::{Dialog, Icon},
};

/// Most names that the question about existing files lists.
const LISTED: usize = 100;

/// Buttons that choose files or a folder, and a place to drop them.
#[component]
pub(super) fn Uploads(here: Here, folder: String) -> impl IntoView {
    let over = RwSignal::new(false);
    let files = NodeRef::<html::Input>::new();
    let folders = NodeRef::<html::Input>::new();
    let upload = Upload {
        id: here.id,
        folder: folder.clone(),
        state: Uploading::current(),
        toasts: Toasts::current(),
    };
    let send = {
        let upload = upload.clone();
        move |list: Option<web_sys::FileList>| begin(&upload, || list.map(|it| drop::chosen(&it)))
    };
    let from_input = move |input: NodeRef<html::Input>| {
        let send = send.clone();
        move |_: ev::Event| {
            if let Some(input) = input.get_untracked() {
                send(input.files());
                // The same file may be chosen again.
                input.set_value("");
            }
        }
    };
    let on_files = from_input(files);
    let on_folder = from_input(folders);
    let dropped = upload.clone();
    let on_drop = move |event: ev::DragEvent| {
        event.prevent_default();
        over.set(false);
        if let Some(data) = event.data_transfer() {
            take(&dropped, &data);
        }
    };
    let open = |input: NodeRef<html::Input>| {
        move |_| {
            if let Some(input) = input.get_untracked() {
                input.click();
            }
        }
    };
    view! {
        <div
            class="uploads needs-script"
            class:over=move || over.get()
            on:dragover=move |event| {
                event.prevent_default();
                over.set(true);
            }
            on:dragleave=move |_| over.set(false)
            on:drop=on_drop
        >
            <input
                node_ref=files
                type="file"
                multiple
                hidden
                aria-label="Files to upload"
                on:change=on_files
            />
            <input
                node_ref=folders
                type="file"
                prop:webkitdirectory=true
                hidden
                aria-label="Folder to upload"
                on:change=on_folder
            />
            <button type="button" class="button" on:click=open(files)>
                <Icon name="upload" />
                "Upload files"
            </button>
            <button type="button" class="button" on:click=open(folders)>
                <Icon name="folder-up" />
                "Upload a folder"
            </button>
            <span class="help">
                {format!("or drop files and folders here: they go to {folder}")}
            </span>
        </div>
    }
    .into_any()
}

/// What the page uploads, also to another folder or sandbox, with a way to cancel it, and the question
/// about files that exist.
#[component]
pub(super) fn UploadState(
    /// The sandbox of the tab.
    id: SandboxId,
    /// Reads again what is shown.
    again: Callback<()>,
) -> impl IntoView {
    let state = Uploading::current();
    Effect::new(move |_| {
        state.shown.update_value(|shown| *shown += 1);
        on_cleanup(move || {
            state
                .shown
                .try_update_value(|shown| *shown = shown.saturating_sub(1));
        });
    });
    Effect::new(move |before: Option<u64>| {
        let ended = state.ended.get();
        if before.is_some_and(|before| before != ended) {
            again.run(());
        }
        ended
    });
    let is_shown = Memo::new(move |_| state.progress.read().is_some());
    let place = move || {
        let place = state.place.get();
        place.map(|place| destination(&id, &place))
    };
    let words = move || state.progress.with(|it| it.as_ref().map(text));
    let value = move || state.progress.with(|it| it.as_ref().map_or(0.0, part));
    view! {
        <Show when=move || is_shown.get()>
            <p class="upload-state" role="status">
                <progress max="1" prop:value=value aria-label="Upload"></progress>
                {place.clone()}
                <span class="num">{words}</span>
                <button type="button" class="button" on:click=move |_| cancel(state)>
                    "Cancel"
                </button>
            </p>
        </Show>
        <Taken state />
    }
    .into_any()
}

/// Where an upload goes, as seen from a sandbox.
fn destination(here: &SandboxId, place: &UploadPlace) -> AnyView {
    let UploadPlace { sandbox, folder } = place;
    if sandbox == here {
        return view! { <span>{format!("To {folder}:")}</span> }.into_any();
    }
    let href = path::address(sandbox, folder, "");
    view! { <a href=href>{format!("To {folder} of sandbox {}:", sandbox.short())}</a> }.into_any()
}

/// Uploads files, unless an upload is under way.
fn begin(upload: &Upload, files: impl FnOnce() -> Option<Vec<Pending>>) {
    if upload.may_begin() {
        upload.clone().begin(files().unwrap_or_default());
    }
}

/// Uploads what was dropped.
fn take(upload: &Upload, data: &web_sys::DataTransfer) {
    let entries = drop::entries(data);
    if entries.is_empty() {
        // Not from a file system, or a browser without entries.
        return begin(upload, || data.files().map(|list| drop::chosen(&list)));
    }
    if !upload.may_begin() {
        return;
    }
    let turn = upload.look();
    let upload = upload.clone();
    spawn_local(async move {
        let walked = drop::walk(entries).await;
        if !upload.goes_on(turn) {
            return;
        }
        match walked {
            Ok(walked) => {
                if walked.empty_folders > 0 {
                    let text = format!("Empty folders are left out: {}", walked.empty_folders);
                    upload.toasts.good(text);
                }
                upload.begin(walked.files);
            }
            Err(why) => upload.refused(why),
        }
    });
}

/// Asks what becomes of files that exist.
#[component]
fn Taken(state: Uploading) -> impl IntoView {
    let taken = state.taken;
    let toasts = Toasts::current();
    let open = RwSignal::new(false);
    Effect::new(move |_| open.set(!taken.read().is_empty()));
    Effect::new(move |was_open: Option<bool>| {
        let is_open = open.get();
        if was_open == Some(true) && !is_open && !taken.read_untracked().is_empty() {
            cancel(state);
        }
        is_open
    });
    let answer = move |replaces: bool| {
        if let Some(upload) = Upload::last(state, toasts) {
            upload.answered(replaces);
        }
    };
    let place = move || {
        let place = state.place.get();
        place.map(|place| {
            format!(
                "In {} of sandbox {} are:",
                place.folder,
                place.sandbox.short()
            )
        })
    };
    let title = Signal::derive(move || match taken.read().len() {
        1 => "A file exists already".to_owned(),
        count => format!("{count} files exist already"),
    });
    let names = move || {
        let taken = taken.read();
        let names = taken.iter().take(LISTED);
        let more = taken.len().saturating_sub(LISTED);
        let more = (more > 0).then(|| view! { <li>{format!("and {more} more")}</li> });
        let names = names.map(|name| view! { <li class="mono">{name.clone()}</li> });
        (names.collect_view(), more)
    };
    view! {
        <Dialog open id="taken" title asks=true>
            <div id="taken-text">
                <p>{place}</p>
                <ul class="taken" tabindex="0" aria-label="Files that exist">{names}</ul>
            </div>
            <div class="dialog-actions">
                <button type="button" class="button" on:click=move |_| open.set(false)>
                    "Cancel"
                </button>
                <button
                    type="button"
                    class="button"
                    autofocus=true
                    on:click=move |_| answer(false)
                >
                    "Skip them"
                </button>
                <button
                    type="button"
                    class="button danger"
                    on:click=move |_| answer(true)
                >
                    "Replace them"
                </button>
            </div>
        </Dialog>
    }
    .into_any()
}

//! Uploads into a folder: files, or folders with all that is in them.

use leptos::{ev, html, prelude::*, task::spawn_local};

use super::{
    drop::{self, Pending},
    here::Here,
    sending::Upload,
};
use crate::{
    frame::Toasts,
    ui::{Dialog, Icon},
};

/// Most names that the question about existing files lists.
const LISTED: usize = 100;

/// Buttons that choose files or a folder, a place to drop them, and the state of what is being sent.
#[component]
pub(super) fn Uploads(here: Here, folder: String) -> impl IntoView {
    let progress = RwSignal::new(None);
    let over = RwSignal::new(false);
    let files = NodeRef::<html::Input>::new();
    let folders = NodeRef::<html::Input>::new();
    let upload = Upload {
        here,
        folder: folder.clone(),
        progress,
        taken: RwSignal::new(Vec::new()),
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
    let cancelled = upload.clone();
    let state = move || {
        let cancelled = cancelled.clone();
        progress.get().map(|progress| {
            view! {
                <p class="upload-state" role="status">
                    <progress max="1" prop:value=progress.part() aria-label="Upload"></progress>
                    <span class="num">{progress.text()}</span>
                    <button type="button" class="button" on:click=move |_| cancelled.cancel()>
                        "Cancel"
                    </button>
                </p>
            }
        })
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
            {state}
        </div>
        <Taken upload />
    }
    .into_any()
}

/// Uploads files, unless an upload is under way.
fn begin(upload: &Upload, files: impl FnOnce() -> Option<Vec<Pending>>) {
    if !upload.is_busy() {
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
    if upload.is_busy() {
        return;
    }
    upload.look();
    let upload = upload.clone();
    spawn_local(async move {
        let walked = drop::walk(entries).await;
        if upload.progress.try_with_untracked(Option::is_some) != Some(true) {
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
fn Taken(upload: Upload) -> impl IntoView {
    let taken = upload.taken;
    let open = RwSignal::new(false);
    Effect::new(move |_| open.set(!taken.read().is_empty()));
    let cancelled = upload.clone();
    Effect::new(move |was_open: Option<bool>| {
        let is_open = open.get();
        if was_open == Some(true) && !is_open && !taken.read_untracked().is_empty() {
            cancelled.cancel();
        }
        is_open
    });
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
    let skip = upload.clone();
    view! {
        <Dialog open id="taken" title asks=true>
            <div id="taken-text">
                <p>{format!("In {} are:", upload.folder)}</p>
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
                    on:click=move |_| skip.clone().answered(false)
                >
                    "Skip them"
                </button>
                <button
                    type="button"
                    class="button danger"
                    on:click=move |_| upload.clone().answered(true)
                >
                    "Replace them"
                </button>
            </div>
        </Dialog>
    }
    .into_any()
}

//! Uploads into a folder: files, or folders with all that is in them, one file after the other.

use std::cell::RefCell;

use leptos::{ev, html, prelude::*};
use wasm_bindgen::{JsCast, closure::Closure};

use super::{changes::size_text, here::Here, path};
use crate::{frame::Toasts, ui::Icon};

thread_local! {
    /// The request of the tab that sends a file. It is in the thread, of which a tab has one: the
    /// server makes pages in one thread and may drop them in another, where a JavaScript value panics.
    static RUNNING: RefCell<Option<web_sys::XmlHttpRequest>> = const { RefCell::new(None) };
}

/// A file that is to be sent.
struct Pending {
    file: web_sys::File,
    /// Its path below the folder.
    below: String,
}

/// How an upload stands.
#[derive(Clone, Debug, Default, PartialEq)]
struct Progress {
    /// Files and bytes, all of them and those that were sent.
    files: usize,
    sent_files: usize,
    bytes: f64,
    sent_bytes: f64,
    /// The file that is being sent.
    name: String,
}

impl Progress {
    fn text(&self) -> String {
        format!(
            "{} of {} files, {} of {}: {}",
            self.sent_files,
            self.files,
            size(self.sent_bytes),
            size(self.bytes),
            self.name
        )
    }
}

/// A count of bytes that JavaScript has as a number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates; sizes are whole and not negative"
)]
fn size(bytes: f64) -> String {
    size_text(bytes as u64)
}

/// Buttons that choose files or a folder, and the state of what is being sent.
#[component]
pub(super) fn Uploads(here: Here, folder: String) -> impl IntoView {
    let progress = RwSignal::new(None::<Progress>);
    let over = RwSignal::new(false);
    let toasts = Toasts::current();
    let files = NodeRef::<html::Input>::new();
    let folders = NodeRef::<html::Input>::new();
    let upload = Upload {
        here,
        folder: folder.clone(),
        progress,
        toasts,
    };
    let send = {
        let upload = upload.clone();
        move |list: Option<web_sys::FileList>| {
            let chosen = list.map(|list| pending(&list)).unwrap_or_default();
            if progress.read_untracked().is_none() {
                upload.clone().start(chosen);
            }
        }
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
    let drop = move |event: ev::DragEvent| {
        event.prevent_default();
        over.set(false);
        let list = event.data_transfer().and_then(|data| data.files());
        let chosen = list.map(|list| pending(&list)).unwrap_or_default();
        if progress.read_untracked().is_none() {
            upload.clone().start(chosen);
        }
    };
    let cancel = move |_| {
        progress.set(None);
        if let Some(running) = RUNNING.take() {
            // Fails only if it has ended.
            let _ = running.abort();
        }
    };
    let open = |input: NodeRef<html::Input>| {
        move |_| {
            if let Some(input) = input.get_untracked() {
                input.click();
            }
        }
    };
    let state = move || {
        progress.get().map(|progress| {
            let value = if progress.bytes > 0.0 {
                progress.sent_bytes / progress.bytes
            } else {
                0.0
            };
            view! {
                <p class="upload-state" role="status">
                    <progress max="1" prop:value=value aria-label="Upload"></progress>
                    <span class="num">{progress.text()}</span>
                    <button type="button" class="button" on:click=cancel>
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
            on:drop=drop
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
            <span class="help">{format!("or drop files here: they go to {folder}")}</span>
            {state}
        </div>
    }
    .into_any()
}

/// The chosen files, with their paths in the chosen folder.
fn pending(list: &web_sys::FileList) -> Vec<Pending> {
    let all = (0..list.length()).filter_map(|index| list.get(index));
    all.map(|file| {
        let within = js_sys::Reflect::get(&file, &"webkitRelativePath".into());
        let within = within.ok().and_then(|within| within.as_string());
        let below = within.filter(|within| !within.is_empty());
        Pending {
            below: below.unwrap_or_else(|| file.name()),
            file,
        }
    })
    .collect()
}

/// An upload of several files.
#[derive(Clone)]
struct Upload {
    here: Here,
    folder: String,
    progress: RwSignal<Option<Progress>>,
    toasts: Toasts,
}

impl Upload {
    fn start(self, files: Vec<Pending>) {
        if files.is_empty() {
            return;
        }
        self.progress.set(Some(Progress {
            files: files.len(),
            bytes: files.iter().map(|pending| pending.file.size()).sum(),
            ..Progress::default()
        }));
        self.next(files.into_iter());
    }

    /// Sends the next file, and the others after it.
    fn next(self, mut rest: std::vec::IntoIter<Pending>) {
        let Some(Pending { file, below }) = rest.next() else {
            let count = self
                .progress
                .with_untracked(|it| it.as_ref().map_or(0, |it| it.sent_files));
            self.progress.try_set(None);
            self.toasts
                .good(format!("Uploaded {count} files to {}", self.folder));
            self.here.again.try_run(());
            return;
        };
        self.progress.update(|progress| {
            if let Some(progress) = progress {
                progress.name.clone_from(&below);
            }
        });
        let to = path::join(&self.folder, &below);
        let Some(request) = opened(&path::route(&self.here.id, "upload", &to)) else {
            return self.failed(&below, "The browser cannot send files.");
        };
        RUNNING.set(Some(request.clone()));
        let before = self
            .progress
            .with_untracked(|it| it.as_ref().map_or(0.0, |it| it.sent_bytes));
        let (size, progress) = (file.size(), self.progress);
        let moved = Closure::<dyn FnMut(web_sys::ProgressEvent)>::new(
            move |event: web_sys::ProgressEvent| {
                progress.try_update(|progress| {
                    if let Some(progress) = progress {
                        progress.sent_bytes = before + event.loaded().min(size);
                    }
                });
            },
        );
        if let Ok(upload) = request.upload() {
            upload.set_onprogress(Some(moved.as_ref().unchecked_ref()));
        }
        let ended = request.clone();
        let then = move || {
            drop(moved);
            // Cancelled, or another page is shown.
            if progress.try_with_untracked(|progress| progress.is_none()) != Some(false) {
                return;
            }
            match ended.status() {
                Ok(200..=299) => {
                    progress.update(|progress| {
                        if let Some(progress) = progress {
                            progress.sent_files += 1;
                            progress.sent_bytes = before + size;
                        }
                    });
                    self.next(rest);
                }
                Ok(status @ 1..) => {
                    let text = ended.response_text().ok().flatten().unwrap_or_default();
                    let why = if text.is_empty() {
                        format!("status {status}")
                    } else {
                        text
                    };
                    self.failed(&below, &why);
                }
                _ => self.failed(&below, "The server cannot be reached."),
            }
        };
        let then = Closure::once_into_js(then);
        request.set_onloadend(Some(then.unchecked_ref()));
        // A failure to send ends the request, too.
        let _ = request.send_with_opt_blob(Some(&file));
    }

    /// Ends the upload. What was sent stays.
    fn failed(&self, below: &str, why: &str) {
        let sent = self
            .progress
            .with_untracked(|it| it.as_ref().map_or(0, |it| it.sent_files));
        self.progress.try_set(None);
        let before = match sent {
            0 => String::new(),
            sent => format!(" {sent} files before it were uploaded."),
        };
        self.toasts
            .bad(format!("{below} was not uploaded: {why}{before}"));
        self.here.again.try_run(());
    }
}

fn opened(address: &str) -> Option<web_sys::XmlHttpRequest> {
    let request = web_sys::XmlHttpRequest::new().ok()?;
    request.open_with_async("POST", address, true).ok()?;
    let kind = "application/octet-stream";
    request.set_request_header("Content-Type", kind).ok()?;
    Some(request)
}

//! An upload under way: asks before it replaces files, then sends one file after the other.

use std::{cell::RefCell, collections::HashSet};

use leptos::{prelude::*, task::spawn_local};
use wasm_bindgen::{JsCast, closure::Closure};

use super::{
    api,
    changes::size_text,
    drop::{MOST, Pending},
    here::Here,
    path,
};
use crate::frame::Toasts;

thread_local! {
    /// The request of the tab that sends a file. It is in the thread, of which a tab has one: the
    /// server makes pages in one thread and may drop them in another, where a JavaScript value panics.
    static RUNNING: RefCell<Option<web_sys::XmlHttpRequest>> = const { RefCell::new(None) };
    /// Files that wait for an answer about those that exist.
    static WAITING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
}

/// Names and bytes of names that the server is asked about at once.
const ASKED: (usize, usize) = (2_000, 100_000);

/// How an upload stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Progress {
    /// Files and bytes, all of them and those that were sent.
    files: usize,
    sent_files: usize,
    bytes: f64,
    sent_bytes: f64,
    /// The file that is being sent.
    name: String,
}

impl Progress {
    pub(super) fn text(&self) -> String {
        if self.files == 0 {
            return "Looks at the files".to_owned();
        }
        format!(
            "{} of {} files, {} of {}: {}",
            self.sent_files,
            self.files,
            size(self.sent_bytes),
            size(self.bytes),
            self.name
        )
    }

    /// From 0 to 1.
    pub(super) fn part(&self) -> f64 {
        match self.bytes > 0.0 {
            true => self.sent_bytes / self.bytes,
            false => 0.0,
        }
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

/// Uploads into a folder, one at a time.
#[derive(Clone)]
pub(super) struct Upload {
    pub(super) here: Here,
    pub(super) folder: String,
    /// `None` while nothing is uploaded.
    pub(super) progress: RwSignal<Option<Progress>>,
    /// Files that exist already, while the user is asked what becomes of them.
    pub(super) taken: RwSignal<Vec<String>>,
    pub(super) toasts: Toasts,
}

impl Upload {
    /// Whether an upload is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.progress.read_untracked().is_some() || !self.taken.read_untracked().is_empty()
    }

    /// Shows that something is done before files are sent.
    pub(super) fn look(&self) {
        self.progress.set(Some(Progress::default()));
    }

    /// Ends the upload. What was sent stays.
    pub(super) fn cancel(&self) {
        self.progress.set(None);
        self.taken.set(Vec::new());
        WAITING.take();
        if let Some(running) = RUNNING.take() {
            // Fails only if it has ended.
            let _ = running.abort();
        }
    }

    /// Uploads files, after a question if some exist.
    pub(super) fn begin(self, files: Vec<Pending>) {
        if files.is_empty() {
            self.progress.set(None);
            return;
        }
        if files.len() > MOST {
            return self.refused(format!(
                "These are more than {MOST} files. Upload an archive, and unpack it in the sandbox."
            ));
        }
        self.look();
        spawn_local(async move {
            let taken = self.taken_of(&files).await;
            // Cancelled, or another page is shown.
            if self.progress.try_with_untracked(Option::is_some) != Some(true) {
                return;
            }
            match taken {
                Ok(taken) if taken.is_empty() => self.start(files),
                Ok(taken) => {
                    WAITING.set(files);
                    self.progress.set(None);
                    self.taken.set(taken);
                }
                Err(why) => self.refused(why),
            }
        });
    }

    /// Goes on after the question, with the files that exist or without them.
    pub(super) fn answered(self, replaces: bool) {
        let mut files = WAITING.take();
        let taken = std::mem::take(&mut *self.taken.write());
        if !replaces {
            let taken: HashSet<&str> = taken.iter().map(String::as_str).collect();
            files.retain(|pending| !taken.contains(pending.below.as_str()));
            if files.is_empty() {
                self.toasts.good("Nothing was uploaded: all of it exists");
                return;
            }
        }
        self.start(files);
    }

    async fn taken_of(&self, files: &[Pending]) -> Result<Vec<String>, String> {
        let mut taken = Vec::new();
        let (mut below, mut count) = (String::new(), 0);
        for (at, pending) in files.iter().enumerate() {
            below.push_str(&pending.below);
            below.push('\0');
            count += 1;
            if count < ASKED.0 && below.len() < ASKED.1 && at + 1 < files.len() {
                continue;
            }
            let (id, folder) = (self.here.id.clone(), self.folder.clone());
            match api::taken(id, folder, std::mem::take(&mut below)).await {
                Ok(Ok(some)) => taken.extend(some),
                Ok(Err(why)) => return Err(why),
                Err(error) => return Err(error.to_string()),
            }
            count = 0;
        }
        Ok(taken)
    }

    /// Ends what has not begun, with the reason.
    pub(super) fn refused(&self, why: String) {
        self.progress.set(None);
        self.toasts.bad(why);
    }

    fn start(self, files: Vec<Pending>) {
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
            let files = if count == 1 { "file" } else { "files" };
            let text = format!("Uploaded {count} {files} to {}", self.folder);
            self.toasts.good(text);
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

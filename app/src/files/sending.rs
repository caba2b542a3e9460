//! An upload under way: asks before it replaces files, then sends one file after the other. It goes on
//! while the page shows something else; its state is in the frame.

use std::{cell::RefCell, collections::HashSet};

use leptos::{prelude::*, task::spawn_local};
use osb_protocol::SandboxId;
use wasm_bindgen::{JsCast, closure::Closure};

use super::{
    api,
    changes::size_text,
    drop::{MOST, Pending},
    path,
};
use crate::{
    error::ConsoleError,
    frame::{Toasts, UploadPlace, UploadProgress, Uploading},
};

thread_local! {
    /// The request of the tab that sends a file. It is in the thread, of which a tab has one: the
    /// server makes pages in one thread and may drop them in another, where a JavaScript value panics.
    static RUNNING: RefCell<Option<web_sys::XmlHttpRequest>> = const { RefCell::new(None) };
    /// Files that wait for an answer about those that exist.
    static WAITING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
}

/// Names and bytes of names that the server is asked about at once.
const ASKED: (usize, usize) = (2_000, 100_000);

/// How far an upload is, in words.
pub(super) fn text(progress: &UploadProgress) -> String {
    if progress.files == 0 {
        return "Looks at the files".to_owned();
    }
    format!(
        "{} of {} files, {} of {}: {}",
        progress.sent_files,
        progress.files,
        size(progress.sent_bytes),
        size(progress.bytes),
        progress.name
    )
}

/// How far an upload is, from 0 to 1.
pub(super) fn part(progress: &UploadProgress) -> f64 {
    match progress.bytes > 0.0 {
        true => progress.sent_bytes / progress.bytes,
        false => 0.0,
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

/// Uploads into a folder, one at a time. Nothing here belongs to the tab, which may be left.
#[derive(Clone)]
pub(super) struct Upload {
    pub(super) id: SandboxId,
    pub(super) folder: String,
    pub(super) state: Uploading,
    pub(super) toasts: Toasts,
}

impl Upload {
    /// The one that the page has, if there was one.
    pub(super) fn last(state: Uploading, toasts: Toasts) -> Option<Self> {
        let place = state.place.get_untracked()?;
        Some(Self {
            id: place.sandbox,
            folder: place.folder,
            state,
            toasts,
        })
    }

    /// Whether no upload is under way. Otherwise the user learns why nothing begins.
    pub(super) fn may_begin(&self) -> bool {
        let state = self.state;
        let is_busy =
            state.progress.read_untracked().is_some() || !state.taken.read_untracked().is_empty();
        if is_busy {
            let text = "An upload is under way. Cancel it, or wait until it ends.";
            self.toasts.bad(text);
        }
        !is_busy
    }

    /// Shows that something is done before files are sent. The answer is for [`Self::goes_on`].
    pub(super) fn look(&self) -> u64 {
        self.state.place.set(Some(UploadPlace {
            sandbox: self.id.clone(),
            folder: self.folder.clone(),
        }));
        self.state.progress.set(Some(UploadProgress::default()));
        self.state.turn.get_value()
    }

    /// Whether the upload of this turn goes on: it was not cancelled, and the frame is still there.
    pub(super) fn goes_on(&self, turn: u64) -> bool {
        self.state.turn.try_with_value(|now| *now == turn) == Some(true)
            && self.state.progress.try_with_untracked(Option::is_some) == Some(true)
    }

    /// Uploads files, after a question if some exist.
    pub(super) fn begin(self, files: Vec<Pending>) {
        if files.is_empty() {
            self.state.progress.set(None);
            return;
        }
        if files.len() > MOST {
            return self.refused(format!(
                "These are more than {MOST} files. Upload an archive, and unpack it in the sandbox."
            ));
        }
        let turn = self.look();
        spawn_local(async move {
            let taken = self.taken_of(&files).await;
            if !self.goes_on(turn) {
                return;
            }
            match taken {
                Ok(taken) if taken.is_empty() => self.start(files),
                Ok(taken) => {
                    WAITING.set(files);
                    self.state.progress.set(None);
                    self.state.taken.set(taken);
                    if self.state.shown.get_value() == 0 {
                        let folder = &self.folder;
                        self.toasts.bad(format!(
                            "Some files exist already in {folder}. The Files tab asks what becomes of them."
                        ));
                    }
                }
                Err(why) => self.refused(why),
            }
        });
    }

    /// Goes on after the question, with the files that exist or without them.
    pub(super) fn answered(self, replaces: bool) {
        let mut files = WAITING.take();
        let taken = std::mem::take(&mut *self.state.taken.write());
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
            let (id, folder) = (self.id.clone(), self.folder.clone());
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
        self.state.progress.set(None);
        self.toasts.bad(why);
    }

    fn start(self, files: Vec<Pending>) {
        self.state.progress.set(Some(UploadProgress {
            files: files.len(),
            bytes: files.iter().map(|pending| pending.file.size()).sum(),
            ..UploadProgress::default()
        }));
        self.next(files.into_iter());
    }

    /// Sends the next file, and the others after it.
    fn next(self, mut rest: std::vec::IntoIter<Pending>) {
        let Some(Pending { file, below }) = rest.next() else {
            let count = self.sent();
            let files = if count == 1 { "file" } else { "files" };
            self.toasts
                .good(format!("Uploaded {count} {files} to {}", self.folder));
            return self.end();
        };
        self.change(|progress| progress.name.clone_from(&below));
        let to = path::join(&self.folder, &below);
        let Some(request) = opened(&path::route(&self.id, "upload", &to)) else {
            return self.failed(&below, "The browser cannot send files.");
        };
        RUNNING.set(Some(request.clone()));
        let before = self
            .state
            .progress
            .with_untracked(|it| it.as_ref().map_or(0.0, |it| it.sent_bytes));
        let (size, turn) = (file.size(), self.state.turn.get_value());
        let moving = self.clone();
        let moved = Closure::<dyn FnMut(web_sys::ProgressEvent)>::new(
            move |event: web_sys::ProgressEvent| {
                let sent = before + event.loaded().min(size);
                moving.change(|progress| progress.sent_bytes = sent);
            },
        );
        if let Ok(upload) = request.upload() {
            upload.set_onprogress(Some(moved.as_ref().unchecked_ref()));
        }
        let ended = request.clone();
        let then = move || {
            drop(moved);
            if !self.goes_on(turn) {
                return;
            }
            match ended.status() {
                Ok(200..=299) => {
                    self.change(|progress| {
                        progress.sent_files += 1;
                        progress.sent_bytes = before + size;
                    });
                    self.next(rest);
                }
                status => {
                    let text = ended.response_text().ok().flatten().unwrap_or_default();
                    self.explain(turn, below, status.unwrap_or_default(), text);
                }
            }
        };
        let then = Closure::once_into_js(then);
        request.set_onloadend(Some(then.unchecked_ref()));
        // A failure to send ends the request, too.
        let _ = request.send_with_opt_blob(Some(&file));
    }

    /// Files that were sent.
    fn sent(&self) -> usize {
        let progress = self.state.progress;
        progress.with_untracked(|it| it.as_ref().map_or(0, |it| it.sent_files))
    }

    fn change(&self, change: impl FnOnce(&mut UploadProgress)) {
        self.state.progress.try_update(|progress| {
            if let Some(progress) = progress {
                change(progress);
            }
        });
    }

    /// Ends the upload with the reason why a file was not sent. `status` is 0 without an answer.
    fn explain(self, turn: u64, below: String, status: u16, text: String) {
        spawn_local(async move {
            let why = match is_explained(status, &text) {
                true => text,
                false => self.why_not(&below, status, text).await,
            };
            if self.goes_on(turn) {
                self.failed(&below, &why);
            }
        });
    }

    /// Asks the server why it took no file: a connection that breaks does not say so.
    async fn why_not(&self, below: &str, status: u16, text: String) -> String {
        let (id, folder) = (self.id.clone(), self.folder.clone());
        let end = api::taken(id, folder, format!("{below}\0")).await;
        reason(end, status, text)
    }

    /// Ends the upload. What was sent stays.
    fn failed(&self, below: &str, why: &str) {
        let before = match self.sent() {
            0 => String::new(),
            1 => " 1 file before it was uploaded.".to_owned(),
            sent => format!(" {sent} files before it were uploaded."),
        };
        self.toasts
            .bad(format!("{below} was not uploaded: {why}{before}"));
        self.end();
    }

    fn end(&self) {
        self.state.progress.try_set(None);
        self.state.ended.try_update(|ended| *ended += 1);
    }
}

/// Ends the upload of the page. What was sent stays.
pub(super) fn cancel(state: Uploading) {
    let is_sending = state
        .progress
        .with_untracked(|it| it.as_ref().is_some_and(|it| it.files > 0));
    // Before the request is aborted: it ends at once, and looks at the turn.
    state.turn.update_value(|turn| *turn += 1);
    state.progress.set(None);
    state.taken.set(Vec::new());
    WAITING.take();
    if let Some(running) = RUNNING.take() {
        // Fails only if it has ended.
        let _ = running.abort();
    }
    if is_sending {
        state.ended.update(|ended| *ended += 1);
    }
}

/// Whether an answer to an upload says itself why it is refused, and the sandbox and the session are not
/// the reason.
fn is_explained(status: u16, text: &str) -> bool {
    matches!(status, 400 | 402..=403 | 405..=499) && !text.trim().is_empty()
}

/// Why a file was not sent, by what the server answers about its folder.
fn reason(
    answer: Result<Result<Vec<String>, String>, ConsoleError>,
    status: u16,
    text: String,
) -> String {
    match answer {
        Err(ConsoleError::SignedOut) => {
            "You are signed out. Sign in again, and upload the rest.".to_owned()
        }
        Err(error) => error.to_string(),
        Ok(Err(why)) if why == ConsoleError::NotFound.to_string() => {
            "The sandbox is gone.".to_owned()
        }
        Ok(Err(why)) => why,
        Ok(Ok(_)) if !text.trim().is_empty() => text,
        Ok(Ok(_)) if status == 0 => {
            "The connection broke, or the browser cannot read the file any more.".to_owned()
        }
        Ok(Ok(_)) => format!("The server answered with status {status}."),
    }
}

fn opened(address: &str) -> Option<web_sys::XmlHttpRequest> {
    let request = web_sys::XmlHttpRequest::new().ok()?;
    request.open_with_async("POST", address, true).ok()?;
    let kind = "application/octet-stream";
    request.set_request_header("Content-Type", kind).ok()?;
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_what_the_user_can_do_about_it() {
        let said = |answer, status, text: &str| reason(answer, status, text.to_owned());
        let gone = ConsoleError::NotFound.to_string();
        assert_eq!(said(Ok(Err(gone)), 0, ""), "The sandbox is gone.");
        let signed_out = said(Err(ConsoleError::SignedOut), 401, "");
        assert!(
            signed_out.starts_with("You are signed out."),
            "{signed_out}"
        );
        let paused = "The sandbox is paused.";
        assert_eq!(said(Ok(Err(paused.to_owned())), 502, ""), paused);
        let unreachable = said(Err(ConsoleError::Unreachable), 0, "");
        assert_eq!(unreachable, "The server cannot be reached.");
        assert_eq!(said(Ok(Ok(Vec::new())), 502, "no space"), "no space");
        let broke = said(Ok(Ok(Vec::new())), 0, "");
        assert!(broke.starts_with("The connection broke"), "{broke}");
    }

    #[test]
    fn a_refusal_of_the_file_itself_is_shown_as_it_is() {
        assert!(is_explained(422, "path: must not contain NUL"));
        assert!(is_explained(403, "the role may not"));
        for (status, text) in [
            (0, ""),
            (401, ""),
            (404, "gone"),
            (502, "execd"),
            (422, " "),
        ] {
            assert!(!is_explained(status, text), "{status} {text}");
        }
    }

    #[test]
    fn progress_is_put_in_words() {
        let mut progress = UploadProgress::default();
        assert_eq!(text(&progress), "Looks at the files");
        assert!(part(&progress).abs() < f64::EPSILON);
        progress = UploadProgress {
            files: 2,
            sent_files: 1,
            bytes: 2048.0,
            sent_bytes: 1024.0,
            name: "a.txt".to_owned(),
        };
        assert_eq!(text(&progress), "1 of 2 files, 1.0 KiB of 2.0 KiB: a.txt");
        assert!((part(&progress) - 0.5).abs() < f64::EPSILON);
    }
}

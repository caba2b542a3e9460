//! Saves what was typed into a file. If something else is at its path by then, nothing is written
//! unasked.

use std::sync::Arc;

use leptos::{prelude::*, task::spawn_local};
use osb_protocol::SandboxId;

use super::{Content, Opened, Saved, api, draft::Draft, line_ending::LineEnding};
use crate::{
    browser,
    frame::Toasts,
    ui::{Confirm, Question},
};

/// Id of the button that saves.
pub(super) const SAVE: &str = "file-save";
/// Permission bits that a new file gets, as in [`super::Entry::mode`].
const NEW: u32 = 644;

/// How far the change is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Writing,
    /// The change is shown.
    Review,
    /// The file was changed meanwhile; its text and stamp now.
    Conflict {
        text: String,
        stamp: String,
    },
}

/// What the editor has typed, and how it is saved.
#[derive(Clone)]
pub(super) struct Saving {
    pub(super) id: SandboxId,
    pub(super) path: String,
    /// Permission bits of the file when it was opened; `None` for a link.
    pub(super) mode: Option<u32>,
    pub(super) ending: LineEnding,
    pub(super) text: RwSignal<String>,
    pub(super) draft: Draft,
    pub(super) step: RwSignal<Step>,
    pub(super) busy: RwSignal<bool>,
    pub(super) editing: RwSignal<bool>,
    pub(super) again: Callback<()>,
    pub(super) saved: StoredValue<bool>,
    pub(super) toasts: Toasts,
    pub(super) confirm: Confirm,
}

impl Saving {
    /// Writes the text over the file that has this stamp; with `None`, where nothing is.
    pub(super) fn save(&self, over: Option<String>) {
        // Without it, the editor was left while the question was open.
        let Some(text) = self.text.try_get_untracked() else {
            return;
        };
        let saving = self.clone();
        self.busy.set(true);
        spawn_local(async move {
            let is_new = over.is_none();
            let written = saving.ending.written(&text);
            let (id, path) = (saving.id.clone(), saving.path.clone());
            let end = api::save(id, path, written, over).await;
            let is_gone = matches!(end, Ok(Ok(Saved::Gone)));
            match end {
                Ok(Ok(Saved::Done { .. })) => saving.done(is_new).await,
                Ok(Ok(Saved::Conflict)) => saving.compare().await,
                Ok(Ok(Saved::Gone)) => {}
                Ok(Err(why)) => saving.toasts.bad(why),
                Err(error) => saving.toasts.bad(error.to_string()),
            }
            // The editor may be left by now.
            let is_left = saving.busy.try_set(false).is_some();
            if is_gone && !is_left {
                saving.ask();
            }
        });
    }

    async fn done(&self, is_new: bool) {
        self.draft.forget();
        self.toasts.good("Saved");
        if let Some(mode) = self.mode.filter(|mode| is_new && *mode != NEW) {
            let (id, path) = (self.id.clone(), self.path.clone());
            let why = match api::set_mode(id, path, mode).await {
                Ok(Ok(())) => None,
                Ok(Err(why)) => Some(why),
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = why {
                let text = format!("The file does not have its mode {mode:03} again: {why}");
                self.toasts.bad(text);
            }
        }
        // None of it if the editor was left.
        if self.editing.try_set(false).is_none() {
            self.saved.try_set_value(true);
        }
        self.again.try_run(());
    }

    /// Shows what the text would change in the file as it is now.
    async fn compare(&self) {
        let (id, path) = (self.id.clone(), self.path.clone());
        let why = match api::open(id, path, 0, false).await {
            Ok(Ok(Opened::File(now))) if now.is_whole() => {
                let stamp = now.stamp();
                if let Content::Text(text) = now.content {
                    let text = self.ending.shown(&text);
                    self.step.try_set(Step::Conflict { text, stamp });
                    return;
                }
                "The file was changed since it was opened, and is no text any more. Nothing was saved."
                    .to_owned()
            }
            Ok(Ok(_)) => "Something else is at this path now. Nothing was saved.".to_owned(),
            Ok(Err(why)) => format!("{why} Nothing was saved."),
            Err(error) => error.to_string(),
        };
        self.toasts.bad(why);
    }

    /// Asks whether a file that was deleted is written again.
    fn ask(self) {
        let confirm = self.confirm;
        let question = Question {
            title: "The file was deleted. Write it again?".to_owned(),
            text: format!(
                "{} was deleted after you opened it, and nothing was saved. “Write it again” makes a new file of your text. “Cancel” keeps the text in the editor.",
                self.path
            ),
            yes: "Write it again",
            act: Arc::new(move || self.save(None)),
        };
        // The button lost the focus while it was disabled. The dialog gives it back when it closes.
        request_animation_frame(move || {
            browser::focus(SAVE);
            confirm.ask(question);
        });
    }
}

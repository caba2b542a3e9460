//! The upload of this page. The files tab sends it; its state is here, because the upload goes on when
//! the tab is left.

use leptos::{ev, prelude::*};
use osb_protocol::SandboxId;

/// How far an upload is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UploadProgress {
    /// Files, all of them and those that were sent.
    pub(crate) files: usize,
    pub(crate) sent_files: usize,
    /// Their bytes.
    pub(crate) bytes: f64,
    pub(crate) sent_bytes: f64,
    /// The file that is being sent.
    pub(crate) name: String,
}

/// Where an upload goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UploadPlace {
    pub(crate) sandbox: SandboxId,
    pub(crate) folder: String,
}

/// The upload, of which a page has one at a time. Provided as context by the frame; copies share it.
#[derive(Clone, Copy)]
pub(crate) struct Uploading {
    /// Where the last one goes.
    pub(crate) place: RwSignal<Option<UploadPlace>>,
    /// `None` while nothing is sent.
    pub(crate) progress: RwSignal<Option<UploadProgress>>,
    /// Files that exist already, while the user is asked what becomes of them.
    pub(crate) taken: RwSignal<Vec<String>>,
    /// Counts the uploads that were cancelled: what was begun before the last of them is not gone on
    /// with, even if there is another upload by then.
    pub(crate) turn: StoredValue<u64>,
    /// Counts the uploads that ended.
    pub(crate) ended: RwSignal<u64>,
    /// How many parts of the page show it.
    pub(crate) shown: StoredValue<u32>,
}

impl Uploading {
    pub(super) fn new() -> Self {
        Self {
            place: RwSignal::new(None),
            progress: RwSignal::new(None),
            taken: RwSignal::new(Vec::new()),
            turn: StoredValue::new(0),
            ended: RwSignal::new(0),
            shown: StoredValue::new(0),
        }
    }

    /// That of this page.
    pub(crate) fn current() -> Self {
        use_context().unwrap_or_else(Self::new)
    }

    /// Makes the browser ask before the page is closed or loaded again during an upload.
    pub(super) fn guard(self) {
        let is_sending = Memo::new(move |_| self.progress.read().is_some());
        Effect::new(move |_| {
            // Only then: with such a listener, browsers do not keep the page for Back.
            if is_sending.get() {
                let asks = window_event_listener(ev::beforeunload, |event| {
                    event.prevent_default();
                    // Browsers show words of their own, and some only if there is a value.
                    event.set_return_value("Files are being uploaded.");
                });
                on_cleanup(move || asks.remove());
            }
        });
    }
}

//! Short messages about recent actions, in a live region, which screen readers announce.

use std::time::Duration;

use leptos::prelude::*;

use crate::{
    ui::Icon,
    view::{Notice, Tone},
};

/// Most messages at a time; the oldest goes first.
const MOST: usize = 4;
/// How long a success stays.
const GOOD: Duration = Duration::from_secs(5);
/// How long an error stays: it takes longer to read.
const BAD: Duration = Duration::from_secs(12);

/// The messages of this page, as context. Copies share them.
#[derive(Clone, Copy)]
pub struct Toasts {
    list: RwSignal<Vec<(u64, Notice)>>,
    next: StoredValue<u64>,
}

impl Toasts {
    /// Starts with the notice of the last form that was sent without script.
    #[must_use]
    pub fn new(first: Option<Notice>) -> Self {
        Self {
            list: RwSignal::new(first.into_iter().map(|notice| (0, notice)).collect()),
            next: StoredValue::new(1),
        }
    }

    /// The messages of this page.
    #[must_use]
    pub fn current() -> Self {
        use_context().unwrap_or_else(|| Self::new(None))
    }

    /// Shows a message for a while.
    pub fn show(&self, notice: Notice) {
        let toasts = *self;
        let key = self.next.get_value();
        self.next.set_value(key + 1);
        let shown = if notice.tone == Tone::Good { GOOD } else { BAD };
        self.list.update(|list| {
            if list.len() == MOST {
                list.remove(0);
            }
            list.push((key, notice));
        });
        set_timeout(move || toasts.dismiss(key), shown);
    }

    /// Shows a success.
    pub fn good(&self, text: impl Into<String>) {
        self.show(Notice::good(text));
    }

    /// Shows an error.
    pub fn bad(&self, text: impl Into<String>) {
        self.show(Notice::bad(text));
    }

    fn dismiss(&self, key: u64) {
        self.list
            .update(|list| list.retain(|(known, _)| *known != key));
    }
}

/// Where the messages appear.
#[component]
pub(super) fn ToastRegion() -> impl IntoView {
    let toasts = Toasts::current();
    view! {
        <div class="toasts" role="status" aria-live="polite">
            <For each=move || toasts.list.get() key=|(key, _)| *key let((key, notice))>
                <div class="toast" data-tone=if notice.tone == Tone::Good { "good" } else { "bad" }>
                    <Icon name=if notice.tone == Tone::Good { "circle-check" } else { "triangle-alert" } />
                    <p>{notice.text}</p>
                    <button
                        type="button"
                        class="icon-button needs-script"
                        aria-label="Dismiss"
                        on:click=move |_| toasts.dismiss(key)
                    >
                        <Icon name="x" />
                    </button>
                </div>
            </For>
        </div>
    }
    .into_any()
}

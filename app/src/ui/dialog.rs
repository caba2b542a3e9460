//! Modal dialogs, on the browser's own element: it keeps the focus inside, closes on Escape, and
//! gives the focus back to what opened it.

use std::sync::Arc;

use leptos::{ev, html, prelude::*};
use wasm_bindgen::JsCast;

use super::Icon;

/// A modal dialog. Escape, a click outside and its close button close it.
#[component]
pub fn Dialog(
    /// Whether it is shown.
    open: RwSignal<bool>,
    /// Id of the element.
    id: &'static str,
    /// Its title.
    #[prop(into)]
    title: Signal<String>,
    /// Whether it asks for an answer before anything else goes on.
    #[prop(optional)]
    asks: bool,
    children: Children,
) -> impl IntoView {
    let element = NodeRef::<html::Dialog>::new();
    Effect::new(move |_| {
        let Some(dialog) = element.get() else {
            return;
        };
        match (open.get(), dialog.open()) {
            // Fails only if it is open.
            (true, false) => drop(dialog.show_modal()),
            (false, true) => dialog.close(),
            _ => {}
        }
    });
    // The content covers the whole dialog: only the page behind it leaves the dialog as the target.
    let on_press = move |event: ev::MouseEvent| {
        let target = event.target();
        let is_outside = target.is_some_and(|it| it.has_type::<web_sys::HtmlDialogElement>());
        if is_outside {
            // The press would move the focus, which returns to what opened the dialog.
            event.prevent_default();
            open.set(false);
        }
    };
    let title_id = format!("{id}-title");
    let labelled_by = title_id.clone();
    view! {
        <dialog
            node_ref=element
            id=id
            class="dialog"
            role=asks.then_some("alertdialog")
            aria-labelledby=labelled_by
            aria-describedby=asks.then(|| format!("{id}-text"))
            on:close=move |_| close_signal(element, open)
            on:mousedown=on_press
        >
            <div class="dialog-body">
                <div class="dialog-head">
                    <h2 id=title_id>{move || title.get()}</h2>
                    <button
                        type="button"
                        class="icon-button"
                        aria-label="Close"
                        on:click=move |_| open.set(false)
                    >
                        <Icon name="x" />
                    </button>
                </div>
                {children()}
            </div>
        </dialog>
    }
    .into_any()
}

/// Takes over that the browser closed the dialog. It says so a moment later, when the dialog may be
/// open again.
pub(crate) fn close_signal(dialog: NodeRef<html::Dialog>, open: RwSignal<bool>) {
    if dialog.get_untracked().is_none_or(|it| !it.open()) {
        open.set(false);
    }
}

/// What is asked before an action that cannot be undone.
#[derive(Clone)]
pub struct Question {
    /// The question.
    pub title: String,
    /// What the action does.
    pub text: String,
    /// The button that does it.
    pub yes: &'static str,
    /// Does it.
    pub act: Arc<dyn Fn() + Send + Sync>,
}

/// The things that a question is about, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subjects {
    /// Those that are named.
    pub named: Vec<Subject>,
    /// How many are not.
    pub others: usize,
    /// Whether the action can be undone.
    pub is_mild: bool,
}

/// Something that a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// Its short id, unless that is its name.
    pub id: Option<String>,
    /// What must be known about it.
    pub note: Option<&'static str>,
}

/// Asks questions in a dialog, of which a page has one: rows of a list come and go while it is open.
/// Provided as context by the frame. Copies share it.
#[derive(Clone, Copy)]
pub struct Confirm {
    asked: RwSignal<Option<Question>>,
    subjects: RwSignal<Subjects>,
    open: RwSignal<bool>,
}

impl Confirm {
    /// Asks nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            asked: RwSignal::new(None),
            subjects: RwSignal::default(),
            open: RwSignal::new(false),
        }
    }

    /// That of this page.
    #[must_use]
    pub fn current() -> Self {
        use_context().unwrap_or_else(Self::new)
    }

    /// Asks a question, and acts if the answer is yes.
    pub fn ask(self, question: Question) {
        self.ask_about(question, Subjects::default());
    }

    /// Asks a question and names what it is about.
    pub fn ask_about(self, question: Question, subjects: Subjects) {
        self.subjects.set(subjects);
        self.asked.set(Some(question));
        self.open.set(true);
    }

    fn agree(self) {
        self.open.set(false);
        let act = self.asked.with_untracked(|asked| {
            let question = asked.as_ref()?;
            Some(Arc::clone(&question.act))
        });
        if let Some(act) = act {
            act();
        }
    }

    fn text(self, of: fn(&Question) -> &str) -> String {
        self.asked.with(|asked| {
            let text = asked.as_ref().map(of);
            text.unwrap_or_default().to_owned()
        })
    }
}

impl Default for Confirm {
    fn default() -> Self {
        Self::new()
    }
}

/// The dialog of [`Confirm`]. The answer that changes nothing has the focus first.
#[component]
pub fn ConfirmDialog(
    /// What is asked.
    confirm: Confirm,
) -> impl IntoView {
    let open = confirm.open;
    let title = Signal::derive(move || confirm.text(|it| &it.title));
    view! {
        <Dialog open id="confirm" title asks=true>
            <div id="confirm-text">
                <p>{move || confirm.text(|it| &it.text)}</p>
                {move || subjects(&confirm.subjects.read())}
            </div>
            <div class="dialog-actions">
                <button
                    type="button"
                    class="button"
                    autofocus=true
                    on:click=move |_| open.set(false)
                >
                    "Cancel"
                </button>
                <button
                    type="button"
                    class="button"
                    class:danger=move || !confirm.subjects.read().is_mild
                    class:primary=move || confirm.subjects.read().is_mild
                    on:click=move |_| confirm.agree()
                >
                    {move || confirm.text(|it| it.yes)}
                </button>
            </div>
        </Dialog>
    }
    .into_any()
}

fn subjects(all: &Subjects) -> Option<impl IntoView + use<>> {
    let line = |subject: &Subject| {
        view! {
            <li>
                <span>{subject.name.clone()}</span>
                <span class="row-id mono">{subject.id.clone()}</span>
                <span class="fine">{subject.note}</span>
            </li>
        }
    };
    let others = (all.others > 0).then(|| view! { <li>{format!("and {} more", all.others)}</li> });
    let lines = all.named.iter().map(line).collect_view();
    (!all.named.is_empty()).then(|| view! { <ul class="subjects">{lines} {others}</ul> })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_a_yes_acts_and_closes_the_dialog() {
        Owner::new().with(|| {
            let done = Arc::new(AtomicUsize::new(0));
            let confirm = Confirm::new();
            confirm.agree();
            let counted = Arc::clone(&done);
            confirm.ask(Question {
                title: "Delete search?".to_owned(),
                text: "This cannot be undone.".to_owned(),
                yes: "Delete sandbox",
                act: Arc::new(move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                }),
            });
            assert!(confirm.open.get_untracked());
            assert_eq!(done.load(Ordering::Relaxed), 0);
            confirm.agree();
            assert!(!confirm.open.get_untracked());
            assert_eq!(done.load(Ordering::Relaxed), 1);
        });
    }
}

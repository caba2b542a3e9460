//! Taking a snapshot of a sandbox. With script a dialog asks for its name; without, a field beside the
//! button.

use leptos::{ev, html, prelude::*, task::spawn_local};
use osb_protocol::SandboxId;

use super::act_button::ActButton;
use crate::{
    frame::Toasts,
    snapshot::{self, Taken, title},
    ui::{Dialog, Icon},
    view::Answer,
};

/// A button that takes a snapshot of the sandbox of a page.
#[component]
pub(super) fn SnapshotForm(
    /// The sandbox.
    id: SandboxId,
    /// Its title.
    name: Signal<String>,
    /// Why no snapshot can be taken.
    why: Signal<Option<&'static str>>,
) -> impl IntoView {
    let open = RwSignal::new(false);
    let busy = RwSignal::new(false);
    let action = format!("/console/sandboxes/{id}/snapshot");
    let ask = move |event: ev::SubmitEvent| {
        event.prevent_default();
        open.set(true);
    };
    let without_script = move || {
        why.get().is_none().then(|| {
            view! {
                <input
                    class="needs-no-script"
                    type="text"
                    name="name"
                    placeholder="its name"
                    aria-label="Name of a new snapshot"
                    autocomplete="off"
                />
            }
        })
    };
    view! {
        <form method="post" action=action on:submit=ask class="inline-form">
            <ActButton id="snapshot" icon="camera" text="Snapshot" why busy asks=true />
            {without_script}
        </form>
        <NameDialog id name open busy />
    }
    .into_any()
}

/// Asks for the name, and takes the snapshot.
#[component]
fn NameDialog(
    id: SandboxId,
    name: Signal<String>,
    open: RwSignal<bool>,
    busy: RwSignal<bool>,
) -> impl IntoView {
    let toasts = Toasts::current();
    let taken = use_context::<Taken>();
    let field = NodeRef::<html::Input>::new();
    let refusal = RwSignal::new(None::<String>);
    let title_of_dialog = Signal::derive(move || format!("Take a snapshot of {}", name.get()));
    // A name that was typed for one that was not taken is offered again; a refusal is not.
    Effect::new(move |_| {
        if open.get() {
            refusal.set(None);
        }
    });
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        if busy.get_untracked() {
            return;
        }
        let typed = field.get_untracked().map(|field| field.value());
        let (id, of) = (id.clone(), name.get_untracked());
        busy.set(true);
        refusal.set(None);
        spawn_local(async move {
            let why = match snapshot::take(id, typed.unwrap_or_default()).await {
                Ok(Answer::Done(made)) => {
                    let news = format!("The snapshot {} of {of} is being taken", title(&made));
                    toasts.good(news);
                    None
                }
                Ok(Answer::Invalid(problems)) => {
                    let texts = problems
                        .iter()
                        .map(|it| format!("{} {}", it.field(), it.msg));
                    Some(texts.collect::<Vec<_>>().join(". "))
                }
                Ok(Answer::Refused(why)) => Some(why),
                Err(error) => Some(error.to_string()),
            };
            busy.try_set(false);
            if why.is_some() {
                refusal.try_set(why);
                return;
            }
            if let Some(Some(field)) = field.try_get_untracked() {
                field.set_value("");
            }
            open.try_set(false);
            if let Some(Taken(count)) = taken {
                count.try_update(|count| *count += 1);
            }
        });
    };
    view! {
        <Dialog open id="take-snapshot" title=title_of_dialog>
            <form on:submit=submit class="take-snapshot">
                <p class="help">
                    "Keeps its files as they are now, to create other sandboxes from. Meanwhile the sandbox is paused. Memory, programs that run, and volumes are not part of it."
                </p>
                <div class="field">
                    <label for="snapshot-name">"Name of the snapshot"</label>
                    <input
                        id="snapshot-name"
                        node_ref=field
                        type="text"
                        autofocus=true
                        autocomplete="off"
                        spellcheck="false"
                        aria-invalid=move || refusal.read().is_some().then_some("true")
                        aria-describedby="snapshot-name-help snapshot-refusal"
                    />
                    <p id="snapshot-name-help" class="help">"May be empty."</p>
                </div>
                <p id="snapshot-refusal" class="problem" role="alert">{move || refusal.get()}</p>
                <div class="dialog-actions">
                    <button type="button" class="button" on:click=move |_| open.set(false)>
                        "Cancel"
                    </button>
                    <button
                        type="submit"
                        class="button primary"
                        aria-disabled=move || busy.get().then_some("true")
                    >
                        <Icon name="camera" />
                        "Take snapshot"
                    </button>
                </div>
            </form>
        </Dialog>
    }
    .into_any()
}

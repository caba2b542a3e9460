//! Actions on a sandbox. Each is a form: with script it calls its server function and shows the
//! result in a toast; without, the browser posts it and is redirected.

use std::sync::Arc;

use leptos::{ev, prelude::*, task::spawn_local};
use leptos_router::hooks::use_navigate;
use osb_protocol::{Feature, SandboxId, lifecycle::SandboxState};

use super::api;
use crate::{
    deletion,
    frame::Toasts,
    ui::{Confirm, Icon, Question, duration},
    view::{ServerInfo, offers_changes},
};

/// Offered times for a renewal, in seconds.
const CHOICES: [i64; 6] = [900, 1_800, 3_600, 14_400, 86_400, 604_800];

/// A button that extends a life with one click, for a list. It never shortens one.
#[component]
pub fn RenewButton(
    /// The sandbox.
    id: SandboxId,
    /// Whether a renewal for this time would extend its life.
    extends: Memo<bool>,
    /// Time until the new expiry, in seconds.
    seconds: i64,
) -> impl IntoView {
    if !offers_changes() {
        return ().into_any();
    }
    let (action, submit, busy) = renewal(id.clone());
    let to = duration(seconds);
    let for_label = format!("Extend {} to {to}", id.short());
    let label = move || match extends.get() {
        true => for_label.clone(),
        false => format!("{for_label}: it does not expire earlier"),
    };
    view! {
        <form method="post" action=action on:submit=submit>
            <input type="hidden" name="seconds" value=seconds />
            <button
                type="submit"
                class="icon-button"
                disabled=move || busy.get() || !extends.get()
                aria-label=label.clone()
                title=label
            >
                <Icon name="timer-reset" />
            </button>
        </form>
    }
    .into_any()
}

/// A form that renews for a chosen time.
#[component]
pub(super) fn RenewForm(
    /// The sandbox.
    id: SandboxId,
) -> impl IntoView {
    if !offers_changes() {
        return ().into_any();
    }
    let (action, submit, busy) = renewal(id);
    let choices = CHOICES.into_iter().map(|seconds| {
        view! { <option value=seconds selected=seconds == 1_800>{duration(seconds)}</option> }
    });
    view! {
        <form method="post" action=action on:submit=submit class="inline-form">
            <label class="select">
                <span class="visually-hidden">"Renew for"</span>
                <select name="seconds">{choices.collect_view()}</select>
            </label>
            <label class="check">
                <input type="checkbox" name="shorten" value="true" />
                "May shorten its life"
            </label>
            <button type="submit" class="button" disabled=move || busy.get()>
                <Icon name="timer-reset" />
                "Renew"
            </button>
        </form>
    }
    .into_any()
}

/// Address, submit handler and busy signal of a renewal.
fn renewal(id: SandboxId) -> (String, impl Fn(ev::SubmitEvent) + 'static, RwSignal<bool>) {
    let busy = RwSignal::new(false);
    let toasts = Toasts::current();
    let action = format!("/console/sandboxes/{id}/renew");
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let Some(seconds) = field(&event, "seconds").and_then(|text| text.parse().ok()) else {
            return;
        };
        let id = id.clone();
        let shorten = is_checked(&event, "shorten");
        busy.set(true);
        spawn_local(async move {
            match api::renew(id.clone(), seconds, shorten).await {
                Ok(_) => toasts.good(format!("{} renewed for {}", id.short(), duration(seconds))),
                Err(error) => toasts.bad(error.to_string()),
            }
            busy.set(false);
        });
    };
    (action, submit, busy)
}

/// Value of a field of the submitted form.
fn field(event: &ev::SubmitEvent, name: &str) -> Option<String> {
    use wasm_bindgen::JsCast;
    let form: web_sys::Element = event.target()?.dyn_into().ok()?;
    let field = form.query_selector(&format!("[name={name}]")).ok()??;
    match field.dyn_into::<web_sys::HtmlSelectElement>() {
        Ok(select) => Some(select.value()),
        Err(other) => Some(other.dyn_into::<web_sys::HtmlInputElement>().ok()?.value()),
    }
}

/// Whether a box of the submitted form is ticked.
fn is_checked(event: &ev::SubmitEvent, name: &str) -> bool {
    use wasm_bindgen::JsCast;
    let form = event
        .target()
        .and_then(|it| it.dyn_into::<web_sys::Element>().ok());
    let ticked = form.map(|form| form.query_selector(&format!("[name={name}]:checked")));
    matches!(ticked, Some(Ok(Some(_))))
}

/// A pause, or a resume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freeze {
    Pause,
    Resume,
}

impl Freeze {
    /// What a sandbox in a state offers.
    fn offered(state: &SandboxState) -> Option<Self> {
        match state {
            SandboxState::Running => Some(Self::Pause),
            SandboxState::Paused => Some(Self::Resume),
            _ => None,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Pause => "Pause",
            Self::Resume => "Resume",
        }
    }

    fn icon(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "play",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Pause => "is paused",
            Self::Resume => "runs again",
        }
    }

    /// Last segment of the form's address.
    fn segment(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }
}

/// Whether a sandbox can be paused or resumed in a state.
pub(super) fn can_freeze(state: &SandboxState) -> bool {
    Freeze::offered(state).is_some()
}

/// A button that pauses a running sandbox and resumes a paused one, on runtimes that can.
#[component]
pub fn PauseForm(
    /// The sandbox.
    id: SandboxId,
    /// Its state.
    #[prop(into)]
    state: Signal<SandboxState>,
    /// Shows only an icon, for a list; in other states it is disabled rather than absent.
    #[prop(optional)]
    compact: bool,
) -> impl IntoView {
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    if !features.contains(Feature::Pause) || !offers_changes() {
        return ().into_any();
    }
    let busy = RwSignal::new(false);
    let toasts = Toasts::current();
    let offered = Memo::new(move |_| Freeze::offered(&state.read()));
    let shown = move || offered.get().unwrap_or(Freeze::Pause);
    let path = format!("/console/sandboxes/{id}");
    let action = move || format!("{path}/{}", shown().segment());
    let short = id.short().to_owned();
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let Some(freeze) = offered.get_untracked() else {
            return;
        };
        let id = id.clone();
        busy.set(true);
        spawn_local(async move {
            let changed = match freeze {
                Freeze::Pause => api::pause(id.clone()).await,
                Freeze::Resume => api::resume(id.clone()).await,
            };
            match changed {
                Ok(()) => toasts.good(format!("{} {}", id.short(), freeze.done())),
                Err(error) => toasts.bad(error.to_string()),
            }
            busy.try_set(false);
        });
    };
    let disabled = move || busy.get() || offered.get().is_none();
    let icon = Signal::derive(move || shown().icon());
    if compact {
        let label = Signal::derive(move || format!("{} {short}", shown().title()));
        return view! {
            <form method="post" action=action on:submit=submit>
                <button
                    type="submit"
                    class="icon-button"
                    disabled=disabled
                    aria-label=label
                    title=label
                >
                    <Icon name=icon />
                </button>
            </form>
        }
        .into_any();
    }
    view! {
        <form
            method="post"
            action=action
            on:submit=submit
            class="inline-form"
        >
            <button type="submit" class="button" disabled=disabled>
                <Icon name=icon />
                {move || shown().title()}
            </button>
        </form>
    }
    .into_any()
}

/// A delete button, which asks first. Without script it leads to a page that asks.
#[component]
pub fn DeleteForm(
    /// The sandbox.
    id: SandboxId,
    /// Its title.
    #[prop(into)]
    name: Signal<String>,
    /// Shows only an icon, for a list. Otherwise a button, which leads to the list afterwards.
    #[prop(optional)]
    compact: bool,
) -> impl IntoView {
    if !offers_changes() {
        return ().into_any();
    }
    let busy = RwSignal::new(false);
    let toasts = Toasts::current();
    let confirm = Confirm::current();
    let navigate = use_navigate();
    let action = format!("/console/sandboxes/{id}/delete");
    let label = format!("Delete {}", id.short());
    let delete = move || {
        let (id, navigate) = (id.clone(), navigate.clone());
        let name = name.get_untracked();
        busy.set(true);
        spawn_local(async move {
            match api::delete(id).await {
                Ok(()) => {
                    toasts.good(format!("{name} is being deleted"));
                    if !compact {
                        navigate("/console/sandboxes", Default::default());
                    }
                }
                Err(error) => toasts.bad(error.to_string()),
            }
            busy.try_set(false);
        });
    };
    let delete: Arc<dyn Fn() + Send + Sync> = Arc::new(delete);
    let ask = move |event: ev::SubmitEvent| {
        event.prevent_default();
        confirm.ask(Question {
            title: format!("Delete {}?", name.get_untracked()),
            text: deletion::OF_ONE.to_owned(),
            yes: "Delete sandbox",
            act: Arc::clone(&delete),
        });
    };
    let is_busy = move || busy.get();
    let button = match compact {
        true => view! {
            <button
                type="submit"
                class="icon-button"
                aria-haspopup="dialog"
                aria-label=label.clone()
                title=label
                disabled=is_busy
            >
                <Icon name="trash-2" />
            </button>
        }
        .into_any(),
        false => view! {
            <button type="submit" class="button danger" aria-haspopup="dialog" disabled=is_busy>
                <Icon name="trash-2" />
                "Delete"
            </button>
        }
        .into_any(),
    };
    view! { <form method="get" action=action on:submit=ask>{button}</form> }.into_any()
}

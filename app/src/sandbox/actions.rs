//! Actions on a sandbox. Each is a form: with script it calls its server function and shows the
//! result in a toast; without, the browser posts it and is redirected.

use std::sync::Arc;

use leptos::{ev, prelude::*, task::spawn_local};
use leptos_router::hooks::use_navigate;
use osb_protocol::{Feature, SandboxId, WireTime, lifecycle::SandboxState};

use super::{act_button::ActButton, api};
use crate::{
    browser,
    deletion::OF_ONE,
    error::ConsoleError,
    extension::{self, TimeSelect},
    frame::Toasts,
    ui::{self, Confirm, Icon, LocalTimes, Question, duration},
    view::{LOOKS_ONLY, ServerInfo, offers_changes},
};

/// A button of a list for what the role of the user forbids: it says so, and does nothing.
#[component]
pub fn BarredButton(label: String, icon: &'static str) -> impl IntoView {
    view! {
        <button
            type="button"
            class="icon-button"
            aria-disabled="true"
            aria-label=label
            title=LOOKS_ONLY
        >
            <Icon name=icon />
        </button>
    }
    .into_any()
}

/// A button that extends a life with one click, for a list. It never shortens one.
#[component]
pub fn RenewButton(
    /// The sandbox.
    id: SandboxId,
    /// Its title.
    name: Signal<String>,
    /// Whether a renewal for this time would extend its life.
    extends: Memo<bool>,
    /// Time until the new expiry, in seconds.
    seconds: i64,
) -> impl IntoView {
    if !offers_changes() {
        return view! { <BarredButton label=format!("Extend {}", id.short()) icon="timer-reset" /> }
            .into_any();
    }
    // It is offered only while it extends.
    let (action, submit, busy) = renewal(id.clone(), name, Signal::stored(None));
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

/// A form that extends the life to a chosen time from now; the one that is chosen at first lengthens it.
/// A renewal that would shorten it asks first.
#[component]
pub(super) fn RenewForm(
    /// The sandbox.
    id: SandboxId,
    /// Its title.
    name: Signal<String>,
    /// When it expires.
    expires_at: Signal<Option<WireTime>>,
    /// Why it cannot be renewed.
    why: Signal<Option<&'static str>>,
) -> impl IntoView {
    let (action, submit, busy) = renewal(id, name, expires_at);
    let expiry = Memo::new(move |_| expires_at.get());
    // Only another expiry changes the choice: not the passing of time while a user looks at it.
    let first = Memo::new(move |_| extension::first(expiry.get(), browser::now_ms()));
    let chosen = RwSignal::new(None::<i64>);
    Effect::new(move |before: Option<()>| {
        expiry.track();
        if before.is_some() {
            chosen.set(None);
        }
    });
    // Without script nothing asks.
    let shorten = view! {
        <label class="check needs-no-script">
            <input type="checkbox" name="shorten" value="true" />
            "Even if that is sooner"
        </label>
    };
    view! {
        <form method="post" action=action on:submit=submit class="inline-form joined">
            <ActButton id="renew" icon="timer-reset" text="Extend" why busy />
            <TimeSelect first chosen prefix="to " disabled=Signal::derive(move || why.get().is_some()) />
            {shorten}
        </form>
    }
    .into_any()
}

/// Address, submit handler and busy signal of a renewal of a sandbox with this expiry.
fn renewal(
    id: SandboxId,
    name: Signal<String>,
    expires_at: Signal<Option<WireTime>>,
) -> (String, impl Fn(ev::SubmitEvent) + 'static, RwSignal<bool>) {
    let busy = RwSignal::new(false);
    let renewal = Renewal {
        toasts: Toasts::current(),
        confirm: Confirm::current(),
        local: LocalTimes::current(),
        busy,
        name,
    };
    let action = format!("/console/sandboxes/{id}/renew");
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let seconds = field(&event, "seconds").and_then(|text| text.parse().ok());
        let Some(seconds) = seconds else {
            return;
        };
        let at = WireTime::from_unix_ms(browser::now_ms() + 1_000 * seconds);
        let known = expires_at.get_untracked();
        match known.filter(|known| at.is_some_and(|at| *known > at)) {
            Some(until) => renewal.ask(id.clone(), seconds, until),
            None => renewal.start(id.clone(), seconds, false),
        }
    };
    (action, submit, busy)
}

/// What a renewal uses of the page.
#[derive(Clone, Copy)]
struct Renewal {
    toasts: Toasts,
    confirm: Confirm,
    local: LocalTimes,
    busy: RwSignal<bool>,
    name: Signal<String>,
}

impl Renewal {
    fn start(self, id: SandboxId, seconds: i64, may_shorten: bool) {
        self.busy.set(true);
        // The row may be gone afterwards.
        let name = self.name.get_untracked();
        spawn_local(async move {
            match api::renew(id.clone(), seconds, may_shorten).await {
                Ok(at) => {
                    let at = untrack(|| self.local.brief(at, browser::now_ms()));
                    let left = duration(seconds);
                    self.toasts.good(format!("{name} expires {at} (in {left})"));
                }
                // It was extended meanwhile.
                Err(ConsoleError::Shortens { until }) => self.ask(id, seconds, until),
                Err(error) => self.toasts.bad(error.to_string()),
            }
            self.busy.try_set(false);
        });
    }

    /// Asks whether the life is to become shorter.
    fn ask(self, id: SandboxId, seconds: i64, until: WireTime) {
        let now = browser::now_ms();
        let at = untrack(|| self.local.brief(until, now));
        let left = ui::until((until.unix_ms() - now) / 1_000);
        let to = duration(seconds);
        self.confirm.ask(Question {
            title: "Shorten its life?".to_owned(),
            text: format!("It expires {at} (in {left}). This would end it in {to} instead."),
            yes: "Shorten",
            act: Arc::new(move || self.start(id.clone(), seconds, true)),
        });
    }
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

/// A button that pauses a running sandbox and resumes a paused one, for a list. In other states it is
/// disabled. Nothing on runtimes that cannot.
#[component]
pub fn PauseButton(
    /// The sandbox.
    id: SandboxId,
    /// Its title.
    name: Signal<String>,
    /// Its state.
    #[prop(into)]
    state: Signal<SandboxState>,
) -> impl IntoView {
    if !can_freeze() {
        return ().into_any();
    }
    let short = id.short().to_owned();
    if !offers_changes() {
        return view! { <BarredButton label=format!("Pause {short}") icon="pause" /> }.into_any();
    }
    let freezing = Freezing::of(id, name, state);
    let (busy, offered) = (freezing.busy, freezing.offered);
    let disabled = move || busy.get() || offered.get().is_none();
    let icon = Signal::derive(move || freezing.shown().icon());
    let label = Signal::derive(move || format!("{} {short}", freezing.shown().title()));
    let (action, submit) = freezing.form();
    view! {
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
    .into_any()
}

/// A button that pauses or resumes the sandbox of a page. Nothing on runtimes that cannot.
#[component]
pub(super) fn PauseForm(
    /// The sandbox.
    id: SandboxId,
    /// Its title.
    name: Signal<String>,
    /// Its state.
    #[prop(into)]
    state: Signal<SandboxState>,
    /// Why it cannot be paused or resumed.
    why: Signal<Option<&'static str>>,
) -> impl IntoView {
    if !can_freeze() {
        return ().into_any();
    }
    let freezing = Freezing::of(id, name, state);
    let busy = freezing.busy;
    let icon = Signal::derive(move || freezing.shown().icon());
    let text = Signal::derive(move || freezing.shown().title());
    let (action, submit) = freezing.form();
    view! {
        <form method="post" action=action on:submit=submit>
            <ActButton id="pause" icon text why busy />
        </form>
    }
    .into_any()
}

/// Whether the runtime can pause.
fn can_freeze() -> bool {
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    features.contains(Feature::Pause)
}

/// What a button to pause or resume uses.
#[derive(Clone, Copy)]
struct Freezing {
    id: StoredValue<SandboxId>,
    name: Signal<String>,
    offered: Memo<Option<Freeze>>,
    busy: RwSignal<bool>,
    toasts: Toasts,
}

impl Freezing {
    fn of(id: SandboxId, name: Signal<String>, state: Signal<SandboxState>) -> Self {
        Self {
            id: StoredValue::new(id),
            name,
            offered: Memo::new(move |_| Freeze::offered(&state.read())),
            busy: RwSignal::new(false),
            toasts: Toasts::current(),
        }
    }

    fn shown(self) -> Freeze {
        self.offered.get().unwrap_or(Freeze::Pause)
    }

    /// Address and submit handler of its form.
    fn form(self) -> (impl Fn() -> String, impl Fn(ev::SubmitEvent)) {
        let path = self.id.with_value(|id| format!("/console/sandboxes/{id}"));
        let action = move || format!("{path}/{}", self.shown().segment());
        let submit = move |event: ev::SubmitEvent| {
            event.prevent_default();
            if let Some(freeze) = self.offered.get_untracked() {
                self.start(freeze);
            }
        };
        (action, submit)
    }

    fn start(self, freeze: Freeze) {
        let (id, name) = (self.id.get_value(), self.name.get_untracked());
        self.busy.set(true);
        spawn_local(async move {
            let changed = match freeze {
                Freeze::Pause => api::pause(id).await,
                Freeze::Resume => api::resume(id).await,
            };
            match changed {
                Ok(()) => self.toasts.good(format!("{name} {}", freeze.done())),
                Err(error) => self.toasts.bad(error.to_string()),
            }
            self.busy.try_set(false);
        });
    }
}

/// A delete button for a list, which asks first. Without script it leads to a page that asks.
#[component]
pub fn DeleteButton(
    /// The sandbox.
    id: SandboxId,
    /// Its title.
    #[prop(into)]
    name: Signal<String>,
) -> impl IntoView {
    let label = format!("Delete {}", id.short());
    if !offers_changes() {
        return view! { <BarredButton label icon="trash-2" /> }.into_any();
    }
    let (action, ask, busy) = deletion(id, name, || {});
    view! {
        <form method="get" action=action on:submit=ask>
            <button
                type="submit"
                class="icon-button"
                aria-haspopup="dialog"
                aria-label=label.clone()
                title=label
                disabled=move || busy.get()
            >
                <Icon name="trash-2" />
            </button>
        </form>
    }
    .into_any()
}

/// A delete button for a page, which asks first, and leads to the list afterwards.
#[component]
pub(super) fn DeleteForm(
    /// The sandbox.
    id: SandboxId,
    /// Its title.
    #[prop(into)]
    name: Signal<String>,
    /// Why it cannot be deleted.
    why: Signal<Option<&'static str>>,
) -> impl IntoView {
    let navigate = use_navigate();
    let leave = move || navigate("/console/sandboxes", Default::default());
    let (action, ask, busy) = deletion(id, name, leave);
    view! {
        <form method="get" action=action on:submit=ask>
            <ActButton id="delete" icon="trash-2" text="Delete" why busy danger=true asks=true />
        </form>
    }
    .into_any()
}

/// Address of the page that asks, handler that asks in a dialog, and busy signal of a delete.
fn deletion(
    id: SandboxId,
    name: Signal<String>,
    leave: impl Fn() + Clone + Send + Sync + 'static,
) -> (String, impl Fn(ev::SubmitEvent), RwSignal<bool>) {
    let busy = RwSignal::new(false);
    let toasts = Toasts::current();
    let confirm = Confirm::current();
    let action = format!("/console/sandboxes/{id}/delete");
    let delete = move || {
        let (id, leave) = (id.clone(), leave.clone());
        // The row may be gone afterwards.
        let name = name.get_untracked();
        busy.set(true);
        spawn_local(async move {
            match api::delete(id).await {
                Ok(()) => {
                    toasts.good(format!("{name} is being deleted"));
                    leave();
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
            text: OF_ONE.to_owned(),
            yes: "Delete sandbox",
            act: Arc::clone(&delete),
        });
    };
    (action, ask, busy)
}

//! The header of a sandbox's page: title, state, expiry, and the actions.

use leptos::prelude::*;
use osb_protocol::{SandboxId, lifecycle::SandboxState};

use super::{
    actions::{DeleteForm, PauseForm, RenewForm},
    hindrance::{Act, Situation, hindrance},
    take_snapshot::SnapshotForm,
};
use crate::{
    snapshot::offers_snapshots,
    tab::Tab,
    ui::{CopyButton, Expiry, Icon, StateBadge},
    view::{SandboxDetail, StageState, is_alive, offers_changes, reason_words, title},
};

/// Title, state and expiry, with what can be done beside them.
#[component]
pub(super) fn Header(
    /// The sandbox.
    current: RwSignal<SandboxDetail>,
    /// Whether it is gone.
    gone: RwSignal<bool>,
) -> impl IntoView {
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let short = id.short().to_owned();
    let name = Signal::derive(move || title(&current.read().sandbox).to_owned());
    let has_name = Memo::new({
        let short = short.clone();
        move |_| name.get() != short
    });
    let state = Signal::derive(move || current.read().sandbox.status.state.clone());
    let expires_at = Signal::derive(move || current.read().sandbox.expires_at);
    let counts = Signal::derive(move || is_alive(&state.read()));
    view! {
        <div class="page-head sandbox-head">
            <h1 class:mono=move || !has_name.get() title=id.to_string()>{name}</h1>
            <span class="head-id mono">
                {move || has_name.get().then(|| short.clone())}
                <CopyButton text=id.to_string() what="the id" />
            </span>
            <StateBadge state stage=Signal::derive(move || note(&current.read())) />
            <Show when=move || !gone.get()>
                <span class="head-fact">
                    <Icon name="clock" />
                    <Expiry at=expires_at counts />
                </span>
            </Show>
            <Actions id current gone name />
        </div>
    }
    .into_any()
}

/// The stage of a create, or why the sandbox is not what it should be.
fn note(detail: &SandboxDetail) -> Option<String> {
    current_stage(detail).or_else(|| reason_words(&detail.sandbox.status))
}

/// The stage of a sandbox that is being created.
fn current_stage(detail: &SandboxDetail) -> Option<String> {
    let mut stages = detail.stages.iter();
    let next = stages.find(|stage| stage.state == StageState::Current)?;
    (detail.sandbox.status.state == SandboxState::Pending).then(|| next.name.clone())
}

#[component]
fn Actions(
    id: SandboxId,
    current: RwSignal<SandboxDetail>,
    gone: RwSignal<bool>,
    name: Signal<String>,
) -> impl IntoView {
    let state = Signal::derive(move || current.read().sandbox.status.state.clone());
    let expires_at = Signal::derive(move || current.read().sandbox.expires_at);
    let may_change = offers_changes();
    let has_snapshots = offers_snapshots();
    let why = move |act: Act| {
        let why = Memo::new(move |_| {
            let situation = Situation {
                may_change,
                is_gone: gone.get(),
                has_snapshots,
            };
            hindrance(act, &current.read(), situation)
        });
        Signal::from(why)
    };
    view! {
        <div class="head-actions" role="group" aria-label="Actions">
            <HeadLink
                icon="terminal"
                text="Terminal"
                address=Tab::Terminal.address(&id)
                why=why(Act::Terminal)
            />
            <div data-act="renew">
                <RenewForm id=id.clone() name expires_at why=why(Act::Renew) />
            </div>
            <div data-act="pause">
                <PauseForm id=id.clone() name state why=why(Act::Pause) />
            </div>
            <div data-act="snapshot">
                <SnapshotForm id=id.clone() name why=why(Act::Snapshot) />
            </div>
            <HeadLink
                icon="copy-plus"
                text="Clone"
                command="Clone this sandbox"
                address=format!("/console/create?from={id}")
                why=why(Act::Clone)
            />
            <div data-act="delete">
                <DeleteForm id name why=why(Act::Delete) />
            </div>
        </div>
    }
    .into_any()
}

/// A link among the actions; without an address while it is not possible.
#[component]
fn HeadLink(
    icon: &'static str,
    text: &'static str,
    /// What the palette calls it, if it offers it.
    #[prop(optional)]
    command: &'static str,
    address: String,
    why: Signal<Option<&'static str>>,
) -> impl IntoView {
    let is_hindered = move || why.get().is_some();
    let why_id = [text, "-why"].concat();
    view! {
        <a
            class="button"
            role="link"
            href=move || (!is_hindered()).then(|| address.clone())
            tabindex=move || is_hindered().then_some("0")
            data-command=move || (!command.is_empty() && !is_hindered()).then_some(command)
            aria-disabled=move || is_hindered().then_some("true")
            aria-describedby=why_id.clone()
            title=move || why.get()
        >
            <Icon name=icon />
            {text}
        </a>
        <span id=why_id class="visually-hidden">{move || why.get()}</span>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;
    use crate::{ui::sample, view::Stage};

    #[test]
    fn the_badge_names_the_stage_or_the_reason() {
        let mut detail = SandboxDetail {
            sandbox: sample::row("a", "Pending").sandbox,
            stages: vec![Stage {
                name: "image".to_owned(),
                state: StageState::Current,
                at: WireTime::from_unix_ms(0),
            }],
            resources: Default::default(),
            template: None,
            log_tail: Vec::new(),
            ended: None,
        };
        assert_eq!(note(&detail).as_deref(), Some("image"));
        let status = &mut detail.sandbox.status;
        status.state = SandboxState::Failed;
        status.message = Some("The entry point ended with exit code 3.".to_owned());
        assert_eq!(note(&detail).as_deref(), Some("exit 3"));
        detail.sandbox.status.state = SandboxState::Running;
        assert_eq!(note(&detail), None);
    }
}

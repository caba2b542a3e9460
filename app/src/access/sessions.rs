//! Open sessions of the console.

use leptos::prelude::*;
use osb_protocol::identity::PrincipalKind;

use super::{
    api,
    confirm::Confirm,
    shown::{Progress, Shown},
};
use crate::{
    ui::{Age, Icon, When},
    view::SessionEntry,
};

/// What a session was opened with, in words.
pub(super) fn kind(kind: PrincipalKind) -> &'static str {
    match kind {
        PrincipalKind::Anonymous => "without authentication",
        PrincipalKind::ConfiguredKey => "configured key",
        PrincipalKind::ApiKey => "API key",
        PrincipalKind::TenantKey => "key of a tenant",
        PrincipalKind::User => "user",
    }
}

/// The section about sessions.
#[component]
pub(super) fn SessionsSection(shown: Shown, sees_all: bool) -> impl IntoView {
    let sessions = Memo::new(move |_| shown.view.read().sessions.clone());
    let row = move |entry: SessionEntry| view! { <SessionRow shown entry /> };
    let identity = |entry: &SessionEntry| (entry.session.id.clone(), entry.session.last_used_at);
    let list = move || sessions.get().unwrap_or_default();
    let problem = move || sessions.get().err();
    let title = match sees_all {
        true => "Open sessions",
        false => "Your open sessions",
    };
    view! {
        <section id="sessions" class="card accounts" aria-labelledby="sessions-title">
            <h2 id="sessions-title">{title}</h2>
            <p class="help">
                "Browsers that are signed in to this console. The last use is known to ten minutes."
            </p>
            <p class="problem">{problem}</p>
            <table class="account-table">
                <thead>
                    <tr>
                        <th scope="col">"Who"</th>
                        <th scope="col">"From"</th>
                        <th scope="col">"Signed in"</th>
                        <th scope="col">"Last used"</th>
                        <th scope="col">"Ends unless used"</th>
                        <th scope="col">
                            <span class="visually-hidden">"Actions"</span>
                        </th>
                    </tr>
                </thead>
                <tbody>
                    <For each=list key=identity children=row />
                </tbody>
            </table>
        </section>
    }
    .into_any()
}

#[component]
fn SessionRow(shown: Shown, entry: SessionEntry) -> impl IntoView {
    let SessionEntry { session, is_this } = entry;
    let act = match is_this {
        true => view! {
            <span class="badge" data-tone="calm">
                <Icon name="check" />
                <span>"This browser"</span>
            </span>
        }
        .into_any(),
        false => view! { <EndSession shown id=session.id.clone() name=session.name.clone() /> }
            .into_any(),
    };
    view! {
        <tr>
            <th scope="row">
                <span class="account-name">{session.name}</span>
                <span class="fine">{kind(session.kind)}</span>
            </th>
            <td data-label="From" class="mono">
                {session.address.unwrap_or_else(|| "unknown".to_owned())}
            </td>
            <td data-label="Signed in">
                <Age at=session.created_at />
                " ago"
            </td>
            <td data-label="Last used">
                <Age at=session.last_used_at />
                " ago"
            </td>
            <td data-label="Ends unless used">
                <When at=session.expires_at />
            </td>
            <td class="account-acts">{act}</td>
        </tr>
    }
    .into_any()
}

#[component]
fn EndSession(shown: Shown, id: String, name: String) -> impl IntoView {
    let progress = Progress::new();
    let action = format!("/console/access/sessions/{id}/end");
    let id = StoredValue::new(id);
    let act = move |()| {
        shown.send(progress, api::end_session(id.get_value()), |(), toasts| {
            toasts.good("The session is over");
        });
    };
    view! {
        <Confirm
            opener="End"
            label=format!("End the session of {name}")
            question=format!("End this session of {name}? Its pages and terminals lose their connection, and ask for a new sign-in.")
            button="End session"
            action=action
            busy=progress.busy
            act=act
        />
    }
    .into_any()
}

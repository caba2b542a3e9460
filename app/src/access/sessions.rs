//! Open sessions of the console.

use std::cmp::Reverse;

use leptos::prelude::*;
use osb_protocol::identity::PrincipalKind;

use super::{api, confirm::Confirm, shown::Shown};
use crate::{
    form::Progress,
    query_string::use_query,
    ui::{Age, ColumnTitle, Icon, TableHead, When},
    view::SessionEntry,
};

/// Titles of the columns of sessions.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Who"),
    ColumnTitle::new("From"),
    ColumnTitle::new("Signed in"),
    ColumnTitle::new("Last used"),
    ColumnTitle::new("Ends unless used"),
    ColumnTitle::new("Actions").hidden(),
];
/// Sessions shown at first: programs that sign in without end leave many.
const FIRST: usize = 20;

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
    let sessions = Memo::new(move |_| {
        let mut sessions = shown.view.read().sessions.clone();
        if let Ok(sessions) = &mut sessions {
            // This browser first, then by the last use.
            sessions.sort_by_key(|it| (!it.is_this, Reverse(it.session.last_used_at)));
        }
        sessions
    });
    let params = use_query();
    let wants_all = Memo::new(move |_| params.read().get("sessions").as_deref() == Some("all"));
    let count = Memo::new(move |_| sessions.read().as_ref().map_or(0, Vec::len));
    let row = move |entry: SessionEntry| view! { <SessionRow shown entry /> };
    let identity = |entry: &SessionEntry| (entry.session.id.clone(), entry.session.last_used_at);
    let list = move || {
        let mut list = sessions.get().unwrap_or_default();
        if !wants_all.get() {
            list.truncate(FIRST);
        }
        list
    };
    let rest = move || {
        (count.get() > FIRST && !wants_all.get()).then(|| {
            view! {
                <p>
                    <a href="/console/access?sessions=all#sessions">
                        {format!("Show all {} sessions", count.get())}
                    </a>
                </p>
            }
        })
    };
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
                <TableHead of=TITLES />
                <tbody>
                    <For each=list key=identity children=row />
                </tbody>
            </table>
            {rest}
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

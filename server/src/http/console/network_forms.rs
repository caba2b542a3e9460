//! The forms of the network tab, for browsers without script: each changes the policy of a sandbox, then
//! redirects to the tab with a notice.

use axum::{
    Form, Router,
    extract::Path,
    response::Redirect,
    routing::{MethodRouter, post},
};
use osb_app::{
    error::ConsoleError,
    network::{PolicyChange, backend::NetworkBackend},
    view::Notice,
};
use osb_protocol::{
    SandboxId,
    lifecycle::{NetworkPolicy, NetworkRule},
};
use serde::Deserialize;
use tower_sessions::Session;

use super::{ConsoleState, for_request::Backend, forms, network::Networks, session};

/// Addresses of the forms.
pub(super) fn routes() -> [(&'static str, MethodRouter<ConsoleState>); 5] {
    [
        ("/console/sandboxes/{id}/network/add", post(add)),
        ("/console/sandboxes/{id}/network/remove", post(remove)),
        ("/console/sandboxes/{id}/network/move", post(move_rule)),
        ("/console/sandboxes/{id}/network/default", post(set_default)),
        ("/console/sandboxes/{id}/network/put", post(put)),
    ]
}

/// Routes of the forms.
pub(super) fn router() -> Router<ConsoleState> {
    let add = |router: Router<ConsoleState>, (path, form)| router.route(path, form);
    routes().into_iter().fold(Router::new(), add)
}

#[derive(Deserialize)]
struct Rule {
    action: String,
    target: String,
}

async fn add(
    Backend(networks): Backend<Networks>,
    session: Session,
    Path(id): Path<SandboxId>,
    Form(Rule { action, target }): Form<Rule>,
) -> Redirect {
    let done = format!("The policy has a new rule for {}", target.trim());
    let change = PolicyChange::Add(NetworkRule { action, target });
    changed(&networks, &session, &id, change, done).await
}

#[derive(Deserialize)]
struct Target {
    target: String,
}

async fn remove(
    Backend(networks): Backend<Networks>,
    session: Session,
    Path(id): Path<SandboxId>,
    Form(Target { target }): Form<Target>,
) -> Redirect {
    let done = format!("The rule for {target} is removed");
    changed(&networks, &session, &id, PolicyChange::Remove(target), done).await
}

#[derive(Deserialize)]
struct Shift {
    target: String,
    up: bool,
}

async fn move_rule(
    Backend(networks): Backend<Networks>,
    session: Session,
    Path(id): Path<SandboxId>,
    Form(Shift { target, up }): Form<Shift>,
) -> Redirect {
    let done = format!("The rule for {target} is moved");
    let change = PolicyChange::Move { target, up };
    changed(&networks, &session, &id, change, done).await
}

#[derive(Deserialize)]
struct DefaultAction {
    action: String,
}

async fn set_default(
    Backend(networks): Backend<Networks>,
    session: Session,
    Path(id): Path<SandboxId>,
    Form(DefaultAction { action }): Form<DefaultAction>,
) -> Redirect {
    let done = "The default action is changed".to_owned();
    let change = PolicyChange::Default(action);
    changed(&networks, &session, &id, change, done).await
}

#[derive(Deserialize)]
struct Document {
    /// The policy as JSON.
    policy: String,
}

async fn put(
    Backend(networks): Backend<Networks>,
    session: Session,
    Path(id): Path<SandboxId>,
    Form(Document { policy }): Form<Document>,
) -> Redirect {
    match serde_json::from_str::<NetworkPolicy>(&policy) {
        Ok(policy) => {
            let done = "The policy is replaced".to_owned();
            let change = PolicyChange::Replace(policy);
            changed(&networks, &session, &id, change, done).await
        }
        // Only a form that is not the tab's.
        Err(error) => {
            networks.refuse_unreadable();
            let notice = Notice::bad(format!("policy: {error}"));
            session::leave_notice(&session, &notice).await;
            Redirect::to(&tab_of(&id))
        }
    }
}

/// Changes a policy, leaves the result for the tab, and leads there.
async fn changed(
    networks: &Networks,
    session: &Session,
    id: &SandboxId,
    change: PolicyChange,
    done: String,
) -> Redirect {
    let changed: Result<(), ConsoleError> = networks.change(id, change).await;
    let notice = match changed {
        Ok(()) => Notice::good(done),
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(session, &notice).await;
    Redirect::to(&tab_of(id))
}

fn tab_of(id: &SandboxId) -> String {
    format!("{}/network", forms::page_of(id))
}

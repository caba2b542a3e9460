//! `/claim/{sandbox}`: gives a sidecar that was started in advance to its sandbox. An addition to the
//! contract.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use osb_log::Json;
use osb_service::ErrorChain;
use serde::Serialize;
use tracing::{error, info, warn};

use super::{
    Api,
    answer::{Object, Refusal},
    policy::{Answer, Body, Status, bad_request, read},
};
use crate::policy::Policy;

/// Body of an answer to `GET`.
#[derive(Serialize)]
pub(super) struct Standing {
    claimed: bool,
}

/// `GET`: whether the sandbox has the sidecar.
pub(super) async fn show(
    State(api): State<Api>,
    Path(sandbox): Path<String>,
) -> Result<Object<Standing>, Refusal> {
    check(&api, &sandbox)?;
    Ok(Object(Standing {
        claimed: !api.enforcer.is_unclaimed(),
    }))
}

/// `POST`: puts the first policy of the sandbox in force. Until then everything is refused, and a claim that
/// fails changes nothing. It goes on if its client disconnects, as changes do.
///
/// The limit of rules does not count, as for a policy from the environment.
pub(super) async fn claim(
    State(api): State<Api>,
    Path(sandbox): Path<String>,
    body: Body,
) -> Answer {
    check(&api, &sandbox)?;
    let policy = Policy::parse(&read(body)?).map_err(|error| bad_request(&error))?;
    let enforcer = Arc::clone(&api.enforcer);
    let work = async move { enforcer.claim(policy).await };
    let internal = StatusCode::INTERNAL_SERVER_ERROR;
    let policy = match api.tasks.spawn("claim", work).await {
        Ok(Ok(Ok(policy))) => policy,
        Ok(Ok(Err(error))) => return Err(refused(internal, ErrorChain(&error).to_string())),
        Ok(Err(claimed)) => return Err(refused(StatusCode::CONFLICT, claimed.to_string())),
        Err(_) => {
            let text = "the claim ended unexpectedly".to_owned();
            return Err(refused(internal, text));
        }
    };
    api.instruments.enforced(api.enforcer.effective().len());
    let rules = Json::of(&policy.rules);
    info!(
        opensandbox.event = "egress.claimed",
        egress.default = policy.default_action.word(),
        rules = rules.value(),
        "the sandbox has claimed this sidecar"
    );
    Ok(Object(Status::of(&api, &policy)))
}

fn check(api: &Api, sandbox: &str) -> Result<(), Refusal> {
    match *sandbox == *api.sandbox_id {
        true => Ok(()),
        false => Err(refused(
            StatusCode::CONFLICT,
            "this is the sidecar of another sandbox".to_owned(),
        )),
    }
}

fn refused(status: StatusCode, text: String) -> Refusal {
    match status.is_server_error() {
        true => error!(
            opensandbox.event = "egress.claim_failed",
            error = text,
            "claim failed"
        ),
        false => warn!(
            opensandbox.event = "egress.claim_failed",
            error = text,
            "claim failed"
        ),
    }
    Refusal::new(status, text)
}

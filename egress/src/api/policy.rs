//! `/policy`: shows and changes the user's policy (contract: egress §5.3–5.6).

use std::sync::{Arc, OnceLock};

use axum::{
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::StatusCode,
};
use osb_log::Json;
use osb_service::ErrorChain;
use serde::Serialize;
use serde_json::Value;
use tracing::{error, info, warn};

use super::{
    Api,
    answer::{Object, Refusal},
};
use crate::policy::{Policy, PolicyMode, Removal, Rule, parse_rules, parse_targets};

/// Body of all successful answers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    status: &'static str,
    mode: PolicyMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    enforcement_mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Policy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Number of rules that a DELETE removed; an addition to the contract, as is `unmatched`.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<usize>,
    /// Targets of a DELETE that no rule had.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unmatched: Vec<String>,
}

impl Status {
    pub(super) fn of(api: &Api, policy: &Policy) -> Self {
        Self {
            status: "ok",
            mode: policy.mode(),
            enforcement_mode: Some(api.enforcer.mode().word()),
            policy: None,
            reason: None,
            removed: None,
            unmatched: Vec::new(),
        }
    }
}

pub(super) type Answer = Result<Object<Status>, Refusal>;
pub(super) type Body = Result<Bytes, BytesRejection>;

/// `GET /policy`: the user's policy, without the operator's rules.
pub(super) async fn show(State(api): State<Api>) -> Object<Status> {
    let policy = api.enforcer.user();
    Object(Status {
        policy: Some(Policy::clone(&policy)),
        ..Status::of(&api, &policy)
    })
}

/// `POST` and `PUT /policy`: another policy. A blank body refuses everything. With a member `expected`,
/// only if that is the policy in force, in whatever spelling: another client may have changed it meanwhile.
pub(super) async fn replace(State(api): State<Api>, body: Body) -> Answer {
    let body = read(body)?;
    let policy = Policy::parse(&body).map_err(|error| bad_request(&error))?;
    let (limit, expected) = (api.max_rules, expected(&body)?);
    let policy = change(&api, move |current| {
        if expected.is_some_and(|expected| !expected.says_same(current)) {
            return Err(Unchanged::Unexpected);
        }
        let rules = policy.rules.clone();
        Ok((limited(policy, limit)?, rules))
    });
    let policy = policy.await?;
    let is_reset = body.trim_ascii().is_empty();
    let status = Status::of(&api, &policy);
    Ok(Object(match is_reset {
        true => Status {
            enforcement_mode: None,
            reason: Some("policy reset to default deny-all"),
            ..status
        },
        false => status,
    }))
}

/// `PATCH /policy`: rules that come first, and replace the ones with the same targets.
pub(super) async fn merge(State(api): State<Api>, body: Body) -> Answer {
    let patch = parse_rules(&read(body)?).map_err(|error| bad_request(&error))?;
    let limit = api.max_rules;
    let policy = change(&api, move |policy| {
        Ok((limited(policy.merged(&patch), limit)?, patch))
    });
    let policy = policy.await?;
    Ok(Object(Status::of(&api, &policy)))
}

/// `DELETE /policy`: removes the rules with these targets, and names the targets that no rule had. The
/// policy may stay longer than allowed: one from the environment may be, and removing rules from it must
/// be possible (contract: egress §5.8).
pub(super) async fn remove(State(api): State<Api>, body: Body) -> Answer {
    let targets = parse_targets(&read(body)?).map_err(|error| bad_request(&error))?;
    let counted = Arc::<OnceLock<(usize, Vec<String>)>>::default();
    let counts = Arc::clone(&counted);
    let removed = change(&api, move |policy| {
        let Removal {
            policy: rest,
            removed,
            unmatched,
        } = policy.without(&targets);
        let _first = counts.set((removed.len(), unmatched));
        match removed.is_empty() {
            true => Err(Unchanged::NothingMatched),
            false => Ok((rest, removed)),
        }
    });
    let status = match removed.await {
        Ok(policy) => Status::of(&api, &policy),
        Err(Failure::Unchanged) => Status {
            reason: Some("no matching targets found"),
            ..Status::of(&api, &api.enforcer.user())
        },
        Err(Failure::Refused(refusal)) => return Err(refusal),
    };
    let (removed, unmatched) = counted.get().cloned().unwrap_or_default();
    Ok(Object(Status {
        removed: Some(removed),
        unmatched,
        ..status
    }))
}

/// Why a policy stays as it is.
enum Unchanged {
    /// The sidecar waits for its sandbox.
    Unclaimed,
    /// No rule has one of the targets.
    NothingMatched,
    /// It is not the one that the client knows.
    Unexpected,
    /// The new policy would have too many rules.
    TooLong { rules: usize, limit: usize },
}

/// How a change failed.
enum Failure {
    /// There was nothing to change.
    Unchanged,
    Refused(Refusal),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unchanged => Self::new(StatusCode::OK, "nothing changed"),
            Failure::Refused(refusal) => refusal,
        }
    }
}

/// The policy, if it does not have too many rules.
fn limited(policy: Policy, limit: Option<usize>) -> Result<Policy, Unchanged> {
    match (policy.rules.len(), limit) {
        (rules, Some(limit)) if rules > limit => Err(Unchanged::TooLong { rules, limit }),
        _ => Ok(policy),
    }
}

/// Changes the policy. The change goes on if the client disconnects: half of it must not be in force.
/// `new` returns the policy, and the rules that the request adds or removes, for the log.
async fn change(
    api: &Api,
    new: impl FnOnce(&Policy) -> Result<(Policy, Vec<Rule>), Unchanged> + Send + 'static,
) -> Result<Arc<Policy>, Failure> {
    let enforcer = Arc::clone(&api.enforcer);
    let state = Arc::clone(&enforcer);
    let logged = Arc::<OnceLock<Vec<Rule>>>::default();
    let concerned = Arc::clone(&logged);
    let logging = move |policy: &Policy| {
        // Read while no claim is under way.
        if state.is_unclaimed() {
            return Err(Unchanged::Unclaimed);
        }
        let (new, rules) = new(policy)?;
        let _first = concerned.set(rules);
        Ok(new)
    };
    let change = async move { enforcer.change(logging).await };
    let work = api.tasks.spawn("policy", change);
    let refused = |status, text: String| {
        let status: StatusCode = status;
        match status.is_server_error() {
            true => error!(
                opensandbox.event = "egress.update_failed",
                error = text,
                "update failed"
            ),
            false => warn!(
                opensandbox.event = "egress.update_failed",
                error = text,
                "update failed"
            ),
        }
        Failure::Refused(Refusal::new(status, text))
    };
    let internal = StatusCode::INTERNAL_SERVER_ERROR;
    match work.await {
        Ok(Ok(Ok(policy))) => {
            api.instruments.enforced(api.enforcer.effective().len());
            let rules = Json::of(logged.get().map_or(&[][..], Vec::as_slice));
            info!(
                opensandbox.event = "egress.updated",
                egress.default = policy.default_action.word(),
                rules = rules.value(),
                "policy updated"
            );
            Ok(policy)
        }
        Ok(Ok(Err(error))) => Err(refused(internal, ErrorChain(&error).to_string())),
        Ok(Err(Unchanged::Unclaimed)) => Err(refused(
            StatusCode::CONFLICT,
            "the sidecar waits for its sandbox: everything is refused until it is claimed"
                .to_owned(),
        )),
        Ok(Err(Unchanged::NothingMatched)) => Err(Failure::Unchanged),
        Ok(Err(Unchanged::Unexpected)) => Err(refused(
            StatusCode::PRECONDITION_FAILED,
            "the policy was changed meanwhile".to_owned(),
        )),
        Ok(Err(Unchanged::TooLong { rules, limit })) => Err(refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the policy would have {rules} rules, at most {limit} are allowed"),
        )),
        Err(_) => Err(refused(
            internal,
            "the change ended unexpectedly".to_owned(),
        )),
    }
}

pub(super) fn read(body: Body) -> Result<Bytes, Refusal> {
    body.map_err(|error| Refusal::new(error.status(), error.body_text()))
}

/// The policy that a request is to replace: its member `expected`, an addition to the contract. `None` if
/// it is to replace any.
fn expected(body: &[u8]) -> Result<Option<Policy>, Refusal> {
    // What is no object has been refused, or is the policy that refuses everything.
    let Ok(Value::Object(members)) = serde_json::from_slice(body) else {
        return Ok(None);
    };
    let mut members = members.iter();
    let own = members.find(|(name, _)| name.eq_ignore_ascii_case("expected"));
    let own = own.filter(|(_, value)| !value.is_null());
    let parsed = own.map(|(_, value)| Policy::parse(value.to_string().as_bytes()));
    parsed.transpose().map_err(|error| bad_request(&error))
}

pub(super) fn bad_request(error: &dyn std::error::Error) -> Refusal {
    let text = ErrorChain(error).to_string();
    warn!(
        opensandbox.event = "egress.update_failed",
        error = text,
        "update failed"
    );
    Refusal::new(StatusCode::BAD_REQUEST, text)
}

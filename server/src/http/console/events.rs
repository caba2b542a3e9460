//! The audit trail for its page, with the rules of `GET /v1/audit`.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use osb_app::{
    backend::EventsBackend,
    view::{Answer, EventsQuery, EventsView, PERIODS, in_seconds},
};
use osb_protocol::{FieldError, audit::AuditPage, identity::Role};
use osb_service::ErrorChain;
use osb_store::AuditQuery;

use super::{
    super::{
        audit::{self, Format},
        extract::Query,
    },
    ConsoleState,
    memory::Memory,
    session::Admitted,
};
use crate::{
    audit::{Action, AuditTrail},
    identity::Principal,
    sandbox::{self, explain},
};

/// Entries of a page.
const PAGE: u32 = 50;
/// Length of a time that a field of a browser sends: `2026-11-23T09:31`, without seconds and zone.
const LOCAL_LEN: usize = 16;

/// [`EventsBackend`] for one request.
pub(super) struct Events {
    trail: AuditTrail,
    principal: Arc<Principal>,
    memory: Memory,
}

impl Events {
    pub(super) fn new(trail: AuditTrail, principal: Arc<Principal>) -> Self {
        Self {
            trail,
            principal,
            memory: Memory::of_request(),
        }
    }

    async fn read(&self, query: &EventsQuery) -> Answer<AuditPage> {
        let wanted = match wanted(query) {
            Ok(wanted) => wanted,
            Err(problems) => return Answer::Invalid(problems),
        };
        let Some(wanted) = audit::within(&self.principal.scope, wanted) else {
            return Answer::Done(AuditPage::default());
        };
        match self.trail.page(wanted, PAGE).await {
            Ok(page) => Answer::Done(page),
            Err(error) => Answer::Refused(why(&error.into())),
        }
    }
}

fn why(error: &sandbox::Error) -> String {
    explain(ErrorChain(error).to_string(), error.cause())
}

#[async_trait]
impl EventsBackend for Events {
    async fn events(&self, query: &EventsQuery) -> EventsView {
        let role = self.principal.role;
        if role < Role::ServiceAdmin {
            return EventsView {
                answer: Answer::Refused(format!(
                    "Your role is {role}: the audit trail is for the role service_admin."
                )),
                actions: Vec::new(),
                written: 0,
            };
        }
        let name = format!("events/{:?}", query.parameters());
        let actions = Action::ALL.iter().map(|action| action.name().to_owned());
        let written = *self.trail.watch_written().borrow();
        EventsView {
            written,
            answer: self.memory.once(name, self.read(query)).await,
            actions: actions.collect(),
        }
    }
}

/// The entries that a filter selects.
fn wanted(query: &EventsQuery) -> Result<AuditQuery, Vec<FieldError>> {
    let mut wrong = Vec::new();
    let in_utc = |(name, value): (&'static str, &str)| {
        let is_time = ["since", "until"].contains(&name);
        let is_local = is_time && value.len() == LOCAL_LEN && value.is_ascii();
        let value = match is_local {
            true => format!("{value}:00Z"),
            false => value.to_owned(),
        };
        (name.to_owned(), value)
    };
    let pairs = query.parameters().into_iter().map(in_utc);
    let mut wanted = audit::audit_query(&Query::of_pairs(pairs.collect()), &mut wrong);
    if !query.last.is_empty() {
        let period = PERIODS.iter().find(|(name, ..)| *name == query.last);
        let begin = period.and_then(|(_, _, seconds)| in_seconds(-seconds).ok());
        match begin {
            // Of two beginnings the later one.
            Some(begin) => wanted.since = wanted.since.max(Some(begin)),
            None => {
                let names = PERIODS.map(|(name, ..)| name).join(", ");
                let rule = format!("must be one of {names}");
                wrong.push(FieldError::query("enum", "last", rule));
            }
        }
    }
    match wrong.is_empty() {
        true => Ok(wanted),
        false => Err(wrong),
    }
}

/// Sends all entries that a filter selects, for spreadsheets or programs.
pub(super) async fn download(
    State(state): State<ConsoleState>,
    Extension(admitted): Extension<Admitted>,
    headers: HeaderMap,
    query: Query,
) -> Response {
    let filter = EventsQuery::from_url(|name| query.last(name).map(str::to_owned));
    let format = match Format::wanted(&query, &headers) {
        Ok(Format::Json) => Ok(Format::JsonLines),
        other => other.map_err(|error| vec![error]),
    };
    let (format, wanted) = match (format, wanted(&filter)) {
        (Ok(format), Ok(wanted)) => (format, wanted),
        (Err(wrong), _) | (_, Err(wrong)) => {
            let wrong = wrong.iter();
            let wrong = wrong.map(|error| format!("{}: {}\n", error.field(), error.msg));
            let text: String = wrong.collect();
            return (StatusCode::UNPROCESSABLE_ENTITY, text).into_response();
        }
    };
    let Some(wanted) = audit::within(&admitted.principal().scope, wanted) else {
        return StatusCode::NO_CONTENT.into_response();
    };
    match audit::file(&state.trail, wanted, format).await {
        Ok(file) => file,
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, why(&error)).into_response(),
    }
}

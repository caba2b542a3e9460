//! Acts of requests for the audit trail: begun once the principal is known and there is room, finished
//! with the answer.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, MatchedPath, OriginalUri, Request},
    middleware::Next,
    response::Response,
};
use http::{Extensions, Method, StatusCode, request::Parts};
use osb_protocol::audit::{AuditActor, AuditEntry, AuditOutcome};
use osb_runtime::Codes;
use serde_json::{Map, Value};

use super::{access, client, error, extract, request_id::RequestId};
use crate::{
    audit::{self, Act, ActOrigin, Action, AuditTrail},
    identity::{Principal, session_id},
};

/// Longest body, in bytes, in which the object of a refused call is looked for.
const CALL_MAX: usize = 64 * 1024;
/// Longest time that such a body may take.
const CALL_TIME: Duration = Duration::from_secs(2);

/// The object that a refused call of a server function names in its body.
#[derive(Clone)]
struct ObjectOfCall(String);

/// The act of a request, for what a handler knows of it. Absent on routes that only read, and inert
/// then.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted(pub(super) Option<Act>);

impl Noted {
    /// The act in the extensions of a request.
    pub(super) fn of(extensions: &Extensions) -> Self {
        Self(extensions.get::<Act>().cloned())
    }

    /// Names the object and the tenant whose it is.
    pub(super) fn set_object(&self, id: &str, tenant: Option<&str>) {
        if let Some(act) = &self.0 {
            act.set_object(id);
            act.set_tenant(tenant);
        }
    }

    /// Notes several facts about the act.
    pub(super) fn note_all(&self, facts: Map<String, Value>) {
        if let Some(act) = &self.0 {
            act.note_all(facts);
        }
    }

    /// Notes what is changed, or a fact about the act.
    pub(super) fn note(&self, name: &str, value: impl Into<Value>) {
        if let Some(act) = &self.0 {
            act.note(name, value.into());
        }
    }

    /// Notes that the act was done or, with a status and a code, why not. For answers whose own status
    /// does not say it.
    pub(super) fn settle(&self, failure: Option<(StatusCode, &str)>) {
        if let Some(act) = &self.0 {
            act.settle(failure.map(|(status, code)| (status.as_u16(), code)));
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Noted {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::of(&parts.extensions))
    }
}

/// Where a request came from.
pub(super) fn origin(extensions: &Extensions) -> ActOrigin {
    ActOrigin {
        address: Some(client::of(extensions).address),
        request_id: extensions.get::<RequestId>().map(RequestId::text),
    }
}

/// Answers an admitted request of the API, and records it if it is an act.
pub(super) async fn api(
    trail: &AuditTrail,
    codes: &Codes,
    mut request: Request,
    next: Next,
) -> Response {
    // No read of the API is an act, and reads are to be fast.
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    match begin(trail, &mut request) {
        None => next.run(request).await,
        Some(act) => {
            let response = next.run(request).await;
            let code = error::code_of(codes, &response);
            act.finish(response.status().as_u16(), code);
            response
        }
    }
}

/// Answers an admitted request of the console, and records it if it is an act. Forms, and server
/// functions for browsers without script, are answered with a redirect however they end; one that has
/// not reached the domain was not understood.
pub(super) async fn console(trail: &AuditTrail, mut request: Request, next: Next) -> Response {
    let Some(act) = begin(trail, &mut request) else {
        return next.run(request).await;
    };
    let response = next.run(request).await;
    if act.is_deferred() {
        return response;
    }
    let status = match response.status() {
        status if status.is_redirection() && !act.is_settled() => StatusCode::BAD_REQUEST,
        status => status,
    };
    act.finish(status.as_u16(), None);
    response
}

/// Begins the act that a request is, if it is one.
fn begin(trail: &AuditTrail, request: &mut Request) -> Option<Act> {
    let principal = request.extensions().get::<Arc<Principal>>();
    let (action, principal) = (access::action(request)?, principal?);
    let from = origin(request.extensions());
    let act = Act::begin(trail, action, audit::actor(principal), &from);
    if let Some(id) = object_of(request, action) {
        act.set_object(&id);
    }
    request.extensions_mut().insert(act.clone());
    Some(act)
}

/// Reads which object a call of a server function of the console is about, for [`deny`]. Such a call
/// is refused before its function runs: its body is used up.
pub(super) async fn read_object_of_call(request: &mut Request) {
    let Some(action) = access::action(request) else {
        return;
    };
    let path = request.extensions().get::<MatchedPath>();
    if !path.is_some_and(|path| path.as_str().starts_with("/console/fn/")) {
        return;
    }
    let body = std::mem::take(request.body_mut());
    let Ok(body) = extract::read(body, CALL_MAX, CALL_TIME).await else {
        return;
    };
    if let Some(object) = object_of_call(&body, action) {
        request.extensions_mut().insert(ObjectOfCall(object));
    }
}

/// The object that the body of a call names.
fn object_of_call(body: &[u8], action: Action) -> Option<String> {
    let member = match action {
        Action::PoolUpdate | Action::PoolDelete => "name",
        _ => "id",
    };
    let mut members = url::form_urlencoded::parse(body);
    let (_, id) = members.find(|(name, _)| name == member)?;
    Some(match action {
        Action::SessionRevoke => session_id::shown(&id),
        _ => id.into_owned(),
    })
}

/// Records a request that is refused before it is served.
pub(super) fn deny(
    trail: &AuditTrail,
    request: &Request,
    actor: AuditActor,
    (status, code): (StatusCode, &str),
) {
    let action = access::action(request).unwrap_or(Action::AccessDenied);
    let mut entry = denial(action, actor, &origin(request.extensions()), status, code);
    if action == Action::AccessDenied {
        let path = request.extensions().get::<MatchedPath>();
        let path = path.map_or("an unknown path", MatchedPath::as_str);
        let route = format!("{} {path}", request.method());
        entry.changes.insert("route".to_owned(), route.into());
    } else if let Some(id) = object_of(request, action) {
        entry.object.id = audit::bounded(&id);
    }
    trail.record_denial(entry);
}

/// A refusal as an entry.
pub(super) fn denial(
    action: Action,
    actor: AuditActor,
    from: &ActOrigin,
    status: StatusCode,
    code: &str,
) -> AuditEntry {
    let mut entry = audit::entry(action, actor, AuditOutcome::Denied);
    from.write(&mut entry);
    entry.status = Some(status.as_u16());
    entry.code = Some(code.to_owned());
    entry
}

/// The id in a call that was read, else in the path of a request: what stands for the first parameter
/// of its route.
fn object_of(request: &Request, action: Action) -> Option<String> {
    let extensions = request.extensions();
    if let Some(ObjectOfCall(id)) = extensions.get() {
        return Some(id.clone());
    }
    let template = extensions.get::<MatchedPath>()?.as_str();
    let uri = match extensions.get::<OriginalUri>() {
        Some(OriginalUri(uri)) => uri,
        None => request.uri(),
    };
    let id = first_parameter(template, uri.path())?;
    Some(match action {
        Action::SessionRevoke => session_id::shown(id),
        _ => id.to_owned(),
    })
}

fn first_parameter<'a>(template: &str, path: &'a str) -> Option<&'a str> {
    let is_parameter = |segment: &str| segment.starts_with('{');
    let mut pairs = template.split('/').zip(path.split('/'));
    let (_, value) = pairs.find(|(segment, _)| is_parameter(segment))?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::{Action, first_parameter, object_of_call};

    #[test]
    fn the_object_of_a_call_is_in_its_body() {
        let found = |body: &str, action| object_of_call(body.as_bytes(), action);
        let (delete, pool) = (Action::SandboxDelete, Action::PoolUpdate);
        assert_eq!(found("wait=1&id=a%2Fb", delete).as_deref(), Some("a/b"));
        assert_eq!(found("ids[0]=a", delete), None);
        assert_eq!(found("name=p&form[name]=q", pool).as_deref(), Some("p"));
        assert_eq!(found("", delete), None);
    }

    #[test]
    fn the_object_is_the_first_parameter_of_the_path() {
        let found = |template, path| first_parameter(template, path);
        let id = Some("a");
        assert_eq!(found("/v1/sandboxes/{id}", "/v1/sandboxes/a"), id);
        assert_eq!(
            found("/sandboxes/{id}/metadata", "/sandboxes/a/metadata"),
            id
        );
        assert_eq!(found("/v1/sandboxes", "/v1/sandboxes"), None);
    }
}

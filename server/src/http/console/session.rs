//! Sessions of the console.
//!
//! A session is a row of the store and a cookie with its id. The cookie is `HttpOnly`,
//! `SameSite=Lax` and bound to `Path=/console`: requests to sandboxes through the server's proxy,
//! which share the host, never carry it. That path is also why its HTTPS name has the prefix
//! `__Secure-` and not `__Host-`: the latter demands `Path=/` and would hand the cookie to every
//! proxied request.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use async_trait::async_trait;
use axum::{
    extract::{
        FromRequestParts, Request, State, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket},
    },
    http::{Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use leptos::prelude::FromServerFnError;
use osb_app::{error::ConsoleError, live::CLOSE_SIGNED_OUT, view::Notice};
use osb_protocol::{WireTime, error::code, identity::ConsoleSession};
use osb_store::{SessionRow, Store, StoreError};
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tower_sessions::{
    Expiry, Session, SessionManagerLayer, SessionStore,
    cookie::SameSite,
    session::{Id, Record},
    session_store::{Error, Result},
};
use uuid::Uuid;

use super::{
    super::{
        access::{self, Forbidden},
        audited,
        overload::{self, Capacities},
    },
    ConsoleState,
};
use crate::{
    audit,
    identity::{Authenticator, Credential, Principal, credential::LOGIN, session_id},
};

/// Idle time after which a session ends.
const IDLE: Duration = Duration::hours(12);
/// Shortest interval between two records of a session's use, in seconds.
const TOUCH_EVERY: i64 = 600;
/// Attempts to find an unused id; one suffices unless the random source is broken.
const ID_ATTEMPTS: usize = 8;

/// Longest wait for a page to answer the close of its WebSocket.
const PARTING: std::time::Duration = std::time::Duration::from_secs(5);
/// Longest message, in bytes, that is read from a page without a session.
const PARTING_MAX: usize = 4 * 1024;

/// How often open WebSockets check their session when there is no logout.
pub(super) const WATCH: std::time::Duration = std::time::Duration::from_secs(15);

/// Member of the session: the notice for the next page.
const NOTICE: &str = "notice";

/// The layer that reads and writes sessions.
pub(super) fn layer(store: Arc<dyn Store>, https: bool) -> SessionManagerLayer<Sessions> {
    SessionManagerLayer::new(Sessions(store))
        .with_name(if https {
            "__Secure-osb_console"
        } else {
            "osb_console"
        })
        .with_path("/console")
        .with_http_only(true)
        .with_same_site(SameSite::Lax)
        .with_secure(https)
        .with_expiry(Expiry::OnInactivity(IDLE))
}

/// Data of a login in its session. Sessions of earlier releases lack the members with a default.
#[derive(Clone, Serialize, Deserialize)]
struct Login {
    /// Unix seconds of the last recorded use.
    used: i64,
    /// Salt of the digest.
    salt: Uuid,
    /// [`Authenticator::digest`] at the login: sessions of the configured key end with it.
    keys: [u8; 32],
    /// What opened it.
    #[serde(default)]
    credential: Credential,
    /// Unix seconds of the login.
    #[serde(default)]
    opened: i64,
    /// Name of the principal at the login.
    #[serde(default)]
    name: String,
    /// Where the login came from.
    #[serde(default)]
    address: Option<IpAddr>,
}

impl Login {
    /// The login of a session with its principal as it is now; `None` when there is none any more.
    async fn of(
        session: &Session,
        keys: &Authenticator,
    ) -> std::result::Result<Option<(Self, Arc<Principal>)>, SessionError> {
        let login = session.get::<Self>(LOGIN).await?;
        Ok(login.and_then(|login| {
            let principal = login.principal(keys)?;
            Some((login, principal))
        }))
    }

    /// When it was opened, or the nearest time that is known.
    fn opened(&self) -> i64 {
        match self.opened {
            0 => self.used,
            opened => opened,
        }
    }

    fn principal(&self, keys: &Authenticator) -> Option<Arc<Principal>> {
        let is_stale = self.credential == Credential::Configured
            && self.keys != keys.digest(self.salt.as_bytes());
        keys.resume(&self.credential).filter(|_| !is_stale)
    }
}

/// Marks a request whose session is open; only [`admit`] creates it.
#[derive(Clone, Debug)]
pub(super) struct Admitted {
    principal: Arc<Principal>,
    /// Public id of the session.
    session: String,
}

impl Admitted {
    /// Whose session it is.
    pub(super) fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Public id of the session.
    pub(super) fn session(&self) -> &str {
        &self.session
    }
}

/// Opens a session under a new id, which defeats session fixation. It is stored by then; returns its
/// public id.
pub(super) async fn begin(
    session: &Session,
    keys: &Authenticator,
    (credential, principal): (Credential, Arc<Principal>),
    address: IpAddr,
) -> std::result::Result<String, SessionError> {
    session.cycle_id().await?;
    let (salt, digest) = keys.salted_digest();
    let login = Login {
        used: now(),
        keys: digest,
        salt,
        credential,
        opened: now(),
        name: principal.name.clone(),
        address: Some(address),
    };
    session.insert(LOGIN, login).await?;
    // Only a stored session has an id.
    if let Err(error) = session.save().await {
        // An empty one is not stored with the answer, which says that there is none.
        session.clear().await;
        return Err(error);
    }
    Ok(public_id_of(session))
}

fn public_id_of(session: &Session) -> String {
    let id = session.id();
    id.map_or_else(String::new, |id| session_id::public(&id.to_string()))
}

/// All open sessions, or those of one principal, newest first.
///
/// # Errors
/// When the store cannot be read.
pub(in super::super) async fn list(
    store: &dyn Store,
    keys: &Authenticator,
    owner: Option<&Principal>,
) -> std::result::Result<Vec<ConsoleSession>, StoreError> {
    let time = |seconds: i64| WireTime::from_unix_us(seconds.saturating_mul(1_000_000));
    let mut open = Vec::new();
    for (row, login) in logins(store).await? {
        let (true, Some(principal)) = (row.expires_at > now(), login.principal(keys)) else {
            continue;
        };
        if owner.is_some_and(|owner| !is_same(owner, &principal)) {
            continue;
        }
        let (Some(created_at), Some(last_used_at), Some(expires_at)) =
            (time(login.opened()), time(login.used), time(row.expires_at))
        else {
            continue;
        };
        open.push(ConsoleSession {
            id: session_id::public(&row.id),
            kind: login.credential.kind(),
            name: principal.name.clone(),
            created_at,
            last_used_at,
            expires_at,
            address: login.address.map(|address| address.to_string()),
        });
    }
    open.sort_by_key(|session| std::cmp::Reverse(session.created_at));
    Ok(open)
}

/// Whether two principals are one, whatever they may do.
fn is_same(one: &Principal, other: &Principal) -> bool {
    (one.kind, &one.id) == (other.kind, &other.id)
}

/// Ends a session by its public id; returns whose it was, if there was one. Its WebSockets end at once.
/// With an owner, sessions of others are as if they did not exist.
///
/// # Errors
/// When the store fails.
pub(in super::super) async fn revoke(
    store: &dyn Store,
    keys: &Authenticator,
    id: &str,
    owner: Option<&Principal>,
) -> std::result::Result<Option<String>, StoreError> {
    let mut all = logins(store).await?.into_iter();
    let Some((row, login)) = all.find(|(row, _)| session_id::public(&row.id) == id) else {
        return Ok(None);
    };
    let is_foreign = |owner: &Principal| {
        let principal = login.principal(keys);
        principal.is_none_or(|principal| !is_same(owner, &principal))
    };
    if owner.is_some_and(is_foreign) {
        return Ok(None);
    }
    store.session_delete(&row.id).await?;
    keys.accounts().session_ends().send_replace(());
    Ok(Some(login.name))
}

/// All sessions with a login, open or not.
async fn logins(store: &dyn Store) -> std::result::Result<Vec<(SessionRow, Login)>, StoreError> {
    let rows = store.sessions().await?.into_iter();
    let with_login = rows.filter_map(|row| {
        let mut data: HashMap<String, serde_json::Value> =
            serde_json::from_slice(&row.data).ok()?;
        let login = serde_json::from_value(data.remove(LOGIN)?).ok()?;
        Some((row, login))
    });
    Ok(with_login.collect())
}

/// A session that was ended by its owner.
pub(super) struct Ended {
    /// Its public id.
    pub(super) id: String,
    /// Whose it was, unless its credential does not work any more.
    pub(super) principal: Option<Arc<Principal>>,
}

/// Ends a session; `None` when it was not open.
pub(super) async fn end(
    session: &Session,
    keys: &Authenticator,
) -> std::result::Result<Option<Ended>, SessionError> {
    let login = session.get_value(LOGIN).await?;
    let ended = login.map(|login| Ended {
        id: public_id_of(session),
        principal: serde_json::from_value(login)
            .ok()
            .and_then(|login: Login| login.principal(keys)),
    });
    session.flush().await?;
    Ok(ended)
}

fn now() -> i64 {
    OffsetDateTime::from(osb_service::clock::now()).unix_timestamp()
}

/// Error of the session layer.
pub(super) type SessionError = tower_sessions::session::Error;

/// Why the work of a WebSocket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The session ended.
    SignedOut,
    /// Another reason: the page left, the server stops, sessions cannot be read.
    Other,
}

impl End {
    /// Closes the page's WebSocket with the code for an ended session, if that is why it ends.
    pub(super) async fn close(self, page: &mut WebSocket) {
        if self == Self::SignedOut {
            close_signed_out(page).await;
        }
    }
}

/// Runs the work of a WebSocket until it is done, the session ends or the server stops. The session
/// is checked again and again, because a WebSocket may stay open for days.
pub(super) async fn while_open(
    session: &Session,
    state: &ConsoleState,
    admitted: &Admitted,
    work: impl Future<Output = ()>,
) -> End {
    // Before the first check, so that no logout falls between the two.
    let mut logouts = state.logouts.subscribe();
    if let Some(end) = ended(session, &state.keys, admitted).await {
        return end;
    }
    let session_ends = async {
        let mut watch = interval(state.watch);
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        watch.reset();
        let withdrawn = admitted.principal.validity.ended();
        let mut is_withdrawn = false;
        loop {
            tokio::select! {
                _ = watch.tick() => {}
                // The sender lives as long as the state that is borrowed here.
                _ = logouts.changed() => {}
                () = withdrawn.cancelled(), if !is_withdrawn => is_withdrawn = true,
            }
            if let Some(end) = ended(session, &state.keys, admitted).await {
                return end;
            }
        }
    };
    tokio::select! {
        () = state.tasks.stopping().cancelled() => End::Other,
        end = session_ends => end,
        () = work => End::Other,
    }
}

/// Why WebSockets of the session have to end, according to the store; `None` while the session is
/// open.
async fn ended(session: &Session, keys: &Authenticator, admitted: &Admitted) -> Option<End> {
    let login = match session.load().await {
        Ok(()) => Login::of(session, keys).await,
        Err(error) => Err(error),
    };
    match login {
        Ok(Some((_, principal))) if principal == admitted.principal => None,
        // With another role or tenant the page may get another answer.
        Ok(Some(_)) => Some(End::Other),
        Ok(None) => Some(End::SignedOut),
        Err(_) => Some(End::Other),
    }
}

/// Closes a WebSocket with the code for an ended session, and reads on until the page closes.
async fn close_signed_out(page: &mut WebSocket) {
    let parting = async {
        let close = CloseFrame {
            code: CLOSE_SIGNED_OUT,
            reason: "signed out".into(),
        };
        // Unread input would reset the connection before the code arrives.
        if page.send(Message::Close(Some(close))).await.is_ok() {
            while let Some(Ok(_)) = page.recv().await {}
        }
    };
    // A page that does not answer is gone.
    let _ = timeout(PARTING, parting).await;
}

/// Stores a notice for the next page.
pub(super) async fn leave_notice(session: &Session, notice: &Notice) {
    if let Err(error) = session.insert(NOTICE, notice).await {
        tracing::warn!(%error, "a notice for the next page is lost");
    }
}

/// Admits requests with an open session whose principal may call the route; redirects page requests
/// without one to the login.
pub(super) async fn admit(
    State(state): State<ConsoleState>,
    session: Session,
    mut request: Request,
    next: Next,
) -> Response {
    let (login, principal) = match Login::of(&session, &state.keys).await {
        Ok(Some(found)) => found,
        Ok(None) => return refuse(request, &state.room).await,
        Err(error) => {
            tracing::error!(%error, "sessions cannot be read");
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
    };
    let now = now();
    if now - login.used >= TOUCH_EVERY {
        // A failure only shortens the session.
        let _ = session.insert(LOGIN, Login { used: now, ..login }).await;
    }
    if let Err(forbidden) = access::check(&principal, &request) {
        let refusal = (StatusCode::FORBIDDEN, code::FORBIDDEN);
        audited::read_object_of_call(&mut request).await;
        audited::deny(&state.trail, &request, audit::actor(&principal), refusal);
        return forbid(&request, &forbidden);
    }
    request.extensions_mut().insert(Arc::clone(&principal));
    let session_id = public_id_of(&session);
    request.extensions_mut().insert(Admitted {
        principal,
        session: session_id,
    });
    let is_page = request.method() == Method::GET && wants_html(&request);
    if is_page && let Ok(Some(notice)) = session.remove::<Notice>(NOTICE).await {
        request.extensions_mut().insert(notice);
    }
    next.run(request).await
}

/// Answers a request that the role of its principal does not allow.
fn forbid(request: &Request, forbidden: &Forbidden) -> Response {
    let message = forbidden.to_string();
    if !request.uri().path().starts_with("/console/fn/") {
        return (StatusCode::FORBIDDEN, message).into_response();
    }
    let json = [(header::CONTENT_TYPE, "application/json")];
    let body = ConsoleError::Refused { message }.ser();
    (StatusCode::FORBIDDEN, json, body).into_response()
}

async fn refuse(request: Request, room: &Capacities) -> Response {
    if request.headers().contains_key(header::UPGRADE) {
        return refuse_socket(request, room).await;
    }
    let path = request.uri().path();
    let is_page = request.method() == Method::GET;
    if path.starts_with("/console/fn/") {
        let body = ConsoleError::SignedOut.ser();
        let json = [(header::CONTENT_TYPE, "application/json")];
        return (StatusCode::UNAUTHORIZED, json, body).into_response();
    }
    if is_page {
        let wanted = request
            .uri()
            .path_and_query()
            .map_or(path, |it| it.as_str());
        let query: String = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("next", wanted)
            .finish();
        return Redirect::to(&format!("/console/login?{query}")).into_response();
    }
    if wants_html(&request) {
        return Redirect::to("/console/login").into_response();
    }
    StatusCode::UNAUTHORIZED.into_response()
}

/// Completes the handshake of a WebSocket without a session, to close it with a code: browsers hide
/// from a page why a handshake failed, and it could as well be a server that is down. Of browsers
/// only the console's own pages get this far ([`super::origin`]), but any program can send an
/// `Origin`, so little is read and not for long.
async fn refuse_socket(request: Request, room: &Capacities) -> Response {
    let place = overload::sign_in(room, &request);
    let (mut parts, _) = request.into_parts();
    match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade
            .max_message_size(PARTING_MAX)
            .max_frame_size(PARTING_MAX)
            .on_upgrade(async move |mut page| {
                // A page that is displaced is cut off, and asks again.
                let _ = place.wait(close_signed_out(&mut page)).await;
            }),
        Err(_) => StatusCode::UNAUTHORIZED.into_response(),
    }
}

fn wants_html(request: &Request) -> bool {
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|it| it.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Sessions in the server's store.
#[derive(Clone)]
pub(super) struct Sessions(Arc<dyn Store>);

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sessions")
    }
}

fn row(record: &Record) -> Result<SessionRow> {
    Ok(SessionRow {
        id: record.id.to_string(),
        data: serde_json::to_vec(&record.data).map_err(|error| Error::Encode(error.to_string()))?,
        expires_at: record.expiry_date.unix_timestamp(),
    })
}

fn record(id: Id, row: &SessionRow) -> Result<Record> {
    let decode = |text: String| Error::Decode(text);
    Ok(Record {
        id,
        data: serde_json::from_slice(&row.data).map_err(|error| decode(error.to_string()))?,
        expiry_date: OffsetDateTime::from_unix_timestamp(row.expires_at)
            .map_err(|error| decode(error.to_string()))?,
    })
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: StoreError) -> Error {
    Error::Backend(error.to_string())
}

#[async_trait]
impl SessionStore for Sessions {
    async fn create(&self, record: &mut Record) -> Result<()> {
        for _ in 0..ID_ATTEMPTS {
            if self.0.session_create(&row(record)?).await.map_err(failed)? {
                return Ok(());
            }
            record.id = Id::default();
        }
        Err(Error::Backend("no free session id was found".to_owned()))
    }

    async fn save(&self, record: &Record) -> Result<()> {
        self.0.session_save(&row(record)?).await.map_err(failed)
    }

    async fn load(&self, id: &Id) -> Result<Option<Record>> {
        let Some(row) = self.0.session_load(&id.to_string()).await.map_err(failed)? else {
            return Ok(None);
        };
        let record = record(*id, &row)?;
        Ok((record.expiry_date > OffsetDateTime::now_utc()).then_some(record))
    }

    async fn delete(&self, id: &Id) -> Result<()> {
        self.0.session_delete(&id.to_string()).await.map_err(failed)
    }
}

//! Sessions of the console.
//!
//! A session is a row of the store and a cookie with its id. The cookie is `HttpOnly`,
//! `SameSite=Lax` and bound to `Path=/console`: requests to sandboxes through the server's proxy,
//! which share the host, never carry it. That path is also why its HTTPS name has the prefix
//! `__Secure-` and not `__Host-`: the latter demands `Path=/` and would hand the cookie to every
//! proxied request.

use std::sync::Arc;

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
    super::overload::{self, Capacities},
    ConsoleState, Keys,
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

/// Member of the session: a [`Login`].
const LOGIN: &str = "login";
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

/// Data of a login in its session.
#[derive(Serialize, Deserialize)]
struct Login {
    /// Unix seconds of the last recorded use.
    used: i64,
    /// Salt of the digest.
    salt: Uuid,
    /// [`Keys::digest`] at the login: sessions end with the key that opened them.
    keys: [u8; 32],
}

impl Login {
    async fn of(
        session: &Session,
        keys: &dyn Keys,
    ) -> std::result::Result<Option<Self>, SessionError> {
        let login = session.get::<Self>(LOGIN).await?;
        Ok(login.filter(|login| login.keys == keys.digest(login.salt.as_bytes())))
    }
}

/// Marks a request whose session is open; only [`admit`] creates it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted(());

/// Opens a session under a new id, which defeats session fixation.
pub(super) async fn begin(
    session: &Session,
    keys: &dyn Keys,
) -> std::result::Result<(), SessionError> {
    session.cycle_id().await?;
    let salt = Uuid::new_v4();
    let login = Login {
        used: now(),
        keys: keys.digest(salt.as_bytes()),
        salt,
    };
    session.insert(LOGIN, login).await
}

/// Ends a session; returns whether it was open.
pub(super) async fn end(session: &Session) -> std::result::Result<bool, SessionError> {
    let was_open = session.get_value(LOGIN).await?.is_some();
    session.flush().await?;
    Ok(was_open)
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
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
    work: impl Future<Output = ()>,
) -> End {
    // Before the first check, so that no logout falls between the two.
    let mut logouts = state.logouts.subscribe();
    if let Some(end) = ended(session, &*state.keys).await {
        return end;
    }
    let session_ends = async {
        let mut watch = interval(state.watch);
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        watch.reset();
        loop {
            tokio::select! {
                _ = watch.tick() => {}
                // The sender lives as long as the state that is borrowed here.
                _ = logouts.changed() => {}
            }
            if let Some(end) = ended(session, &*state.keys).await {
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
async fn ended(session: &Session, keys: &dyn Keys) -> Option<End> {
    let login = match session.load().await {
        Ok(()) => Login::of(session, keys).await,
        Err(error) => Err(error),
    };
    match login {
        Ok(Some(_)) => None,
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

/// Admits requests with an open session; redirects page requests without one to the login.
pub(super) async fn admit(
    State(state): State<ConsoleState>,
    session: Session,
    mut request: Request,
    next: Next,
) -> Response {
    let login = match Login::of(&session, &*state.keys).await {
        Ok(Some(login)) => login,
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
    request.extensions_mut().insert(Admitted(()));
    let is_page = request.method() == Method::GET && wants_html(&request);
    if is_page && let Ok(Some(notice)) = session.remove::<Notice>(NOTICE).await {
        request.extensions_mut().insert(notice);
    }
    next.run(request).await
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

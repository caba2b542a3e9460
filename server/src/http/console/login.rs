//! Login and logout. Both are plain forms, so that they work without script, and no script handles
//! the key or the password.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use osb_app::view::Notice;
use osb_protocol::{audit::AuditOutcome, error::code};
use tower_sessions::Session;
use url::Url;

use super::{
    super::{
        audited,
        client::{self, Client},
        extract, overload,
        throttle::KeyFailure,
    },
    ConsoleState, session,
};
use crate::{
    audit::{self, Act, ActOrigin, Action},
    identity::{Accounts, Credential, Principal},
};

/// Wrong keys and passwords that a client may send in a row.
const WRONG_KEYS: u32 = 10;
/// Largest form, in bytes: a key and the address of a page.
const FORM_MAX: usize = 16 * 1024;
/// Longest time that the form may take.
const FORM_TIME: Duration = Duration::from_secs(10);

/// The form of the login page.
#[derive(Debug, Default)]
struct Login {
    /// Name of a user; empty for an API key.
    user: String,
    /// An API key or a password.
    key: String,
    /// Page to go to.
    next: String,
}

impl Login {
    fn of(form: &[u8]) -> Self {
        let mut login = Self::default();
        for (name, value) in url::form_urlencoded::parse(form) {
            match &*name {
                "user" => login.user = value.trim().to_owned(),
                "key" => login.key = value.into_owned(),
                "next" => login.next = value.into_owned(),
                _ => {}
            }
        }
        login
    }
}

/// Why a login failed. It travels in the URL by name, so that a link cannot put its own words on the
/// page, and visitors without a session leave no trace in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    WrongKey,
    WrongPassword,
    TooMany,
    TooManyPasswords,
    NoSession,
}

impl Failure {
    const ALL: [Self; 5] = [
        Self::WrongKey,
        Self::WrongPassword,
        Self::TooMany,
        Self::TooManyPasswords,
        Self::NoSession,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::WrongKey => "key",
            Self::WrongPassword => "password",
            Self::TooMany => "slow",
            Self::TooManyPasswords => "account",
            Self::NoSession => "session",
        }
    }

    /// The status that says the same; the answer is a redirect in any case.
    fn status(self) -> StatusCode {
        match self {
            Self::WrongKey | Self::WrongPassword => StatusCode::UNAUTHORIZED,
            Self::TooMany | Self::TooManyPasswords => StatusCode::TOO_MANY_REQUESTS,
            Self::NoSession => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The code for the audit trail.
    fn code(self) -> &'static str {
        match self {
            Self::WrongKey => code::INVALID_API_KEY,
            Self::WrongPassword => "INVALID_PASSWORD",
            Self::TooMany | Self::TooManyPasswords => code::TOO_MANY_REQUESTS,
            Self::NoSession => code::STORE_UNAVAILABLE,
        }
    }

    /// The notice for the page of this query.
    pub(super) fn notice(query: &str) -> Option<Notice> {
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        let (_, name) = pairs.find(|(key, _)| key == "failed")?;
        let failure = Self::ALL
            .into_iter()
            .find(|failure| failure.name() == name)?;
        Some(Notice::bad(match failure {
            Self::WrongKey => "That is not a key of this server.",
            Self::WrongPassword => "The user name or the password is wrong.",
            Self::TooMany => "Too many wrong keys from your address. Wait a few seconds.",
            Self::TooManyPasswords => "Too many wrong passwords. Wait a minute.",
            Self::NoSession => "The server cannot keep a session just now. Try again.",
        }))
    }

    fn redirect(self, next: &str) -> Redirect {
        let query: String = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("failed", self.name())
            .append_pair("next", next)
            .finish();
        Redirect::to(&format!("/console/login?{query}"))
    }
}

/// Opens a session for a valid key or password.
pub(super) async fn log_in(
    State(state): State<ConsoleState>,
    session: Session,
    request: Request,
) -> Response {
    let client = client::of(request.extensions());
    let from = audited::origin(request.extensions());
    let place = overload::sign_in(&state.room, &request);
    let form = place.wait(extract::read(request.into_body(), FORM_MAX, FORM_TIME));
    let form = match form.await {
        Ok(Ok(form)) => form,
        Ok(Err(refusal)) | Err(refusal) => return refusal.into_response(),
    };
    let login = Login::of(&form);
    let found = match login.user.is_empty() {
        true => with_key(&state, &client, login.key.trim()),
        // Passwords take time; the newest client displaces the oldest here as well.
        false => match place.wait(with_password(&state, &client, &login)).await {
            Ok(found) => found,
            Err(refusal) => return refusal.into_response(),
        },
    };
    let opened = match found {
        Ok(found) => {
            let actor = audit::actor(&found.1);
            let act = Act::begin(&state.trail, Action::SessionSignIn, actor, &from);
            let opened = open(&state, &session, &client, found).await;
            match &opened {
                Ok(id) => {
                    act.set_object(id);
                    act.finish(StatusCode::SEE_OTHER.as_u16(), None);
                }
                Err(failure) => act.finish(failure.status().as_u16(), Some(failure.code())),
            }
            opened
        }
        Err(failure) => {
            record_failure(&state, &from, &login.user, failure);
            Err(failure)
        }
    };
    match opened {
        Ok(_) => Redirect::to(own_page(&login.next).unwrap_or("/console/sandboxes")),
        Err(failure) => failure.redirect(&login.next),
    }
    .into_response()
}

/// What a session is opened with, and for whom.
type SignedIn = (Credential, Arc<Principal>);

fn with_key(state: &ConsoleState, client: &Client, key: &str) -> Result<SignedIn, Failure> {
    if let Ok(found) = state.keys.sign_in_with_key(key.as_bytes()) {
        return Ok(found);
    }
    let counted = state
        .throttle
        .record_failure(client.group(), WRONG_KEYS, Instant::now());
    if counted == KeyFailure::TooMany {
        return Err(Failure::TooMany);
    }
    tracing::warn!(address = %client.address, "a wrong key was sent to the console");
    Err(Failure::WrongKey)
}

async fn with_password(
    state: &ConsoleState,
    client: &Client,
    login: &Login,
) -> Result<SignedIn, Failure> {
    let Login { user, key, .. } = login;
    let address = client.group();
    let throttle = &state.throttle;
    // Any text may come as a name. What no account can be called takes neither memory nor a hash.
    let Some(account) = Accounts::account_name(user) else {
        let counted = throttle.record_no_account(address, WRONG_KEYS, Instant::now());
        return Err(match counted {
            KeyFailure::TooMany => Failure::TooManyPasswords,
            KeyFailure::Counted | KeyFailure::Last => Failure::WrongPassword,
        });
    };
    if !throttle.admits(&account, address, WRONG_KEYS, Instant::now()) {
        return Err(Failure::TooManyPasswords);
    }
    match state
        .keys
        .sign_in_with_password(user, key.as_str().into())
        .await
    {
        Ok(Some(found)) => {
            throttle.record_sign_in(&account, address);
            Ok(found)
        }
        Ok(None) => {
            tracing::warn!(address = %client.address, "a wrong password was sent to the console");
            Err(Failure::WrongPassword)
        }
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "no password can be checked"
            );
            Err(Failure::NoSession)
        }
    }
}

/// Records a key or password that was refused. Only the name of a user is kept: what a client sends in
/// its place may be a password.
fn record_failure(state: &ConsoleState, from: &ActOrigin, user: &str, failure: Failure) {
    let is_user = state.keys.accounts().user_id(user).is_some();
    let mut refusal = audited::denial(
        Action::SessionSignInFailed,
        audit::unknown(if is_user { user } else { "" }),
        from,
        failure.status(),
        failure.code(),
    );
    if failure.status() == StatusCode::SERVICE_UNAVAILABLE {
        refusal.outcome = AuditOutcome::Failed;
    }
    state.trail.record_denial(refusal);
}

/// Opens a session; returns its public id.
async fn open(
    state: &ConsoleState,
    session: &Session,
    client: &Client,
    found: SignedIn,
) -> Result<String, Failure> {
    let begun = session::begin(session, &state.keys, found, client.address).await;
    begun.map_err(|error| {
        tracing::error!(%error, "a console session cannot be kept");
        Failure::NoSession
    })
}

/// Ends the session and its WebSockets in other tabs. A client without a session triggers no check:
/// every open WebSocket would query the store.
pub(super) async fn log_out(
    State(state): State<ConsoleState>,
    session: Session,
    request: Request,
) -> Redirect {
    match session::end(&session, &state.keys).await {
        Ok(Some(ended)) => {
            state.logouts.send_replace(());
            let actor = ended.principal.as_deref().map(audit::actor);
            let actor = actor.unwrap_or_else(|| audit::unknown(""));
            let from = audited::origin(request.extensions());
            let act = Act::begin(&state.trail, Action::SessionSignOut, actor, &from);
            act.set_object(&ended.id);
            act.finish(StatusCode::SEE_OTHER.as_u16(), None);
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "a console session cannot be ended"),
    }
    Redirect::to("/console/login")
}

/// The address if it is a page of the console. `next` comes from the URL and must not lead to
/// another site, neither as written nor as browsers normalise it.
fn own_page(next: &str) -> Option<&str> {
    let plain = next
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let here = Url::parse("http://console.invalid").ok()?;
    let read = here.join(next).ok()?;
    if next == "/console" {
        return Some(next);
    }
    let stays = |path: &str| path.starts_with("/console/");
    (plain && stays(next) && here.origin() == read.origin() && stays(read.path())).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_never_leads_away() {
        assert_eq!(
            own_page("/console/sandboxes?q=a"),
            Some("/console/sandboxes?q=a")
        );
        let dots = "/console/sandboxes?q=1..2&state=Running";
        assert_eq!(own_page(dots), Some(dots));
        assert_eq!(own_page("/console"), Some("/console"));
        for away in [
            "",
            "//evil",
            "/console.evil",
            "/console?a",
            "/consolevil/x",
            "https://evil",
            "/console/../v1",
            "/console/%2e%2e/v1",
            "/console/.%2E/v1",
            "/console/\\evil",
            "/console/ x",
        ] {
            assert_eq!(own_page(away), None, "{away}");
        }
    }

    #[test]
    fn a_link_cannot_choose_the_words() {
        assert!(Failure::notice("failed=key").is_some());
        assert_eq!(Failure::notice("failed=Send+your+key+to+evil"), None);
        assert_eq!(Failure::notice("next=x"), None);
    }
}

//! One cell of the table: a request to a route by one client.

use std::net::{IpAddr, Ipv4Addr};

use futures::StreamExt;
use osb_protocol::{
    execd::pty::close_code::SIGNED_OUT,
    identity::Role::{self, ReadOnly},
};
use osb_testkit::{MountedRoute, TestServer, connect_from};
use reqwest::{Method, RequestBuilder, StatusCode, header};
use serde_json::{Value, json};
use tokio_tungstenite::{
    client_async,
    tungstenite::{self, Message, client::IntoClientRequest},
};

use super::rows::{
    About::{self, Open},
    NOTHING, ROWS,
};

/// One method of one route, with what is expected of it.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) method: Method,
    /// As the router has it.
    pub(super) pattern: String,
    pub(super) least: Role,
    pub(super) about: About,
    pub(super) body: &'static str,
}

impl Cell {
    pub(super) fn of(route: &MountedRoute) -> Self {
        let pattern = &route.path;
        let bare = pattern.strip_prefix("/v1").unwrap_or(pattern);
        // Static files have a name that depends on their content.
        let is_asset = bare.starts_with("/console/assets/");
        let row = ROWS.iter().find(|(path, methods, ..)| {
            *path == bare && methods.split(' ').any(|method| method == route.method)
        });
        let (least, about, body) = match row {
            Some((_, _, least, about, body)) => (*least, *about, *body),
            None if is_asset => (ReadOnly, Open, NOTHING),
            None => panic!(
                "{} {pattern} has no row in ROWS: say which role it needs and whose it is",
                route.method
            ),
        };
        Self {
            method: route.method(),
            pattern: pattern.clone(),
            least,
            about,
            body,
        }
    }

    pub(super) fn is_of_console(&self) -> bool {
        self.pattern.starts_with("/console")
    }

    /// Whether the answer may have no end.
    pub(super) fn streams(&self) -> bool {
        [
            "/watch",
            "/live",
            "/terminal/{sandbox}",
            "/tunnel/{sandbox}/{port}",
            "/run/{sandbox}",
        ]
        .iter()
        .any(|end| self.pattern.ends_with(end))
    }

    pub(super) fn removes(&self) -> bool {
        self.method == Method::DELETE || self.pattern.contains("/delete")
    }

    pub(super) fn path(&self, id: &str) -> String {
        let path = ["{id}", "{sandbox}", "{name}"]
            .iter()
            .fold(self.pattern.clone(), |path, part| path.replace(part, id));
        path.replace("{port}", "80")
            .replace("{delivery}", "1")
            .replace("{*rest}", "nowhere")
            .replace("{*path}", "nowhere")
            .replace("{*name}", "nowhere")
    }

    /// Sends the request about a sandbox for a caller; status, whole text and where it leads.
    pub(super) async fn send(&self, server: &TestServer, caller: &Caller, id: &str) -> Seen {
        let path = self.path(id);
        if self.opens_a_socket() {
            let own = format!("http://{}", server.address);
            return open_socket(server, caller, &path, &own).await;
        }
        let own = ("sec-fetch-site", "same-origin");
        self.send_with(server, caller, id, own).await
    }

    /// Whether it is a WebSocket of the console.
    pub(super) fn opens_a_socket(&self) -> bool {
        self.is_of_console() && self.streams()
    }

    /// Sends the request with the header by which a browser names the page that sent it.
    pub(super) async fn send_with(
        &self,
        server: &TestServer,
        caller: &Caller,
        id: &str,
        (name, value): (&str, &str),
    ) -> Seen {
        let path = self.path(id);
        let mut request = match caller.secret.as_deref() {
            Some(secret) if self.is_of_console() => {
                let cookie = sign_in(server, secret).await;
                let request = server.bare(self.method.clone(), &path);
                request.header(header::COOKIE, cookie)
            }
            Some(secret) => server.request_as(secret, self.method.clone(), &path),
            None => server.bare(self.method.clone(), &path),
        };
        request = request.header(name, value);
        let kind = match self.is_of_console() {
            true => "application/x-www-form-urlencoded",
            false => "application/json",
        };
        if self.method != Method::GET {
            request = request
                .header(header::CONTENT_TYPE, kind)
                .body(self.body.replace("ID", id));
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let location = answer.headers().get(header::LOCATION);
        let location = location.map(|to| to.to_str().unwrap().to_owned());
        let has_end = !(self.streams() && status.is_success());
        let text = match has_end {
            true => answer.text().await.unwrap(),
            false => String::new(),
        };
        Seen {
            status,
            location,
            text,
        }
    }
}

/// Opens a WebSocket of the console: its first message is the text. A refusal is the answer, or a
/// close code, which stands for the status here.
pub(super) async fn open_socket(
    server: &TestServer,
    caller: &Caller,
    path: &str,
    origin: &str,
) -> Seen {
    let address = server.address;
    let mut request = format!("ws://{address}{path}")
        .into_client_request()
        .unwrap();
    let headers = request.headers_mut();
    headers.insert("origin", origin.parse().unwrap());
    if let Some(secret) = &caller.secret {
        let cookie = sign_in(server, secret).await.parse().unwrap();
        request.headers_mut().insert("cookie", cookie);
    }
    let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let stream = connect_from(source, address).await.unwrap();
    let (status, text) = match client_async(request, stream).await {
        Ok((mut socket, _)) => match socket.next().await {
            Some(Ok(Message::Close(Some(close)))) if close.code == SIGNED_OUT.into() => {
                (StatusCode::UNAUTHORIZED, close.reason.to_string())
            }
            Some(Ok(Message::Close(Some(close)))) => {
                let text = format!("{} {}", u16::from(close.code), close.reason);
                (StatusCode::SWITCHING_PROTOCOLS, text)
            }
            Some(Ok(message)) => (StatusCode::SWITCHING_PROTOCOLS, message.to_string()),
            other => panic!("{path}: {other:?}"),
        },
        Err(tungstenite::Error::Http(answer)) => (answer.status(), String::new()),
        Err(error) => panic!("{path}: {error}"),
    };
    Seen {
        status,
        location: None,
        text,
    }
}

/// What a caller sees of an answer.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) status: StatusCode,
    pub(super) location: Option<String>,
    pub(super) text: String,
}

impl Seen {
    /// What must not differ between a foreign sandbox and one that does not exist. Pages differ in
    /// their nonces and times.
    pub(super) fn comparable(&self, id: &str) -> (StatusCode, Option<String>, Value) {
        let body: Value = serde_json::from_str(&self.text).unwrap_or(Value::Null);
        let body = match body.get("code") {
            Some(code) => json!([code, body["message"]]),
            None => body,
        };
        let body = body.to_string().replace(id, "ID");
        let location = self.location.as_ref().map(|to| to.replace(id, "ID"));
        (self.status, location, Value::from(body))
    }

    pub(super) fn leads_to_login(&self) -> bool {
        self.location
            .as_deref()
            .is_some_and(|to| to.starts_with("/console/login"))
    }
}

/// A client with a stored key, or without one.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) role: Role,
    pub(super) tenant: Option<&'static str>,
    pub(super) secret: Option<String>,
}

impl Caller {
    pub(super) async fn new(server: &TestServer, role: Role, tenant: Option<&'static str>) -> Self {
        let new = json!({"name": "k", "role": role, "tenant": tenant});
        let request = server.request(Method::POST, "/v1/api-keys").json(&new);
        let (status, body) = answer(request).await;
        assert_eq!(status, 201, "{body}");
        Self {
            role,
            tenant,
            secret: Some(body["secret"].as_str().unwrap().to_owned()),
        }
    }

    pub(super) fn secret(&self) -> &str {
        self.secret.as_deref().unwrap()
    }

    /// Makes a sandbox whose metadata has a mark.
    pub(super) async fn create(&self, server: &TestServer, mark: &str) -> String {
        let mut body = TestServer::good_create();
        body["metadata"] = json!({"owner": mark});
        let request = server.request_as(self.secret(), Method::POST, "/v1/sandboxes");
        let (status, body) = answer(request.json(&body)).await;
        assert_eq!(status, 202, "{body}");
        body["id"].as_str().unwrap().to_owned()
    }
}

pub(super) async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// Signs in to the console with a key; the session's cookie.
async fn sign_in(server: &TestServer, key: &str) -> String {
    let answer = server
        .bare(Method::POST, "/console/login")
        .header("sec-fetch-site", "same-origin")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(format!("key={key}"))
        .send()
        .await
        .unwrap();
    let cookie = answer.headers().get(header::SET_COOKIE);
    let cookie = cookie.unwrap_or_else(|| panic!("not signed in: {answer:?}"));
    let cookie = cookie.to_str().unwrap().split(';').next().unwrap();
    cookie.to_owned()
}

//! The page that a browser shows when a sandbox cannot be opened. Programs get the contract's JSON.

use std::fmt::Write;

use axum::{
    extract::Request,
    response::{Html, IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{
        ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, REFRESH,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use osb_protocol::{SandboxId, error::code};
use uuid::Uuid;

use super::super::error::ApiError;

/// How a browser says that it opens a page. Browsers send it only to servers that they trust.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// Seconds until a page about a sandbox that is starting reloads.
const RELOAD: HeaderValue = HeaderValue::from_static("2");

const STYLE: &str = "\
:root{color-scheme:light dark;--ground:light-dark(#f6f7f9,#0e1116);\
--surface:light-dark(#fff,#161b22);--ink:light-dark(#1a2130,#e4e9f0);\
--soft:light-dark(#4a5468,#a9b4c4);--line:light-dark(#dfe3ea,#29313c);\
--accent:light-dark(#3053d6,#8fa9ff)}\
body{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--ground);\
color:var(--ink);font:1rem/1.5 system-ui,sans-serif}\
main{box-sizing:border-box;width:min(34rem,100vw - 2rem);margin:1rem;padding:2rem;\
background:var(--surface);border:1px solid var(--line);border-radius:8px;\
overflow-wrap:anywhere}\
h1{margin:.25rem 0 1rem;font-size:1.375rem;line-height:1.25}p{margin:0 0 1rem}\
.soft,dl{color:var(--soft);font-size:.875rem}.soft{margin:0}\
dl{display:grid;grid-template-columns:auto 1fr;gap:.25rem 1rem;margin:1.5rem 0 0;\
padding-top:1rem;border-top:1px solid var(--line)}dd{margin:0}\
a{color:var(--accent);margin-right:1.5rem}";

/// A page to answer with.
pub(super) struct Page {
    sandbox: SandboxId,
    port: String,
}

impl Page {
    /// `None` if a program asked, or a script of a page, rather than a user who opens one.
    pub(super) fn wanted_by(request: &Request, sandbox: &SandboxId, port: &str) -> Option<Self> {
        opens_page(request.method(), request.headers()).then(|| Self {
            sandbox: sandbox.clone(),
            port: port.to_owned(),
        })
    }

    /// Answers with an error: as a page if one is wanted.
    pub(super) fn answer(page: Option<Self>, error: ApiError) -> Response {
        match page {
            Some(page) => error.in_form(|error| page.render(error)),
            None => error.into_response(),
        }
    }

    fn render(&self, error: &ApiError) -> Response {
        let nonce = Uuid::new_v4().simple().to_string();
        let policy = format!(
            "default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'self'"
        );
        let (title, advice) = words(error.code());
        let html = self.html(error, title, advice, &nonce);
        let mut response = Html(html).into_response();
        let headers = response.headers_mut();
        let policy = HeaderValue::from_str(&policy).expect("hex digits are visible ASCII");
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if error.code() == code::ADDRESS_NOT_AVAILABLE {
            headers.insert(REFRESH, RELOAD);
        }
        response
    }

    fn html(&self, error: &ApiError, title: &str, advice: &str, nonce: &str) -> String {
        let status = error.status();
        let (sandbox, port) = (Escaped(self.sandbox.as_str()), Escaped(&self.port));
        let message = Escaped(error.message().trim_end_matches('.'));
        format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"robots\" content=\"noindex\"><title>{title}</title>\
             <style nonce=\"{nonce}\">{STYLE}</style></head><body><main>\
             <p class=\"soft\">{status}</p><h1>{title}</h1><p>{message}.</p><p>{advice}</p>\
             <p><a href=\"\">Reload</a><a href=\"/console/sandboxes\">Open the console</a></p>\
             <dl><dt>Sandbox</dt><dd>{sandbox}</dd><dt>Port</dt><dd>{port}</dd></dl>\
             </main></body></html>\n"
        )
    }
}

/// Whether a user opens a page with this request. Browsers say so; older ones, and those that reach the
/// server by plain HTTP, only name the type.
fn opens_page(method: &Method, headers: &HeaderMap) -> bool {
    let takes_html = headers.get_all(ACCEPT).iter().any(|value| {
        let types = value.to_str().unwrap_or_default().to_ascii_lowercase();
        types.contains("text/html")
    });
    takes_html
        && match headers.get(FETCH_MODE) {
            Some(mode) => mode == "navigate",
            None => matches!(*method, Method::GET | Method::HEAD),
        }
}

/// Title of the page, and what the user can do.
fn words(code: &str) -> (&'static str, &'static str) {
    match code {
        code::SANDBOX_NOT_FOUND => (
            "There is no such sandbox",
            "It may have expired or been deleted. Check the address.",
        ),
        code::ADDRESS_NOT_AVAILABLE => (
            "The sandbox is starting",
            "This page reloads until the sandbox is ready.",
        ),
        code::SANDBOX_NOT_RUNNING => (
            "The sandbox is paused",
            "Resume it in the console or with the API, then reload this page.",
        ),
        code::ENDPOINT_UNAVAILABLE => (
            "The sandbox does not run",
            "The console shows why it ended. Create another one to go on.",
        ),
        code::BACKEND_CONNECTION_FAILED => (
            "Nothing listens on this port",
            "The sandbox runs, but no program in it accepts connections on this port. Start one that \
             listens on all addresses (0.0.0.0), then reload this page.",
        ),
        code::BACKEND_TIMEOUT => (
            "The program does not answer",
            "It accepted the connection but sent nothing for too long. Reload this page, or look at \
             the program's output in the sandbox.",
        ),
        code::BACKEND_RESPONSE_FAILED => (
            "The program's answer cannot be used",
            "It closed the connection or does not speak HTTP. Look at its output in the sandbox.",
        ),
        code::SECURE_ACCESS => (
            "This sandbox needs its token",
            "Every request must bring the headers of the sandbox's endpoint. A browser does not send \
             them by itself: use a client that does.",
        ),
        code::MISSING_API_KEY | code::INVALID_API_KEY => (
            "This request needs an API key",
            "Requests that come from a sandbox must bring the key of the server.",
        ),
        code::OVERLOADED | code::TOO_MANY_REQUESTS => (
            "There are too many requests",
            "Close other pages of this sandbox, or reload this one in a moment.",
        ),
        code::INVALID_PORT | code::INVALID_PARAMETER => (
            "This is not a port",
            "Ports are numbers from 1 to 65535. Check the address.",
        ),
        _ => (
            "The sandbox cannot be opened",
            "Reload this page. If that does not help, the server's log has more.",
        ),
    }
}

/// Text in HTML: nothing in it is markup.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_user_who_opens_a_page_gets_one() {
        let html = "text/html,application/xhtml+xml,*/*;q=0.8";
        for (method, accept, mode, opens) in [
            (Method::GET, html, Some("navigate"), true),
            (Method::POST, html, Some("navigate"), true),
            (Method::GET, html, None, true),
            (Method::POST, html, None, false),
            (Method::GET, html, Some("cors"), false),
            (Method::GET, "*/*", Some("navigate"), false),
            (Method::GET, "application/json", None, false),
            (Method::GET, "*/*", None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            if let Some(mode) = mode {
                headers.insert(FETCH_MODE, mode.parse().unwrap());
            }
            let seen = opens_page(&method, &headers);
            assert_eq!(seen, opens, "{method} {accept} {mode:?}");
        }
        assert!(!opens_page(&Method::GET, &HeaderMap::new()));
    }

    #[test]
    fn nothing_of_an_address_is_markup() {
        let page = Page {
            sandbox: SandboxId::from("<script>alert('1')</script>\"&"),
            port: "<b>".to_owned(),
        };
        let status = http::StatusCode::NOT_FOUND;
        let error = ApiError::new(status, code::SANDBOX_NOT_FOUND, "no <i>such</i> thing");
        let html = page.html(&error, "title", "advice", "n0nce");
        for markup in ["<script", "<b>", "<i>"] {
            assert!(!html.contains(markup), "{html}");
        }
        let escaped = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;";
        assert!(html.contains(escaped), "{html}");
        assert!(html.contains("no &lt;i&gt;such&lt;/i&gt; thing"), "{html}");
    }

    #[test]
    fn every_code_of_the_proxy_has_its_own_words() {
        let other = words("");
        for code in [
            code::SANDBOX_NOT_FOUND,
            code::ADDRESS_NOT_AVAILABLE,
            code::SANDBOX_NOT_RUNNING,
            code::ENDPOINT_UNAVAILABLE,
            code::BACKEND_CONNECTION_FAILED,
            code::BACKEND_TIMEOUT,
            code::BACKEND_RESPONSE_FAILED,
            code::SECURE_ACCESS,
            code::MISSING_API_KEY,
            code::OVERLOADED,
            code::INVALID_PORT,
        ] {
            assert_ne!(words(code), other, "{code}");
        }
    }
}

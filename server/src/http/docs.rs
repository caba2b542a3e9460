//! The page about the API: Swagger UI in the theme of the console, without requests to other servers.

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode, header::CONTENT_LENGTH};
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi};

/// The script that starts the page.
const START: &str = "/docs/swagger-initializer.js";
/// Longest script that starts the page, in bytes.
const START_MAX: usize = 64 << 10;
/// Added to it: the page asks the browser for the system's theme, and gets that of the console if a
/// user has chosen one. Its style sheet leaves the background light.
const THEME: &str = r#"
try {
  const theme = localStorage.getItem("osb.theme");
  if (theme) {
    const ask = window.matchMedia.bind(window);
    window.matchMedia = (query) =>
      query === "(prefers-color-scheme: dark)" ? { matches: theme === "dark" } : ask(query);
  }
} catch {}
const dark = new CSSStyleSheet();
dark.replaceSync("html.dark-mode { color-scheme: dark } html.dark-mode body { background: #1c2022 }");
document.adoptedStyleSheets.push(dark);
"#;

/// The page, and the document that it shows.
pub(super) fn routes(document: OpenApi) -> Router {
    // Otherwise the page sends its address to a validator in the internet.
    let config = Config::default().validator_url("none");
    let pages = SwaggerUi::new("/docs").config(config);
    let pages: Router = pages.url("/openapi.json", document).into();
    pages.layer(from_fn(in_theme))
}

/// Adds [`THEME`] to the script that starts the page.
async fn in_theme(request: Request, next: Next) -> Response {
    let is_start = request.method() == Method::GET && request.uri().path() == START;
    let answer = next.run(request).await;
    if !is_start || answer.status() != StatusCode::OK {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let Ok(script) = to_bytes(body, START_MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    parts.headers.remove(CONTENT_LENGTH);
    let script = [script.as_ref(), THEME.as_bytes()].concat();
    Response::from_parts(parts, Body::from(script))
}

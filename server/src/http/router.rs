//! All routes in one place.

use axum::{
    Router,
    extract::{OriginalUri, Request, State},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Redirect, Response},
    routing::any,
};
use http::{Method, StatusCode, header::ACCEPT};
use osb_protocol::error::code;
use utoipa::openapi::OpenApi;

use super::{
    app::AppState,
    audited, auth, cors, docs,
    edge::{Edge, EdgeRules},
    error::ApiError,
    lifecycle, metrics, openapi, overload, proxy,
};

/// The whole HTTP surface: the routes, and around them what concerns every request.
pub fn router(app: &AppState, routes: Router, rules: EdgeRules) -> Router {
    let codes = &app.unscoped.vocabulary().codes;
    // Around the router, not on its routes: for every request a route copies itself in each of its
    // layers, and a router is shared.
    Router::new().fallback_service(Edge::new(rules, codes, routes))
}

/// Every route of the server, with its authentication. `console` begins with `/console` and guards
/// itself.
pub fn routes(app: AppState, console: Router) -> Router {
    let mut document = openapi::document();
    app.meter.set_routes(templates(&document));
    let runtime = app.unscoped.runtime_kind();
    let features = app.unscoped.features();
    let keyed = openapi::keyed(features)
        .split_for_parts()
        .0
        .merge(lifecycle::plain(features))
        .merge(if app.metrics_are_open {
            Router::new()
        } else {
            metrics::routes()
        })
        .merge(lifecycle::absent(runtime, features))
        .fallback(not_found)
        .layer(from_fn_with_state(app.clone(), with_key));
    let root = Router::new()
        .route("/", any(not_found))
        .layer(from_fn_with_state(app.clone(), with_key))
        .layer(from_fn(browsers_to_console));
    let proxied = Router::new()
        .route("/sandboxes/{id}/proxy/{port}", any(proxy::proxy))
        .route("/sandboxes/{id}/proxy/{port}/", any(proxy::proxy))
        .route("/sandboxes/{id}/proxy/{port}/{*path}", any(proxy::proxy));
    let keys_required = app.keys.is_required();
    openapi::note_missing(&mut document, runtime, features);
    let docs = docs::routes(document);
    let api = keyed
        .merge(openapi::open().split_for_parts().0)
        .merge(root)
        .merge(if app.metrics_are_open {
            metrics::routes()
        } else {
            Router::new()
        })
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app.clone())
        .merge(docs);
    // Without a key any page could make the operator's browser call these routes.
    let api = match keys_required {
        true => api.layer(from_fn(cors::open)),
        false => api.layer(from_fn(cors::own)),
    };
    let proxied = proxied
        .clone()
        .nest("/v1", proxied)
        .with_state(app)
        .layer(from_fn(cors::open));
    api.merge(proxied).merge(console)
}

/// Templates of every route: those of the document, and others.
fn templates(document: &OpenApi) -> impl Iterator<Item = String> {
    const OTHERS: [&str; 10] = [
        "/",
        "/metrics",
        "/docs",
        "/docs/{*path}",
        "/openapi.json",
        "/console",
        "/console/{*path}",
        "/sandboxes/{id}/proxy/{port}",
        "/sandboxes/{id}/proxy/{port}/",
        "/sandboxes/{id}/proxy/{port}/{*path}",
    ];
    let documented = document.paths.paths.keys().cloned();
    let others = OTHERS.into_iter().chain(lifecycle::optional_paths());
    documented.chain(others.map(str::to_owned))
}

/// Routes of the listener for metrics alone. Its clients need no key.
pub fn metrics_router(app: AppState) -> Router {
    metrics::routes().fallback(not_found).with_state(app)
}

/// Serves requests whose principal may make them, if there is room.
async fn with_key(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let trail = app.unscoped.audit_trail();
    match auth::require(&app.keys, &app.throttle, trail, request).await {
        Ok(request) => {
            let codes = &app.unscoped.vocabulary().codes;
            let answer = |request| audited::api(trail, codes, request, next);
            overload::api(&app.room, request, answer).await
        }
        Err(refusal) => refusal,
    }
}

/// Redirects a browser at the server's address to the console. A program gets the answer for unknown
/// routes.
async fn browsers_to_console(request: Request, next: Next) -> Response {
    let mut accepted = request.headers().get_all(ACCEPT).into_iter();
    let wants_page = accepted.any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.to_ascii_lowercase().contains("text/html")
    });
    if wants_page && request.method() == Method::GET {
        return Redirect::to("/console").into_response();
    }
    next.run(request).await
}

/// Answers unknown paths. A path with a trailing slash is redirected to the one without, for clients
/// that follow redirects (contract: lifecycle §1.1).
async fn not_found(OriginalUri(uri): OriginalUri, request: Request) -> Response {
    let path = uri.path();
    if let Some(bare) = path
        .strip_suffix('/')
        .filter(|bare| bare.starts_with("/sandboxes") || bare.starts_with("/v1/sandboxes"))
    {
        let query = uri
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        return Redirect::temporary(&format!("{bare}{query}")).into_response();
    }
    let message = format!("{} {path} is not a route of this server", request.method());
    ApiError::new(StatusCode::NOT_FOUND, code::NOT_FOUND, message).into_response()
}

async fn method_not_allowed(method: Method, OriginalUri(uri): OriginalUri) -> ApiError {
    let message = format!("{} does not accept {method}", uri.path());
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        code::METHOD_NOT_ALLOWED,
        message,
    )
}

//! Pages and server functions: what `osb-app` renders and answers.

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use leptos::{
    config::LeptosOptions,
    prelude::{provide_context, use_context},
};
use leptos_axum::{LeptosRoutes, ResponseOptions};
use osb_app::{app::App, create::Draft, shell::shell, view::Notice};

use super::{ConsoleState, assets::HYDRATES, login, policy};

/// Every page behind the session, and the server functions.
pub(super) fn router(state: &ConsoleState) -> Router<ConsoleState> {
    // Only what names files is read from these, and the console names its files itself.
    let options = LeptosOptions::builder().output_name("osb").build();
    let login = vec!["/console/login".to_owned()];
    let routes = leptos_axum::generate_route_list_with_exclusions(App, Some(login));
    let context = context(state);
    Router::new()
        .leptos_routes_with_context(&options, routes, context, || shell(HYDRATES))
        .with_state(options)
}

/// What every page and server function finds in its context.
fn context(state: &ConsoleState) -> impl Fn() + Clone + Send + Sync + 'static {
    let (backend, assets) = (std::sync::Arc::clone(&state.backend), state.assets.clone());
    move || {
        provide_context(std::sync::Arc::clone(&backend));
        provide_context(assets.clone());
        if let Some(parts) = use_context::<Parts>()
            && let Some(notice) = notice(&parts)
        {
            provide_context(notice);
        }
        policy::of_page();
    }
}

fn notice(parts: &Parts) -> Option<Notice> {
    if parts.uri.path() == "/console/login" {
        return login::Failure::notice(parts.uri.query().unwrap_or_default());
    }
    parts.extensions.get::<Notice>().cloned()
}

/// Renders the page at the address of a request.
pub(super) async fn render(State(state): State<ConsoleState>, request: Request) -> Response {
    render_with(&state, request, || {}).await
}

/// Renders a page with more in its context.
async fn render_with(
    state: &ConsoleState,
    request: Request,
    more: impl Fn() + Clone + Send + Sync + 'static,
) -> Response {
    let context = context(state);
    let render = leptos_axum::render_app_async_with_context(
        move || {
            context();
            more();
        },
        || shell(HYDRATES),
    );
    render(request).await.into_response()
}

/// Shows the create form again, with what is wrong with it.
pub(super) async fn render_draft(state: &ConsoleState, parts: Parts, draft: Draft) -> Response {
    let request = Request::from_parts(parts, Body::empty());
    let more = move || {
        provide_context(draft.clone());
        if let Some(response) = use_context::<ResponseOptions>() {
            response.set_status(StatusCode::UNPROCESSABLE_ENTITY);
        }
    };
    render_with(state, request, more).await
}

/// Says that there is no such page.
pub(super) async fn not_found(State(state): State<ConsoleState>, request: Request) -> Response {
    let mut response = render_with(&state, request, || {}).await;
    if response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

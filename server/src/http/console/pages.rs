//! Pages and server functions of `osb-app`.

use std::sync::{Arc, OnceLock};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use leptos::{
    config::LeptosOptions,
    prelude::{FromServerFnError, provide_context, use_context},
};
use leptos_axum::{AxumRouteListing, LeptosRoutes, ResponseOptions};
use osb_app::{
    access::Issued,
    app::App,
    backend::{AccessBackend, ConsoleBackend, PoolBackend, SnapshotBackend, TemplateBackend},
    deletion::Deletion,
    diagnosis::backend::HealthBackend,
    error::ConsoleError,
    files::backend::FileBackend,
    network::backend::NetworkBackend,
    preview::backend::PortBackend,
    shell,
    terminal::backend::ShellBackend,
    view::{Notice, PageStatus},
};
use osb_protocol::identity::IssuedApiKey;

use super::{
    super::audited::Noted, ConsoleState, assets::hydrates, files::SandboxFiles,
    for_request::ForRequest, health::Health, login, network::Networks, policy, ports::SandboxPorts,
    session::Admitted, terminal::Shells,
};

/// Largest error of a server function, in bytes: one line for each field of a form.
const FUNCTION_ERROR_MAX: usize = 1 << 20;

/// Every page behind the session, and the server functions.
pub(super) fn router(state: &ConsoleState) -> Router<ConsoleState> {
    // Leptos reads only names of files from these, and the console names its files itself.
    let options = LeptosOptions::builder().output_name("osb").build();
    let context = context(state);
    Router::new()
        .leptos_routes_with_context(&options, routes(), context, || shell::shell(hydrates()))
        .with_state(options)
}

/// The addresses of the pages, with their methods. Listing them suppresses the loading of resources in the whole
/// process, and a page that is rendered meanwhile would hang: hence once, before the first page.
pub(super) fn routes() -> Vec<AxumRouteListing> {
    static ROUTES: OnceLock<Vec<AxumRouteListing>> = OnceLock::new();
    let login = || vec!["/console/login".to_owned()];
    ROUTES
        .get_or_init(|| leptos_axum::generate_route_list_with_exclusions(App, Some(login())))
        .clone()
}

/// The context of every page and server function. The domain is in it only for requests that
/// [`session::admit`] admitted: without it a page can show nothing, at any address.
fn context(state: &ConsoleState) -> impl Fn() + Clone + Send + Sync + 'static {
    let state = state.clone();
    move || {
        provide_context(state.assets.clone());
        let parts = use_context::<Parts>();
        let admitted = parts
            .as_ref()
            .and_then(|it| it.extensions.get::<Admitted>());
        let mut info = state.domains.info(admitted.map(|it| &**it.principal()));
        info.has_previews = state.previews.is_some();
        provide_context(info);
        if let (Some(admitted), Some(parts)) = (admitted, &parts) {
            provide_backends(&state, admitted, &Noted::of(&parts.extensions));
        }
        if let Some(notice) = parts.as_ref().and_then(notice) {
            provide_context(notice);
        }
        if let Some(response) = use_context::<ResponseOptions>() {
            provide_context(PageStatus(Arc::new(move |status| {
                if let Ok(status) = StatusCode::from_u16(status) {
                    response.set_status(status);
                }
            })));
        }
        policy::of_page();
    }
}

/// Puts the back ends of an admitted request into the context.
fn provide_backends(state: &ConsoleState, admitted: &Admitted, noted: &Noted) {
    fn of<T: ForRequest>(state: &ConsoleState, admitted: &Admitted, noted: &Noted) -> T {
        T::for_request(state, admitted, noted.clone())
    }
    let files: SandboxFiles = of(state, admitted, noted);
    let health: Health = of(state, admitted, noted);
    let networks: Networks = of(state, admitted, noted);
    let ports: SandboxPorts = of(state, admitted, noted);
    let shells: Shells = of(state, admitted, noted);
    provide_context::<Arc<dyn FileBackend>>(Arc::new(files));
    provide_context::<Arc<dyn HealthBackend>>(Arc::new(health));
    provide_context::<Arc<dyn NetworkBackend>>(Arc::new(networks));
    provide_context::<Arc<dyn PortBackend>>(Arc::new(ports));
    provide_context::<Arc<dyn ShellBackend>>(Arc::new(shells));
    provide_context::<Arc<dyn AccessBackend>>(of(state, admitted, noted));
    provide_context::<Arc<dyn ConsoleBackend>>(of(state, admitted, noted));
    provide_context::<Arc<dyn PoolBackend>>(of(state, admitted, noted));
    provide_context::<Arc<dyn SnapshotBackend>>(of(state, admitted, noted));
    provide_context::<Arc<dyn TemplateBackend>>(of(state, admitted, noted));
    provide_context(state.domains.events(admitted.principal()));
    provide_context(state.domains.settings(admitted.principal()));
}

fn notice(parts: &Parts) -> Option<Notice> {
    if parts.uri.path() == "/console/login" {
        return login::Failure::notice(parts.uri.query().unwrap_or_default());
    }
    parts.extensions.get::<Notice>().cloned()
}

/// Renders the page at the address of a request.
pub(super) async fn render(State(state): State<ConsoleState>, request: Request) -> Response {
    let render =
        leptos_axum::render_app_async_with_context(context(&state), || shell::shell(hydrates()));
    render(request).await.into_response()
}

/// Renders the page of a form again, with the draft of it that was refused.
pub(super) async fn render_draft<T: Clone + Send + Sync + 'static>(
    state: &ConsoleState,
    parts: Parts,
    draft: T,
) -> Response {
    let request = Request::from_parts(parts, Body::empty());
    let context = context(state);
    let with_draft = move || {
        context();
        provide_context(draft.clone());
        if let Some(response) = use_context::<ResponseOptions>() {
            response.set_status(StatusCode::UNPROCESSABLE_ENTITY);
        }
    };
    let render =
        leptos_axum::render_app_async_with_context(with_draft, || shell::shell(hydrates()));
    render(request).await.into_response()
}

/// Renders the page about access with the key that was just made, whose secret is in no other answer.
pub(super) async fn render_issued(
    state: &ConsoleState,
    parts: Parts,
    issued: IssuedApiKey,
) -> Response {
    let request = Request::from_parts(parts, Body::empty());
    let context = context(state);
    let with_key = move || {
        context();
        provide_context(Issued(issued.clone()));
    };
    let render = leptos_axum::render_app_async_with_context(with_key, || shell::shell(hydrates()));
    render(request).await.into_response()
}

/// Renders the page that asks before a delete.
pub(super) async fn render_deletion(
    state: &ConsoleState,
    parts: Parts,
    deletion: Deletion,
) -> Response {
    let request = Request::from_parts(parts, Body::empty());
    let page = move || shell::deletion(deletion.clone());
    let render = leptos_axum::render_app_async_with_context(context(state), page);
    render(request).await.into_response()
}

/// Says that there is no such server function, in the form that pages read: an open tab may be older
/// than this server.
pub(super) async fn no_function() -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::NOT_FOUND, json, ConsoleError::NotFound.ser()).into_response()
}

/// Gives errors of server functions the status that they mean: the library answers each with 500.
pub(super) async fn function_status(request: Request, next: Next) -> Response {
    let is_function = request.uri().path().starts_with("/console/fn/");
    let response = next.run(request).await;
    if !is_function || response.status() != StatusCode::INTERNAL_SERVER_ERROR {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(body) = axum::body::to_bytes(body, FUNCTION_ERROR_MAX).await else {
        return parts.status.into_response();
    };
    parts.status = match serde_json::from_slice(&body) {
        Ok(ConsoleError::SignedOut) => StatusCode::UNAUTHORIZED,
        Ok(ConsoleError::NotFound) => StatusCode::NOT_FOUND,
        Ok(ConsoleError::Invalid { .. }) => StatusCode::UNPROCESSABLE_ENTITY,
        Ok(ConsoleError::Refused { .. } | ConsoleError::Shortens { .. }) => StatusCode::CONFLICT,
        // On this side it is only said of arguments.
        Ok(ConsoleError::Unreadable { .. }) => StatusCode::BAD_REQUEST,
        Ok(ConsoleError::Unreachable) | Err(_) => parts.status,
    };
    Response::from_parts(parts, Body::from(body))
}

/// Answers an address that is no page: 404, or a redirect if only a trailing slash is wrong.
pub(super) async fn not_found(State(state): State<ConsoleState>, request: Request) -> Response {
    let uri = request.uri();
    if let Some(page) = uri.path().strip_suffix('/') {
        let query = uri.query().map(|query| format!("?{query}"));
        let page = format!("{page}{}", query.unwrap_or_default());
        return Redirect::to(&page).into_response();
    }
    let render = leptos_axum::render_app_async_with_context(context(&state), shell::not_found);
    let mut response = render(request).await.into_response();
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

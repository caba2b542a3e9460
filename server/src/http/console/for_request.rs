//! The back ends of a request: made for the principal that the session admitted, and for the act that
//! the request is. Pages get them in their context, handlers by [`Backend`].

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};

use super::{super::audited::Noted, ConsoleState, session::Admitted};

/// Something that is made for one request.
pub(super) trait ForRequest {
    /// What the caller may use, for the act of the request.
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self;
}

/// Extracts a back end. Refuses requests that no session admitted.
pub(super) struct Backend<T>(pub(super) T);

impl<T: ForRequest> FromRequestParts<ConsoleState> for Backend<T> {
    type Rejection = StatusCode;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &ConsoleState,
    ) -> Result<Self, StatusCode> {
        let admitted = parts.extensions.get::<Admitted>();
        let admitted = admitted.ok_or(StatusCode::UNAUTHORIZED)?;
        let noted = Noted::of(&parts.extensions);
        Ok(Self(T::for_request(state, admitted, noted)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::Request;
    use osb_app::backend::ConsoleBackend;
    use osb_runtime::sim::SimRuntime;

    use super::{super::tests::Console, *};

    #[tokio::test]
    async fn a_request_that_no_session_admitted_gets_no_back_end() {
        let console = Console::start_over(SimRuntime::new()).await;
        let (mut parts, ()) = Request::new(()).into_parts();
        let state = &console.state;
        let made = Backend::<Arc<dyn ConsoleBackend>>::from_request_parts(&mut parts, state).await;
        assert_eq!(made.err(), Some(StatusCode::UNAUTHORIZED));
    }
}

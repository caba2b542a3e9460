//! What the tables of routes consist of.

use http::Method;
use osb_protocol::identity::Role;

use crate::audit::Action;

/// The pattern of a route, and its methods with the role that they need and what they do.
pub(super) type Route = (&'static str, Rules);

/// The rules of a route.
pub(super) type Rules = &'static [(Method, Role, Effect)];

/// What a request does, as far as the audit trail is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing, so it is not recorded.
    Reads,
    /// It is recorded by this name.
    Acts(Action),
}

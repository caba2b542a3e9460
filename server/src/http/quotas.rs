//! `/v1/quotas`: quotas and what is used of them. An addition of this server.

use std::sync::Arc;

use axum::{Json, extract::State};
use osb_protocol::{ErrorBody, identity::Role, quota::QuotaList};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{AppState, caller::Caller};
use crate::{
    identity::Principal,
    sandbox::quota::{Owner, QuotaSubject},
};

/// The route, which exists under `/v1` only.
pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Quotas and what is used of them.
///
/// Those that apply to the caller: of its tenant, and of its user or API key. A service administrator
/// gets those of all. Subjects without a quota are left out.
#[utoipa::path(
    get, path = "/quotas", tag = "access", operation_id = "listQuotas",
    responses(
        (status = 200, description = "By kind and name", body = QuotaList),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
    ),
)]
async fn list(State(app): State<AppState>, Caller { principal, .. }: Caller) -> Json<QuotaList> {
    let subjects = match principal.role {
        Role::ServiceAdmin => all(&app),
        _ => own(&principal),
    };
    let mut items = app.unscoped.quota_use(subjects);
    items.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    Json(QuotaList { items })
}

fn own(principal: &Principal) -> Vec<QuotaSubject> {
    let tenant = principal.scope.tenant().map(Arc::from);
    let owner = Owner::of(principal).map(QuotaSubject::Owner);
    tenant
        .map(QuotaSubject::Tenant)
        .into_iter()
        .chain(owner)
        .collect()
}

fn all(app: &AppState) -> Vec<QuotaSubject> {
    let accounts = app.keys.accounts();
    let tenants = app.unscoped.known_tenants().into_iter();
    let users = accounts.users().into_iter();
    let users = users.map(|user| Owner::user(&user.id, &user.name));
    let keys = accounts.keys().into_iter();
    let keys = keys.filter(|key| key.revoked_at.is_none());
    let keys = keys.map(|key| Owner::key(&key.id, &key.name));
    tenants
        .map(QuotaSubject::Tenant)
        .chain(users.chain(keys).map(QuotaSubject::Owner))
        .collect()
}

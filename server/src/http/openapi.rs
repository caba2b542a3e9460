//! The `OpenAPI` document, made from the handlers. `specs/lifecycle.json` is a copy of it; a test
//! keeps them equal.

use osb_protocol::{Feature, FeatureSet};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        security::{ApiKey, ApiKeyValue, SecurityRequirement, SecurityScheme},
        tag::TagBuilder,
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{AppState, accounts, audit, lifecycle, quotas, system, webhooks};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "OpenSandbox Lifecycle API",
        // As generation 1.1 serves it (contract: lifecycle §1.1).
        version = "0.1.0",
        description = "Make, find, renew and delete sandboxes. Generation 1.1 of the API: its \
                       published description has kept the version 0.1.0, and so does this one. \
                       /version has the release of the running server.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    modifiers(&ApiKeyHeader),
)]
struct Document;

struct ApiKeyHeader;

impl Modify for ApiKeyHeader {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let header =
            SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("OPEN-SANDBOX-API-KEY")));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("apiKey", header);
        document.security = Some(vec![SecurityRequirement::new::<_, _, String>("apiKey", [])]);
        let tag = |name, text| TagBuilder::new().name(name).description(Some(text)).build();
        document.tags = Some(vec![
            tag("sandboxes", "Make, find, change and delete sandboxes"),
            tag(
                "snapshots",
                "Keep the file systems of sandboxes, and create others from them",
            ),
            tag(
                "pools",
                "Keep sandboxes ready, so that a create need not start one",
            ),
            tag(
                "templates",
                "Make images ready, with what sandboxes from them run",
            ),
            tag("endpoints", "Reach ports of a sandbox"),
            tag("diagnostics", "Find out why a sandbox does not work"),
            tag("metrics", "What SDKs report"),
            tag(
                "access",
                "Users, API keys, sessions and the audit trail; for service administrators",
            ),
            tag(
                "webhooks",
                "Receivers of what happens to sandboxes; for service administrators",
            ),
            tag("system", "The server itself; no API key"),
        ]);
    }
}

/// Documented routes that need the API key.
pub(super) fn keyed(features: FeatureSet) -> OpenApiRouter<AppState> {
    let v1 = lifecycle::routes(features)
        .merge(lifecycle::v1_only())
        .merge(accounts::routes())
        .merge(audit::routes())
        .merge(quotas::routes())
        .merge(webhooks::routes());
    OpenApiRouter::with_openapi(Document::openapi()).nest("/v1", v1)
}

/// Documented routes that are open.
pub(super) fn open() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(system::health))
        .routes(routes!(system::ready))
        .routes(routes!(system::version))
}

/// Adds a note on what the runtime of this server lacks.
pub(super) fn note_missing(
    document: &mut utoipa::openapi::OpenApi,
    runtime: &str,
    features: FeatureSet,
) {
    let missing: Vec<_> = features.missing().map(Feature::name).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        let description = document.info.description.get_or_insert_default();
        *description += &format!("\n\nNot available on the {runtime} runtime: {missing}.");
    }
}

/// The document, with the routes of every feature.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    keyed(Feature::ALL.into_iter().collect())
        .merge(open())
        .split_for_parts()
        .1
}

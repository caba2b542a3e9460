//! `/templates`, on runtimes that have them (contract: lifecycle §A3).

use axum::{Json, extract::Request, response::IntoResponse};
use http::{
    StatusCode,
    header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use osb_protocol::{
    ErrorBody,
    labels::MetadataFilter,
    lifecycle::{CreateTemplateRequest, ListTemplatesResponse, Template},
};

use super::super::{
    caller::Caller,
    error::ApiError,
    extract::{InPath, Query, larger_json},
};
use crate::sandbox::{
    Builds, Error, TemplateError, TemplateListQuery,
    list::{PAGE_SIZE, PAGE_SIZE_MAX},
};

/// Add a template.
///
/// Answers at once; the template is `Pending`, then `Building`, until it is `Succeeded` or `Failed`. Its
/// image is what the name of `image` leads to when the template is made, also after the name has moved
/// on. With `build`, which operators have to allow, for tenants separately, the image is built. A create
/// with `templateId` gets the template's image, entry point, environment and limits. Runtimes without the
/// feature answer 501.
#[utoipa::path(
    post, path = "/templates", tag = "templates", operation_id = "createTemplate",
    request_body = CreateTemplateRequest,
    responses(
        (status = 201, description = "It is being made", body = Template),
        (status = 400, description = "A member breaks a rule, or builds are not allowed", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it, a quota for disk is used up, or the tenant has as many templates as it may have", body = ErrorBody),
        (status = 413, description = "The context of a build is too large", body = ErrorBody),
        (status = 422, description = "A member is missing, unknown, or has the wrong type", body = ErrorBody),
        (status = 429, description = "Several templates wait already", body = ErrorBody),
        (status = 501, description = "The runtime has no templates", body = ErrorBody),
        (status = 503, description = "The runtime or the store is away", body = ErrorBody),
    ),
)]
pub(super) async fn create(
    Caller { service, .. }: Caller,
    request: Request,
) -> Result<(StatusCode, Json<Template>), ApiError> {
    let more = match service.builds() {
        // Four characters for three bytes.
        Builds::Allowed => {
            let most = service.template_limits().max_context_bytes;
            most.div_ceil(3).saturating_mul(4)
        }
        Builds::Off | Builds::OffForTenants => 0,
    };
    let body = larger_json(request, more).await?;
    let template = service.create_template(body.0).await?;
    Ok((StatusCode::CREATED, Json(template)))
}

/// List templates, newest first.
#[utoipa::path(
    get, path = "/templates", tag = "templates", operation_id = "listTemplates",
    params(
        ("page" = Option<u32>, Query, description = "From 1", minimum = 1),
        ("pageSize" = Option<u32>, Query, description = "20 when absent", minimum = 1, maximum = 200),
        ("metadata" = Option<String>, Query, description = "`k=v` pairs joined by `&`; all of them. What is no such pair is left out"),
    ),
    responses(
        (status = 200, description = "A page", body = ListTemplatesResponse),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 422, description = "A parameter is out of range", body = ErrorBody),
        (status = 501, description = "The runtime has no templates", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
pub(super) async fn list(
    Caller { service, .. }: Caller,
    query: Query,
) -> Result<Json<ListTemplatesResponse>, ApiError> {
    let (page, page_size) = query.page(PAGE_SIZE, PAGE_SIZE_MAX)?;
    let metadata = query.last("metadata").unwrap_or_default();
    let page = service
        .list_templates(TemplateListQuery {
            metadata: MetadataFilter::readable_pairs(metadata),
            page,
            page_size,
        })
        .await?;
    Ok(Json(ListTemplatesResponse {
        items: page.items,
        pagination: page.pagination,
    }))
}

/// One template.
#[utoipa::path(
    get, path = "/templates/{id}", tag = "templates", operation_id = "getTemplate",
    params(("id" = String, Path, description = "Template id")),
    responses(
        (status = 200, description = "The template", body = Template),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such template", body = ErrorBody),
        (status = 501, description = "The runtime has no templates", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
pub(super) async fn get(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
) -> Result<Json<Template>, ApiError> {
    Ok(Json(service.template_by_id(&id).await?))
}

/// Read the log of a template's build.
///
/// The end of what the build has written so far, at most 64 KiB with a first line that says how much is
/// left out. Empty for a template that is not built.
#[utoipa::path(
    get, path = "/templates/{id}/log", tag = "templates", operation_id = "getTemplateLog",
    params(("id" = String, Path, description = "Template id")),
    responses(
        (status = 200, description = "The log", body = String, content_type = "text/plain"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such template", body = ErrorBody),
        (status = 501, description = "The runtime has no templates", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
pub(super) async fn log(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
) -> Result<impl IntoResponse, ApiError> {
    let log = service.template_log(&id).await?;
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, log))
}

/// Delete a template.
///
/// Sandboxes that were created from it go on, and their image is kept while they need it. A template that
/// is being made is deleted as well: its build or its pull ends. The request may be repeated.
#[utoipa::path(
    delete, path = "/templates/{id}", tag = "templates", operation_id = "deleteTemplate",
    params(("id" = String, Path, description = "Template id")),
    responses(
        (status = 204, description = "It is deleted"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 404, description = "No such template", body = ErrorBody),
        (status = 500, description = "The runtime cannot remove its image now; the server tries again", body = ErrorBody),
        (status = 501, description = "The runtime has no templates", body = ErrorBody),
        (status = 503, description = "The runtime or the store is away", body = ErrorBody),
    ),
)]
pub(super) async fn delete(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
) -> Result<StatusCode, ApiError> {
    match service.delete_template(&id).await {
        // It cannot be used any more, and its image goes with the last sandbox (contract: lifecycle §A3).
        Ok(()) | Err(Error::Template(TemplateError::InUse { .. })) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(error.into()),
    }
}

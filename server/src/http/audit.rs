//! `/v1/audit`: the audit trail. An addition of this server, for service administrators.

use std::collections::VecDeque;

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{Stream, stream};
use http::{
    HeaderMap,
    header::{ACCEPT, CONTENT_DISPOSITION, CONTENT_TYPE},
};
use osb_protocol::{
    ErrorBody, FieldError, WireTime,
    audit::{AuditEntry, AuditPage},
};
use osb_store::{AuditPlace, AuditQuery, StoreError};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{AppState, caller::Caller, error::ApiError, extract::Query};
use crate::{
    audit::{Action, AuditTrail},
    identity::Scope,
    sandbox,
};

/// Entries of a page when the client does not say how many.
const PAGE: usize = 100;
/// Most entries of a page.
const PAGE_MAX: usize = 1_000;
/// Entries that an export reads at once.
const EXPORT_PAGE: u32 = 500;

/// The route, which exists under `/v1` only.
pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Forms of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// One page.
    Json,
    /// Everything, an entry per line.
    JsonLines,
    /// Everything, for spreadsheets.
    Csv,
}

impl Format {
    /// What the query asks for or, without it, the header `Accept`.
    pub(super) fn wanted(query: &Query, headers: &HeaderMap) -> Result<Self, FieldError> {
        match query.last("format") {
            Some("json") => return Ok(Self::Json),
            Some("jsonl") => return Ok(Self::JsonLines),
            Some("csv") => return Ok(Self::Csv),
            Some(_) => {
                let rule = "must be json, jsonl or csv";
                return Err(FieldError::query("enum", "format", rule));
            }
            None => {}
        }
        let accepted = headers.get_all(ACCEPT).into_iter();
        let accepted = accepted.filter_map(|value| value.to_str().ok());
        let types = accepted.flat_map(|value| value.split(','));
        for accepted in types {
            let essence = accepted.split(';').next().unwrap_or_default().trim();
            match essence.to_ascii_lowercase().as_str() {
                "application/json" | "*/*" | "application/*" => return Ok(Self::Json),
                "application/jsonl" | "application/x-ndjson" => return Ok(Self::JsonLines),
                "text/csv" => return Ok(Self::Csv),
                _ => {}
            }
        }
        Ok(Self::Json)
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::JsonLines => "application/jsonl",
            Self::Csv => "text/csv; charset=utf-8; header=present",
        }
    }

    /// Appends an entry.
    fn write(self, entry: &AuditEntry, text: &mut Vec<u8>) {
        match self {
            Self::Json | Self::JsonLines => {
                let line = serde_json::to_vec(entry);
                text.extend(line.expect("maps have string keys, so this serialises"));
                text.push(b'\n');
            }
            Self::Csv => write_row(entry, text),
        }
    }
}

/// Who did what.
///
/// Newest first. `next` of an answer is the `cursor` of the next page; entries that are written
/// meanwhile change nothing about the pages that follow. With `format=csv` or `format=jsonl`, or
/// `Accept: text/csv` or `application/jsonl`, the answer has all entries and no pages.
#[utoipa::path(
    get, path = "/audit", tag = "access", operation_id = "listAuditEntries",
    params(
        ("since" = Option<String>, Query, description = "Entries at or after this time"),
        ("until" = Option<String>, Query, description = "Entries before this time"),
        ("actor" = Option<String>, Query, description = "Id or name of the actor"),
        ("action" = Option<String>, Query, description = "Action, such as `sandbox.create`"),
        ("sandbox" = Option<String>, Query, description = "Id of a sandbox"),
        ("tenant" = Option<String>, Query, description = "Tenant whose object it is"),
        ("outcome" = Option<String>, Query, description = "`succeeded`, `denied` or `failed`"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "Entries of a page; 100 when absent", minimum = 1, maximum = 1000),
        ("format" = Option<String>, Query, description = "`json`, or `jsonl` and `csv` for an export"),
    ),
    responses(
        (status = 200, description = "A page, or all entries", content(
            (AuditPage = "application/json"),
            (String = "application/jsonl"),
            (String = "text/csv"),
        )),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 403, description = "The role does not allow it", body = ErrorBody),
        (status = 422, description = "A parameter is wrong", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
async fn list(
    State(app): State<AppState>,
    Caller { principal, .. }: Caller,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    let mut wrong = Vec::new();
    let format = noted(Format::wanted(&query, &headers), &mut wrong);
    let limit = noted(query.number("limit", PAGE, 1..=PAGE_MAX), &mut wrong);
    let wanted = audit_query(&query, &mut wrong);
    let (Some(format), Some(limit), true) = (format, limit, wrong.is_empty()) else {
        return Err(ApiError::invalid(wrong));
    };
    let Some(wanted) = within(&principal.scope, wanted) else {
        return Ok(Json(AuditPage::default()).into_response());
    };
    let trail = app.unscoped.audit_trail();
    if format == Format::Json {
        let limit = u32::try_from(limit).unwrap_or(EXPORT_PAGE);
        let page = trail.page(wanted, limit).await;
        return Ok(Json(page.map_err(sandbox::Error::from)?).into_response());
    }
    Ok(file(trail, wanted, format).await?)
}

/// The query limited to a scope; `None` when it selects nothing there.
pub(super) fn within(scope: &Scope, mut wanted: AuditQuery) -> Option<AuditQuery> {
    if let Some(own) = scope.tenant() {
        if wanted.tenant.is_some_and(|tenant| tenant != own) {
            return None;
        }
        wanted.tenant = Some(own.to_owned());
    }
    Some(wanted)
}

/// All entries as a file.
///
/// # Errors
/// When the store is away: an error of the answer, not of its body.
pub(super) async fn file(
    trail: &AuditTrail,
    wanted: AuditQuery,
    format: Format,
) -> Result<Response, sandbox::Error> {
    let first = trail.page(wanted.clone(), EXPORT_PAGE).await?;
    let body = Body::from_stream(export(trail.clone(), wanted, format, first));
    let name = match format {
        Format::Csv => "attachment; filename=\"audit.csv\"",
        _ => "attachment; filename=\"audit.jsonl\"",
    };
    let head = [
        (CONTENT_TYPE, format.content_type()),
        (CONTENT_DISPOSITION, name),
    ];
    Ok((head, body).into_response())
}

fn noted<T>(read: Result<T, FieldError>, wrong: &mut Vec<FieldError>) -> Option<T> {
    read.map_err(|error| wrong.push(error)).ok()
}

/// The entries that a query asks for; notes what is wrong with it.
pub(super) fn audit_query(query: &Query, wrong: &mut Vec<FieldError>) -> AuditQuery {
    let text = |name| {
        query
            .last(name)
            .filter(|it| !it.is_empty())
            .map(str::to_owned)
    };
    let mut time = |name| {
        let time = WireTime::parse(query.last(name)?);
        let rule = "must be a time (RFC 3339)";
        noted(
            time.map_err(|_| FieldError::query("datetime_parsing", name, rule)),
            wrong,
        )
    };
    let (since, until) = (time("since"), time("until"));
    let outcome = text("outcome").and_then(|name| {
        let outcome = name.parse::<osb_protocol::audit::AuditOutcome>();
        let outcome =
            outcome.map_err(|rule| FieldError::query("enum", "outcome", rule.to_string()));
        noted(outcome, wrong)
    });
    let action = text("action").and_then(|name| {
        let is_known = Action::ALL.iter().any(|action| action.name() == name);
        let names = || Action::ALL.iter().map(|action| action.name());
        let rule = || format!("must be one of {}", names().collect::<Vec<_>>().join(", "));
        let action = is_known.then_some(name);
        noted(
            action.ok_or_else(|| FieldError::query("enum", "action", rule())),
            wrong,
        )
    });
    let before = text("cursor").and_then(|cursor| {
        let place = cursor.parse().ok().filter(|place: &i64| *place > 0);
        let rule = "must be `next` of an earlier answer";
        let place = place.ok_or_else(|| FieldError::query("value_error", "cursor", rule));
        noted(place.map(AuditPlace), wrong)
    });
    AuditQuery {
        before,
        since,
        until,
        actor: text("actor"),
        action,
        sandbox: text("sandbox"),
        tenant: text("tenant"),
        outcome,
    }
}

/// Everything from a page on, in pieces of a page each. A store that fails breaks the answer off, so
/// that its client does not take a part for the whole.
fn export(
    trail: AuditTrail,
    query: AuditQuery,
    format: Format,
    first: AuditPage,
) -> impl Stream<Item = Result<Bytes, StoreError>> + Send + 'static {
    let head = match format {
        Format::Csv => Bytes::from(COLUMNS.join(",") + "\r\n"),
        _ => Bytes::new(),
    };
    let pages = VecDeque::from([first]);
    let rest = stream::try_unfold((trail, query, pages, false), move |state| async move {
        let (trail, mut query, mut pages, is_over) = state;
        if is_over {
            return Ok(None);
        }
        let page = match pages.pop_front() {
            Some(page) => page,
            None => trail.page(query.clone(), EXPORT_PAGE).await?,
        };
        let next = page.next.as_deref().and_then(|next| next.parse().ok());
        query.before = next.map(AuditPlace);
        let mut text = Vec::new();
        for entry in &page.items {
            format.write(entry, &mut text);
        }
        let is_over = next.is_none();
        Ok(Some((Bytes::from(text), (trail, query, pages, is_over))))
    });
    stream::StreamExt::chain(stream::iter([Ok(head)]), rest)
}

/// Columns of an export for spreadsheets.
const COLUMNS: [&str; 17] = [
    "id",
    "at",
    "action",
    "outcome",
    "status",
    "code",
    "actor_kind",
    "actor_id",
    "actor_name",
    "actor_role",
    "object_kind",
    "object_id",
    "tenant",
    "address",
    "request_id",
    "count",
    "changes",
];

fn write_row(entry: &AuditEntry, text: &mut Vec<u8>) {
    let name = |value: serde_json::Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let changes = match entry.changes.is_empty() {
        true => String::new(),
        false => serde_json::Value::Object(entry.changes.clone()).to_string(),
    };
    let cells: [String; COLUMNS.len()] = [
        entry.id.clone(),
        entry.at.to_string(),
        entry.action.clone(),
        entry.outcome.to_string(),
        entry.status.map(|it| it.to_string()).unwrap_or_default(),
        optional(&entry.code),
        name(serde_json::json!(entry.actor.kind)),
        entry.actor.id.clone(),
        entry.actor.name.clone(),
        entry
            .actor
            .role
            .map(|it| it.to_string())
            .unwrap_or_default(),
        entry.object.kind.clone(),
        entry.object.id.clone(),
        optional(&entry.tenant),
        optional(&entry.address),
        optional(&entry.request_id),
        entry.count.to_string(),
        changes,
    ];
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        write_cell(cell, text);
    }
    text.extend(b"\r\n");
}

/// Appends a cell (RFC 4180). Spreadsheets run a text that begins like a formula, and clients choose
/// some of these texts: an apostrophe keeps it a text. Some separate cells at `;` or tabs, and then see
/// no quotation within what they split, so each part that they may take for a cell is guarded.
fn write_cell(cell: &str, text: &mut Vec<u8>) {
    const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];
    const SEPARATORS: [char; 4] = [';', '\t', '\r', '\n'];
    let is_formula = |part: &str| {
        let begins = part.trim_start_matches([' ', '\n', '"']);
        begins.starts_with(FORMULA)
    };
    let is_harmless = |letter: char| letter.is_ascii_alphanumeric() || " ._:/-".contains(letter);
    if !is_formula(cell) && cell.chars().all(is_harmless) {
        text.extend(cell.as_bytes());
        return;
    }
    text.push(b'"');
    for part in cell.split_inclusive(SEPARATORS) {
        if is_formula(part) {
            text.push(b'\'');
        }
        text.extend(part.replace('"', "\"\"").as_bytes());
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(cell: &str) -> String {
        let mut text = Vec::new();
        write_cell(cell, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn no_cell_is_a_formula_or_ends_its_row() {
        for (cell, expected) in [
            ("plain", "plain"),
            ("", ""),
            ("2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z"),
            ("10.0.0.1 a_b/c", "10.0.0.1 a_b/c"),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("a\r\nb", "\"a\r\nb\""),
            ("=1+1", "\"'=1+1\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\t=1", "\"'\t'=1\""),
            ("\r=1", "\"'\r'=1\""),
            (" =1", "\"' =1\""),
            ("=\"x\"", "\"'=\"\"x\"\"\""),
            ("a;b", "\"a;b\""),
            ("a;=1", "\"a;'=1\""),
            ("a; @x;-1", "\"a;' @x;'-1\""),
            ("a;\"=1\"", "\"a;'\"\"=1\"\"\""),
            ("a\n+1", "\"a\n'+1\""),
            ("a=1", "\"a=1\""),
            ("é", "\"é\""),
        ] {
            assert_eq!(written(cell), expected, "{cell:?}");
        }
    }

    #[test]
    fn no_part_of_a_cell_is_a_formula_whatever_separates_cells() {
        let texts = [
            "", "a", " ", "\"", ";", ",", "\t", "\n", "\r", "=1", "+1", "-1", "@x",
        ];
        let count = texts.len();
        for number in 0..count.pow(3) {
            let places = [number, number / count, number / count / count];
            let cell = places.map(|place| texts[place % count]).concat();
            let cell = written(&format!("x{cell}")) + ";" + &written(&cell);
            for part in cell.split([';', '\t', '\r', '\n']) {
                let begins = part.trim_start_matches([' ', '"']);
                assert!(!begins.starts_with(['=', '+', '-', '@']), "{cell:?}");
            }
        }
    }
}

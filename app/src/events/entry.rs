//! One entry of the audit trail.

use leptos::prelude::*;
use leptos_router::location::Url;
use osb_protocol::{
    SandboxId,
    audit::{AuditActorKind, AuditEntry, AuditOutcome},
};
use serde_json::Value;

use crate::{
    ui::{Icon, When},
    view::{EventsQuery, snapshot_short, template_short},
};

/// What an actor is, in words.
fn kind(kind: AuditActorKind) -> &'static str {
    match kind {
        AuditActorKind::Anonymous => "without authentication",
        AuditActorKind::ConfiguredKey => "configured key",
        AuditActorKind::ApiKey => "API key",
        AuditActorKind::TenantKey => "key of a tenant",
        AuditActorKind::User => "user",
        AuditActorKind::System => "the server",
        AuditActorKind::CommandLine => "command line",
        AuditActorKind::Unknown => "not authenticated",
    }
}

/// The name of the actor, or what it is.
fn actor(entry: &AuditEntry) -> String {
    let actor = &entry.actor;
    match actor.name.is_empty() {
        true => kind(actor.kind).to_owned(),
        false => actor.name.clone(),
    }
}

/// Tone, icon and words of an outcome.
fn outcome(entry: &AuditEntry) -> (&'static str, &'static str, String) {
    let (tone, icon, word) = match entry.outcome {
        AuditOutcome::Succeeded => ("good", "circle-check", "Done"),
        AuditOutcome::Denied => ("busy", "key-round", "Denied"),
        AuditOutcome::Failed => ("bad", "circle-x", "Failed"),
    };
    let status = entry
        .status
        .filter(|_| entry.outcome != AuditOutcome::Succeeded);
    let status = status.map(|it| format!(" {it}")).unwrap_or_default();
    (tone, icon, format!("{word}{status}"))
}

/// What was changed, one line each: `expiresAt: a → b`.
fn changes(entry: &AuditEntry) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    };
    let line = |(name, value): (&String, &Value)| {
        let is_pair = value.as_object().is_some_and(|pair| pair.len() == 2);
        let shown = match (value.get("before"), value.get("after")) {
            (Some(before), Some(after)) if is_pair => {
                format!("{} → {}", text(before), text(after))
            }
            _ => text(value),
        };
        (name.clone(), shown)
    };
    entry.changes.iter().map(line).collect()
}

/// The row of an entry.
#[component]
pub(super) fn EntryRow(entry: AuditEntry) -> impl IntoView {
    let (tone, icon, word) = outcome(&entry);
    let by_actor = EventsQuery {
        actor: match entry.actor.id.is_empty() {
            true => entry.actor.name.clone(),
            false => entry.actor.id.clone(),
        },
        ..EventsQuery::default()
    };
    let by_action = EventsQuery {
        action: entry.action.clone(),
        ..EventsQuery::default()
    };
    let name = actor(&entry);
    let who = match by_actor.is_empty() {
        true => name.into_any(),
        false => view! {
            <a href=by_actor.url() title="Only what this actor did">
                {name}
            </a>
        }
        .into_any(),
    };
    let times = (entry.count > 1).then(|| format!(" × {}", entry.count));
    let label = format!("Details of {}", entry.action);
    view! {
        <tr>
            <td class="e-at">
                <When at=entry.at />
            </td>
            <td class="e-outcome">
                <span class="badge" data-tone=tone>
                    <Icon name=icon />
                    <span>{word}</span>
                </span>
                {times}
            </td>
            <td class="e-action">
                <a class="mono" href=by_action.url() title="Only this action">
                    {entry.action.clone()}
                </a>
            </td>
            <td class="e-object">
                <Object entry=entry.clone() />
            </td>
            <td class="e-who">{who}</td>
            <td class="e-from mono">{entry.address.clone()}</td>
            <td class="e-more">
                <details class="confirm" name="confirm">
                    <summary class="icon-button" aria-label=label.clone() title=label>
                        <Icon name="ellipsis" />
                    </summary>
                    <div class="card confirm-card">
                        <Facts entry />
                    </div>
                </details>
            </td>
        </tr>
    }
    .into_any()
}

/// What was acted on; what has a page leads to it.
#[component]
fn Object(entry: AuditEntry) -> impl IntoView {
    let object = entry.object;
    if object.id.is_empty() {
        return view! { <span class="soft">{object.kind}</span> }.into_any();
    }
    let page = page_of(&object.kind, &object.id);
    let Some(page) = page else {
        let name = entry.changes.get("name").and_then(Value::as_str);
        let name = name.map_or_else(|| short(&object.kind, &object.id), str::to_owned);
        return view! {
            <span class="soft">{object.kind} " "</span>
            <span title=object.id>{name}</span>
        }
        .into_any();
    };
    let name = short(&object.kind, &object.id);
    view! {
        <span class="soft">{object.kind} " "</span>
        <a class="mono" href=page title=object.id>
            {name}
        </a>
    }
    .into_any()
}

/// An object's id as its page shows it. A pool has its name for an id.
fn short(kind: &str, id: &str) -> String {
    match kind {
        "pool" => id.to_owned(),
        "snapshot" => snapshot_short(id).to_owned(),
        "template" => template_short(id).to_owned(),
        _ => SandboxId::from(id).short().to_owned(),
    }
}

/// The page of an object, if that kind has pages. Its id is any text that a client sent.
fn page_of(kind: &str, id: &str) -> Option<String> {
    let list = match kind {
        "pool" => "pools",
        "sandbox" => "sandboxes",
        "snapshot" => "snapshots",
        "template" => "templates",
        _ => return None,
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let id = match id.bytes().all(is_plain) {
        true => id.to_owned(),
        false => Url::escape(id),
    };
    Some(format!("/console/{list}/{id}"))
}

/// Everything that the entry says.
#[component]
fn Facts(entry: AuditEntry) -> impl IntoView {
    let actor = &entry.actor;
    let of_sandbox = (entry.object.kind == "sandbox" && !entry.object.id.is_empty()).then(|| {
        let query = EventsQuery {
            sandbox: entry.object.id.clone(),
            ..EventsQuery::default()
        };
        view! {
            <p>
                <a href=query.url()>"Everything that was done to this sandbox"</a>
            </p>
        }
    });
    let status = entry.status.map(|status| status.to_string());
    let facts = [
        ("Time", Some(entry.at.to_string())),
        (
            "Who",
            Some(format!("{} ({})", actor.name, kind(actor.kind))),
        ),
        ("Id of the actor", Some(actor.id.clone())),
        ("Role", actor.role.map(|role| role.to_string())),
        (
            "Object",
            Some(format!("{} {}", entry.object.kind, entry.object.id)),
        ),
        ("Tenant", entry.tenant.clone()),
        ("Status", status),
        ("Code", entry.code.clone()),
        ("Address", entry.address.clone()),
        ("Request id", entry.request_id.clone()),
    ];
    let facts = facts
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .filter(|(_, value)| !value.is_empty());
    let row = |(name, value): (String, String)| {
        view! {
            <dt>{name}</dt>
            <dd>{value}</dd>
        }
    };
    let changed = changes(&entry);
    let changed = (!changed.is_empty()).then(|| {
        view! {
            <h2>"What it was about"</h2>
            <dl class="facts">{changed.into_iter().map(row).collect_view()}</dl>
        }
    });
    view! {
        <dl class="facts">{facts.map(row).collect_view()}</dl>
        {changed}
        {of_sandbox}
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use osb_protocol::{
        WireTime,
        audit::{AuditActor, AuditObject},
    };
    use serde_json::json;

    use super::*;

    fn entry() -> AuditEntry {
        AuditEntry {
            id: "1".to_owned(),
            at: WireTime::from_unix_ms(0).unwrap(),
            action: "sandbox.renew".to_owned(),
            outcome: AuditOutcome::Failed,
            status: Some(404),
            code: None,
            actor: AuditActor {
                kind: AuditActorKind::Unknown,
                id: String::new(),
                name: String::new(),
                role: None,
                tenant: None,
            },
            object: AuditObject {
                kind: "sandbox".to_owned(),
                id: "a".to_owned(),
            },
            tenant: None,
            address: None,
            request_id: None,
            count: 1,
            changes: serde_json::Map::new(),
        }
    }

    #[test]
    fn an_entry_is_said_in_words() {
        let mut entry = entry();
        assert_eq!(actor(&entry), "not authenticated");
        assert_eq!(outcome(&entry).2, "Failed 404");
        entry.outcome = AuditOutcome::Succeeded;
        entry.status = Some(200);
        assert_eq!(outcome(&entry).2, "Done");
        entry.changes = json!({
            "expiresAt": { "before": "a", "after": null },
            "image": "debian",
            "seconds": 3,
        })
        .as_object()
        .unwrap()
        .clone();
        let lines = changes(&entry);
        let lines: Vec<_> = lines
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        assert_eq!(
            lines,
            [
                ("expiresAt", "a → none"),
                ("image", "debian"),
                ("seconds", "3")
            ]
        );
    }

    #[test]
    fn an_id_cannot_lead_elsewhere() {
        let sandbox = |id| page_of("sandbox", id).unwrap();
        assert_eq!(sandbox("../x?y"), "/console/sandboxes/%2E%2E%2Fx%3Fy");
        assert_eq!(sandbox("0b6c-1f"), "/console/sandboxes/0b6c-1f");
        let snapshot = page_of("snapshot", "0b6c-1f");
        assert_eq!(snapshot.as_deref(), Some("/console/snapshots/0b6c-1f"));
        let template = page_of("template", "tpl-0b6c-1f");
        assert_eq!(template.as_deref(), Some("/console/templates/tpl-0b6c-1f"));
        assert_eq!(
            page_of("pool", "a/b").as_deref(),
            Some("/console/pools/a%2Fb")
        );
        assert_eq!(page_of("user", "0b6c-1f"), None);
    }

    #[test]
    fn an_object_is_called_as_on_its_page() {
        assert_eq!(
            short("pool", "a-long-name-of-a-pool"),
            "a-long-name-of-a-pool"
        );
        let id = "ad1d885d-0b6c-4f1e-9d5a-1c2b3a4d5e6f";
        assert_eq!(short("sandbox", id), "ad1d885d");
        assert_eq!(short("snapshot", id), "ad1d885d");
        assert_eq!(short("template", &format!("tpl-{id}")), "tpl-ad1d885d");
    }
}

//! What every column of the store must hold. `store check` compares the rows with it; a table or a
//! column that is missing here is reported.

use std::collections::BTreeMap;

use osb_protocol::{
    identity::Role,
    lifecycle::{SnapshotState, TemplatePhase, TemplateSpec},
};

use crate::{DeliveryStatus, MemberState, Outcome};

/// What a column must hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// Any text.
    Text,
    /// A text that the server can read, for which this is true.
    Readable(fn(&str) -> bool),
    /// A time that the server can show.
    Moment,
    /// A whole number, also a time in Unix seconds or microseconds.
    Number,
    /// True or false.
    Boolean,
    /// Any bytes.
    Bytes,
    /// A SHA-256 digest.
    Digest,
    /// A UUID, in a database that has them.
    Uuid,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// Whether the column may be empty.
    pub(crate) is_optional: bool,
}

/// A table of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// Names a row in a report, in SQL. Some ids are secrets.
    pub(crate) row: &'static str,
    pub(crate) columns: &'static [Column],
}

/// A column that is never empty.
pub(crate) const fn column(name: &'static str, value: Value) -> Column {
    Column {
        name,
        value,
        is_optional: false,
    }
}

const fn optional(name: &'static str, value: Value) -> Column {
    Column {
        is_optional: true,
        ..column(name, value)
    }
}

/// The tables that every database has.
pub(crate) const TABLES: [Table; 22] = [
    Table {
        name: "instance",
        row: "'the instance'",
        columns: &[column("only_row", Value::Number), column("id", Value::Text)],
    },
    Table {
        name: "sandbox_changes",
        row: "id",
        columns: &[
            column("id", Value::Text),
            optional("expires_at", Value::Moment),
            optional("metadata", Value::Readable(is_metadata)),
            optional("deleted_at", Value::Moment),
            optional("tenant", Value::Text),
        ],
    },
    Table {
        name: "sandbox_history",
        row: "id",
        columns: &[
            column("id", Value::Text),
            column("image", Value::Text),
            column("created_at", Value::Moment),
            column("ended_at", Value::Moment),
            column("outcome", Value::Readable(is_outcome)),
            column("reason", Value::Text),
            column("message", Value::Text),
            column("stages", Value::Readable(are_stages)),
            optional("tenant", Value::Text),
            optional("metadata", Value::Readable(is_metadata)),
            optional("entrypoint", Value::Readable(are_names)),
            optional("resources", Value::Readable(is_metadata)),
            optional("expires_at", Value::Moment),
        ],
    },
    Table {
        name: "sandbox_metrics",
        row: "id",
        columns: &[
            column("id", Value::Text),
            column("step", Value::Number),
            column("place", Value::Number),
            column("start", Value::Number),
            column("written_at", Value::Number),
            column("points", Value::Bytes),
        ],
    },
    Table {
        name: "sandbox_commands",
        row: "id",
        columns: &[
            column("id", Value::Text),
            column("started_at", Value::Number),
            column("number", Value::Number),
            column("kind", Value::Text),
            column("command", Value::Text),
            optional("cwd", Value::Text),
            optional("uid", Value::Number),
            optional("finished_at", Value::Number),
            optional("exit_code", Value::Number),
            optional("error", Value::Text),
            column("reported_at", Value::Number),
        ],
    },
    Table {
        name: "sessions",
        // The id of a session would let its reader in.
        row: "'a session'",
        columns: &[
            column("id", Value::Text),
            column("data", Value::Bytes),
            column("expires_at", Value::Number),
        ],
    },
    Table {
        name: "unanswered_creates",
        row: "id",
        columns: &[
            column("id", Value::Text),
            column("image", Value::Text),
            column("created_at", Value::Moment),
            optional("tenant", Value::Text),
        ],
    },
    Table {
        name: "create_keys",
        row: "sandbox_id",
        columns: &[
            column("key", Value::Digest),
            column("body", Value::Digest),
            column("sandbox_id", Value::Text),
            column("used_at", Value::Moment),
        ],
    },
    Table {
        name: "audit_entries",
        row: "id",
        columns: &[
            column("seq", Value::Number),
            column("id", Value::Text),
            column("at", Value::Moment),
            column("action", Value::Text),
            column("outcome", Value::Text),
            column("actor_id", Value::Text),
            column("actor_name", Value::Text),
            column("object_kind", Value::Text),
            column("object_id", Value::Text),
            optional("tenant", Value::Text),
            column("details", Value::Readable(crate::audit::is_readable)),
        ],
    },
    Table {
        name: "sandbox_snapshots",
        row: "id",
        columns: &[
            column("id", Value::Text),
            column("sandbox_id", Value::Text),
            optional("name", Value::Text),
            optional("tenant", Value::Text),
            optional("owner", Value::Text),
            column("state", Value::Readable(is_snapshot_state)),
            column("reason", Value::Text),
            column("message", Value::Text),
            optional("image", Value::Text),
            optional("size_bytes", Value::Number),
            optional("parent_id", Value::Text),
            column("created_at", Value::Moment),
            column("changed_at", Value::Moment),
        ],
    },
    Table {
        name: "sandbox_pools",
        row: "tenant || '/' || name",
        columns: &[
            column("tenant", Value::Text),
            column("name", Value::Text),
            column("template", Value::Readable(is_object)),
            column("revision", Value::Text),
            column("buffer_max", Value::Number),
            column("buffer_min", Value::Number),
            column("pool_max", Value::Number),
            column("pool_min", Value::Number),
            column("created_at", Value::Moment),
            column("changed_at", Value::Moment),
        ],
    },
    Table {
        name: "sandbox_pool_members",
        row: "id",
        columns: &[
            column("id", Value::Text),
            column("tenant", Value::Text),
            column("pool", Value::Text),
            column("revision", Value::Text),
            column("settings", Value::Text),
            column("state", Value::Readable(is_member_state)),
            optional("claim", Value::Readable(is_object)),
            column("created_at", Value::Moment),
            column("changed_at", Value::Moment),
        ],
    },
    Table {
        name: "sandbox_templates",
        row: "id",
        columns: &[
            column("id", Value::Text),
            optional("tenant", Value::Text),
            optional("owner", Value::Text),
            column("spec", Value::Readable(is_template_spec)),
            column("metadata", Value::Readable(is_labels)),
            column("phase", Value::Readable(is_template_phase)),
            optional("image", Value::Text),
            optional("message", Value::Text),
            optional("log", Value::Text),
            optional("size_bytes", Value::Number),
            column("created_at", Value::Moment),
            column("changed_at", Value::Moment),
        ],
    },
    Table {
        name: "imported_files",
        row: "id",
        columns: &[
            column("id", Value::Text),
            optional("expiry", Value::Digest),
            optional("metadata", Value::Digest),
        ],
    },
    Table {
        name: "webhooks",
        row: "id",
        columns: &[
            column("id", Value::Text),
            column("name", Value::Text),
            column("url", Value::Text),
            optional("secret", Value::Text),
            column("events", Value::Readable(are_names)),
            optional("tenant", Value::Text),
            column("is_configured", Value::Boolean),
            optional("disabled", Value::Text),
            column("created_at", Value::Moment),
        ],
    },
    Table {
        name: "webhook_tracking",
        row: "'the mark'",
        columns: &[column("only_row", Value::Number)],
    },
    Table {
        name: "webhook_announced",
        row: "id",
        columns: &[
            column("id", Value::Text),
            column("state", Value::Text),
            column("reason", Value::Text),
            optional("expires_at", Value::Moment),
            optional("tenant", Value::Text),
            column("metadata", Value::Readable(is_metadata)),
        ],
    },
    Table {
        name: "webhook_ends",
        row: "id",
        columns: &[column("id", Value::Text)],
    },
    Table {
        name: "webhook_deliveries",
        row: "event_id",
        columns: &[
            column("seq", Value::Number),
            column("webhook_id", Value::Text),
            column("event_id", Value::Text),
            column("event_type", Value::Text),
            optional("sandbox_id", Value::Text),
            column("body", Value::Text),
            column("status", Value::Readable(is_delivery_status)),
            column("attempts", Value::Number),
            column("created_at", Value::Moment),
            column("due_at", Value::Moment),
            optional("ended_at", Value::Moment),
            optional("answer", Value::Number),
            optional("error", Value::Text),
        ],
    },
    Table {
        name: "accounts",
        row: "'the number of changes'",
        columns: &[
            column("only_row", Value::Number),
            column("revision", Value::Number),
        ],
    },
    Table {
        name: "users",
        row: "id",
        columns: &[
            column("id", Value::Text),
            column("name", Value::Text),
            column("password", Value::Readable(is_password_hash)),
            column("role", Value::Readable(is_role)),
            optional("tenant", Value::Text),
            column("disabled", Value::Boolean),
            column("created_at", Value::Moment),
            column("password_changed_at", Value::Moment),
        ],
    },
    Table {
        name: "api_keys",
        row: "id",
        columns: &[
            column("id", Value::Text),
            column("name", Value::Text),
            column("digest", Value::Digest),
            column("prefix", Value::Text),
            column("role", Value::Readable(is_role)),
            optional("tenant", Value::Text),
            column("created_at", Value::Moment),
            optional("expires_at", Value::Moment),
            optional("last_used_at", Value::Moment),
            optional("revoked_at", Value::Moment),
        ],
    },
];

fn is_metadata(text: &str) -> bool {
    serde_json::from_str::<BTreeMap<String, String>>(text).is_ok()
}

fn are_stages(text: &str) -> bool {
    serde_json::from_str::<Vec<(String, i64)>>(text).is_ok()
}

fn are_names(text: &str) -> bool {
    serde_json::from_str::<Vec<String>>(text).is_ok()
}

fn is_delivery_status(name: &str) -> bool {
    DeliveryStatus::of(name).is_some()
}

fn is_snapshot_state(name: &str) -> bool {
    SnapshotState::of(name).is_some()
}

fn is_member_state(name: &str) -> bool {
    MemberState::of(name).is_some()
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok()
}

fn is_template_phase(name: &str) -> bool {
    TemplatePhase::of(name).is_some()
}

fn is_template_spec(text: &str) -> bool {
    serde_json::from_str::<TemplateSpec>(text).is_ok()
}

fn is_labels(text: &str) -> bool {
    serde_json::from_str::<BTreeMap<String, String>>(text).is_ok()
}

fn is_outcome(name: &str) -> bool {
    Outcome::from_stored(name).as_str() == name
}

fn is_role(name: &str) -> bool {
    name.parse::<Role>().is_ok()
}

fn is_password_hash(text: &str) -> bool {
    text.starts_with("$argon2id$")
}

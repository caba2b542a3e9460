//! The steps of the schema.

use sqlx::{
    SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

/// The steps of the schema, each in a file that never changes once it was released.
pub(super) fn schema() -> Migrator {
    let steps = [
        (
            1,
            "start",
            include_str!("../../migrations/sqlite/0001_start.sql"),
        ),
        (
            2,
            "creates",
            include_str!("../../migrations/sqlite/0002_creates.sql"),
        ),
        (
            3,
            "accounts",
            include_str!("../../migrations/sqlite/0003_accounts.sql"),
        ),
        (
            4,
            "metrics and commands",
            include_str!("../../migrations/sqlite/0004_metrics_and_commands.sql"),
        ),
        (
            5,
            "tenants",
            include_str!("../../migrations/sqlite/0005_tenants.sql"),
        ),
        (
            6,
            "audit",
            include_str!("../../migrations/sqlite/0006_audit.sql"),
        ),
        (
            7,
            "webhooks",
            include_str!("../../migrations/sqlite/0007_webhooks.sql"),
        ),
        (
            8,
            "imports",
            include_str!("../../migrations/sqlite/0008_imports.sql"),
        ),
        (
            10,
            "audit reads",
            include_str!("../../migrations/sqlite/0010_audit_reads.sql"),
        ),
        (
            11,
            "webhook pages",
            include_str!("../../migrations/sqlite/0011_webhook_pages.sql"),
        ),
        (
            12,
            "history",
            include_str!("../../migrations/sqlite/0012_history.sql"),
        ),
        (
            13,
            "snapshots",
            include_str!("../../migrations/sqlite/0013_snapshots.sql"),
        ),
        (
            14,
            "pools",
            include_str!("../../migrations/sqlite/0014_pools.sql"),
        ),
        (
            15,
            "templates",
            include_str!("../../migrations/sqlite/0015_templates.sql"),
        ),
    ];
    let steps = steps.map(|(version, name, sql)| {
        let sql = sql.into_sql_str();
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(steps.into())
}

//! `store backup`, `store restore`, `store check` and `migrate-snapshots`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use osb_protocol::WireTime;
use osb_store::{
    Location, PostgresOptions,
    tools::{self, SnapshotMigration, Written},
};
use secrecy::SecretString;

use crate::config::Config;

/// Saves the store in a new file; the current folder and the time name it unless `file` does.
///
/// # Errors
/// When the store cannot be read or the file cannot be written.
pub async fn backup(config: &Config, file: Option<PathBuf>) -> anyhow::Result<()> {
    let file = file.unwrap_or_else(|| {
        let time = WireTime::new(jiff::Timestamp::now())
            .to_string()
            .replace([':', '.'], "-");
        PathBuf::from(format!("opensandbox-{time}.db"))
    });
    let Written { path, bytes, .. } = tools::backup(&config.store.location(), &file).await?;
    println!("wrote {} ({bytes} bytes)", path.display());
    Ok(())
}

/// Puts a saved store back.
///
/// # Errors
/// When a server is running, or the file is no sound store.
pub async fn restore(config: &Config, file: &Path) -> anyhow::Result<()> {
    let written = tools::restore(&config.store.location(), file)
        .await
        .with_context(|| format!("cannot restore {}", file.display()))?;
    println!("restored {}", written.path.display());
    if let Some(old) = written.replaced {
        println!("the store that was there is now {}", old.display());
    }
    Ok(())
}

/// Copies the snapshots of another server into the configured store, or into the one in PostgreSQL that
/// `to` names, and prints how many (contract: lifecycle A10).
///
/// # Errors
/// When the file or the store cannot be read; then nothing was copied.
pub async fn migrate_snapshots(
    config: &Config,
    from: &Path,
    to: Option<SecretString>,
    dry_run: bool,
) -> anyhow::Result<()> {
    let to = match to {
        None => config.store.location(),
        Some(dsn) => Location::Postgres(PostgresOptions {
            dsn,
            ..config.store.postgresql.options()
        }),
    };
    let done = tools::migrate_snapshots(from, &to, dry_run).await?;
    println!("{}", migrated(done, dry_run));
    Ok(())
}

/// The line that programs read.
fn migrated(done: SnapshotMigration, dry_run: bool) -> String {
    let SnapshotMigration {
        total,
        migrated,
        skipped,
    } = done;
    let what = if dry_run { "dry-run" } else { "migrated" };
    format!("Snapshots {what}: total={total}, migrated={migrated}, skipped={skipped}")
}

/// Looks for damage and prints what it finds; `true` if there is none.
///
/// # Errors
/// When the store cannot be read at all.
pub async fn check(config: &Config, json: bool) -> anyhow::Result<bool> {
    let found = tools::inspect(&config.store.location()).await?;
    if json {
        println!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(found.is_sound());
    }
    println!("{}, schema {}", found.database, found.schema);
    for (table, rows) in &found.tables {
        println!("  {table}: {rows} rows");
    }
    for note in &found.notes {
        println!("note: {note}");
    }
    for problem in &found.problems {
        println!("PROBLEM: {problem}");
    }
    println!("{}", if found.is_sound() { "sound" } else { "damaged" });
    Ok(found.is_sound())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_migration_prints_the_lines_of_the_contract() {
        let done = SnapshotMigration {
            total: 3,
            migrated: 1,
            skipped: 2,
        };
        assert_eq!(
            migrated(done, false),
            "Snapshots migrated: total=3, migrated=1, skipped=2"
        );
        assert_eq!(
            migrated(done, true),
            "Snapshots dry-run: total=3, migrated=1, skipped=2"
        );
    }
}

//! `store backup`, `store restore` and `store check`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use osb_protocol::WireTime;
use osb_store::tools::{self, Written};

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

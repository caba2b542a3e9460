//! Table `sandbox_commands`.

use async_trait::async_trait;
use osb_protocol::SandboxId;

use super::{PostgresStore, values::text};
use crate::{ReportedCommand, SandboxCommands, StoreError};

type Row = (
    i64,
    i64,
    String,
    String,
    Option<String>,
    Option<i64>,
    Option<i64>,
    Option<i32>,
    Option<String>,
    i64,
);

#[async_trait]
impl SandboxCommands for PostgresStore {
    async fn put_commands(
        &self,
        id: &SandboxId,
        commands: &[ReportedCommand],
        most: u32,
    ) -> Result<(), StoreError> {
        const OP: &str = "write commands";
        if commands.is_empty() {
            return Ok(());
        }
        let mut write = self.begin(OP).await?;
        for command in commands {
            let insert = sqlx::query(
                "INSERT INTO sandbox_commands (id, started_at, number, kind, command, cwd, uid,
                   finished_at, exit_code, error, reported_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
                 ON CONFLICT (id, started_at, number) DO UPDATE
                 SET finished_at = excluded.finished_at, exit_code = excluded.exit_code,
                     error = excluded.error, reported_at = excluded.reported_at",
            )
            .bind(text(id.as_str()))
            .bind(command.started_at)
            .bind(command.number)
            .bind(text(&command.kind))
            .bind(text(&command.command))
            .bind(command.cwd.as_deref().map(text))
            .bind(command.uid)
            .bind(command.finished_at)
            .bind(command.exit_code)
            .bind(command.error.as_deref().map(text))
            .bind(command.reported_at);
            self.run(OP, insert.execute(write.connection())).await?;
        }
        let oldest = sqlx::query(
            "DELETE FROM sandbox_commands WHERE id = $1 AND (started_at, number) NOT IN (
               SELECT started_at, number FROM sandbox_commands WHERE id = $1
               ORDER BY started_at DESC, number DESC LIMIT $2)",
        )
        .bind(text(id.as_str()))
        .bind(i64::from(most));
        self.run(OP, oldest.execute(write.connection())).await?;
        self.commit(OP, write).await
    }

    async fn commands(
        &self,
        id: &SandboxId,
        limit: u32,
    ) -> Result<Vec<ReportedCommand>, StoreError> {
        let query = sqlx::query_as(
            "SELECT started_at, number, kind, command, cwd, uid, finished_at, exit_code, error,
               reported_at
             FROM sandbox_commands WHERE id = $1 ORDER BY started_at DESC, number DESC LIMIT $2",
        )
        .bind(text(id.as_str()))
        .bind(i64::from(limit));
        let rows: Vec<Row> = self.read_all("read commands", query).await?;
        Ok(rows.into_iter().map(command).collect())
    }

    async fn prune_commands(&self, before: i64, alive: &[SandboxId]) -> Result<u64, StoreError> {
        let alive: Vec<String> = alive.iter().map(|id| text(id.as_str()).into()).collect();
        self.delete_in_batches("prune commands", || {
            sqlx::query(
                "DELETE FROM sandbox_commands WHERE ctid = ANY(ARRAY(
                   SELECT ctid FROM sandbox_commands WHERE id IN (
                     SELECT id FROM sandbox_commands GROUP BY id HAVING MAX(reported_at) < $1)
                   AND NOT (id = ANY($2)) LIMIT $3))",
            )
            .bind(before)
            .bind(alive.clone())
        })
        .await
    }
}

fn command(row: Row) -> ReportedCommand {
    let (started_at, number, kind, command, cwd, uid, finished_at, exit_code, error, reported_at) =
        row;
    ReportedCommand {
        started_at,
        number,
        kind,
        command,
        cwd,
        uid,
        finished_at,
        exit_code,
        error,
        reported_at,
    }
}

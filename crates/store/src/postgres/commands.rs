//! Table `sandbox_commands`.

use async_trait::async_trait;
use osb_protocol::SandboxId;

use super::{PostgresStore, values::text};
use crate::{
    COMMAND_BATCH, COMMAND_BYTES_MAX, ReportedCommand, SandboxCommands, StoreError,
    retention::{self, COMMAND_OVERHEAD},
};

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
        for part in commands.chunks(COMMAND_BATCH) {
            let mut write = self.begin(OP).await?;
            for command in part {
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
            self.commit(OP, write).await?;
        }
        // The newest that goes, and a range of the key up to it.
        let statement = sqlx::query(
            "DELETE FROM sandbox_commands WHERE id = $1 AND (started_at, number) <= (
               SELECT started_at, number FROM (
                 SELECT started_at, number, ROW_NUMBER() OVER newest AS place,
                   SUM($4::bigint + COALESCE(OCTET_LENGTH(command), 0)
                     + COALESCE(OCTET_LENGTH(cwd), 0)
                     + COALESCE(OCTET_LENGTH(error), 0)) OVER newest AS total
                 FROM sandbox_commands WHERE id = $1
                 WINDOW newest AS (ORDER BY started_at DESC, number DESC)) AS counted
               WHERE place > $2 OR total > $3
               ORDER BY started_at DESC, number DESC LIMIT 1)",
        )
        .bind(text(id.as_str()))
        .bind(i64::from(most))
        .bind(COMMAND_BYTES_MAX)
        .bind(COMMAND_OVERHEAD);
        self.write(OP, statement).await.map(drop)
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

    async fn prune_commands(
        &self,
        before: i64,
        alive: &[SandboxId],
        most: u64,
    ) -> Result<u64, StoreError> {
        const OP: &str = "prune commands";
        // Reads see all sandboxes, so they must not take the place of a write.
        let query = sqlx::query_as(
            "SELECT id, (SELECT EXTRACT(EPOCH FROM ended_at)::bigint FROM sandbox_history AS ended
                WHERE ended.id = kept.id), MAX(reported_at),
               SUM($1::bigint + COALESCE(OCTET_LENGTH(command), 0)
                 + COALESCE(OCTET_LENGTH(cwd), 0)
                 + COALESCE(OCTET_LENGTH(error), 0))::bigint
             FROM sandbox_commands AS kept GROUP BY id",
        )
        .bind(COMMAND_OVERHEAD);
        let kept = self.read_all(OP, query).await?;
        let ids = retention::outdated(kept, before, alive, most);
        let mut deleted = 0;
        for part in retention::parts(&ids) {
            let ids = part.to_vec();
            deleted += self
                .delete_in_batches(OP, || {
                    sqlx::query(
                        "DELETE FROM sandbox_commands WHERE ctid = ANY(ARRAY(
                       SELECT ctid FROM sandbox_commands WHERE id = ANY($1) LIMIT $2))",
                    )
                    .bind(ids.clone())
                })
                .await?;
        }
        Ok(deleted)
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

//! Table `sessions`.

use async_trait::async_trait;

use super::SqliteStore;
use crate::{ConsoleSessions, SessionRow, StoreError};

#[async_trait]
impl ConsoleSessions for SqliteStore {
    async fn session_create(&self, session: &SessionRow) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "INSERT INTO sessions (id, data, expires_at) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(&session.id)
        .bind(&session.data)
        .bind(session.expires_at);
        let done = self.write("add a session", statement).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn session_save(&self, session: &SessionRow) -> Result<(), StoreError> {
        let statement = sqlx::query("UPDATE sessions SET data = $2, expires_at = $3 WHERE id = $1")
            .bind(&session.id)
            .bind(&session.data)
            .bind(session.expires_at);
        self.write("save a session", statement).await.map(drop)
    }

    async fn session_load(&self, id: &str) -> Result<Option<SessionRow>, StoreError> {
        type Row = (String, Vec<u8>, i64);
        let query =
            sqlx::query_as("SELECT id, data, expires_at FROM sessions WHERE id = $1").bind(id);
        let row: Option<Row> = self.read_one("load a session", query).await?;
        Ok(row.map(|(id, data, expires_at)| SessionRow {
            id,
            data,
            expires_at,
        }))
    }

    async fn sessions(&self) -> Result<Vec<SessionRow>, StoreError> {
        type Row = (String, Vec<u8>, i64);
        let query = sqlx::query_as("SELECT id, data, expires_at FROM sessions");
        let rows: Vec<Row> = self.read_all("list the sessions", query).await?;
        let rows = rows.into_iter();
        let rows = rows.map(|(id, data, expires_at)| SessionRow {
            id,
            data,
            expires_at,
        });
        Ok(rows.collect())
    }

    async fn session_delete(&self, id: &str) -> Result<(), StoreError> {
        let statement = sqlx::query("DELETE FROM sessions WHERE id = $1").bind(id);
        self.write("delete a session", statement).await.map(drop)
    }

    async fn session_prune(&self, before: i64) -> Result<u64, StoreError> {
        self.delete_in_batches("prune sessions", || {
            sqlx::query(
                "DELETE FROM sessions WHERE rowid IN (
                   SELECT rowid FROM sessions WHERE expires_at < $1 LIMIT $2)",
            )
            .bind(before)
        })
        .await
    }
}

//! Tables `accounts`, `users` and `api_keys`.

use async_trait::async_trait;
use osb_protocol::WireTime;
use sqlx::{Sqlite, query::Query, sqlite::SqliteArguments};
use tracing::warn;

use super::SqliteStore;
use crate::{
    AccountRows, Accounts, ApiKeyRow, PasswordHash, StoreError, UserChange, UserRow,
    account::{stored_digest, stored_role},
};

type User = (
    String,
    String,
    String,
    String,
    Option<String>,
    bool,
    i64,
    i64,
);
type Key = (
    String,
    String,
    Vec<u8>,
    String,
    String,
    Option<String>,
    i64,
    Option<i64>,
    Option<i64>,
    Option<i64>,
);

impl SqliteStore {
    /// Runs a statement that changes users or keys; returns whether it changed a row.
    async fn change_account(
        &self,
        op: &'static str,
        statement: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<bool, StoreError> {
        let mut write = self.begin(op).await?;
        let done = statement.execute(write.connection()).await;
        if done.map_err(self.failed(op))?.rows_affected() == 0 {
            self.roll_back(op, write).await?;
            return Ok(false);
        }
        let counted = write
            .run("UPDATE accounts SET revision = revision + 1")
            .await;
        counted.map_err(self.failed(op))?;
        self.commit(op, write).await?;
        Ok(true)
    }
}

#[async_trait]
impl Accounts for SqliteStore {
    async fn accounts_revision(&self) -> Result<i64, StoreError> {
        let query = sqlx::query_as("SELECT revision FROM accounts");
        let row: Option<(i64,)> = self.read_one("read the accounts", query).await?;
        Ok(row.map_or(0, |(revision,)| revision))
    }

    async fn accounts(&self) -> Result<AccountRows, StoreError> {
        const OP: &str = "read the accounts";
        // Read first: what changes meanwhile has another number.
        let revision = self.accounts_revision().await?;
        let query = sqlx::query_as(
            "SELECT id, name, password, role, tenant, disabled, created_at, password_changed_at
             FROM users ORDER BY name",
        );
        let users: Vec<User> = self.read_all(OP, query).await?;
        let query = sqlx::query_as(
            "SELECT id, name, digest, prefix, role, tenant, created_at, expires_at, last_used_at,
               revoked_at
             FROM api_keys ORDER BY created_at DESC, id",
        );
        let keys: Vec<Key> = self.read_all(OP, query).await?;
        Ok(AccountRows {
            revision,
            users: users
                .into_iter()
                .filter_map(|row| readable(row.0.clone(), row, user))
                .collect(),
            keys: keys
                .into_iter()
                .filter_map(|row| readable(row.0.clone(), row, key))
                .collect(),
        })
    }

    async fn add_user(&self, user: &UserRow) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "INSERT INTO users
               (id, name, password, role, tenant, disabled, created_at, password_changed_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO NOTHING",
        )
        .bind(&user.id)
        .bind(&user.name)
        .bind(&user.password.0)
        .bind(user.role.as_str())
        .bind(&user.tenant)
        .bind(user.disabled)
        .bind(user.created_at.unix_us())
        .bind(user.password_changed_at.unix_us());
        self.change_account("add a user", statement).await
    }

    async fn change_user(&self, id: &str, change: &UserChange) -> Result<bool, StoreError> {
        let (password, set_at) = change
            .password
            .as_ref()
            .map(|(it, at)| (&it.0, *at))
            .unzip();
        let statement = sqlx::query(
            "UPDATE users SET
               password = COALESCE($2, password),
               password_changed_at = COALESCE($3, password_changed_at),
               role = COALESCE($4, role),
               tenant = CASE WHEN $5 THEN $6 ELSE tenant END,
               disabled = COALESCE($7, disabled)
             WHERE id = $1",
        )
        .bind(id)
        .bind(password)
        .bind(set_at.map(WireTime::unix_us))
        .bind(change.role.map(|role| role.as_str()))
        .bind(change.tenant.is_some())
        .bind(change.tenant.as_ref().and_then(Option::as_ref))
        .bind(change.disabled);
        self.change_account("change a user", statement).await
    }

    async fn delete_user(&self, id: &str) -> Result<bool, StoreError> {
        let statement = sqlx::query("DELETE FROM users WHERE id = $1").bind(id);
        self.change_account("delete a user", statement).await
    }

    async fn add_key(&self, key: &ApiKeyRow) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO api_keys
               (id, name, digest, prefix, role, tenant, created_at, expires_at, last_used_at,
                revoked_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(&key.id)
        .bind(&key.name)
        .bind(&key.digest[..])
        .bind(&key.prefix)
        .bind(key.role.as_str())
        .bind(&key.tenant)
        .bind(key.created_at.unix_us())
        .bind(key.expires_at.map(WireTime::unix_us))
        .bind(key.last_used_at.map(WireTime::unix_us))
        .bind(key.revoked_at.map(WireTime::unix_us));
        self.change_account("add an API key", statement)
            .await
            .map(drop)
    }

    async fn revoke_key(&self, id: &str, at: WireTime) -> Result<bool, StoreError> {
        let statement =
            sqlx::query("UPDATE api_keys SET revoked_at = COALESCE(revoked_at, $2) WHERE id = $1")
                .bind(id)
                .bind(at.unix_us());
        self.change_account("revoke an API key", statement).await
    }

    async fn touch_keys(&self, used: &[(String, WireTime)]) -> Result<(), StoreError> {
        const OP: &str = "note the use of API keys";
        let mut write = self.begin(OP).await?;
        for (id, at) in used {
            sqlx::query(
                "UPDATE api_keys SET last_used_at = MAX(COALESCE(last_used_at, $2), $2)
                 WHERE id = $1",
            )
            .bind(id)
            .bind(at.unix_us())
            .execute(write.connection())
            .await
            .map_err(self.failed(OP))?;
        }
        self.commit(OP, write).await
    }
}

/// Reports a row that cannot be read, and leaves it out.
fn readable<Row, T>(id: String, row: Row, read: impl Fn(Row) -> Option<T>) -> Option<T> {
    let read = read(row);
    if read.is_none() {
        warn!(
            id,
            "its stored times are damaged, so it opens nothing; see store check"
        );
    }
    read
}

/// `None` for a row with an impossible time.
fn user(row: User) -> Option<UserRow> {
    let (id, name, password, role, tenant, disabled, created_at, password_changed_at) = row;
    Some(UserRow {
        name,
        password: PasswordHash(password),
        role: stored_role(&role, &id),
        tenant,
        disabled,
        created_at: WireTime::from_unix_us(created_at)?,
        password_changed_at: WireTime::from_unix_us(password_changed_at)?,
        id,
    })
}

/// `None` for a row with an impossible time.
fn key(row: Key) -> Option<ApiKeyRow> {
    let (id, name, digest, prefix, role, tenant, created_at, expires_at, last_used_at, revoked_at) =
        row;
    let time = |us: Option<i64>| match us {
        None => Some(None),
        Some(us) => WireTime::from_unix_us(us).map(Some),
    };
    Some(ApiKeyRow {
        name,
        digest: stored_digest(digest, &id),
        prefix,
        role: stored_role(&role, &id),
        tenant,
        created_at: WireTime::from_unix_us(created_at)?,
        expires_at: time(expires_at)?,
        last_used_at: time(last_used_at)?,
        revoked_at: time(revoked_at)?,
        id,
    })
}

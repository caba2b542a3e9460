//! Tables `accounts`, `users` and `api_keys`.

use async_trait::async_trait;
use osb_protocol::WireTime;
use sqlx::{Postgres, postgres::PgArguments, query::Query};

use super::{
    PostgresStore,
    values::{Moment, text},
};
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
    Moment,
    Moment,
);
type Key = (
    String,
    String,
    Vec<u8>,
    String,
    String,
    Option<String>,
    Moment,
    Option<Moment>,
    Option<Moment>,
    Option<Moment>,
);

impl PostgresStore {
    /// Runs a statement that changes users or keys; returns whether it changed a row.
    async fn change_account(
        &self,
        op: &'static str,
        statement: Query<'_, Postgres, PgArguments>,
    ) -> Result<bool, StoreError> {
        let mut write = self.begin(op).await?;
        let done = self.run(op, statement.execute(write.connection())).await?;
        if done.rows_affected() == 0 {
            self.end(op, "ROLLBACK", write).await?;
            return Ok(false);
        }
        let count = sqlx::query("UPDATE accounts SET revision = revision + 1");
        self.run(op, count.execute(write.connection())).await?;
        self.commit(op, write).await?;
        Ok(true)
    }
}

#[async_trait]
impl Accounts for PostgresStore {
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
             FROM users ORDER BY name COLLATE \"C\"",
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
            users: users.into_iter().map(user).collect(),
            keys: keys.into_iter().map(key).collect(),
        })
    }

    async fn add_user(&self, user: &UserRow) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "INSERT INTO users
               (id, name, password, role, tenant, disabled, created_at, password_changed_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO NOTHING",
        )
        .bind(text(&user.id))
        .bind(text(&user.name))
        .bind(&user.password.0)
        .bind(user.role.as_str())
        .bind(user.tenant.as_deref().map(text))
        .bind(user.disabled)
        .bind(Moment(user.created_at))
        .bind(Moment(user.password_changed_at));
        self.change_account("add a user", statement).await
    }

    async fn change_user(&self, id: &str, change: &UserChange) -> Result<bool, StoreError> {
        let (password, set_at) = change
            .password
            .as_ref()
            .map(|(it, at)| (&it.0, *at))
            .unzip();
        let tenant = change.tenant.as_ref().and_then(Option::as_deref);
        let statement = sqlx::query(
            "UPDATE users SET
               password = COALESCE($2, password),
               password_changed_at = COALESCE($3, password_changed_at),
               role = COALESCE($4, role),
               tenant = CASE WHEN $5 THEN $6 ELSE tenant END,
               disabled = COALESCE($7, disabled)
             WHERE id = $1",
        )
        .bind(text(id))
        .bind(password)
        .bind(set_at.map(Moment))
        .bind(change.role.map(|role| role.as_str()))
        .bind(change.tenant.is_some())
        .bind(tenant.map(text))
        .bind(change.disabled);
        self.change_account("change a user", statement).await
    }

    async fn delete_user(&self, id: &str) -> Result<bool, StoreError> {
        let statement = sqlx::query("DELETE FROM users WHERE id = $1").bind(text(id));
        self.change_account("delete a user", statement).await
    }

    async fn add_key(&self, key: &ApiKeyRow) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO api_keys
               (id, name, digest, prefix, role, tenant, created_at, expires_at, last_used_at,
                revoked_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(text(&key.id))
        .bind(text(&key.name))
        .bind(&key.digest[..])
        .bind(text(&key.prefix))
        .bind(key.role.as_str())
        .bind(key.tenant.as_deref().map(text))
        .bind(Moment(key.created_at))
        .bind(key.expires_at.map(Moment))
        .bind(key.last_used_at.map(Moment))
        .bind(key.revoked_at.map(Moment));
        self.change_account("add an API key", statement)
            .await
            .map(drop)
    }

    async fn revoke_key(&self, id: &str, at: WireTime) -> Result<bool, StoreError> {
        let statement =
            sqlx::query("UPDATE api_keys SET revoked_at = COALESCE(revoked_at, $2) WHERE id = $1")
                .bind(text(id))
                .bind(Moment(at));
        self.change_account("revoke an API key", statement).await
    }

    async fn touch_keys(&self, used: &[(String, WireTime)]) -> Result<(), StoreError> {
        const OP: &str = "note the use of API keys";
        let mut write = self.begin(OP).await?;
        for (id, at) in used {
            let statement = sqlx::query(
                "UPDATE api_keys SET last_used_at = GREATEST(last_used_at, $2) WHERE id = $1",
            )
            .bind(text(id))
            .bind(Moment(*at));
            self.run(OP, statement.execute(write.connection())).await?;
        }
        self.commit(OP, write).await
    }
}

fn user(row: User) -> UserRow {
    let (id, name, password, role, tenant, disabled, created_at, password_changed_at) = row;
    UserRow {
        name,
        password: PasswordHash(password),
        role: stored_role(&role, &id),
        tenant,
        disabled,
        created_at: created_at.0,
        password_changed_at: password_changed_at.0,
        id,
    }
}

fn key(row: Key) -> ApiKeyRow {
    let (id, name, digest, prefix, role, tenant, created_at, expires_at, last_used_at, revoked_at) =
        row;
    ApiKeyRow {
        name,
        digest: stored_digest(digest, &id),
        prefix,
        role: stored_role(&role, &id),
        tenant,
        created_at: created_at.0,
        expires_at: expires_at.map(|at| at.0),
        last_used_at: last_used_at.map(|at| at.0),
        revoked_at: revoked_at.map(|at| at.0),
        id,
    }
}

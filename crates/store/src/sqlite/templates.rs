//! Table `sandbox_templates`.

use std::collections::HashMap;

use async_trait::async_trait;
use osb_protocol::{WireTime, lifecycle::TemplatePhase};
use sqlx::{FromRow, Row as _, sqlite::SqliteRow};

use super::SqliteStore;
use crate::{
    StoreError, StoredFor, TemplateChange, TemplateQuery, TemplateRow, TemplateStore,
    TemplateTotal,
    snapshot::{IDS, read_size, stored_size},
    template::{read_labels, read_phase, stored_labels, totals},
};

/// Columns of a [`Stored`] row.
macro_rules! templates {
    ($rest:expr) => {
        concat!(
            "SELECT id, tenant, owner, spec, metadata, phase, image, message, size_bytes, created_at,
               changed_at
             FROM sandbox_templates ",
            $rest
        )
    };
}

/// What a list selects.
macro_rules! matching {
    () => {
        "WHERE ($1 IS NULL OR tenant = $1) AND ($3 OR phase <> 'Deleting')
           AND CASE WHEN $2 IS NULL THEN TRUE ELSE NOT EXISTS (
           SELECT 1 FROM json_each($2) AS wanted WHERE NOT EXISTS (
             SELECT 1 FROM json_each(sandbox_templates.metadata) AS has
             WHERE has.key = wanted.key AND has.value = wanted.value)) END "
    };
}

const ONE: &str = templates!("WHERE id = $1");
const OPEN: &str = templates!(
    "WHERE phase IN ('Pending', 'Building', 'Deleting') AND id > $1 ORDER BY id LIMIT $2"
);
const COUNT: &str = concat!("SELECT COUNT(*) FROM sandbox_templates ", matching!());
const PAGE: &str = concat!(
    templates!(matching!()),
    "ORDER BY created_at DESC, id DESC LIMIT $4 OFFSET $5"
);

/// A row as it is read.
struct Stored(TemplateRow);

impl FromRow<'_, SqliteRow> for Stored {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let time = |us: i64| WireTime::from_unix_us(us).or_else(|| WireTime::from_unix_us(0));
        let time = |column: &str| -> Result<WireTime, sqlx::Error> {
            Ok(time(row.try_get(column)?).expect("0 is a valid time"))
        };
        Ok(Self(TemplateRow {
            id: row.try_get("id")?,
            tenant: row.try_get("tenant")?,
            owner: row.try_get("owner")?,
            spec: row.try_get("spec")?,
            metadata: read_labels(&row.try_get::<String, _>("metadata")?),
            phase: read_phase(&row.try_get::<String, _>("phase")?),
            image: row.try_get("image")?,
            message: row.try_get("message")?,
            size_bytes: read_size(row.try_get("size_bytes")?),
            created_at: time("created_at")?,
            changed_at: time("changed_at")?,
        }))
    }
}

#[async_trait]
impl TemplateStore for SqliteStore {
    async fn add_template(&self, template: &TemplateRow) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "INSERT INTO sandbox_templates (id, tenant, owner, spec, metadata, phase, image, message,
               size_bytes, created_at, changed_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(&template.id)
        .bind(&template.tenant)
        .bind(&template.owner)
        .bind(&template.spec)
        .bind(stored_labels(&template.metadata))
        .bind(template.phase.as_str())
        .bind(&template.image)
        .bind(&template.message)
        .bind(stored_size(template.size_bytes))
        .bind(template.created_at.unix_us())
        .bind(template.changed_at.unix_us());
        let done = self.write("keep a template", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn template(&self, id: &str) -> Result<Option<TemplateRow>, StoreError> {
        let query = sqlx::query_as(ONE).bind(id);
        let row: Option<Stored> = self.read_one("read a template", query).await?;
        Ok(row.map(|row| row.0))
    }

    async fn templates(
        &self,
        query: &TemplateQuery,
    ) -> Result<(Vec<TemplateRow>, u64), StoreError> {
        const OP: &str = "list templates";
        let labels = (!query.metadata.is_empty()).then(|| stored_labels(&query.metadata));
        let count = sqlx::query_as(COUNT)
            .bind(&query.tenant)
            .bind(labels.clone())
            .bind(query.deleting);
        let total: Option<(i64,)> = self.read_one(OP, count).await?;
        let total = total.map_or(0, |(total,)| u64::try_from(total).unwrap_or_default());
        let list = sqlx::query_as(PAGE)
            .bind(&query.tenant)
            .bind(labels)
            .bind(query.deleting)
            .bind(query.limit)
            .bind(i64::try_from(query.skip).unwrap_or(i64::MAX));
        let rows: Vec<Stored> = self.read_all(OP, list).await?;
        Ok((rows.into_iter().map(|row| row.0).collect(), total))
    }

    async fn template_log(&self, id: &str) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_as("SELECT log FROM sandbox_templates WHERE id = $1").bind(id);
        let row: Option<(Option<String>,)> = self.read_one("read a build log", query).await?;
        Ok(row.and_then(|row| row.0))
    }

    async fn change_template(
        &self,
        id: &str,
        from: TemplatePhase,
        change: &TemplateChange,
    ) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "UPDATE sandbox_templates SET phase = $3, message = $4, changed_at = $5,
               image = COALESCE($6, image), log = COALESCE($7, log),
               size_bytes = COALESCE($8, size_bytes)
             WHERE id = $1 AND phase = $2",
        )
        .bind(id)
        .bind(from.as_str())
        .bind(change.phase.as_str())
        .bind(&change.message)
        .bind(change.at.unix_us())
        .bind(&change.image)
        .bind(&change.log)
        .bind(stored_size(change.size_bytes));
        let done = self.write("change a template", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn mark_template(&self, id: &str, at: WireTime) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "UPDATE sandbox_templates SET phase = 'Deleting', message = NULL, changed_at = $2
             WHERE id = $1 AND phase <> 'Deleting'",
        )
        .bind(id)
        .bind(at.unix_us());
        let done = self.write("mark a template as deleted", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn remove_template(&self, id: &str, from: TemplatePhase) -> Result<bool, StoreError> {
        let statement = sqlx::query("DELETE FROM sandbox_templates WHERE id = $1 AND phase = $2")
            .bind(id)
            .bind(from.as_str());
        let done = self.write("remove a template", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn open_templates(&self, after: &str, most: u32) -> Result<Vec<TemplateRow>, StoreError> {
        let query = sqlx::query_as(OPEN).bind(after).bind(most);
        let rows: Vec<Stored> = self.read_all("read open templates", query).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    async fn template_phases(
        &self,
        ids: &[String],
    ) -> Result<HashMap<String, TemplatePhase>, StoreError> {
        let mut phases = HashMap::with_capacity(ids.len());
        for ids in ids.chunks(IDS) {
            let query = sqlx::query_as(
                "SELECT id, phase FROM sandbox_templates WHERE id IN (SELECT value FROM json_each($1))",
            )
            .bind(serde_json::json!(ids).to_string());
            let rows: Vec<(String, String)> = self.read_all("look up templates", query).await?;
            let rows = rows.into_iter();
            phases.extend(rows.map(|(id, phase)| (id, read_phase(&phase))));
        }
        Ok(phases)
    }

    async fn template_bytes(&self, of: StoredFor<'_>) -> Result<u64, StoreError> {
        let (tenant, owner) = of.columns();
        let query = sqlx::query_as(
            "SELECT COALESCE(SUM(size_bytes), 0) FROM sandbox_templates
             WHERE tenant = $1 OR owner = $2",
        )
        .bind(tenant)
        .bind(owner);
        let sums: Vec<(i64,)> = self.read_all("add up templates", query).await?;
        let sum = sums.first().and_then(|sum| read_size(Some(sum.0)));
        Ok(sum.unwrap_or_default())
    }

    async fn template_totals(&self) -> Result<Vec<TemplateTotal>, StoreError> {
        let query = sqlx::query_as(
            "SELECT phase, COUNT(*), COALESCE(SUM(size_bytes), 0) FROM sandbox_templates
             GROUP BY phase ORDER BY phase",
        );
        Ok(totals(self.read_all("count templates", query).await?))
    }
}

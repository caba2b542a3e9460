//! Table `sandbox_templates`.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use osb_protocol::{WireTime, lifecycle::TemplatePhase};
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::{
    PostgresStore,
    values::{Moment, text},
};
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
        "WHERE ($1::text IS NULL OR tenant = $1) AND ($3::boolean OR phase <> 'Deleting')
           AND CASE WHEN $2::text IS NULL THEN TRUE ELSE metadata::jsonb @> $2::jsonb END "
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

impl FromRow<'_, PgRow> for Stored {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
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
            created_at: row.try_get::<Moment, _>("created_at")?.0,
            changed_at: row.try_get::<Moment, _>("changed_at")?.0,
        }))
    }
}

#[async_trait]
impl TemplateStore for PostgresStore {
    async fn add_template(&self, template: &TemplateRow) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "INSERT INTO sandbox_templates (id, tenant, owner, spec, metadata, phase, image, message,
               size_bytes, created_at, changed_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(text(&template.id))
        .bind(template.tenant.as_deref().map(text))
        .bind(template.owner.as_deref().map(text))
        .bind(text(&template.spec))
        .bind(stored_labels(&template.metadata))
        .bind(template.phase.as_str())
        .bind(template.image.as_deref().map(text))
        .bind(template.message.as_deref().map(text))
        .bind(stored_size(template.size_bytes))
        .bind(Moment(template.created_at))
        .bind(Moment(template.changed_at));
        let done = self.write("keep a template", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn template(&self, id: &str) -> Result<Option<TemplateRow>, StoreError> {
        let query = sqlx::query_as(ONE).bind(text(id));
        let row: Option<Stored> = self.read_one("read a template", query).await?;
        Ok(row.map(|row| row.0))
    }

    async fn templates(
        &self,
        query: &TemplateQuery,
    ) -> Result<(Vec<TemplateRow>, u64), StoreError> {
        const OP: &str = "list templates";
        // A value of JSON cannot have NUL characters either. No stored label has one.
        let labels: BTreeMap<_, _> = query
            .metadata
            .iter()
            .map(|(key, value)| (text(key).into_owned(), text(value).into_owned()))
            .collect();
        let labels = (!labels.is_empty()).then(|| stored_labels(&labels));
        let count = sqlx::query_as(COUNT)
            .bind(query.tenant.as_deref().map(text))
            .bind(labels.clone())
            .bind(query.deleting);
        let total: Option<(i64,)> = self.read_one(OP, count).await?;
        let total = total.map_or(0, |(total,)| u64::try_from(total).unwrap_or_default());
        let list = sqlx::query_as(PAGE)
            .bind(query.tenant.as_deref().map(text))
            .bind(labels)
            .bind(query.deleting)
            .bind(i64::from(query.limit))
            .bind(i64::try_from(query.skip).unwrap_or(i64::MAX));
        let rows: Vec<Stored> = self.read_all(OP, list).await?;
        Ok((rows.into_iter().map(|row| row.0).collect(), total))
    }

    async fn template_log(&self, id: &str) -> Result<Option<String>, StoreError> {
        let query =
            sqlx::query_as("SELECT log FROM sandbox_templates WHERE id = $1").bind(text(id));
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
        .bind(text(id))
        .bind(from.as_str())
        .bind(change.phase.as_str())
        .bind(change.message.as_deref().map(text))
        .bind(Moment(change.at))
        .bind(change.image.as_deref().map(text))
        .bind(change.log.as_deref().map(text))
        .bind(stored_size(change.size_bytes));
        let done = self.write("change a template", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn mark_template(&self, id: &str, at: WireTime) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "UPDATE sandbox_templates SET phase = 'Deleting', message = NULL, changed_at = $2
             WHERE id = $1 AND phase <> 'Deleting'",
        )
        .bind(text(id))
        .bind(Moment(at));
        let done = self.write("mark a template as deleted", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn remove_template(&self, id: &str, from: TemplatePhase) -> Result<bool, StoreError> {
        let statement = sqlx::query("DELETE FROM sandbox_templates WHERE id = $1 AND phase = $2")
            .bind(text(id))
            .bind(from.as_str());
        let done = self.write("remove a template", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn open_templates(&self, after: &str, most: u32) -> Result<Vec<TemplateRow>, StoreError> {
        let query = sqlx::query_as(OPEN).bind(text(after)).bind(i64::from(most));
        let rows: Vec<Stored> = self.read_all("read open templates", query).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    async fn template_phases(
        &self,
        ids: &[String],
    ) -> Result<HashMap<String, TemplatePhase>, StoreError> {
        let mut phases = HashMap::with_capacity(ids.len());
        for ids in ids.chunks(IDS) {
            let ids: Vec<_> = ids.iter().map(|id| text(id)).collect();
            let query =
                sqlx::query_as("SELECT id, phase FROM sandbox_templates WHERE id = ANY($1)")
                    .bind(ids);
            let rows: Vec<(String, String)> = self.read_all("look up templates", query).await?;
            let rows = rows.into_iter();
            phases.extend(rows.map(|(id, phase)| (id, read_phase(&phase))));
        }
        Ok(phases)
    }

    async fn template_bytes(&self, of: StoredFor<'_>) -> Result<u64, StoreError> {
        let (tenant, owner) = of.columns();
        let query = sqlx::query_as(
            "SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM sandbox_templates
             WHERE tenant = $1 OR owner = $2",
        )
        .bind(tenant.map(text))
        .bind(owner.map(text));
        let sums: Vec<(i64,)> = self.read_all("add up templates", query).await?;
        let sum = sums.first().and_then(|sum| read_size(Some(sum.0)));
        Ok(sum.unwrap_or_default())
    }

    async fn template_totals(&self) -> Result<Vec<TemplateTotal>, StoreError> {
        let query = sqlx::query_as(
            "SELECT phase, COUNT(*), CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM sandbox_templates
             GROUP BY phase ORDER BY phase",
        );
        Ok(totals(self.read_all("count templates", query).await?))
    }
}

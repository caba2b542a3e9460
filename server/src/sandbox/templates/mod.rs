//! Templates: images that are made ready, with what sandboxes from them run (contract: lifecycle §A3).
//!
//! ```text
//! (accepted) ─▶ Pending ─▶ Building ─▶ Succeeded ──▶ Deleting ─▶ (gone)
//!                  │          ├──────▶ Failed ──────────┤
//!                  └──────────┴─────────────────────────┘
//! ```
//!
//! A row of the store is the template; the runtime keeps the image under the same id. Every transition
//! changes the row only if it is still in the phase that was seen, as with snapshots. A deletion marks the
//! row in any phase, and ends the work at it.
//!
//! * [`making`]: makes the images in tasks, two at once.
//! * [`build_log`]: the end of what a build writes.
//! * [`source`]: what a create gets from a template.
//! * [`overview`]: what the console shows.
//! * [`recovery`]: what a crash left half done, and images that no row needs.

mod build_log;
mod making;
mod overview;
mod recovery;
mod source;

use std::{collections::BTreeMap, sync::Arc};

use osb_protocol::{
    Feature,
    lifecycle::{PaginationInfo, Template, TemplatePhase, TemplateSpec, TemplateStatus},
};
use osb_runtime::{RuntimeError, Templates};
use osb_store::{TemplateChange, TemplateQuery, TemplateRow, TemplateTotal};
use serde_json::{Value, json};
use tracing::info;

use self::making::Making;
use super::{
    Builds, Error, Service, TemplateLimits,
    lifecycle::now,
    quota::Owner,
    template_error::TemplateError,
    too_many::TooMany,
    validate::{self, NewTemplate, TemplateRules},
};

pub use self::overview::TemplateEntry;

pub(super) use self::making::Makings;

/// Which templates, and which page of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateListQuery {
    /// Only those with all of these labels.
    pub metadata: BTreeMap<String, String>,
    /// Page from 1.
    pub page: usize,
    /// Templates per page.
    pub page_size: usize,
}

/// One page.
#[derive(Clone, Debug)]
pub struct TemplatePage {
    /// Newest first.
    pub items: Vec<Template>,
    /// Where it stands.
    pub pagination: PaginationInfo,
}

impl Service {
    /// What templates may be made from.
    #[must_use]
    pub fn template_limits(&self) -> TemplateLimits {
        self.inner.limits.templates
    }

    /// Whether the caller may have images built.
    #[must_use]
    pub fn builds(&self) -> Builds {
        self.inner.limits.templates.builds(&self.scope)
    }

    /// Accepts a template and returns it while a task makes its image. It belongs to the tenant of the
    /// caller.
    ///
    /// # Errors
    /// When a rule is broken, when several templates wait already, when a quota for disk is used up, and
    /// when the runtime or the store is away; then no template exists.
    pub async fn create_template(&self, body: Value) -> Result<Template, Error> {
        let new = validate::template(body, &self.template_rules()?)?;
        self.available()?;
        let tenant: Option<Arc<str>> = self.scope.tenant().map(Arc::from);
        if let Some(full) = self.full_quota(tenant.as_ref()).await? {
            return Err(Error::Template(TemplateError::DiskFull(full)));
        }
        self.require_hold("make a template")?;
        let NewTemplate {
            spec,
            metadata,
            recipe,
        } = new;
        let at = now();
        let row = TemplateRow {
            id: format!("tpl-{}", uuid::Uuid::new_v4()),
            tenant: tenant.as_deref().map(str::to_owned),
            owner: self
                .owner
                .as_ref()
                .map(|owner| Owner::tag(owner).to_string()),
            spec: json!(spec).to_string(),
            metadata,
            phase: TemplatePhase::Pending,
            image: None,
            message: None,
            size_bytes: None,
            created_at: at,
            changed_at: at,
        };
        self.note_template(&row);
        if let Some(act) = &self.act {
            match &spec.image {
                Some(image) => act.note("image", json!(image)),
                None => act.note("build", json!(true)),
            }
        }
        let service = self.clone();
        self.owned("accept a template", async move {
            let _one_at_a_time = service.inner.additions.lock().await;
            service.check_template_number(row.tenant.as_deref()).await?;
            // Before there is a row: one that no task works at is recovered.
            let making = Making::begin(&service, &row)?;
            service.inner.store.add_template(&row).await?;
            info!(template = row.id, "template accepted");
            service.start_making(row.clone(), recipe, making);
            Ok(shown(row))
        })
        .await
    }

    /// Refuses one more template of a tenant that has as many as it may have.
    async fn check_template_number(&self, tenant: Option<&str>) -> Result<(), Error> {
        let Some(tenant) = tenant else {
            return Ok(());
        };
        let query = TemplateQuery {
            tenant: Some(tenant.to_owned()),
            ..TemplateQuery::default()
        };
        let (_, count) = self.inner.store.templates(&query).await?;
        let most = self.inner.limits.templates.max_templates;
        TooMany::check("templates", count, most, "templates.max_templates")
            .map_err(|full| Error::Template(TemplateError::TooMany(full)))
    }

    /// One template. One that was deleted is none, also while its image is still needed: the contract
    /// has no phase for it, and its clients fail to read any other.
    ///
    /// # Errors
    /// [`TemplateError::NotFound`], also for one of another tenant.
    pub async fn template_by_id(&self, id: &str) -> Result<Template, Error> {
        let row = self.template_row(id).await?;
        if row.phase == TemplatePhase::Deleting {
            return Err(Error::Template(TemplateError::NotFound(row.id)));
        }
        Ok(shown(row))
    }

    /// The end of what the build of a template has written so far. Empty for one that is not built.
    ///
    /// # Errors
    /// [`TemplateError::NotFound`], also for one of another tenant.
    pub async fn template_log(&self, id: &str) -> Result<String, Error> {
        // Read before the store: a build that ends meanwhile has stored its log.
        let under_way = self.inner.makings.log(id);
        self.template_row(id).await?;
        match under_way {
            Some(log) => Ok(log),
            None => {
                let log = self.inner.store.template_log(id).await?;
                Ok(log.unwrap_or_default())
            }
        }
    }

    /// A page of templates, newest first, without those that were deleted.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list_templates(&self, query: TemplateListQuery) -> Result<TemplatePage, Error> {
        let (page, page_size) = (query.page, query.page_size);
        let (rows, total) = self.template_rows(query, false).await?;
        Ok(TemplatePage {
            items: rows.into_iter().map(shown).collect(),
            pagination: PaginationInfo::new(page, page_size, total),
        })
    }

    /// The rows of a page, and how many there are on all pages. With `deleting` also those that were
    /// deleted, and whose image is not removed yet.
    async fn template_rows(
        &self,
        query: TemplateListQuery,
        deleting: bool,
    ) -> Result<(Vec<TemplateRow>, usize), Error> {
        let skip = query.page.saturating_sub(1).saturating_mul(query.page_size);
        let query = TemplateQuery {
            tenant: self.scope.tenant().map(str::to_owned),
            metadata: query.metadata,
            deleting,
            skip: u64::try_from(skip).unwrap_or(u64::MAX),
            limit: u32::try_from(query.page_size).unwrap_or(u32::MAX),
        };
        let (rows, total) = self.inner.store.templates(&query).await?;
        Ok((rows, usize::try_from(total).unwrap_or(usize::MAX)))
    }

    /// Deletes a template: marks it, then removes the image, then the row. If it is being made, that ends,
    /// and the task that made it removes it. A repeated call continues where the one before has failed,
    /// and so does the reconciler.
    ///
    /// # Errors
    /// When there is no such template, and when the runtime does not remove its image; then it stays
    /// `Deleting`.
    pub async fn delete_template(&self, id: &str) -> Result<(), Error> {
        if let Some(act) = &self.act {
            act.set_object(id);
        }
        let row = self.template_row(id).await?;
        self.note_template(&row);
        self.templates()?;
        self.available()?;
        self.require_hold("delete a template")?;
        let service = self.clone();
        self.owned("delete a template", async move {
            let id = row.id.as_str();
            service.inner.store.mark_template(id, now()).await?;
            if service.inner.makings.cancel(id) {
                return Ok(());
            }
            service.remove_marked_template(id).await?;
            info!(template = id, "template deleted");
            Ok(())
        })
        .await
    }

    /// Removes the image of a template that is marked as deleted, and then the template.
    async fn remove_marked_template(&self, id: &str) -> Result<(), Error> {
        match self.templates()?.remove(id).await {
            Ok(()) => {}
            Err(RuntimeError::TemplateInUse { reason, .. }) => {
                return Err(Error::Template(TemplateError::InUse {
                    id: id.to_owned(),
                    reason,
                }));
            }
            Err(error) => return Err(error.into()),
        }
        let store = &self.inner.store;
        // One that is gone was removed by a call at the same time.
        store.remove_template(id, TemplatePhase::Deleting).await?;
        Ok(())
    }

    /// Numbers and sizes of all templates by phase. `None` if the runtime has none.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn template_totals(&self) -> Result<Option<Vec<TemplateTotal>>, Error> {
        match self.templates() {
            Ok(_) => Ok(Some(self.inner.store.template_totals().await?)),
            Err(_) => Ok(None),
        }
    }

    /// What a request of the caller may ask for.
    fn template_rules(&self) -> Result<TemplateRules<'_>, Error> {
        Ok(TemplateRules {
            limits: &self.inner.limits.templates,
            builds: self.builds(),
            runtime: self.templates()?,
        })
    }

    async fn template_row(&self, id: &str) -> Result<TemplateRow, Error> {
        let row = self.inner.store.template(id).await?;
        let row = row.filter(|row| self.scope.contains(row.tenant.as_deref()));
        row.ok_or_else(|| Error::Template(TemplateError::NotFound(id.to_owned())))
    }

    fn templates(&self) -> Result<&dyn Templates, Error> {
        let runtime = &self.inner.runtime;
        runtime.templates().ok_or(Error::Unsupported {
            feature: Feature::Templates,
            runtime: runtime.kind(),
        })
    }

    /// Notes the template that the act is about.
    fn note_template(&self, row: &TemplateRow) {
        let Some(act) = &self.act else {
            return;
        };
        act.set_object(&row.id);
        act.set_tenant(row.tenant.as_deref());
        if !row.metadata.is_empty() {
            act.note("metadata", json!(row.metadata));
        }
    }
}

fn transition(phase: TemplatePhase) -> TemplateChange {
    TemplateChange {
        phase,
        image: None,
        message: None,
        log: None,
        size_bytes: None,
        at: now(),
    }
}

/// What clients see of a row. A spec that cannot be read, which `store check` reports, is empty.
fn shown(row: TemplateRow) -> Template {
    let spec = serde_json::from_str(&row.spec);
    let mut spec: TemplateSpec = spec.unwrap_or_else(|_| source::empty_spec());
    // Clients of the contract need one. Sandboxes from the template show the same.
    spec.image.get_or_insert_with(|| row.id.clone());
    Template {
        template_id: row.id,
        spec,
        metadata: row.metadata,
        status: TemplateStatus {
            phase: row.phase,
            manifest_ref: row.image,
            message: row.message,
        },
        created_at: row.created_at,
        updated_at: row.changed_at,
    }
}

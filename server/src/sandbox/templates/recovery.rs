//! What a crash or a fault left half done, and images that no template needs.

use std::time::Duration;

use osb_protocol::lifecycle::TemplatePhase;
use osb_runtime::{RuntimeError, Templates};
use osb_service::ErrorChain;
use osb_store::{TemplateChange, TemplateRow};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::transition;
use crate::sandbox::{Error, Service, TemplateError};

/// Templates that are read at once.
const PAGE: u32 = 200;
/// How long an image without a template is kept, from when this process first saw it without one: a
/// build whose answer was lost may still be running, and an operator who put an older store back may
/// put the newer one back.
const UNKNOWN_KEPT: Duration = Duration::from_secs(3600);

const INTERRUPTED: &str = "The server was interrupted before the template was made.";
const NOT_SUPPORTED: &str = "The runtime of the server has no templates.";

impl Service {
    /// Completes the templates that no task works at, and removes images that no template needs.
    pub(in crate::sandbox) async fn reconcile_templates(&self) {
        let mut after = String::new();
        loop {
            let page = match self.inner.store.open_templates(&after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    warn!(error = %ErrorChain(&error), "open templates cannot be read");
                    return;
                }
            };
            let Some(last) = page.last() else {
                break;
            };
            after.clone_from(&last.id);
            for row in page {
                if self.inner.makings.contains(&row.id) {
                    continue;
                }
                if let Err(error) = self.recover_template(&row).await {
                    warn!(
                        template = row.id, phase = %row.phase, error = %ErrorChain(&error),
                        "the template cannot be recovered yet, will retry"
                    );
                }
            }
        }
        if let Ok(templates) = self.templates()
            && let Err(error) = self.remove_unneeded_images(templates).await
        {
            warn!(error = %ErrorChain(&error), "the images of templates cannot be checked");
        }
    }

    async fn recover_template(&self, row: &TemplateRow) -> Result<(), Error> {
        match row.phase {
            TemplatePhase::Pending | TemplatePhase::Building => self.recover_making(row).await,
            TemplatePhase::Deleting => self.recover_deletion(row).await,
            TemplatePhase::Succeeded | TemplatePhase::Failed => Ok(()),
        }
    }

    /// What the runtime has decides: an image gets its template's name when it is complete.
    async fn recover_making(&self, row: &TemplateRow) -> Result<(), Error> {
        let failed = |message: String| TemplateChange {
            message: Some(message),
            ..transition(TemplatePhase::Failed)
        };
        let found = match self.templates() {
            Ok(templates) => templates.find(&row.id).await,
            Err(_) => {
                return self
                    .recovered_template(row, &failed(NOT_SUPPORTED.into()))
                    .await;
            }
        };
        let change = match found {
            Ok(Some(stored)) => TemplateChange {
                image: Some(stored.image),
                size_bytes: stored.size_bytes,
                ..transition(TemplatePhase::Succeeded)
            },
            Ok(None) => failed(INTERRUPTED.to_owned()),
            // It may well be there.
            Err(error) if error.retryable() => return Err(error.into()),
            Err(error) => failed(error.to_string()),
        };
        self.recovered_template(row, &change).await
    }

    async fn recovered_template(
        &self,
        row: &TemplateRow,
        change: &TemplateChange,
    ) -> Result<(), Error> {
        let store = &self.inner.store;
        // One that is in another phase by now stays in it.
        if store.change_template(&row.id, row.phase, change).await? {
            info!(template = row.id, phase = %change.phase, "template recovered");
        }
        Ok(())
    }

    async fn recover_deletion(&self, row: &TemplateRow) -> Result<(), Error> {
        // Another runtime may have it.
        if self.templates().is_err() {
            return Ok(());
        }
        match self.remove_marked_template(&row.id).await {
            Ok(()) => {
                info!(template = row.id, "a deleted template is gone");
                Ok(())
            }
            Err(Error::Template(TemplateError::InUse { reason, .. })) => {
                debug!(
                    template = row.id,
                    reason, "a deleted template is still in use"
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Removes images whose template failed or does not exist: a build may be complete after its time
    /// limit, or after its answer was lost.
    async fn remove_unneeded_images(&self, templates: &dyn Templates) -> Result<(), Error> {
        let mut ids = templates.list().await?;
        // Read after the list: a template exists before its image.
        let phases = self.inner.store.template_phases(&ids).await?;
        ids.retain(|id| matches!(phases.get(id), None | Some(TemplatePhase::Failed)));
        let unneeded = &self.inner.unneeded_templates;
        for id in unneeded.note(ids, Instant::now(), UNKNOWN_KEPT) {
            self.require_hold("remove the image of a template")?;
            match templates.remove(&id).await {
                Ok(()) => info!(template = id, "removed an image that no template needs"),
                Err(RuntimeError::TemplateInUse { reason, .. }) => {
                    debug!(
                        template = id,
                        reason, "an image without a template is in use"
                    );
                }
                Err(error) => {
                    warn!(template = id, error = %ErrorChain(&error), "an image that no template needs stays");
                }
            }
        }
        Ok(())
    }
}

//! Templates for the pages about them, over the service that the REST API calls too.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use osb_app::{
    backend::TemplateBackend,
    error::ConsoleError,
    view::{
        OFFERED_MAX, OfferedTemplates, TEMPLATE_PAGE, TemplateDetail, TemplateList, TemplateOrigin,
        TemplateRow,
    },
};
use osb_protocol::{
    Feature, FieldError,
    lifecycle::{TemplatePhase, TemplateSpec},
};
use serde_json::Value;

use super::{
    super::{audited::Noted, error::answer_to},
    ConsoleState,
    for_request::ForRequest,
    memory::Memory,
    refusal::refused,
    session::Admitted,
    users::Users,
};
use crate::sandbox::{Error, Service, TemplateEntry, TemplateError, TemplateListQuery};

/// [`TemplateBackend`] for one request.
struct SandboxTemplates {
    service: Service,
    /// The act of the request.
    noted: Noted,
    /// What the request has read.
    memory: Memory,
}

impl ForRequest for Arc<dyn TemplateBackend> {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        let service = state.domains.service.for_principal(admitted.principal());
        Arc::new(SandboxTemplates {
            service: service.noting(noted.0.clone()),
            noted,
            memory: Memory::of_request(),
        })
    }
}

impl SandboxTemplates {
    async fn page(
        &self,
        page: usize,
        page_size: usize,
    ) -> Result<(Vec<TemplateEntry>, usize), Error> {
        let query = TemplateListQuery {
            metadata: BTreeMap::new(),
            page,
            page_size,
        };
        self.service.template_entries(query).await
    }

    async fn list(&self, asked: usize) -> Result<TemplateList, Error> {
        let mut list = TemplateList {
            page: asked.max(1),
            ..TemplateList::default()
        };
        let (mut entries, total) = self.page(list.page, TEMPLATE_PAGE).await?;
        list.total = total;
        if list.page > list.last_page() {
            list.page = list.last_page();
            (entries, list.total) = self.page(list.page, TEMPLATE_PAGE).await?;
        }
        let users = Users::of_templates(&self.service);
        list.rows = entries.iter().map(|entry| row(entry, &users)).collect();
        Ok(list)
    }

    async fn detail(&self, id: &str) -> Result<Option<TemplateDetail>, Error> {
        let Some(entry) = self.service.template_entry(id).await? else {
            return Ok(None);
        };
        let log = match self.service.template_log(id).await {
            Err(Error::Template(TemplateError::NotFound(_))) => return Ok(None),
            log => log?,
        };
        let row = row(&entry, &Users::of_templates(&self.service));
        let spec = entry.spec;
        // Of variables only the names: their values may be secrets.
        let variables = spec.env.unwrap_or_default().into_keys().collect();
        Ok(Some(TemplateDetail {
            row,
            entrypoint: spec.entrypoint,
            resources: spec.resource_limits.unwrap_or_default(),
            variables,
            labels: entry.metadata,
            publish: spec.publish,
            manifest: entry.image,
            dockerfile: spec.build.and_then(|build| build.dockerfile),
            changed_at: entry.changed_at,
            log,
        }))
    }

    async fn usable(&self) -> Result<OfferedTemplates, Error> {
        if !self.service.features().contains(Feature::Templates) {
            return Ok(OfferedTemplates::default());
        }
        let (entries, total) = self.page(1, OFFERED_MAX).await?;
        let unused = Users::none();
        let made = entries
            .iter()
            .filter(|entry| entry.phase == TemplatePhase::Succeeded);
        Ok(OfferedTemplates {
            templates: made.map(|entry| row(entry, &unused)).collect(),
            is_cut: total > OFFERED_MAX,
        })
    }

    /// Notes how an act ended. Forms are answered with a redirect in any case.
    fn settle<T>(&self, result: &Result<T, Error>) {
        let codes = &self.service.vocabulary().codes;
        let failure = result.as_ref().err();
        self.noted
            .settle(failure.map(|error| answer_to(error, codes)));
    }
}

/// A template as the list shows it.
fn row(entry: &TemplateEntry, users: &Users) -> TemplateRow {
    let (users, user_count) = users.named(&entry.id);
    TemplateRow {
        id: entry.id.clone(),
        name: entry.name().map(str::to_owned),
        origin: origin(&entry.spec),
        phase: entry.phase,
        message: entry.message.clone(),
        size_bytes: entry.size_bytes,
        created_at: entry.created_at,
        users,
        user_count,
    }
}

fn origin(spec: &TemplateSpec) -> TemplateOrigin {
    let context = spec.build.as_ref().map(|build| build.context_bytes);
    match context {
        None => TemplateOrigin::Image(spec.image.clone().unwrap_or_default()),
        Some(None) => TemplateOrigin::Dockerfile,
        Some(Some(bytes)) => TemplateOrigin::Archive(bytes),
    }
}

/// The domain's error as a page about templates shows it.
fn refused_template(error: Error) -> ConsoleError {
    match error {
        // It is about no field of the form.
        Error::Unsupported { .. } => ConsoleError::Refused {
            message: "The runtime of this server has no templates.".to_owned(),
        },
        other => refused(other),
    }
}

#[async_trait]
impl TemplateBackend for SandboxTemplates {
    async fn templates(&self, page: usize) -> Result<TemplateList, ConsoleError> {
        let read = async { self.list(page).await.map_err(refused_template) };
        self.memory
            .once(format!("templates/{page}"), Box::pin(read))
            .await
    }

    async fn template(&self, id: &str) -> Result<Option<TemplateDetail>, ConsoleError> {
        let read = async { self.detail(id).await.map_err(refused_template) };
        self.memory
            .once(format!("template/{id}"), Box::pin(read))
            .await
    }

    async fn offered(&self) -> Result<OfferedTemplates, ConsoleError> {
        let read = async { self.usable().await.map_err(refused_template) };
        self.memory
            .once("templates/offered".to_owned(), Box::pin(read))
            .await
    }

    async fn create(
        &self,
        body: Value,
        mut unreadable: Vec<FieldError>,
    ) -> Result<String, ConsoleError> {
        let created = match unreadable.is_empty() {
            true => self.service.create_template(body).await,
            false => {
                unreadable.extend(self.service.template_problems(body));
                Err(Error::Invalid(unreadable))
            }
        };
        self.settle(&created);
        let created = created.map_err(refused_template)?;
        Ok(created.template_id)
    }

    async fn delete(&self, id: &str) -> Result<(), ConsoleError> {
        let deleted = self.service.delete_template(id).await;
        self.settle(&deleted);
        let Err(error) = deleted else {
            return Ok(());
        };
        let is_used = matches!(&error, Error::Template(TemplateError::InUse { .. }));
        let error = refused_template(error);
        Err(match is_used {
            true => Users::of_templates(&self.service).named_in(error, id),
            false => error,
        })
    }
}

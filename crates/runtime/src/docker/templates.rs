//! Templates as images on the engine (contract: lifecycle §A3).
//!
//! The image of a template is a name that this server gives to an image: of one that was pulled, so that
//! it stays what it was when its own name moves on, or of one that the engine built. All that is known of
//! it on the engine is in that name.
//!
//! A build is one request to the engine, with the context as its body. The engine runs its steps as root
//! in containers that have none of a sandbox's limits, and ends it when the request is dropped.

use std::collections::HashMap;

use async_trait::async_trait;
use bollard::{
    models::ImageInspect,
    query_parameters::{
        BuildImageOptionsBuilder, ListImagesOptionsBuilder, TagImageOptionsBuilder,
    },
};
use bytes::Bytes;
use futures::StreamExt;

use super::{DockerRuntime, engine::bounded, error, image, labels, pull::PullRequest};
use crate::{BuildLog, Context, Recipe, RuntimeError, Source, Stage, StoredTemplate, Templates};

/// Name of the file with the steps of a build.
const DOCKERFILE: &str = "Dockerfile";

#[async_trait]
impl Templates for DockerRuntime {
    fn refusal(&self, image: &str) -> Option<&'static str> {
        image::forbidden(image).map(|(what, _)| what)
    }

    async fn make(
        &self,
        template: &str,
        recipe: &Recipe,
        log: BuildLog<'_>,
    ) -> Result<StoredTemplate, RuntimeError> {
        match recipe {
            Recipe::Image(image) => self.keep_image(template, image).await,
            Recipe::Build(context) => self.build_image(template, context, log).await,
        }
    }

    async fn find(&self, template: &str) -> Result<Option<StoredTemplate>, RuntimeError> {
        let (docker, image) = (self.docker()?, self.image_of(template));
        match bounded(docker, docker.inspect_image(&image)).await {
            Ok(inspected) => Ok(Some(StoredTemplate {
                size_bytes: built_size(template, &inspected),
                image,
            })),
            Err(error) if error::is_missing(&error) => Ok(None),
            Err(error) => Err(error::other("look for the template", &error)),
        }
    }

    async fn remove(&self, template: &str) -> Result<(), RuntimeError> {
        let image = self.image_of(template);
        match self.remove_image(&image, "remove the template").await? {
            None => Ok(()),
            Some(reason) => Err(RuntimeError::TemplateInUse {
                template: template.to_owned(),
                reason,
            }),
        }
    }

    async fn list(&self) -> Result<Vec<String>, RuntimeError> {
        let name = image::templates_of(&self.config.instance);
        let filter = HashMap::from([("reference", vec![name.as_str()])]);
        let options = ListImagesOptionsBuilder::default().filters(&filter).build();
        let docker = self.docker()?;
        let list = bounded(docker, docker.list_images(Some(options))).await;
        let list = list.map_err(|error| error::other("list the templates", &error))?;
        // An image has all its names here, not only those that were asked for.
        let names = list.iter().flat_map(|image| &image.repo_tags);
        let ids = names.filter_map(|known| known.strip_prefix(&name)?.strip_prefix(':'));
        Ok(ids.map(str::to_owned).collect())
    }
}

impl DockerRuntime {
    fn image_of(&self, template: &str) -> String {
        image::of_template(&self.config.instance, template)
    }

    /// Pulls an image unless the engine has it, and gives it the template's name.
    async fn keep_image(
        &self,
        template: &str,
        image: &str,
    ) -> Result<StoredTemplate, RuntimeError> {
        let source = Source::Image(image.to_owned());
        let image = image::reference(&source, &self.config.instance)?;
        let docker = self.docker()?;
        match bounded(docker, docker.inspect_image(&image)).await {
            Ok(_) => {}
            Err(error) if error::is_missing(&error) => {
                let request = PullRequest {
                    image: &image,
                    platform: None,
                    auth: None,
                };
                let patience = self.config.api_timeout;
                self.pulls
                    .pull(docker, request, &|_: Stage| {}, patience)
                    .await?;
            }
            Err(error) => return Err(error::other("inspect the image", &error)),
        }
        let repository = image::templates_of(&self.config.instance);
        let name = TagImageOptionsBuilder::default()
            .repo(&repository)
            .tag(template)
            .build();
        let named = bounded(docker, docker.tag_image(&image, Some(name))).await;
        named.map_err(|error| error::other("name the image of the template", &error))?;
        Ok(StoredTemplate {
            image: self.image_of(template),
            size_bytes: None,
        })
    }

    async fn build_image(
        &self,
        template: &str,
        context: &Context,
        log: BuildLog<'_>,
    ) -> Result<StoredTemplate, RuntimeError> {
        let failed = |reason: String| RuntimeError::Build {
            template: template.to_owned(),
            reason,
        };
        let archive = match context {
            Context::Dockerfile(text) => packed(text).map_err(|error| failed(error.to_string()))?,
            Context::Archive(archive) => archive.clone(),
        };
        let marks = HashMap::from([
            (labels::TEMPLATE, template),
            (labels::VENDOR, labels::VENDOR_NAME),
        ]);
        let options = BuildImageOptionsBuilder::default()
            .dockerfile(DOCKERFILE)
            .t(&self.image_of(template))
            .labels(&marks)
            .rm(true)
            .forcerm(true)
            .build();
        let docker = self.docker()?;
        let body = Some(bollard::body_full(archive));
        let mut messages = Box::pin(docker.build_image(options, None, body));
        // The engine responds with 200 before it builds. A failure is a later item of the stream.
        while let Some(message) = messages.next().await {
            let message = message.map_err(|error| {
                let unavailable = error::unavailable(&error);
                unavailable.unwrap_or_else(|| failed(error::reason(&error)))
            })?;
            if let Some(detail) = message.error_detail {
                let unknown = || "the engine reported no reason".to_owned();
                return Err(failed(detail.message.unwrap_or_else(unknown)));
            }
            if let Some(text) = &message.stream {
                log(text);
            } else if let Some(status) = &message.status
                && message.progress_detail.is_none()
            {
                log(&format!("{status}\n"));
            }
        }
        let built = self.find(template).await?;
        built.ok_or_else(|| failed("the engine has built no image".to_owned()))
    }
}

/// The size of an image that was built for a template.
fn built_size(template: &str, image: &ImageInspect) -> Option<u64> {
    let config = image.config.as_ref()?;
    let built_for = config.labels.as_ref()?.get(labels::TEMPLATE)?;
    let size = u64::try_from(image.size?).ok()?;
    (built_for == template).then_some(size)
}

/// Packs a Dockerfile as the only file of a context.
fn packed(dockerfile: &str) -> std::io::Result<Bytes> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(dockerfile.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, DOCKERFILE, dockerfile.as_bytes())?;
    Ok(archive.into_inner()?.into())
}

#[cfg(test)]
mod tests;

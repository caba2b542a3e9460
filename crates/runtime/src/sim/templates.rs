//! Templates of the simulated back end.

use std::{collections::BTreeMap, pin::pin};

use async_trait::async_trait;

use super::{KIND, SimRuntime};
use crate::{BuildLog, PullFault, Recipe, RuntimeError, StoredTemplate, Templates};

/// Name of the images. The tag is the template's id.
const NAME: &str = "sim-templates";
/// Size of every image that was built.
const BUILT_BYTES: u64 = 1_000;

/// The templates of the back end.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// What each was made from, by its id.
    recipes: BTreeMap<String, Recipe>,
    /// How many have waited for a gate.
    held: usize,
}

impl Stored {
    pub(super) fn contains(&self, template: &str) -> bool {
        self.recipes.contains_key(template)
    }
}

#[async_trait]
impl Templates for SimRuntime {
    fn refusal(&self, image: &str) -> Option<&'static str> {
        let is_template = image.starts_with(NAME);
        is_template.then_some("it names a template")
    }

    async fn make(
        &self,
        template: &str,
        recipe: &Recipe,
        log: BuildLog<'_>,
    ) -> Result<StoredTemplate, RuntimeError> {
        let faults = self.available()?;
        if let Recipe::Build(_) = recipe {
            log("Step 1/1 : simulated\n");
        }
        if let Some(gate) = &faults.template_gate {
            let mut opened = pin!(gate.notified());
            opened.as_mut().enable();
            self.locked().templates.held += 1;
            opened.await;
        }
        match (recipe, faults.build_fails) {
            (Recipe::Image(image), _) if faults.no_image => {
                return Err(RuntimeError::ImagePull {
                    image: image.clone(),
                    fault: PullFault::Unknown,
                    reason: "repository does not exist".to_owned(),
                });
            }
            (Recipe::Build(_), Some(reason)) => {
                return Err(RuntimeError::Build {
                    template: template.to_owned(),
                    reason,
                });
            }
            _ => {}
        }
        self.available()?;
        let mut state = self.locked();
        state
            .templates
            .recipes
            .insert(template.to_owned(), recipe.clone());
        Ok(stored(template, recipe))
    }

    async fn find(&self, template: &str) -> Result<Option<StoredTemplate>, RuntimeError> {
        self.available()?;
        let state = self.locked();
        let recipe = state.templates.recipes.get(template);
        Ok(recipe.map(|recipe| stored(template, recipe)))
    }

    async fn remove(&self, template: &str) -> Result<(), RuntimeError> {
        let faults = self.available()?;
        if let Some(reason) = faults.template_remove_fails {
            return Err(RuntimeError::Other {
                runtime: KIND,
                op: "remove the template",
                reason,
            });
        }
        let mut state = self.locked();
        let mut sandboxes = state.sandboxes.iter();
        let user = sandboxes.find_map(|(id, group)| {
            let used = group.observed.origin.source.template_id();
            (used == Some(template)).then_some(id)
        });
        if let Some(user) = user {
            return Err(RuntimeError::TemplateInUse {
                template: template.to_owned(),
                reason: format!("sandbox {user} was created from it"),
            });
        }
        state.templates.recipes.remove(template);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<String>, RuntimeError> {
        self.available()?;
        Ok(self.stored_templates())
    }
}

fn stored(template: &str, recipe: &Recipe) -> StoredTemplate {
    StoredTemplate {
        image: format!("{NAME}:{template}"),
        size_bytes: match recipe {
            Recipe::Build(_) => Some(BUILT_BYTES),
            Recipe::Image(_) => None,
        },
    }
}

impl SimRuntime {
    /// Returns the ids of the templates whose images are kept.
    #[must_use]
    pub fn stored_templates(&self) -> Vec<String> {
        self.locked().templates.recipes.keys().cloned().collect()
    }

    /// Returns how many templates have waited for a gate so far.
    #[must_use]
    pub fn held_templates(&self) -> usize {
        self.locked().templates.held
    }

    /// Returns what a template was made from.
    #[must_use]
    pub fn recipe(&self, template: &str) -> Option<Recipe> {
        self.locked().templates.recipes.get(template).cloned()
    }

    /// Keeps the image of a template, as an earlier server process would.
    pub fn put_template(&self, template: &str) {
        let recipe = Recipe::Image("debian:12".to_owned());
        let recipes = &mut self.locked().templates.recipes;
        recipes.insert(template.to_owned(), recipe);
    }

    /// Removes the image of a template, as another client of the engine would.
    pub fn lose_template(&self, template: &str) {
        self.locked().templates.recipes.remove(template);
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;
    use crate::{
        CreateSpec, Observed, Origin, Runtime, Source, Stage,
        sim::{Faults, Options},
    };

    async fn create(sim: &SimRuntime, id: &str) -> Result<Observed, RuntimeError> {
        let (source, at) = (
            Source::Template("t".to_owned()),
            WireTime::from_unix_us(1).unwrap(),
        );
        let spec = CreateSpec::new(Origin::new(id, source, at));
        sim.create(spec, &|_: Stage| {}).await
    }

    #[tokio::test]
    async fn a_template_is_a_source_until_it_is_removed() {
        let sim = SimRuntime::with_options(Options {
            powers: true,
            ..Options::default()
        });
        let templates = sim.templates().unwrap();
        let early = create(&sim, "a").await.unwrap_err();
        assert!(matches!(early, RuntimeError::NoTemplate(_)), "{early}");
        let recipe = Recipe::Image("debian:12".to_owned());
        let made = templates.make("t", &recipe, &|_| {}).await.unwrap();
        assert_eq!(templates.find("t").await.unwrap(), Some(made));
        create(&sim, "a").await.unwrap();
        let used = templates.remove("t").await.unwrap_err();
        assert!(matches!(used, RuntimeError::TemplateInUse { .. }), "{used}");
        Runtime::remove(&sim, &"a".into()).await.unwrap();
        templates.remove("t").await.unwrap();
        assert_eq!(templates.list().await.unwrap(), [""; 0]);
    }

    #[tokio::test]
    async fn a_fault_fails_what_is_made() {
        let sim = SimRuntime::default();
        sim.set_faults(Faults {
            no_image: true,
            build_fails: Some("exit 1".to_owned()),
            ..Faults::default()
        });
        let image = Recipe::Image("debian:12".to_owned());
        let pulled = sim.make("t", &image, &|_| {}).await.unwrap_err();
        assert!(matches!(pulled, RuntimeError::ImagePull { .. }), "{pulled}");
        let build = Recipe::Build(crate::Context::Dockerfile("FROM a".to_owned()));
        let built = sim.make("t", &build, &|_| {}).await.unwrap_err();
        assert!(built.to_string().contains("exit 1"), "{built}");
        assert_eq!(sim.stored_templates(), [""; 0]);
    }
}

//! The server is killed at each step of making and of deleting a template. Afterwards each template is
//! either made, with its image, or it is gone or failed, with nothing left of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use async_trait::async_trait;
use osb_runtime::{BuildLog, Recipe, RuntimeError, StoredTemplate, Templates, sim::Faults};
use osb_server::sandbox::TemplateListQuery;
use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Fuse, MOST, Side, World, killed, runtime::KilledRuntime};

/// Changes are steps.
#[async_trait]
impl Templates for KilledRuntime {
    fn refusal(&self, image: &str) -> Option<&'static str> {
        self.inner.refusal(image)
    }

    async fn make(
        &self,
        template: &str,
        recipe: &Recipe,
        log: BuildLog<'_>,
    ) -> Result<StoredTemplate, RuntimeError> {
        let making = self.inner.make(template, recipe, log);
        self.fuse.step(making).await
    }

    async fn find(&self, template: &str) -> Result<Option<StoredTemplate>, RuntimeError> {
        self.inner.find(template).await
    }

    async fn remove(&self, template: &str) -> Result<(), RuntimeError> {
        self.destroying.fetch_add(1, SeqCst);
        let removal = Templates::remove(&*self.inner, template);
        self.fuse.step(removal).await
    }

    async fn list(&self) -> Result<Vec<String>, RuntimeError> {
        self.inner.list().await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Make,
    Delete,
    /// A deletion of one that is being made.
    Cancel,
}

async fn add(server: &TestServer) -> Option<String> {
    let body = json!({"image": "debian:12", "publish": "p"});
    let request = server.request(Method::POST, "/v1/templates").json(&body);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 201);
    let added: Value = response.json().await.unwrap();
    added["templateId"].as_str().map(str::to_owned)
}

async fn listed(server: &TestServer) -> Vec<(String, String)> {
    let list = server.request(Method::GET, "/v1/templates").send().await;
    let list: Value = list.unwrap().json().await.unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    items
        .map(|item| (text(&item["templateId"]), text(&item["status"]["phase"])))
        .collect()
}

/// The number of templates, also of those that are still being deleted, which the API does not show.
async fn count(server: &TestServer) -> usize {
    let all = TemplateListQuery {
        metadata: BTreeMap::new(),
        page: 1,
        page_size: 9,
    };
    server.service.template_entries(all).await.unwrap().1
}

async fn until_made(server: &TestServer) -> Vec<(String, String)> {
    let is_made = |seen: &Vec<(String, String)>| {
        let mut phases = seen.iter().map(|(_, phase)| phase);
        phases.all(|phase| phase != "Pending" && phase != "Building")
    };
    wait_until("the template", || listed(server), is_made).await
}

/// Kills the server at a step of an act. Returns what the client knows: the id of the template that it
/// adds or deletes, and whether it had its answer and all work was done.
fn kill_at(world: &World, act: Act, fuse: &Arc<Fuse>) -> (Option<String>, bool) {
    killed(async {
        let server = world.mortal(fuse).await;
        let mut id = None;
        match act {
            Act::Make => {}
            Act::Delete => {
                id = add(&server).await;
                until_made(&server).await;
            }
            Act::Cancel => {
                world.sim.set_faults(Faults {
                    template_gate: Some(Arc::default()),
                    ..Faults::default()
                });
                id = add(&server).await;
                let held = async || world.sim.held_templates();
                wait_until("what is held", held, |held| *held == 1).await;
            }
        }
        fuse.arm();
        let act = async {
            match act {
                Act::Make => {
                    let added = add(&server).await;
                    // A client that has its answer knows the template, whatever becomes of it.
                    tokio::select! {
                        biased;
                        () = fuse.burn() => return (added, false),
                        _ = until_made(&server) => {}
                    }
                    (added, true)
                }
                Act::Delete | Act::Cancel => {
                    let path = format!("/v1/templates/{}", id.clone().unwrap_or_default());
                    let deleted = server.request(Method::DELETE, &path).send().await.unwrap();
                    assert_eq!(deleted.status(), 204);
                    wait_until("its end", || count(&server), |count| *count == 0).await;
                    (id.clone(), true)
                }
            }
        };
        tokio::select! {
            biased;
            known = act => known,
            () = fuse.burn() => (id.clone(), false),
        }
    })
}

fn check(world: &World, act: Act, known: &(Option<String>, bool)) {
    world.sim.set_faults(Faults::default());
    killed(async {
        let server = world.server().await;
        server.service.reconcile().await;
        let seen = listed(&server).await;
        let made: Vec<_> = seen
            .iter()
            .filter(|(_, phase)| phase == "Succeeded")
            .map(|(id, _)| id.clone())
            .collect();
        assert_eq!(made, world.sim.stored_templates(), "{seen:?}");
        let is_settled = |phase: &str| phase == "Succeeded" || phase == "Failed";
        assert!(seen.iter().all(|(_, phase)| is_settled(phase)), "{seen:?}");
        assert_eq!(count(&server).await, seen.len(), "{seen:?}");
        let (id, is_done) = known;
        let has = |id: &String| seen.iter().any(|(listed, _)| listed == id);
        match act {
            Act::Make => {
                assert!(id.iter().all(has), "an accepted template is lost: {seen:?}");
                assert!(!is_done || made.len() == 1, "{seen:?}");
            }
            Act::Delete | Act::Cancel => {
                assert!(!is_done || seen.is_empty(), "it is back: {seen:?}");
            }
        }
        // What is made can be used.
        for id in made {
            let body = json!({"templateId": id, "timeout": 600});
            let create = server.request(Method::POST, "/v1/sandboxes").json(&body);
            assert_eq!(create.send().await.unwrap().status(), 202);
        }
    });
}

fn kill_everywhere(act: Act, side: Side) {
    for step in 0..MOST {
        eprintln!("{act:?}, killed {side:?} step {step}");
        let world = World::new();
        let fuse = Arc::new(Fuse::new(step, side));
        let known = kill_at(&world, act, &fuse);
        check(&world, act, &known);
        if !fuse.is_burnt() {
            assert!(step > 2, "{act:?} has {step} steps only");
            return;
        }
    }
    panic!("{act:?} takes more than {MOST} steps");
}

#[test]
fn a_template_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Make, Side::Before);
}

#[test]
fn a_template_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Make, Side::After);
}

#[test]
fn a_deletion_of_a_template_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Delete, Side::Before);
}

#[test]
fn a_deletion_of_a_template_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Delete, Side::After);
}

#[test]
fn a_deletion_of_a_template_in_the_making_survives_a_kill_before_each_of_its_steps() {
    kill_everywhere(Act::Cancel, Side::Before);
}

#[test]
fn a_deletion_of_a_template_in_the_making_survives_a_kill_after_each_of_its_steps() {
    kill_everywhere(Act::Cancel, Side::After);
}

//! The server is killed at each step around an event: the operation, its announcement and its
//! delivery. The receiver gets every event in the end, each with one id.

use std::{collections::BTreeMap, sync::atomic::Ordering::SeqCst};

use osb_runtime::sim::SimRuntime;
use osb_testkit::{TestServer, WebhookReceiver, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    MOST, Operation, World,
    fuse::{Fuse, Side},
    killed, listed, ready,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver that outlives the server, and the world that does.
struct Scene {
    world: World,
    receiver: WebhookReceiver,
    config: String,
    /// Where the receiver runs.
    process: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let process = tokio::runtime::Runtime::new().unwrap();
        let receiver = process.block_on(WebhookReceiver::start()).unwrap();
        let config = format!(
            "[webhooks_delivery]\nallow_private = true\n\
             [[webhooks]]\nname = 'ops'\nurl = '{}'\nsecret = '{SECRET}'\n",
            receiver.url()
        );
        Self {
            world: World::new(),
            receiver,
            config,
            process,
        }
    }

    /// Kills the server at a step of the operation, or of what it sends. Returns the sandbox, as far
    /// as the client knows it, and whether there was such a step.
    fn kill_at(&self, operation: Operation, step: usize, side: Side) -> (Option<String>, bool) {
        let fuse = std::sync::Arc::new(Fuse::new(step, side));
        killed(async {
            let server = self.world.mortal_with(&fuse, &self.config).await;
            let mut id = None;
            if !operation.creates() {
                let (_, body) = Operation::Create.send(&server, "").await;
                id = body["id"].as_str().map(str::to_owned);
                self.until(&["sandbox.created", "sandbox.ready"]).await;
            }
            fuse.arm();
            let about = id.clone().unwrap_or_default();
            let finished = async {
                let (status, body) = operation.send(&server, &about).await;
                assert!(status < 300, "{body}");
                self.until(expected(operation)).await;
                body["id"].as_str().map(str::to_owned)
            };
            tokio::select! {
                biased;
                () = fuse.burn() => (id, true),
                made = finished => (id.or(made), false),
            }
        })
    }

    /// Waits until these events have arrived, in this order, among others.
    async fn until(&self, kinds: &[&str]) {
        let arrived = async || self.receiver.kinds();
        let in_order = |arrived: &Vec<String>| {
            let mut arrived = arrived.iter();
            kinds.iter().all(|kind| arrived.any(|it| it == kind))
        };
        wait_until("the events", arrived, in_order).await;
    }

    /// Starts the server again, and checks what the receiver has in the end.
    fn check(&self, operation: Operation) {
        killed(async {
            let server =
                TestServer::over(self.world.sim.clone() as _, self.world.path(), &self.config);
            let server = server.await.unwrap();
            ready(&server).await;
            server.service.reconcile().await;
            let exists = |sim: &SimRuntime| !sim.sandboxes().is_empty();
            let happened = match operation {
                Operation::Create | Operation::CreateWithKey => {
                    let agreed = async || (exists(&self.world.sim), listed(&server).await.len());
                    let agreed =
                        wait_until("list and runtime agree", agreed, |(exists, listed)| {
                            usize::from(*exists) == *listed
                        });
                    agreed.await.0
                }
                Operation::Pause => listed(&server).await[0]["status"]["state"] == "Paused",
                Operation::Renew => listed(&server).await[0]["expiresAt"] == super::RENEWED,
                Operation::Delete => {
                    let gone = async || (exists(&self.world.sim), listed(&server).await);
                    let settled = wait_until("an end of the removal", gone, |(exists, listed)| {
                        let states = listed.iter().map(|one| &one["status"]["state"]);
                        *exists != listed.is_empty() && !states.clone().any(|it| it == "Stopping")
                    });
                    !settled.await.0
                }
                _ => unreachable!("not among the tests"),
            };
            if happened {
                self.until(expected(operation)).await;
            }
        });
        // A message may arrive twice, but an event is one message.
        let mut bodies = BTreeMap::new();
        for message in self.receiver.received() {
            let id = message.header("webhook-id").to_owned();
            let kind = message.kind();
            let first = bodies.entry(kind).or_insert_with(|| id.clone());
            assert_eq!(*first, id, "{:?}", self.receiver.received());
        }
    }
}

fn expected(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::Pause => &["sandbox.created", "sandbox.ready", "sandbox.paused"],
        Operation::Renew => &["sandbox.created", "sandbox.ready", "sandbox.renewed"],
        Operation::Delete => &["sandbox.created", "sandbox.ready", "sandbox.deleted"],
        _ => &["sandbox.created", "sandbox.ready"],
    }
}

macro_rules! kills {
    ($($name:ident: $operation:ident;)*) => {
        $(#[test]
        fn $name() {
            for side in [Side::Before, Side::After] {
                let is_over = (0..MOST).any(|step| {
                    eprintln!("{:?}, killed {side:?} step {step}", Operation::$operation);
                    let scene = Scene::new();
                    let (_, was_killed) = scene.kill_at(Operation::$operation, step, side);
                    scene.check(Operation::$operation);
                    scene.process.shutdown_background();
                    !was_killed
                });
                assert!(is_over, "more than {MOST} steps");
            }
        })*
    };
}

kills! {
    the_events_of_a_create_arrive: CreateWithKey;
    the_event_of_a_pause_arrives: Pause;
    the_event_of_a_renewal_arrives: Renew;
    the_event_of_a_delete_arrives: Delete;
}

/// A server that nothing kills, with a webhook.
async fn immortal(scene: &Scene) -> TestServer {
    let fuse = std::sync::Arc::new(Fuse::new(MOST, Side::Before));
    scene.world.mortal_with(&fuse, &scene.config).await
}

#[test]
fn a_message_on_its_way_when_the_hold_is_lost_is_kept_and_not_sent_again() {
    let scene = Scene::new();
    let (world, receiver) = (&scene.world, &scene.receiver);
    killed(async {
        let server = immortal(&scene).await;
        receiver.hold(true);
        let (status, body) = Operation::Create.send(&server, "").await;
        assert_eq!(status, 202, "{body}");
        let kinds = async || receiver.kinds();
        wait_until("the first message", kinds, |kinds| !kinds.is_empty()).await;
        world.is_lost.store(true, SeqCst);
        receiver.hold(false);
        let refused = async || world.refused.load(SeqCst);
        wait_until("refused results", refused, |count| *count >= 2).await;
        assert_eq!(
            receiver.kinds(),
            ["sandbox.created"],
            "nothing more is sent"
        );
        world.is_lost.store(false, SeqCst);
        wait_until("the next message", kinds, |kinds| kinds.len() > 1).await;
        let items = async || webhooks(&server).await[0]["pending"].clone();
        wait_until("both are kept", items, |pending| *pending == 0).await;
        assert_eq!(receiver.kinds(), ["sandbox.created", "sandbox.ready"]);
    });
    scene.process.shutdown_background();
}

/// The subscriptions as the API shows them.
async fn webhooks(server: &TestServer) -> Vec<Value> {
    let list = server.request(Method::GET, "/v1/webhooks").send().await;
    let list: Value = list.unwrap().json().await.unwrap();
    list["items"].as_array().unwrap().clone()
}

#[test]
fn a_change_of_a_webhook_is_completed_without_its_client() {
    let scene = Scene::new();
    killed(async {
        let server = immortal(&scene).await;
        let gate = &scene.world.subscriptions;
        let new = json!({"name": "second", "url": "https://a.invalid"});
        let add = server.request(Method::POST, "/v1/webhooks").json(&new);
        abandon(&server, gate, add).await;
        let list = async || webhooks(&server).await;
        let list = wait_until("the new one", list, |list| list.len() == 2).await;
        let id = list[1]["id"].as_str().unwrap();
        let delete = server.request(Method::DELETE, &format!("/v1/webhooks/{id}"));
        abandon(&server, gate, delete).await;
        let list = async || webhooks(&server).await;
        wait_until("it is deleted", list, |list| list.len() == 1).await;
    });
    scene.process.shutdown_background();
}

/// Closes the connection of a request whose write waits, and lets the write go on.
async fn abandon(server: &TestServer, gate: &super::store::Gate, request: reqwest::RequestBuilder) {
    let closed = gate.close().await;
    let request = request.build().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    tokio::select! {
        answer = client.execute(request) => panic!("{answer:?}"),
        () = gate.reached() => {}
    }
    drop(client);
    // Answers that come after the server has seen the end of the connection.
    for _ in 0..20 {
        let health = server.bare(Method::GET, "/health").send().await;
        assert_eq!(health.unwrap().status(), 200);
    }
    drop(closed);
}

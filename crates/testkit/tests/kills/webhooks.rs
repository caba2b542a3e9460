//! The server is killed at each step around an event: the operation, its announcement and its
//! delivery. The receiver gets every event in the end, each with one id.

use std::collections::BTreeMap;

use osb_runtime::sim::SimRuntime;
use osb_testkit::{TestServer, WebhookReceiver, wait_until};

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

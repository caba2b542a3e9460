//! A daemon that is told only after its start for whom it is (contract: execd A9.5). So a warm
//! container can be claimed.
//!
//! ```text
//!  `--runtime-init`      POST /internal/init        hooks, entry point
//!  waiting ─────────────▶ under way ──────┬──────────▶ bound: every route answers
//!    every other route answers 503        └ they fail ─▶ lost: 503 for ever
//! ```
//!
//! The first valid call counts, and no other: what it brings is in force until the end. Unless the
//! container came with a token, which is asked for then, whoever reaches the port first decides. What
//! starts the container must see to it that this is the control plane.

mod api;
mod order;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::process::Signal;
use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot};
use tracing::{info, warn};

pub(crate) use api::routes;
use order::{Order, TokenHash};

use crate::{app::App, hook::Hooks, init::Signals};

/// Turns waiting on; `--runtime-init` goes before it.
pub const ENV_RUNTIME_INIT: &str = "EXECD_RUNTIME_INIT";

/// Names the sandbox to everything that is started.
const ENV_SANDBOX: &str = "OPENSANDBOX_ID";

/// Whether the daemon waits, and whose it is. Clones share it. By default it does not wait.
#[derive(Clone, Debug, Default)]
pub struct RuntimeInit {
    inner: Option<Arc<Inner>>,
}

#[derive(Debug)]
struct Inner {
    claimed: AtomicBool,
    /// Held while an order is read.
    turn: Mutex<()>,
    bound: OnceLock<Bound>,
    /// Why it will never be bound.
    failure: OnceLock<String>,
    orders: mpsc::Sender<Request>,
}

/// Whose a daemon is.
#[derive(Clone, Debug)]
struct Bound {
    sandbox: String,
    generation: u64,
    token: Option<TokenHash>,
}

/// What measurements are told with (contract: execd A9.5, §13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// The sandbox's id.
    pub sandbox_id: String,
    /// Which of its incarnations this is.
    pub generation: u64,
    /// What else the control plane wants to be told.
    pub attributes: BTreeMap<String, String>,
}

/// What the user's entry point shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntrypointPolicy {
    /// Stay as it is: it does not run yet, so it never does.
    Keep,
    /// Run with what the order says.
    Restart,
}

/// How it went: a warning, if there is one; or why it failed.
type Reply = Result<Option<String>, String>;

#[derive(Debug)]
struct Request {
    order: Order,
    reply: oneshot::Sender<Reply>,
}

/// Where the one order comes out.
#[derive(Debug)]
pub struct Orders {
    receiver: mpsc::Receiver<Request>,
}

/// An order that is being carried out.
#[derive(Debug)]
pub(crate) struct Underway {
    pub(crate) entrypoint: EntrypointPolicy,
    bound: Bound,
    runtime: RuntimeInit,
    reply: oneshot::Sender<Reply>,
}

impl RuntimeInit {
    /// A daemon that waits for its order.
    #[must_use]
    pub fn waiting() -> (Self, Orders) {
        let (orders, receiver) = mpsc::channel(1);
        let inner = Inner {
            claimed: AtomicBool::new(false),
            turn: Mutex::default(),
            bound: OnceLock::new(),
            failure: OnceLock::new(),
            orders,
        };
        let runtime = Self {
            inner: Some(Arc::new(inner)),
        };
        (runtime, Orders { receiver })
    }

    /// Whether there ever was something to wait for.
    pub(crate) fn is_used(&self) -> bool {
        self.inner.is_some()
    }

    /// Whether it is waited for.
    pub(crate) fn is_closed(&self) -> bool {
        let bound = self.inner.as_ref().map(|inner| inner.bound.get());
        bound.is_some_and(|bound| bound.is_none())
    }

    /// The token that the order brought, in the form in which it came.
    pub(crate) fn token(&self) -> Option<&TokenHash> {
        self.bound()?.token.as_ref()
    }

    fn bound(&self) -> Option<&Bound> {
        self.inner.as_ref()?.bound.get()
    }

    /// Why the order could not be carried out, if it could not.
    pub(crate) fn failure(&self) -> Option<String> {
        let why = self.inner.as_ref()?.failure.get()?;
        Some(format!("execd could not be initialized: {why}"))
    }

    /// Whether there was an order.
    fn is_claimed(&self) -> bool {
        let inner = self.inner.as_ref();
        inner.is_some_and(|inner| inner.claimed.load(Ordering::Relaxed))
    }

    /// Waits until no other order is being read.
    async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        match &self.inner {
            Some(inner) => Some(inner.turn.lock().await),
            None => None,
        }
    }

    /// Hands an order over, unless there was one. The answer comes when it is carried out.
    fn claim(&self, order: Order) -> Option<oneshot::Receiver<Reply>> {
        let inner = self.inner.as_ref()?;
        if inner.claimed.swap(true, Ordering::Relaxed) {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        // It fails only when the daemon is stopping; then nobody answers.
        let _stopping = inner.orders.try_send(Request { order, reply });
        Some(answer)
    }
}

impl Orders {
    /// Waits for the order and puts in force what it says, but for what shall run: the hooks are
    /// handed back, those of the order or else the given ones. `None` when the daemon was told to
    /// end meanwhile.
    pub(crate) async fn next(
        mut self,
        app: &App,
        hooks: Hooks,
        signals: &mut Signals,
    ) -> Option<(Underway, Hooks)> {
        info!("waiting for POST /internal/init");
        let request = tokio::select! {
            request = self.receiver.recv() => request,
            () = told_to_end(signals) => None,
        };
        let Request { order, reply } = request?;
        let bound = order.bound;
        let Attribution {
            sandbox_id,
            generation,
            attributes,
        } = order.attribution;
        info!(sandbox_id, generation, ?attributes, "bound");
        app.telemetry.attribute(&sandbox_id, &attributes);
        let mut variables = app.environment.own().as_ref().clone();
        for (name, value) in order.envs {
            variables.set(name, value);
        }
        variables.set(ENV_SANDBOX, &sandbox_id);
        app.environment.replace(variables);
        let hooks = match order.lifecycle {
            Some(lifecycle) => hooks.replaced(lifecycle),
            None => hooks,
        };
        let underway = Underway {
            entrypoint: order.entrypoint,
            bound,
            runtime: app.runtime_init.clone(),
            reply,
        };
        Some((underway, hooks))
    }
}

/// Waits for a signal that means the end. The others are for the entry point, which is not there.
pub(crate) async fn told_to_end(signals: &mut Signals) {
    loop {
        let signal = signals.next().await;
        if matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT) {
            info!(?signal, "stopping");
            return;
        }
    }
}

impl Underway {
    /// It is carried out: from here on every route answers.
    pub(crate) fn done(self, warning: Option<&str>) {
        if let Some(warning) = warning {
            warn!(warning, "initialized");
        }
        if let Some(inner) = &self.runtime.inner {
            let set = inner.bound.set(self.bound);
            debug_assert!(set.is_ok(), "there is one order");
        }
        // The client may have left.
        let _left = self.reply.send(Ok(warning.map(str::to_owned)));
    }

    /// The same in a daemon that is not the init process, so it has no entry point.
    pub(crate) fn done_without_init(self) {
        let warning = match self.entrypoint {
            EntrypointPolicy::Keep => None,
            EntrypointPolicy::Restart => Some(
                "entrypointPolicy restart has no effect, because execd is not the init process",
            ),
        };
        self.done(warning);
    }

    /// It could not be carried out. There is no other.
    pub(crate) fn failed(self, why: String) {
        if let Some(inner) = &self.runtime.inner {
            let set = inner.failure.set(why.clone());
            debug_assert!(set.is_ok(), "there is one order");
        }
        let _left = self.reply.send(Err(why));
    }
}

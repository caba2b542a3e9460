//! Late initialisation (contract: execd A9.5): the daemon starts in a warm container and learns
//! later which sandbox it serves, when the control plane claims the container.
//!
//! ```text
//!  `--runtime-init`      POST /internal/init        preStart hook
//!  waiting ─────────────▶ under way ──────┬──────────▶ open: every route answers ─▶ entry point
//!    every other route answers 503        └ it fails, or the entry point ─▶ lost: 503 for ever
//! ```
//!
//! Only the first valid call takes effect, and it does so until the daemon ends. One that names its
//! claim may be repeated, with the same outcome, and leaves a mark ([`mark`]) that makes every other
//! claim fail after a restart of the container, too (an addition to the contract). A container that
//! started with a token requires it for this call. Without one the first client that reaches the
//! port decides, so the operator must ensure that this is the control plane.

mod api;
mod mark;
mod order;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::process::Signal;
use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot, watch};
use tracing::{info, warn};

pub(crate) use api::routes;
use mark::Mark;
use order::{Order, TokenHash};

use crate::{base::Base, env::names, hook::Hooks, signals::Signals};

/// Initialisation state and the bound sandbox. Clones share it. By default the daemon does not
/// wait.
#[derive(Clone, Debug, Default)]
pub struct RuntimeInit {
    inner: Option<Arc<Inner>>,
}

#[derive(Debug)]
struct Inner {
    claimed: AtomicBool,
    /// Id of the claim whose order was accepted.
    claim: OnceLock<String>,
    mark: Mark,
    /// Whether the order has had its outcome.
    has_ended: watch::Sender<bool>,
    /// Held while an order is read.
    turn: Mutex<()>,
    bound: OnceLock<Bound>,
    /// Reason why the daemon will never be bound, or is no longer.
    failure: OnceLock<String>,
    /// Whether the container started with a token.
    has_token: bool,
    orders: mpsc::Sender<Request>,
}

/// Sandbox that the daemon is bound to.
#[derive(Clone, Debug)]
struct Bound {
    sandbox: String,
    generation: u64,
    token: Option<TokenHash>,
}

/// Attributes of reported measurements (contract: execd A9.5, §13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// Sandbox id.
    pub sandbox_id: String,
    /// Generation of the sandbox.
    pub generation: u64,
    /// Further attributes that the control plane requests.
    pub attributes: BTreeMap<String, String>,
}

/// What to do with the user's entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntrypointPolicy {
    /// Leave it as is: it does not run yet, so it never will.
    Keep,
    /// Run it with the settings of the order.
    Restart,
}

/// Outcome of an order: an optional warning, or the reason of the failure.
type Reply = Result<Option<String>, String>;

#[derive(Debug)]
struct Request {
    order: Order,
    reply: oneshot::Sender<Reply>,
}

/// Receiving end for the single order.
#[derive(Debug)]
pub struct Orders {
    runtime: RuntimeInit,
    receiver: mpsc::Receiver<Request>,
}

/// Order in progress.
#[derive(Debug)]
pub(crate) struct Underway {
    pub(crate) entrypoint: EntrypointPolicy,
    /// What to run instead of the container's own entry point.
    pub(crate) argv: Option<Vec<OsString>>,
    bound: Bound,
    runtime: RuntimeInit,
    reply: oneshot::Sender<Reply>,
}

impl RuntimeInit {
    /// Creates the state of a daemon that waits for its order. If it has a token already, the order
    /// must present it. `mark` is the file that keeps a claim.
    #[must_use]
    pub fn waiting(has_token: bool, mark: Option<PathBuf>) -> (Self, Orders) {
        let (orders, receiver) = mpsc::channel(1);
        let inner = Inner {
            claimed: AtomicBool::new(false),
            claim: OnceLock::new(),
            mark: Mark::at(mark),
            has_ended: watch::Sender::new(false),
            turn: Mutex::default(),
            bound: OnceLock::new(),
            failure: OnceLock::new(),
            has_token,
            orders,
        };
        let runtime = Self {
            inner: Some(Arc::new(inner)),
        };
        let orders = Orders {
            runtime: runtime.clone(),
            receiver,
        };
        (runtime, orders)
    }

    /// Whether the daemon started without a sandbox.
    pub(crate) fn is_used(&self) -> bool {
        self.inner.is_some()
    }

    /// Whether the routes are closed: the order is still missing, or failed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_used() && self.bound().is_none()
    }

    /// Token from the order, as its hash.
    pub(crate) fn token(&self) -> Option<&TokenHash> {
        self.inner.as_ref()?.bound.get()?.token.as_ref()
    }

    /// Bound sandbox, unless the initialisation failed.
    fn bound(&self) -> Option<&Bound> {
        let inner = self.inner.as_ref()?;
        match inner.failure.get() {
            Some(_) => None,
            None => inner.bound.get(),
        }
    }

    /// Whether every client that reaches the port would have full access with this binding.
    fn is_unguarded_by(&self, bound: &Bound) -> bool {
        let has_token = self.inner.as_ref().is_some_and(|inner| inner.has_token);
        !has_token && bound.token.is_none()
    }

    /// Reason why the order failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        let why = self.inner.as_ref()?.failure.get()?;
        Some(format!("execd could not be initialized: {why}"))
    }

    /// Whether an order was accepted.
    fn is_claimed(&self) -> bool {
        let inner = self.inner.as_ref();
        inner.is_some_and(|inner| inner.claimed.load(Ordering::Acquire))
    }

    /// Whether an order was accepted that cannot be repeated, since it names no claim.
    fn is_used_up(&self) -> bool {
        self.is_claimed() && self.claim_id().is_none()
    }

    /// Id of the claim whose order was accepted.
    fn claim_id(&self) -> Option<&str> {
        self.inner.as_ref()?.claim.get().map(String::as_str)
    }

    /// Whether this sandbox was given to another claim before the daemon was started.
    fn is_marked_for_another(&self, order: &Order) -> bool {
        let Some(inner) = &self.inner else {
            return false;
        };
        let marked = inner.mark.claim_of(&order.bound.sandbox);
        marked.is_some_and(|marked| order.claim.as_ref() != Some(&marked))
    }

    /// Waits for the outcome of the order that was accepted: whether the daemon is bound.
    async fn outcome(&self) -> Result<Bound, String> {
        let stopping = || "execd is stopping".to_owned();
        let inner = self.inner.as_ref().ok_or_else(stopping)?;
        let mut has_ended = inner.has_ended.subscribe();
        // The sender lives as long as this state.
        let _ended = has_ended.wait_for(|ended| *ended).await;
        match (inner.failure.get(), inner.bound.get()) {
            (Some(why), _) => Err(why.clone()),
            (None, Some(bound)) => Ok(bound.clone()),
            (None, None) => Err(stopping()),
        }
    }

    /// Notes that the order has had its outcome.
    fn end(&self) {
        if let Some(inner) = &self.inner {
            inner.has_ended.send_replace(true);
        }
    }

    /// Waits until no other order is being read.
    async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        match &self.inner {
            Some(inner) => Some(inner.turn.lock().await),
            None => None,
        }
    }

    /// Accepts an order unless there was one. The receiver yields its outcome. The caller holds the turn.
    fn claim(&self, order: Order) -> Option<oneshot::Receiver<Reply>> {
        let inner = self.inner.as_ref().filter(|_| !self.is_claimed())?;
        if let Some(claim) = &order.claim {
            if let Some(kept) = inner.mark.keep(&order.bound.sandbox, claim) {
                // The order goes on meanwhile.
                drop(tokio::task::spawn_blocking(|| kept.sync()));
            }
            let set = inner.claim.set(claim.clone());
            debug_assert!(set.is_ok(), "there is one order");
        }
        // After that: who sees it also sees whose order it is.
        if inner.claimed.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        // Sending fails only while the daemon stops; then there is no reply.
        let _stopping = inner.orders.try_send(Request { order, reply });
        Some(answer)
    }
}

impl Orders {
    /// Waits for the order and applies it, except for the programs to run. Returns the hooks of the
    /// order, or else the given ones. `None` if a signal stops the daemon meanwhile.
    pub(crate) async fn next(
        mut self,
        base: &Base,
        hooks: Hooks,
        signals: &mut Signals,
    ) -> Option<(Underway, Hooks)> {
        info!("waiting for POST /internal/init");
        let request = tokio::select! {
            request = self.receiver.recv() => request,
            () = wait_for_stop(signals) => None,
        };
        let Request { order, reply } = request?;
        let bound = order.bound;
        let Attribution {
            sandbox_id,
            generation,
            attributes,
        } = order.attribution;
        info!(sandbox_id, generation, ?attributes, "bound");
        if self.runtime.is_unguarded_by(&bound) {
            warn!(
                "bound without a token: every client that reaches the port has full access, \
                 commands of this sandbox included"
            );
        }
        base.telemetry.attribute(&sandbox_id, &attributes);
        let mut variables = base.environment.own().as_ref().clone();
        for name in &order.unset {
            variables.remove(name);
        }
        for (name, value) in order.envs {
            variables.set(name, value);
        }
        variables.set(names::SANDBOX, &sandbox_id);
        base.environment.replace(variables);
        let hooks = match order.lifecycle {
            Some(lifecycle) => hooks.replaced(lifecycle),
            None => hooks,
        };
        let underway = Underway {
            entrypoint: order.entrypoint,
            argv: order.argv,
            bound,
            runtime: self.runtime,
            reply,
        };
        Some((underway, hooks))
    }
}

/// Waits for a stop signal. Other signals are meant for the entry point, which does not run.
pub(crate) async fn wait_for_stop(signals: &mut Signals) {
    loop {
        let signal = signals.next().await;
        if matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT) {
            info!(?signal, "stopping");
            return;
        }
    }
}

impl Underway {
    /// Opens every route, since the entry point may need them.
    pub(crate) fn open(&self) {
        if let Some(inner) = &self.runtime.inner {
            let set = inner.bound.set(self.bound.clone());
            debug_assert!(set.is_ok(), "there is one order");
        }
    }

    /// Reports success.
    pub(crate) fn done(self, warning: Option<&str>) {
        if let Some(warning) = warning {
            warn!(warning, "initialized");
        }
        self.runtime.end();
        // The client may have disconnected.
        let _left = self.reply.send(Ok(warning.map(str::to_owned)));
    }

    /// Reports success in a daemon that is not the init process and so has no entry point.
    pub(crate) fn done_without_init(self) {
        let warning = match self.entrypoint {
            EntrypointPolicy::Keep => None,
            EntrypointPolicy::Restart => Some(
                "entrypointPolicy restart has no effect, because execd is not the init process",
            ),
        };
        self.open();
        self.done(warning);
    }

    /// Reports failure. No further order is accepted, and all routes stay closed.
    pub(crate) fn failed(self, why: String) {
        if let Some(inner) = &self.runtime.inner {
            let set = inner.failure.set(why.clone());
            debug_assert!(set.is_ok(), "there is one order");
        }
        self.runtime.end();
        let _left = self.reply.send(Err(why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn underway(runtime: &RuntimeInit, token: Option<TokenHash>) -> Underway {
        let (reply, _client) = oneshot::channel();
        Underway {
            entrypoint: EntrypointPolicy::Restart,
            argv: None,
            bound: Bound {
                sandbox: "s-1".to_owned(),
                generation: 1,
                token,
            },
            runtime: runtime.clone(),
            reply,
        }
    }

    #[test]
    fn routes_are_open_before_the_entry_point_and_closed_when_it_fails() {
        let (runtime, _orders) = RuntimeInit::waiting(false, None);
        let order = underway(&runtime, None);
        assert!(runtime.is_closed() && runtime.bound().is_none());
        order.open();
        assert!(!runtime.is_closed() && runtime.bound().is_some());
        order.failed("no such program".to_owned());
        assert!(runtime.is_closed() && runtime.bound().is_none());
        assert!(runtime.failure().unwrap().contains("no such program"));
        assert!(!RuntimeInit::default().is_closed());
    }

    #[test]
    fn one_token_of_two_guards() {
        for (has_token, brings_one, unguarded) in [
            (false, false, true),
            (true, false, false),
            (false, true, false),
            (true, true, false),
        ] {
            let (runtime, _orders) = RuntimeInit::waiting(has_token, None);
            let order = underway(&runtime, brings_one.then(TokenHash::any));
            assert_eq!(runtime.is_unguarded_by(&order.bound), unguarded);
        }
    }
}

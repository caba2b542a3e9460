//! A daemon that is told only after its start for whom it is (contract: execd A9.5). So a warm
//! container can be claimed.
//!
//! ```text
//!  `--runtime-init`      POST /internal/init        preStart hook
//!  waiting ─────────────▶ under way ──────┬──────────▶ open: every route answers ─▶ entry point
//!    every other route answers 503        └ it fails, or the entry point ─▶ lost: 503 for ever
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

use crate::{base::Base, env::names, hook::Hooks, signals::Signals};

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
    /// Why it will never be bound, or is no longer.
    failure: OnceLock<String>,
    /// Whether the container came with a token.
    has_token: bool,
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
    runtime: RuntimeInit,
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
    /// A daemon that waits for its order. It may have a token already, which who orders must bring.
    #[must_use]
    pub fn waiting(has_token: bool) -> (Self, Orders) {
        let (orders, receiver) = mpsc::channel(1);
        let inner = Inner {
            claimed: AtomicBool::new(false),
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

    /// Whether there ever was something to wait for.
    pub(crate) fn is_used(&self) -> bool {
        self.inner.is_some()
    }

    /// Whether it is waited for, or came to nothing.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_used() && self.bound().is_none()
    }

    /// The token that the order brought, in the form in which it came.
    pub(crate) fn token(&self) -> Option<&TokenHash> {
        self.inner.as_ref()?.bound.get()?.token.as_ref()
    }

    /// Whose the daemon is, as long as that went well.
    fn bound(&self) -> Option<&Bound> {
        let inner = self.inner.as_ref()?;
        match inner.failure.get() {
            Some(_) => None,
            None => inner.bound.get(),
        }
    }

    /// Whether everybody who reaches the port may do everything, once this is in force.
    fn is_unguarded_by(&self, bound: &Bound) -> bool {
        let has_token = self.inner.as_ref().is_some_and(|inner| inner.has_token);
        !has_token && bound.token.is_none()
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
        base: &Base,
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
        if self.runtime.is_unguarded_by(&bound) {
            warn!(
                "bound without a token: whoever reaches the port, commands of this sandbox included, \
                 may ask execd for everything"
            );
        }
        base.telemetry.attribute(&sandbox_id, &attributes);
        let mut variables = base.environment.own().as_ref().clone();
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
            bound,
            runtime: self.runtime,
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
    /// From here on every route answers: the entry point may need them.
    pub(crate) fn open(&self) {
        if let Some(inner) = &self.runtime.inner {
            let set = inner.bound.set(self.bound.clone());
            debug_assert!(set.is_ok(), "there is one order");
        }
    }

    /// It is carried out.
    pub(crate) fn done(self, warning: Option<&str>) {
        if let Some(warning) = warning {
            warn!(warning, "initialized");
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
        self.open();
        self.done(warning);
    }

    /// It could not be carried out. There is no other, and no route answers any more.
    pub(crate) fn failed(self, why: String) {
        if let Some(inner) = &self.runtime.inner {
            let set = inner.failure.set(why.clone());
            debug_assert!(set.is_ok(), "there is one order");
        }
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
        let (runtime, _orders) = RuntimeInit::waiting(false);
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
            let (runtime, _orders) = RuntimeInit::waiting(has_token);
            let order = underway(&runtime, brings_one.then(TokenHash::any));
            assert_eq!(runtime.is_unguarded_by(&order.bound), unguarded);
        }
    }
}

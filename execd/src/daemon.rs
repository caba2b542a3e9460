//! Startup and shutdown sequence.
//!
//! ```text
//!  bind ─▶ announce ─▶ serve ─▶ (order) ─▶ first hook ─┬─ alone:   until SIGTERM or SIGINT
//!                                                      └─ as init: start the entry point, until it ended
//!  end of the others: SIGTERM, a grace, SIGKILL ─▶ drain streams and connections ─▶ last metrics
//!  └ all of it within a bound that begins with the SIGTERM to the daemon; the last two keep some ┘
//! ```

use std::{io, net::Ipv4Addr, sync::Arc};

use osb_service::{Drained, ErrorChain, Supervisor, build_info::BuildInfo, heap};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    time::timeout_at,
};
use tracing::{error, info, warn};

use crate::{
    app::App,
    base::Base,
    cli::Config,
    clone3,
    command::Commands,
    config::{ConfigError, IsolationConfig},
    env::{Environment, Variables, names},
    hardening::ProcessHardening,
    hook::{HookError, Hooks, PreStart},
    init::{self, InitError, Stop},
    isolated, limits, metrics,
    runtime_init::{Orders, RuntimeInit},
    server::{self, Token},
    signals::Signals,
    telemetry::Telemetry,
};

/// Reason why the daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The port is unavailable.
    #[error("cannot listen on port {port}")]
    Listen {
        /// Port number.
        port: u16,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Signal handlers cannot be installed.
    #[error("cannot install signal handlers")]
    Signals(#[source] io::Error),
    /// The configuration of isolated sessions is invalid.
    #[error(transparent)]
    Isolation(#[from] ConfigError),
    /// The server ended unexpectedly.
    #[error("the http server ended unexpectedly")]
    Server,
    /// The lifecycle hooks cannot be used.
    #[error(transparent)]
    Hooks(#[from] HookError),
    /// The user's entry point, or a step before it, cannot run.
    #[error(transparent)]
    Init(#[from] InitError),
}

impl DaemonError {
    /// Exit status of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Hooks(error) => error.exit_code(),
            Self::Init(error) => error.exit_code(),
            _ => 1,
        }
    }

    /// Whether the lifecycle hooks are at fault.
    #[must_use]
    pub fn is_of_hooks(&self) -> bool {
        matches!(self, Self::Hooks(_) | Self::Init(InitError::Hook(_)))
    }
}

/// Runs the daemon until it ends and returns the exit status of the process.
///
/// # Errors
/// See [`DaemonError`].
pub async fn run(config: Config, build: BuildInfo) -> Result<u8, DaemonError> {
    let child_ended = signal(SignalKind::child()).map_err(DaemonError::Signals)?;
    let mut signals = signals(&config)?;
    let (isolation, unknown) = IsolationConfig::load(config.isolation_config.as_deref())?;
    let tasks = Supervisor::new();
    let mut base = Base::new(Environment::new(own_variables()), tasks.clone());
    base.processes
        .harden(ProcessHardening::new(&isolation, &base.environment));
    let hooks = Hooks::load(
        &base.environment.own(),
        config.startup_status.clone(),
        base.processes.hardening(),
    )?;
    let listener = listen(&config, build).await?;
    warn_of_settings(&config, &isolation, &unknown);
    base.telemetry = telemetry(&base);
    let (runtime_init, orders) = runtime_init(&config);
    let app = App::new(base, runtime_init);
    app.isolation.sessions.configure(isolation);
    start_upkeep(&app, child_ended);
    let router = server::router(app.clone(), Token::new(config.access_token));
    let mut serving = tasks.spawn("server", server::serve(listener, router, tasks.clone()));
    let ended = tokio::select! {
        ended = until_end(&app, config.entrypoint, hooks, &mut signals, orders) => ended,
        _ = &mut serving => Err(DaemonError::Server),
    };
    stop(&app, Stop::requested_at(signals.stop_requested_at())).await;
    ended
}

/// Signals to forward to the entry point, if there is one, or else those that stop the daemon.
fn signals(config: &Config) -> Result<Signals, DaemonError> {
    let signals = match config.entrypoint {
        Some(_) => Signals::forwarded(),
        None => Signals::stopping(),
    };
    signals.map_err(DaemonError::Signals)
}

/// Opens the port and announces it.
async fn listen(config: &Config, build: BuildInfo) -> Result<TcpListener, DaemonError> {
    let failed = |source| DaemonError::Listen {
        port: config.port,
        source,
    };
    let address = (Ipv4Addr::UNSPECIFIED, config.port);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    info!(%address, %build, ?config, "execd is listening");
    Ok(listener)
}

/// Warns of settings without effect, or with a surprising one.
fn warn_of_settings(config: &Config, isolation: &IsolationConfig, unknown: &[String]) {
    for flag in &config.ignored {
        warn!(flag, "this flag has no effect in this version");
    }
    for key in unknown {
        warn!(key, "unknown key in the isolation configuration");
    }
    if isolation.hardening.enabled && config.access_token.is_none() && !config.runtime_init {
        warn!("without a token commands can ask execd itself for the rights that hardening takes");
    }
}

/// State of the late initialisation, and the receiver of its order.
fn runtime_init(config: &Config) -> (RuntimeInit, Option<Orders>) {
    if !config.runtime_init {
        return (RuntimeInit::default(), None);
    }
    let (runtime_init, orders) =
        RuntimeInit::waiting(config.access_token.is_some(), config.claim_mark.clone());
    (runtime_init, Some(orders))
}

/// Starts the maintenance tasks of the daemon.
fn start_upkeep(app: &App, child_ended: Signal) {
    let base = &app.base;
    let tasks = &base.tasks;
    tasks.spawn_abortable("reaper", base.processes.clone().reap(child_ended));
    tasks.spawn_abortable("sweeper", sweep(app.commands.clone()));
    tasks.spawn_abortable("heap", heap::give_back());
    tasks.spawn_abortable("idle sessions", end_idle(app.clone()));
    tasks.spawn_abortable("isolated upkeep", isolated::upkeep(app.isolation.clone()));
    tasks.spawn_abortable("metrics", metrics::remember(Arc::clone(&base.meter)));
}

/// Ends sessions, processes, streams and connections, and sends the last metrics.
async fn stop(app: &App, stop: Stop) {
    let processes = stop.of_processes();
    let isolated = &app.isolation.sessions;
    let closed = timeout_at(
        processes.step_deadline(limits::ISOLATED_END),
        isolated.close(),
    );
    // Concurrent, so that neither uses the other's time.
    let children = init::end_children(&app.base, &app.ptys, processes);
    let (closed, ()) = tokio::join!(closed, children);
    if closed.is_err() {
        warn!("some isolated sessions did not end in time");
    }
    let streams = stop.of_streams().time_left(limits::DRAIN);
    let drained = app.base.tasks.drain(streams).await;
    // After the drain, so that executions which ended in it are included.
    let flushed = stop.step_deadline(limits::TELEMETRY_FLUSH);
    app.base.telemetry.finish(flushed).await;
    match drained {
        Drained::Gracefully => info!("execd stopped"),
        Drained::TimedOut(left) => warn!(left, "execd stopped before all its tasks ended"),
    }
}

/// Runs the entry point, or only serves, until the end. Returns the exit status of the process.
async fn until_end(
    app: &App,
    entrypoint: Option<Vec<std::ffi::OsString>>,
    hooks: Hooks,
    signals: &mut Signals,
    orders: Option<Orders>,
) -> Result<u8, DaemonError> {
    let base = &app.base;
    if let Some(argv) = entrypoint {
        let exit = init::run(base, argv, hooks, signals, orders).await?;
        return Ok(exit.shell_code());
    }
    let (order, hooks) = match orders {
        None => (None, hooks),
        Some(orders) => match orders.next(base, hooks, signals).await {
            Some((order, hooks)) => (Some(order), hooks),
            None => return Ok(0),
        },
    };
    // A start script that waits for the hook reads the status file. Without an order the daemon
    // serves in any case.
    let failure = match hooks.pre_start(base, signals).await {
        Ok(PreStart::Done) => {
            hooks.start_periodic(base);
            None
        }
        Ok(PreStart::Failed(exit)) => Some(format!("the preStart hook failed: {exit}")),
        Ok(PreStart::StopRequested(_)) => return Ok(0),
        Err(error) => {
            error!(error = &error as &dyn std::error::Error, "no preStart hook");
            Some(ErrorChain(&error).to_string())
        }
    };
    match (order, failure) {
        (Some(order), Some(why)) => order.failed(why),
        (Some(order), None) => order.done_without_init(),
        (None, _) => {}
    }
    let signal = signals.next().await;
    info!(?signal, "stopping");
    Ok(0)
}

/// Starts metrics. On failure they stay inactive, since a sandbox works without them.
fn telemetry(base: &Base) -> Telemetry {
    let variable = |name: &str| std::env::var(name).ok();
    let started = Telemetry::start(variable, Arc::clone(&base.meter));
    started.unwrap_or_else(|error| {
        let error = &error as &dyn std::error::Error;
        warn!(error, "no metrics are sent");
        Telemetry::default()
    })
}

/// Initial environment, without the token, which no child may see, and without variables that only
/// affect the daemon's start.
fn own_variables() -> Variables {
    std::env::vars_os()
        .filter(|(name, _)| name != names::ACCESS_TOKEN && name != clone3::ENV_APPLIED)
        .collect()
}

/// Ends idle shell and terminal sessions.
async fn end_idle(app: App) {
    let mut tick = tokio::time::interval(limits::IDLE_TICK);
    // Ticks missed during a pause are not repeated.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        app.sessions.end_idle();
        app.ptys.end_idle();
    }
}

/// Removes expired records and output of finished commands.
async fn sweep(commands: Commands) {
    let mut tick = tokio::time::interval(limits::SWEEP);
    loop {
        tick.tick().await;
        commands.sweep();
    }
}

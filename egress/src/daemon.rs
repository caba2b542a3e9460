//! Wires the parts: the table of contents of this program (contract: egress §8).
//!
//! ```text
//!  policy, operator's rules, upstreams ─▶ DNS proxy ─▶ packet filter ─▶ API ─▶ probes, reloads
//! ```
//!
//! The API answers only once the rules are in force, so that a client that waits for the API waits
//! for the rules. Nothing removes the rules: the sandbox may outlive this process.

use std::{fs, io, net::SocketAddr, path::Path, sync::Arc};

use osb_log::Json;
use osb_service::{ErrorChain, Supervisor, build_info::BuildInfo, heap};
use tokio::{
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval},
};
use tracing::{error, info, warn};

use crate::{
    api::{self, Api},
    config::{Config, Mode},
    decisions::Decisions,
    dns::{self, Observers, Proxy, Upstreams},
    enforcer::Enforcer,
    firewall::{Firewall, FirewallError, Surroundings},
    limits,
    policy::{
        Effective, NameIndex, Policy,
        overlay::{self, Overlay, OverlayError, OverlayFiles},
    },
    policy_file::{FirstPolicyError, PolicyFile},
    sockets::{self, Sockets},
    telemetry::Instruments,
    webhook::{Webhook, WebhookError},
};

/// Name servers of this machine.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Reason why the sidecar cannot run. Rules that are in force already stay.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// There is no first policy.
    #[error(transparent)]
    Policy(#[from] FirstPolicyError),
    /// The operator's rules cannot be read.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// Sockets to the upstreams cannot be opened.
    #[error("cannot open sockets to the name servers; NET_ADMIN is needed")]
    Upstreams(#[source] io::Error),
    /// The DNS proxy cannot listen.
    #[error("cannot listen for DNS queries on port {}", limits::DNS_PORT)]
    Dns(#[source] io::Error),
    /// The packet filter cannot be set up.
    #[error("cannot enforce; NET_ADMIN and the program nft are needed")]
    Firewall(#[source] FirewallError),
    /// The API cannot listen.
    #[error("cannot listen on {address}")]
    Listen {
        /// Address of the API.
        address: SocketAddr,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The webhook cannot be set up.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// Signals cannot be received.
    #[error("cannot receive signals")]
    Signals(#[source] io::Error),
    /// A part ended that must not.
    #[error("{0} ended unexpectedly")]
    Ended(&'static str),
}

/// Where files lie. Tests use others.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Folder of the operator's rules.
    pub rules: &'a Path,
    /// Name servers of this machine.
    pub resolv_conf: &'a Path,
}

impl Default for Places<'static> {
    fn default() -> Self {
        Self {
            rules: Path::new(overlay::FOLDER),
            resolv_conf: Path::new(RESOLV_CONF),
        }
    }
}

/// Runs until a signal stops it.
///
/// # Errors
/// See [`DaemonError`].
pub async fn run(
    config: Config,
    build: BuildInfo,
    places: Places<'_>,
    mut sockets: Sockets,
) -> Result<(), DaemonError> {
    info!(version = %build, mode = config.mode.word(), "egress starts");
    let tasks = Supervisor::new();
    let instruments = Instruments::start(&config, |name| std::env::var(name).ok());
    let instruments = instruments.unwrap_or_else(|error| {
        warn!(error = &error as &dyn std::error::Error, "metrics are off");
        Instruments::default()
    });

    let file = PolicyFile::new(config.policy_file.clone());
    let first = file.first(config.rules.as_deref())?;
    // A claim is kept, also by a policy that refuses everything.
    let is_unclaimed = config.awaits_claim && !first.is_kept;
    let user = first.policy;
    announce(&user);
    let mut files = OverlayFiles::in_folder(places.rules);
    let overlay = files.changed()?.unwrap_or_default();
    let effective = Arc::new(Effective::new(&user, &overlay));

    let addresses = dns::addresses(&config, fs::read_to_string(places.resolv_conf));
    let around = Surroundings {
        mark: sockets.mark(),
        upstreams: addresses.clone(),
        exempt: config.exempt.clone(),
        doh: config.doh.clone(),
        api_port: config.http_addr.port(),
    };
    let upstreams = Upstreams::open(&addresses, Some(around.mark), &config, &tasks);
    let upstreams = Arc::new(upstreams.map_err(DaemonError::Upstreams)?);
    let log_skip = NameIndex::new(&overlay::log_skip(places.rules)?);
    let webhook = match &config.deny_webhook {
        Some(address) => Some(Webhook::start(address, config.sandbox_id.clone(), &tasks)?),
        None => None,
    };

    let rules = effective.len();
    let firewall = enforce(config.mode, around, Arc::clone(&effective)).await?;
    let mut enforcer = Enforcer::new(user, overlay, effective, file, firewall);
    if is_unclaimed {
        enforcer = enforcer.unclaimed();
        info!("everything is refused until the sandbox claims this sidecar");
    }
    let enforcer = Arc::new(enforcer);
    instruments.enforced(rules);
    let decisions = Arc::<Decisions>::default();
    let observers = Observers {
        decisions: Arc::clone(&decisions),
        webhook,
        instruments: instruments.clone(),
        log_skip,
    };
    let proxy = Proxy::new(Arc::clone(&enforcer), Arc::clone(&upstreams), observers);
    let proxy = dns::serve(proxy, &sockets::dns_addresses(), &mut sockets, &tasks).await;
    let mut proxy = proxy.map_err(DaemonError::Dns)?;

    let listener = sockets.listener(config.http_addr).await;
    let listener = listener.map_err(|source| DaemonError::Listen {
        address: config.http_addr,
        source,
    })?;
    let api = Api {
        enforcer: Arc::clone(&enforcer),
        decisions,
        instruments: instruments.clone(),
        token: config.token.map(Arc::new),
        sandbox_id: config.sandbox_id.into(),
        max_rules: config.max_rules,
        tasks: tasks.clone(),
    };
    if api.token.is_none() {
        warn!("the API has no token: every process in the sandbox can change the policy");
    }
    let serving = api::serve(listener, api::router(api), tasks.clone());
    let mut serving = tasks.spawn("api", serving);
    let (probe, pause) = (config.probe.clone(), config.probe_interval);
    tasks.spawn_abortable("probes", async move {
        upstreams.watch(probe.as_deref(), pause).await;
    });
    let measure = instruments.clone();
    let overlay = reload(files, Arc::clone(&enforcer), move |rules| {
        measure.enforced(rules);
    });
    tasks.spawn_abortable("overlay", overlay);
    tasks.spawn_abortable("heap", heap::give_back());
    info!(address = %config.http_addr, "egress enforces");

    let ended = tokio::select! {
        signal = osb_service::signal::shutdown() => match signal {
            Ok(signal) => {
                info!(signal, "egress stops; its rules stay");
                Ok(())
            }
            Err(error) => Err(DaemonError::Signals(error)),
        },
        _ = &mut serving => Err(DaemonError::Ended("the API")),
        () = firewall_ended(&enforcer) => Err(DaemonError::Ended("the packet filter's thread")),
        () = proxy.ended() => Err(DaemonError::Ended("the DNS proxy")),
    };
    let deadline = Instant::now() + limits::STOP;
    tasks.stop();
    tasks.drain(limits::STOP).await;
    instruments.finish(deadline).await;
    ended
}

/// Waits until the packet filter cannot be changed any more.
async fn firewall_ended(enforcer: &Enforcer) {
    match enforcer.firewall() {
        Some(firewall) => firewall.ended_by_itself().await,
        None => std::future::pending().await,
    }
}

/// Logs the first policy.
fn announce(policy: &Policy) {
    let rules = Json::of(&policy.rules);
    info!(
        opensandbox.event = "egress.loaded",
        egress.default = policy.default_action.word(),
        rules = rules.value(),
        "policy loaded"
    );
}

/// Sets up the packet filter. In mode `dns` there is none besides the redirection of queries.
async fn enforce(
    mode: Mode,
    around: Surroundings,
    policy: Arc<Effective>,
) -> Result<Option<Firewall>, DaemonError> {
    let set_up = spawn_blocking(move || match mode {
        Mode::DnsNft => Firewall::start(around, policy).map(Some),
        Mode::Dns => Firewall::redirect_only(&around).map(|()| None),
    });
    let set_up = set_up.await.map_err(|_| DaemonError::Ended("the set-up"))?;
    if mode == Mode::Dns {
        warn!("mode dns: names are restricted, addresses are not");
    }
    set_up.map_err(DaemonError::Firewall)
}

/// Reads the operator's rules again at an interval. `enforced` gets the number of rules after each
/// change.
async fn reload(mut files: OverlayFiles, enforcer: Arc<Enforcer>, enforced: impl Fn(usize)) {
    let mut ticks = interval(limits::OVERLAY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pending: Option<Overlay> = None;
    loop {
        ticks.tick().await;
        match files.changed() {
            Ok(Some(overlay)) => pending = Some(overlay),
            Ok(None) => {}
            Err(error) => {
                error!(error = %ErrorChain(&error), "the operator's rules are unreadable, the old ones stay");
            }
        }
        let Some(overlay) = pending.clone() else {
            continue;
        };
        match enforcer.set_overlay(overlay).await {
            Ok(()) => {
                pending = None;
                enforced(enforcer.effective().len());
                info!("the operator's rules changed");
            }
            Err(error) => {
                error!(error = %ErrorChain(&error), "the operator's new rules are not enforced yet");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_operators_files_are_read_again_each_minute() {
        let place = tempfile::tempdir().unwrap();
        let mut files = OverlayFiles::in_folder(place.path());
        assert_eq!(files.changed().unwrap(), None);
        let (user, overlay) = (Policy::default(), Overlay::default());
        let effective = Arc::new(Effective::new(&user, &overlay));
        let enforcer = Enforcer::new(user, overlay, effective, PolicyFile::default(), None);
        let enforcer = Arc::new(enforcer);
        let rule = || {
            let effective = enforcer.effective();
            effective
                .decide("ads.example")
                .rule
                .map(ToString::to_string)
        };
        let counts = RefCell::new(Vec::new());
        let until_enforced = async {
            // The first check comes at once.
            sleep(Duration::from_secs(1)).await;
            fs::write(place.path().join("deny.always"), "ads.example\n").unwrap();
            let begin = Instant::now();
            while rule().is_none() {
                sleep(Duration::from_secs(1)).await;
            }
            begin.elapsed()
        };
        let waited = tokio::select! {
            () = reload(files, Arc::clone(&enforcer), |rules| counts.borrow_mut().push(rules)) => {
                unreachable!("it never ends")
            }
            waited = until_enforced => waited,
        };
        assert!(
            waited > limits::OVERLAY / 2 && waited <= limits::OVERLAY,
            "{waited:?}"
        );
        assert_eq!(rule().as_deref(), Some("deny ads.example (deny.always)"));
        assert_eq!(*counts.borrow(), [1], "the change is measured");
    }
}

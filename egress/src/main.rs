//! `egress`: the sidecar that decides where a sandbox may connect to.

use std::process::ExitCode;

use anyhow::Context;
use osb_egress::{
    config::{self, Config},
    daemon::{self, Places},
    sockets::{self, Held, Sockets},
    supervisor, telemetry,
};
use osb_log::{ENV_OUTPUTS, Log, Stream};
use osb_service::{ErrorChain, build_info::BuildInfo, descriptors, heap};
use tracing::{error, warn};

/// Build information.
const BUILD: BuildInfo = BuildInfo::of(option_env!("OSB_BUILD_COMMIT"));
/// Queries wait for the network, not for each other.
const WORKERS: usize = 2;

const USAGE: &str = "\
Usage: egress                                runs the sidecar; settings are variables
       egress supervise [flags] -- COMMAND   keeps a command running
       egress --version
";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    match first.as_ref().map(|it| it.to_string_lossy()).as_deref() {
        None => serve(),
        Some("supervise") => supervise(args),
        Some("--version" | "-V") => {
            println!("egress {BUILD}");
            ExitCode::SUCCESS
        }
        Some("--help" | "-h") => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprint!("egress: unknown command {other:?}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> ExitCode {
    match try_serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("egress: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn try_serve() -> anyhow::Result<()> {
    // Before the first thread.
    heap::limit();
    let variable = |name: &str| std::env::var(name).ok();
    let (config, warnings) = Config::read(variable)?;
    let sockets = match variable(sockets::VARIABLE) {
        Some(_) => Sockets::inherited().context("cannot get the supervisor's sockets")?,
        None => Sockets::default(),
    };
    // This program is linked with a C library of its own.
    osb_otlp::resolve_without_plugins();
    let outputs = variable(ENV_OUTPUTS).unwrap_or_default();
    let (log, problems) = Log::open(osb_log::names(&outputs), Stream::Stdout);
    // Dropped last, so that the last lines are written.
    let _writer = osb_log::init_as(telemetry::identity(&config), config.log_level, log)?;
    for problem in problems {
        warn!(problem, "an output of the log is left out");
    }
    for warning in warnings {
        warn!(warning, "a setting is replaced by its default");
    }
    if let Err(error) = descriptors::raise() {
        warn!(%error, "the limit of open files stays as it is");
    }
    // A second provider would be a mistake of this program, which has one.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(daemon::run(config, BUILD, Places::default(), sockets));
    if let Err(error) = &ended {
        error!(error = error as &dyn std::error::Error, "egress ends");
    }
    Ok(ended?)
}

fn supervise(args: impl Iterator<Item = std::ffi::OsString>) -> ExitCode {
    let options = match supervisor::parse(args) {
        Ok(options) => options,
        Err(supervisor::UsageError::Help) => {
            print!("{}", supervisor::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("egress: {error}\n{}", supervisor::USAGE);
            return ExitCode::from(2);
        }
    };
    // The worker's log is on standard output.
    let (log, _) = Log::open([] as [&str; 0], Stream::Stderr);
    let _writer = match osb_log::init(options.log_level, log) {
        Ok(writer) => writer,
        Err(error) => {
            eprintln!("egress: {}", ErrorChain(&error));
            return ExitCode::from(2);
        }
    };
    let held = match options.hold_sockets.then(hold).transpose() {
        Ok(held) => held,
        Err(error) => {
            eprintln!("egress: cannot hold the sidecar's sockets: {error:#}");
            return ExitCode::from(supervisor::status::FAILED);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => ExitCode::from(runtime.block_on(supervisor::supervise(options, held))),
        Err(error) => {
            eprintln!("egress: cannot start the runtime: {error}");
            ExitCode::from(2)
        }
    }
}

/// Opens the sockets that each worker is lent.
fn hold() -> anyhow::Result<Held> {
    let api = config::api_address(|name| std::env::var(name).ok())?;
    Ok(Held::open(api, &sockets::dns_addresses())?)
}

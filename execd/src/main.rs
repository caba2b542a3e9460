//! `execd`: the daemon inside each sandbox.

use std::{io::Write, process::ExitCode};

use anyhow::Context;
use osb_execd::{
    cli::{self, Config, Invocation},
    clone3,
    daemon::{self, DaemonError},
    env::report,
    file_worker, isolated, limits, log,
    process::reset_for_children,
    session,
};
use osb_protocol::execd::log_message::HOOKS_FAILED;
use osb_service::{build_info::BuildInfo, heap};
use tracing::{error, warn};

/// Build information.
const BUILD: BuildInfo = BuildInfo::of(option_env!("OSB_BUILD_COMMIT"));
/// Requests wait for the kernel, not for each other: two threads suffice for a sandbox.
const WORKERS: usize = 2;
/// Stack size of the threads: no future here is deeply nested.
const STACK: usize = 512 << 10;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    let variable = |name: &str| std::env::var(name).ok();
    // Helper processes inherit the setting from the daemon.
    if !args.peek().is_some_and(|first| cli::is_helper(first))
        && let Err(error) = clone3::apply(variable)
    {
        eprintln!("execd: {:#}", anyhow::Error::from(error));
        return ExitCode::FAILURE;
    }
    let outcome = match cli::parse(args, variable) {
        Ok(Invocation::Serve(config)) => serve(config),
        Ok(Invocation::Version) => print(format!("execd {}\n", BUILD).as_bytes()),
        Ok(Invocation::Help) => print(cli::USAGE.as_bytes()),
        Ok(Invocation::ReportState(target)) => report::write(target)
            .context("cannot report")
            .map(|()| ExitCode::SUCCESS),
        Ok(Invocation::FileWorker(identity)) => file_worker::run(identity)
            .context("cannot serve a request")
            .map(|()| ExitCode::SUCCESS),
        Ok(Invocation::IsolatedInit) => isolated::init::run()
            .context("cannot be the init of a session")
            .map(|()| ExitCode::SUCCESS),
        Err(error) => {
            eprint!("execd: {error}\n{}", cli::USAGE);
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("execd: {error:#}");
        let code = error.downcast_ref().map_or(1, DaemonError::exit_code);
        ExitCode::from(code)
    })
}

fn serve(config: Config) -> anyhow::Result<ExitCode> {
    // Before anything is written, the log included: it could be below a directory that must not be here.
    for mount in &config.expected_mounts {
        mount.check()?;
    }
    // The token is in this process's memory and environment; no other process in the sandbox may
    // read them.
    let hidden = rustix::process::DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(hidden).context("cannot hide the memory")?;
    reset_for_children().context("cannot unblock signals")?;
    heap::limit();
    // This program is linked with a C library of its own.
    osb_otlp::resolve_without_plugins();
    // Before other threads: the kernel takes milliseconds to enlarge a table that threads share.
    let reserved = session::reserve_numbers();
    let (outputs, problems) = log::open(|name| std::env::var(name).ok());
    let is_seen = outputs.is_on_stderr();
    // Dropped last, so that the last lines are written.
    let _writer = osb_log::init(config.log_level, outputs)?;
    if let Err(error) = reserved {
        warn!(%error, "shell sessions cannot report their state");
    }
    for problem in problems {
        warn!(problem, "an output of the log is left out");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_stack_size(STACK)
        .max_blocking_threads(limits::BLOCKING_THREADS)
        .thread_keep_alive(limits::BLOCKING_THREAD_LIFE)
        .thread_name("execd")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    // One blocking thread starts now: it can do all blocking work if no other can start later.
    runtime.spawn_blocking(|| {});
    let ended = runtime.block_on(daemon::run(config, BUILD));
    // Blocked file operations are not awaited.
    runtime.shutdown_background();
    match ended {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(failure) => {
            let error = &failure as &dyn std::error::Error;
            match failure.is_of_hooks() {
                true => error!(error, "{HOOKS_FAILED}"),
                false => error!(error, "execd failed"),
            }
            let code = ExitCode::from(failure.exit_code());
            // Already logged to stderr; do not print twice.
            if is_seen {
                Ok(code)
            } else {
                Err(failure.into())
            }
        }
    }
}

fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    std::io::stdout().write_all(text).context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}

//! The server's program: configuration, log, build, announce, serve, drain.
#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use osb_server::{
    app::App,
    cli::{Cli, Command},
    config::{self, LoadedConfig},
    descriptors, guard,
    http::serve,
};
use osb_service::{Drained, Supervisor, build_info::BuildInfo, signal, telemetry};
use tracing::{debug, info, warn};

/// Which build this is.
const BUILD: BuildInfo = BuildInfo::of(option_env!("OSB_BUILD_COMMIT"));
/// What tasks get to end after the requests have.
const DRAIN: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let cli = Cli::of_process(BUILD);
    let done = match cli.command {
        Some(Command::InitConfig {
            path,
            example: _,
            force,
        }) => init_config(path, force),
        None => run(cli.config),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("opensandbox-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn init_config(path: PathBuf, force: bool) -> anyhow::Result<()> {
    let path = match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path,
    };
    config::write_example(&path, force)?;
    println!(
        "wrote {}: set server.api_key, then run opensandbox-server",
        path.display()
    );
    Ok(())
}

fn run(flag: Option<PathBuf>) -> anyhow::Result<()> {
    let loaded = config::load(flag.as_deref(), &|name| std::env::var(name).ok())?;
    // The library that serves static files logs each of them at start.
    let filter = format!("{},memory_serve=warn", loaded.config.log.filter());
    telemetry::init(&filter, telemetry::LogFormat::Auto)?;
    // One TLS provider for the whole process, before anything can ask for one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(serve(loaded));
    // An unanswered prompt still reads the terminal; it must not hold the process.
    runtime.shutdown_background();
    done
}

async fn serve(loaded: LoadedConfig) -> anyhow::Result<()> {
    let LoadedConfig {
        config,
        path,
        unknown,
        exposes_secret,
    } = loaded;
    info!(build = %BUILD, config = %path.display(), "opensandbox-server");
    for key in unknown {
        warn!(config = %path.display(), "{key}");
    }
    for note in config.notes() {
        warn!(config = %path.display(), "{note}");
    }
    if exposes_secret {
        warn!(config = %path.display(), "every user of this machine can read the file with server.api_key, store.postgresql.dsn or renew_intent.redis.dsn; remove that permission (chmod o-r)");
    }
    guard::check(&config).await?;
    let (host, port) = (config.server.host.as_str(), config.server.port);
    let listener = serve::bind(host, port, config.server.backlog)
        .await
        .with_context(|| format!("cannot listen on {host}:{port} (server.host, server.port)"))?;
    match descriptors::raise() {
        Ok(descriptors) => debug!(descriptors, "file descriptors that may be open"),
        Err(error) => warn!(%error, "the limit of open files stays as it is"),
    }
    let tasks = Supervisor::new();
    let app = App::build(&config, &tasks).await?;
    info!(address = %listener.local_addr()?, "listening");
    tokio::select! {
        () = app.serve(listener) => {}
        signal = signal::shutdown() => info!(signal = signal?, "stopping"),
    }
    match tasks.drain(app.graceful() + DRAIN).await {
        Drained::Gracefully => info!("stopped"),
        Drained::TimedOut(left) => warn!(left, "stopped with tasks still running"),
    }
    app.close().await;
    Ok(())
}

//! The server's program: configuration, log, build, announce, serve, drain.
#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use osb_server::{
    app::App,
    cli::{Cli, Command, ConfigCommand, StoreCommand},
    config::{self, Config, LoadedConfig, LogSection},
    guard,
    http::serve,
    maintenance::{self, RunningInstallation},
    manage::{self, AccountRules},
    otel::Otel,
};
use osb_service::{
    Drained, Supervisor,
    build_info::BuildInfo,
    descriptors,
    log_file::LogFile,
    signal,
    telemetry::{self, Receivers},
};
use secrecy::SecretString;
use tracing::{debug, info, warn};

/// Which build this is.
const BUILD: BuildInfo = BuildInfo::of(option_env!("OSB_BUILD_COMMIT"));
/// What tasks get to end after the requests have.
const DRAIN: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let cli = Cli::of_process(BUILD);
    if cfg!(target_feature = "crt-static") {
        // A release is linked with a C library of its own.
        osb_otlp::resolve_without_plugins();
    }
    let done = match cli.command {
        Some(Command::MigrateSnapshots { from, to, dry_run }) => {
            return migrate_snapshots(cli.config, from, to, dry_run);
        }
        Some(Command::InitConfig {
            path,
            example: _,
            force,
        }) => init_config(path, force),
        Some(Command::Config(ConfigCommand::Show { json })) => show_config(cli.config, json),
        Some(Command::Health { ready }) => administer(cli.config, async |config| {
            maintenance::health(config, ready).await
        }),
        Some(Command::SupportBundle { file }) => support_bundle(cli.config, file),
        Some(Command::Store(command)) => maintain_store(cli.config, command),
        Some(Command::User { command }) => administer(cli.config, async |config| {
            manage::users(&config.store.location(), account_rules(config), command).await
        }),
        Some(Command::Key { command }) => administer(cli.config, async |config| {
            manage::keys(&config.store.location(), account_rules(config), command).await
        }),
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

/// Programs read the output of this command: also a failure goes to the standard output (contract:
/// lifecycle A10).
fn migrate_snapshots(
    flag: Option<PathBuf>,
    from: PathBuf,
    to: Option<SecretString>,
    dry_run: bool,
) -> ExitCode {
    let from = in_home(from);
    let done = administer(flag, async |config| {
        maintenance::migrate_snapshots(config, &from, to, dry_run).await
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("Failed to migrate snapshots: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A path that may begin with `~`.
fn in_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path,
    }
}

fn init_config(path: PathBuf, force: bool) -> anyhow::Result<()> {
    let path = in_home(path);
    config::write_example(&path, force)?;
    println!(
        "wrote {}: set server.api_key, then run opensandbox-server",
        path.display()
    );
    Ok(())
}

fn show_config(flag: Option<PathBuf>, json: bool) -> anyhow::Result<()> {
    let env = |name: &str| std::env::var(name).ok();
    let shown = config::load(flag.as_deref(), &env)?.show(&env);
    match json {
        true => println!("{}", serde_json::to_string_pretty(&shown)?),
        false => print!("{shown}"),
    }
    Ok(())
}

fn maintain_store(flag: Option<PathBuf>, command: StoreCommand) -> anyhow::Result<()> {
    let loaded = config::load(flag.as_deref(), &|name| std::env::var(name).ok())?;
    telemetry::init("warn", telemetry::LogFormat::Auto)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = &loaded.config;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        match command {
            StoreCommand::Backup { file } => maintenance::backup(config, file).await,
            StoreCommand::Restore { file } => maintenance::restore(config, &file).await,
            StoreCommand::Check { json } => match maintenance::check(config, json).await? {
                true => Ok(()),
                false => anyhow::bail!("the store is damaged"),
            },
        }
    })
}

fn support_bundle(flag: Option<PathBuf>, file: Option<PathBuf>) -> anyhow::Result<()> {
    let env = |name: &str| std::env::var(name).ok();
    let loaded = config::load(flag.as_deref(), &env)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new()?;
    let build = BUILD.to_string();
    runtime.block_on(maintenance::support_bundle(&loaded, file, &build, &env))
}

/// What the configuration says of users and keys.
fn account_rules(config: &Config) -> AccountRules {
    AccountRules {
        recorded: config.audit.enabled,
        has_tenants: config.tenants.is_some(),
    }
}

/// Works with the configuration.
fn administer(
    flag: Option<PathBuf>,
    work: impl AsyncFnOnce(&Config) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let loaded = config::load(flag.as_deref(), &|name| std::env::var(name).ok())?;
    telemetry::init("warn", telemetry::LogFormat::Auto)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work(&loaded.config))
}

fn run(flag: Option<PathBuf>) -> anyhow::Result<()> {
    let loaded = config::load(flag.as_deref(), &|name| std::env::var(name).ok())?;
    // The library that serves static files logs each of them at start.
    let filter = format!("{},memory_serve=warn", loaded.config.log.filter());
    // One TLS provider for the whole process, before anything can ask for one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let otel = {
        let _within = runtime.enter();
        Otel::start(&loaded.config.otel, |name| std::env::var(name).ok())?
    };
    let receivers = Receivers {
        spans: otel.spans(),
        file: log_file(&loaded.config.log)?,
    };
    telemetry::init_with(&filter, telemetry::LogFormat::Auto, receivers)?;
    otel.announce();
    let done = runtime.block_on(serve(loaded, otel));
    // An unanswered prompt still reads the terminal; it must not hold the process.
    runtime.shutdown_background();
    done
}

fn log_file(log: &LogSection) -> anyhow::Result<Option<LogFile>> {
    let Some(options) = log.file() else {
        return Ok(None);
    };
    let path = options.path.display().to_string();
    let opened = LogFile::open(options);
    let opened = opened.with_context(|| format!("cannot write the log to {path}"))?;
    Ok(Some(opened))
}

async fn serve(loaded: LoadedConfig, otel: Otel) -> anyhow::Result<()> {
    let loaded = Arc::new(loaded);
    let LoadedConfig {
        config,
        path,
        unknown,
        exposes_secret,
        ..
    } = &*loaded;
    info!(build = %BUILD, config = %path.display(), "opensandbox-server");
    for key in unknown {
        warn!(config = %path.display(), "{key}");
    }
    for note in config.notes() {
        warn!(config = %path.display(), "{note}");
    }
    if *exposes_secret {
        warn!(config = %path.display(), "every user of this machine can read the file with server.api_key, store.postgresql.dsn, renew_intent.redis.dsn or webhooks.secret; remove that permission (chmod o-r)");
    }
    let store = osb_store::open(&config.store.location()).await?;
    guard::check(config, &*store).await?;
    let (host, port) = (config.server.host.as_str(), config.server.port);
    let listener = serve::bind(host, port, config.server.backlog)
        .await
        .with_context(|| format!("cannot listen on {host}:{port} (server.host, server.port)"))?;
    match descriptors::raise() {
        Ok(descriptors) => debug!(descriptors, "file descriptors that may be open"),
        Err(error) => warn!(%error, "the limit of open files stays as it is"),
    }
    let tasks = Supervisor::new();
    let installation = RunningInstallation::new(Arc::clone(&loaded), BUILD.to_string());
    let app = App::build(config, store, &tasks, Arc::new(installation)).await?;
    if let Some(observer) = otel.observer() {
        app.observe_with(observer);
    }
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
    otel.finish().await;
    Ok(())
}

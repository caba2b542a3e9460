//! `up`: from a fresh machine to a running server with its console; `down`: stops it.

mod guide;
mod image;
mod server;
mod settings;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Result, bail};
use clap::Args;

use self::{
    guide::Guide,
    server::{Running, check_free},
    settings::Draft,
};
pub(crate) use self::{
    image::{TAG as BASE_IMAGE, ensure as ensure_base_image},
    server::{Server, get_status},
    settings::{Settings, free_port, random_key, render, write_private},
};
use crate::{
    build::{self, Profile},
    host::{self, Installer, engine},
    repo::{Repo, state_dir},
    step::{at_once, step},
};

/// How `up` runs.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Port on 127.0.0.1; kept for the next time [default: 8080]
    #[arg(long, conflicts_with = "config", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Run with this configuration instead of the generated one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print what is missing on this machine instead of installing it
    #[arg(long)]
    no_install: bool,
    /// Return when the server answers, and leave it running
    #[arg(long)]
    detach: bool,
}

/// Sets up, builds, starts; stays in front until interrupted, unless told to detach.
pub(crate) fn up(repo: &Repo, options: &Options) -> Result<ExitCode> {
    let started = Instant::now();
    let state = state_dir()?;
    let installer = Installer::new(!options.no_install);
    if let Some(running) = Server::running(&state)? {
        return revisit(&running, options, &installer, &state);
    }
    let draft = match &options.config {
        Some(config) => Draft::of_user(config)?,
        None => Draft::generated(&state, options.port)?,
    };
    let settings = &draft.settings;
    // What would fail after minutes of building fails now.
    check_free(&settings.address)?;
    let engine = [engine::lack(&installer)];
    host::complain(engine.into_iter().chain(host::lacks_for_build(&installer)))?;
    draft.keep()?;

    engine::ensure(&installer)?;
    at_once(
        || image::ensure(repo, &installer),
        || build::all(repo, &installer, Profile::Release, &repo.dist()),
    )?;
    let server = step("start the server", || {
        Server::start(
            &repo.dist().join("opensandbox-server"),
            &settings.file,
            settings,
            &state,
        )
    })?;
    Guide {
        settings,
        state: &state,
        detached: options.detach,
        took: Some(started.elapsed()),
    }
    .print();
    if options.detach {
        Ok(ExitCode::SUCCESS)
    } else {
        server.serve()
    }
}

/// The server runs already: sees to it that it can work, and tells where it is.
///
/// # Errors
/// When it runs with another configuration, or on another port, than is asked for.
fn revisit(
    running: &Running,
    options: &Options,
    installer: &Installer,
    state: &Path,
) -> Result<ExitCode> {
    eprintln!("The server is running already (process {}).", running.pid);
    let settings = Settings::load(&running.config)?;
    let wanted = options.config.as_deref().map(Draft::of_user).transpose()?;
    let config = wanted.as_ref().map(|draft| draft.settings.file.as_path());
    if let Some(other) = unlike(&settings, options.port, config) {
        bail!("it runs {other}; stop it first: cargo xtask down");
    }
    eprintln!("For another build: cargo xtask down, then up again.");
    engine::ensure(installer)?;
    running.wait_until_ready(&settings, state)?;
    Guide {
        settings: &settings,
        state,
        detached: true,
        took: None,
    }
    .print();
    Ok(ExitCode::SUCCESS)
}

/// How the server that runs differs from what is asked for.
fn unlike(settings: &Settings, port: Option<u16>, config: Option<&Path>) -> Option<String> {
    match (port, config) {
        (_, Some(config)) if settings.file != config => {
            Some(format!("with {}", settings.file.display()))
        }
        (Some(port), None) if !settings.address.ends_with(&format!(":{port}")) => {
            Some(format!("on {}", settings.address))
        }
        _ => None,
    }
}

/// Stops the server that `up` started.
pub(crate) fn down() -> Result<ExitCode> {
    match Server::running(&state_dir()?)? {
        Some(running) => {
            running.stop()?;
            eprintln!("The server has stopped. Its sandboxes stay, and expire when it runs again.");
        }
        None => eprintln!("No server is running."),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_port_or_configuration_is_not_the_server_that_runs() {
        let settings = Settings {
            file: "/state/server.toml".into(),
            address: "127.0.0.1:8080".to_owned(),
            api_key: None,
        };
        let unlike = |port, config: Option<&str>| unlike(&settings, port, config.map(Path::new));
        assert_eq!(unlike(None, None), None);
        assert_eq!(unlike(Some(8080), None), None);
        assert_eq!(unlike(None, Some("/state/server.toml")), None);
        assert_eq!(unlike(Some(80), None).unwrap(), "on 127.0.0.1:8080");
        let told = unlike(None, Some("/other.toml")).unwrap();
        assert_eq!(told, "with /state/server.toml");
    }
}

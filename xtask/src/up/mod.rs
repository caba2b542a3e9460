//! `up` sets up a fresh machine and runs the server with its console; `down` stops the server.

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
    image::{
        EGRESS_TAG as EGRESS_IMAGE, TAG as BASE_IMAGE, ensure as ensure_base_image,
        ensure_egress as ensure_egress_image,
    },
    server::{Server, get_status},
    settings::{Settings, free_port, random_key, render, write_private},
};
use crate::{
    build::{self, Profile},
    host::{self, Installer, engine},
    repo::{Repo, state_dir},
    step::{in_parallel, step},
};

/// Options of `up`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Port on 127.0.0.1; remembered for the next run [default: 8080]
    #[arg(long, conflicts_with = "config", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Run with this configuration instead of the generated one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print what is missing on this machine instead of installing it
    #[arg(long)]
    no_install: bool,
    /// Return as soon as the server is ready, and leave it running
    #[arg(long)]
    detach: bool,
}

/// Sets up this machine, builds, and starts the server; stays in the foreground until interrupted,
/// unless `--detach` is given.
pub(crate) fn up(repo: &Repo, options: &Options) -> Result<ExitCode> {
    let started = Instant::now();
    let state = state_dir()?;
    let installer = Installer::new(!options.no_install);
    if let Some(running) = Server::running(&state)? {
        return reuse_running(&running, options, &installer, &state);
    }
    let draft = match &options.config {
        Some(config) => Draft::of_user(config)?,
        None => Draft::generated(&state, options.port)?,
    };
    let settings = &draft.settings;
    // Checked first, so that it does not fail after minutes of building.
    check_free(&settings.address)?;
    let engine = [engine::missing(&installer)];
    host::require_all(
        engine
            .into_iter()
            .chain(host::missing_for_build(&installer)),
    )?;
    draft.save()?;

    engine::ensure(&installer)?;
    in_parallel(
        || image::ensure(repo, &installer),
        || build::all(repo, &installer, Profile::Release, &repo.dist()),
    )?;
    image::ensure_egress(repo, &installer, &repo.dist())?;
    let server = step("start the server", || {
        Server::start(
            &repo.dist().join("opensandbox-server"),
            &settings.file,
            settings,
            &state,
            &[],
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

/// Waits until the server that runs already is ready, and prints the guide.
///
/// # Errors
/// When the server runs with another configuration, or on another port, than the options ask for.
fn reuse_running(
    running: &Running,
    options: &Options,
    installer: &Installer,
    state: &Path,
) -> Result<ExitCode> {
    eprintln!("The server is running already (process {}).", running.pid);
    let settings = Settings::load(&running.config)?;
    let wanted = options.config.as_deref().map(Draft::of_user).transpose()?;
    let config = wanted.as_ref().map(|draft| draft.settings.file.as_path());
    if let Some(other) = describe_difference(&settings, options.port, config) {
        bail!("the server runs {other}; stop it first: cargo xtask down");
    }
    eprintln!("To run a new build: cargo xtask down, then cargo xtask up.");
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

/// Describes how the running server differs from the options.
fn describe_difference(
    settings: &Settings,
    port: Option<u16>,
    config: Option<&Path>,
) -> Option<String> {
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
    fn another_port_or_configuration_differs_from_the_running_server() {
        let settings = Settings {
            file: "/state/server.toml".into(),
            address: "127.0.0.1:8080".to_owned(),
            api_key: None,
        };
        let describe = |port, config: Option<&str>| {
            describe_difference(&settings, port, config.map(Path::new))
        };
        assert_eq!(describe(None, None), None);
        assert_eq!(describe(Some(8080), None), None);
        assert_eq!(describe(None, Some("/state/server.toml")), None);
        assert_eq!(describe(Some(80), None).unwrap(), "on 127.0.0.1:8080");
        let difference = describe(None, Some("/other.toml")).unwrap();
        assert_eq!(difference, "with /state/server.toml");
    }
}

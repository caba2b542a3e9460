//! `up`: from a fresh machine to a running server with its console; `down`: stops it.

mod guide;
mod image;
mod server;
mod settings;
pub(crate) mod wait;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::Result;
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
        return revisit(&running, &installer, &state);
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
fn revisit(running: &Running, installer: &Installer, state: &Path) -> Result<ExitCode> {
    eprintln!("The server is running already (process {}).", running.pid);
    eprintln!("For another build or port: cargo xtask down, then up again.");
    let settings = Settings::load(&running.config)?;
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

//! `up`: from a fresh machine to a running server with its console; `down`: stops it.

mod guide;
mod image;
mod server;
mod settings;
pub(crate) mod wait;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Args;

use self::guide::Guide;
pub(crate) use self::{
    image::{TAG as BASE_IMAGE, ensure as ensure_base_image},
    server::{Server, get_status},
    settings::{Settings, free_port, random_key, render, write_private},
};
use crate::{
    build::{self, Profile},
    host::{Installer, engine},
    repo::{Repo, state_dir},
    step::{at_once, step},
};

/// How `up` runs.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Port on 127.0.0.1; kept for the next time [default: 8080]
    #[arg(long, conflicts_with = "config")]
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
    let state = state_dir()?;
    let installer = Installer::new(!options.no_install);
    if let Some(running) = Server::running(&state)? {
        let settings = Settings::load(&running.config)?;
        eprintln!("The server is running already (process {}).", running.pid);
        eprintln!("For another build or port: cargo xtask down, then up again.");
        Guide {
            settings: &settings,
            state: &state,
            detached: true,
        }
        .print();
        return Ok(ExitCode::SUCCESS);
    }
    let config = match &options.config {
        Some(config) => config.canonicalize().map_err(|error| {
            anyhow::anyhow!(
                "cannot read the configuration {}: {error}",
                config.display()
            )
        })?,
        None => settings::generate(&state, options.port)?,
    };
    let settings = Settings::load(&config)?;

    step("the Docker engine answers", || engine::ensure(&installer))?;
    at_once(
        || {
            step("the base image is there", || {
                image::ensure(repo, &installer)
            })
        },
        || build::all(repo, &installer, Profile::Release, &repo.dist()),
    )?;
    let server = step("start the server", || {
        Server::start(
            &repo.dist().join("opensandbox-server"),
            &config,
            &settings,
            &state,
        )
    })?;
    Guide {
        settings: &settings,
        state: &state,
        detached: options.detach,
    }
    .print();
    if options.detach {
        Ok(ExitCode::SUCCESS)
    } else {
        server.serve()
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

//! nginx: the baseline of our proxy and of our downloads.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{
    host::is_root,
    process::find_program,
    repo::Repo,
    up::{free_port, get_status},
    wait,
};

/// Longest time nginx may take to answer.
const START: Duration = Duration::from_secs(10);

/// An nginx with one location; stopped when dropped.
pub(super) struct Nginx {
    child: Child,
    /// `host:port`.
    pub(super) address: String,
}

impl Nginx {
    /// Whether nginx is installed. Benchmarks do not install it: Debian's package would start a web
    /// server on port 80.
    pub(super) fn present() -> bool {
        find_program("nginx").is_some()
    }

    /// Starts a proxy in front of `upstream`, a `host:port`. `probe` is a path that answers.
    pub(super) fn proxy(repo: &Repo, upstream: &str, probe: &str) -> Result<Self> {
        let http = format!(
            "upstream sandbox {{ server {upstream}; keepalive 32; keepalive_requests 100000000; }}"
        );
        let location = "proxy_http_version 1.1; proxy_set_header Connection \"\"; \
                        proxy_pass http://sandbox;";
        Self::start(repo, &http, location, probe)
    }

    /// Starts a server of the files below `root`.
    pub(super) fn files(repo: &Repo, root: &Path, probe: &str) -> Result<Self> {
        let http = "sendfile on; tcp_nopush on;";
        let location = format!("root {};", root.display());
        Self::start(repo, http, &location, probe)
    }

    fn start(repo: &Repo, http: &str, location: &str, probe: &str) -> Result<Self> {
        let dir = repo.reports().join("bench-nginx");
        fs::create_dir_all(&dir)?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let config = dir.join("nginx.conf");
        let place = dir.display();
        // Debian's package would run the workers as a user that cannot read our files.
        let user = if is_root() { "user root;" } else { "" };
        fs::write(
            &config,
            format!(
                "{user}
daemon off;
worker_processes auto;
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    {http}
    server {{
        listen {address};
        location / {{ {location} }}
    }}
}}
"
            ),
        )?;
        let log = fs::File::create(dir.join("nginx.log"))?;
        let child = Command::new("nginx")
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start nginx")?;
        let nginx = Self { child, address };
        let answers = || matches!(get_status(&nginx.address, probe), Some(200 | 401));
        ensure!(
            wait::until(START, answers),
            "nginx does not answer; see {place}"
        );
        Ok(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM lets the master end its workers.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

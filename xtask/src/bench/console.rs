//! The console: its pages and sockets from a plain client, then what people see in a browser.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use tokio_tungstenite::{
    connect_async,
    tungstenite::{
        Message,
        client::IntoClientRequest,
        http::{HeaderValue, header},
    },
};

use super::{
    Options,
    client::Client,
    footprint::resident,
    http::Connection,
    report::Report,
    stats::Samples,
    subject::{Subject, empty_folder},
    terminal::{Keys, Socket, Terminal},
};
use crate::{
    host::{Installer, engine as docker, node},
    process::run,
    repo::Repo,
    step::step,
    up::{BASE_IMAGE, ensure_base_image},
};

/// Sandboxes while pages are measured, and later while many of them change.
const SANDBOXES: [usize; 2] = [1_000, 5_000];
/// Pages per turn.
const PER_TURN: usize = 10;
/// Keys per turn.
const KEYS_PER_TURN: usize = 50;
/// Browser tabs that show the list at the same time.
const TABS: u32 = 100;
/// Longest wait for one message of the server.
const MESSAGE: Duration = Duration::from_secs(20);
/// Configuration of the browser's part.
const CONFIG: &str = "end2end/browser/playwright.config.ts";

/// Measures the console over simulated sandboxes, then over one on Docker.
pub(super) async fn measure(
    repo: &Repo,
    installer: &Installer,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    node::packages(repo, installer)?;
    let browser = Browser {
        repo,
        chromium: node::chromium(installer)?,
        node: node::for_browser_tests(repo)?,
        turns: options.turns,
    };
    let subject = Subject::start(repo, "bench-console", "sim")?;
    let measured = crowd(&subject, &browser, options, report).await;
    subject.stop().and(measured)?;

    step("the Docker engine answers", || docker::ensure(installer))?;
    step("the base image is there", || {
        ensure_base_image(repo, installer)
    })?;
    let subject = Subject::start(repo, "bench-console-docker", "docker")?;
    let measured = on_docker(&subject, &browser, options, report).await;
    subject.stop().and(measured)
}

async fn crowd(
    subject: &Subject,
    browser: &Browser<'_>,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let [some, many] = SANDBOXES;
    let client = subject.client();
    let mut api = client.connect().await?;
    for _ in 0..some {
        client.create(&mut api).await?;
    }
    let visitor = Visitor::sign_in(client).await?;
    pages(&visitor, some, options, report).await?;
    tabs(subject, &visitor, some, report).await?;
    browser.measure(client, "crowd", report)?;
    // The server has closed the idle one meanwhile.
    let mut api = client.connect().await?;
    for _ in some..many {
        client.create(&mut api).await?;
    }
    browser.measure(client, "storm", report)
}

/// Renders the list as a browser asks for it.
async fn pages(
    visitor: &Visitor,
    count: usize,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let connection = visitor.connect().await?;
    let mut connection = connection.with_header("accept-encoding", "gzip, deflate, br, zstd");
    let (mut first, mut whole) = (Samples::default(), Samples::default());
    for _ in 0..options.turns * PER_TURN {
        let start = Instant::now();
        let empty = Full::default().boxed();
        let reply = connection
            .open("GET", "/console/sandboxes", None, empty)
            .await?;
        first.add(start.elapsed());
        ensure!(
            reply.status() == 200,
            "the list answered {}",
            reply.status()
        );
        reply.into_body().collect().await?;
        whole.add(start.elapsed());
    }
    let name = format!("list page of {count} sandboxes");
    report.durations(&format!("{name}, first byte"), &first);
    report.durations(&format!("{name}, whole"), &whole);
    Ok(())
}

/// Memory that the server needs for each tab with the list.
async fn tabs(
    subject: &Subject,
    visitor: &Visitor,
    count: usize,
    report: &mut Report,
) -> Result<()> {
    // What the first tab needs is needed once.
    drop(visitor.list().await?);
    let before = resident(subject.pid())?;
    let mut open = Vec::new();
    for _ in 0..TABS {
        open.push(visitor.list().await?);
    }
    let grown = resident(subject.pid())?.saturating_sub(before);
    let name = format!("server memory per open tab with {count} sandboxes, of {TABS}");
    report.bytes(&name, grown / u64::from(TABS));
    Ok(())
}

/// One sandbox on Docker: keys through the server compared with execd, and the browser's part.
async fn on_docker(
    subject: &Subject,
    browser: &Browser<'_>,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let client = subject.client();
    let mut api = client.connect().await?;
    let sandbox = client.create_ready(&mut api).await?;
    let measured = async {
        let visitor = Visitor::sign_in(client).await?;
        let path = format!("/console/terminal/{}", sandbox.id);
        let mut through = Keys::of(visitor.socket(&path).await?).await?;
        through.become_cat().await?;
        let mut direct = Terminal::start(&sandbox.execd).await?;
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        for _ in 0..options.turns * KEYS_PER_TURN {
            ours.add(through.press().await?);
            theirs.add(direct.keys.press().await?);
        }
        report.compare(
            "terminal of the console: a key and its echo",
            ours.summary(),
            "execd",
            theirs.summary(),
        );
        direct.end().await?;
        browser.measure(client, "docker", report)
    };
    let measured = measured.await;
    let mut api = client.connect().await?;
    let deleted = client.delete(&mut api, &sandbox.id).await;
    measured.and(deleted)
}

/// A signed-in browser, as the server sees it.
struct Visitor {
    /// `host:port`.
    address: String,
    cookie: String,
}

impl Visitor {
    async fn sign_in(client: &Client) -> Result<Self> {
        let address = client.address().to_owned();
        let mut connection = Connection::tcp(&address).await?;
        let form = format!("key={}&next=%2Fconsole", client.key());
        let kind = "application/x-www-form-urlencoded";
        let reply = connection
            .open(
                "POST",
                "/console/login",
                Some(kind),
                Full::from(form).boxed(),
            )
            .await?;
        let status = reply.status();
        let cookie = reply.headers().get(header::SET_COOKIE);
        let cookie =
            cookie.with_context(|| format!("the login answered {status} and no cookie"))?;
        let (cookie, _) = cookie.to_str()?.split_once(';').context("no attributes")?;
        Ok(Self {
            address,
            cookie: cookie.to_owned(),
        })
    }

    async fn connect(&self) -> Result<Connection> {
        let connection = Connection::tcp(&self.address).await?;
        Ok(connection.with_header("cookie", &self.cookie))
    }

    async fn socket(&self, path: &str) -> Result<Socket> {
        let mut request = format!("ws://{}{path}", self.address).into_client_request()?;
        let headers = request.headers_mut();
        headers.insert(header::COOKIE, HeaderValue::from_str(&self.cookie)?);
        let origin = format!("http://{}", self.address);
        headers.insert(header::ORIGIN, HeaderValue::from_str(&origin)?);
        let (socket, _) = connect_async(request).await?;
        Ok(socket)
    }

    /// A tab that shows the list.
    async fn list(&self) -> Result<Socket> {
        let mut socket = self.socket("/console/live").await?;
        let subscribe = json!({ "op": "subscribe", "topic": "sandboxes" });
        socket
            .send(Message::Text(subscribe.to_string().into()))
            .await?;
        loop {
            let message = timeout(MESSAGE, socket.next()).await?.context("closed")??;
            if matches!(message, Message::Text(text) if text.contains("\"snapshot\"")) {
                return Ok(socket);
            }
        }
    }
}

/// A browser that measures.
struct Browser<'a> {
    repo: &'a Repo,
    chromium: PathBuf,
    node: PathBuf,
    turns: usize,
}

/// A line of the browser's figures.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Figure {
    Ms { name: String, samples: Vec<f64> },
    Bytes { name: String, bytes: u64 },
}

impl Browser<'_> {
    /// Runs the measurements of this name, which fail rather than leave one out.
    fn measure(&self, client: &Client, name: &str, report: &mut Report) -> Result<()> {
        let folder = empty_folder(self.repo, &format!("bench-browser-{name}"))?;
        let figures = folder.join("figures.jsonl");
        eprintln!("==> measure in the browser: {name}");
        run(Command::new(&self.node)
            .arg("node_modules/@playwright/test/cli.js")
            .args(["test", "--config", CONFIG, "--project", "bench"])
            .args(["--reporter", "line", "--grep", &format!("^bench .*{name}:")])
            .env("OSB_URL", format!("http://{}", client.address()))
            .env("OSB_API_KEY", client.key())
            .env("OSB_IMAGE", BASE_IMAGE)
            .env("OSB_CHROMIUM", &self.chromium)
            .env("OSB_TURNS", self.turns.to_string())
            .env("OSB_FIGURES", &figures)
            .current_dir(self.repo.root()))?;
        for figure in read(&figures)? {
            match figure {
                Figure::Bytes { name, bytes } => report.bytes(&name, bytes),
                Figure::Ms { name, samples } => {
                    let mut durations = Samples::default();
                    for ms in samples {
                        durations.add(Duration::try_from_secs_f64(ms.max(0.0) / 1_000.0)?);
                    }
                    report.outcomes(&name, &durations, 0);
                }
            }
        }
        Ok(())
    }
}

fn read(figures: &Path) -> Result<Vec<Figure>> {
    let text = fs::read_to_string(figures).context("the browser measured nothing")?;
    let lines = text.lines();
    let figures = lines.map(|line| serde_json::from_str(line).context("no figure"));
    figures.collect()
}

//! Uploads and downloads of files.

use std::{convert::Infallible, fs, path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::json;

use super::{
    execd::Execd,
    footprint::{grown, resident},
    http::Connection,
    nginx::Nginx,
    report::Report,
    stats::{Rates, megabytes},
};
use crate::{repo::Repo, step::notice};

/// Size of the file.
const SIZE: usize = 256 << 20;
/// Bytes that the client sends at once.
const PIECE: usize = 256 << 10;
/// Rounds in each direction.
const ROUNDS: usize = 5;
const BOUNDARY: &str = "opensandbox-bench";

/// Measures the upload of a file, and its download compared with nginx.
pub(super) async fn measure(
    repo: &Repo,
    execd: &Execd,
    prefix: &str,
    pid: Option<u32>,
    report: &mut Report,
) -> Result<()> {
    let dir = repo.reports().join("bench-execd");
    fs::create_dir_all(&dir)?;
    let file = dir.join("file");
    let before = pid.map(resident).transpose()?;
    // ext4 starts writeback when a file replaces another one (`auto_da_alloc`), so both cases are
    // measured.
    for (what, replacing) in [("", false), (" over an existing file", true)] {
        let mut up = Rates::new("MB/s");
        for _ in 0..ROUNDS {
            if !replacing && file.exists() {
                fs::remove_file(&file)?;
            }
            let start = Instant::now();
            upload(execd, &file).await?;
            up.add(megabytes(SIZE), start.elapsed());
            ensure!(
                fs::metadata(&file)?.len() == SIZE as u64,
                "the file is incomplete"
            );
        }
        report.rates(&format!("{prefix}upload of 256 MiB{what}"), &up);
    }

    let path = execd.path(&format!("/files/download?path={}", file.display()));
    let ours = download(execd.connect().await?, &path).await?;
    let name = format!("{prefix}download of 256 MiB");
    if Nginx::present() {
        let nginx = Nginx::files(repo, &dir, "/file")?;
        let floor = download(Connection::tcp(&nginx.address).await?, "/file").await?;
        report.compare_rates(&name, &ours, "nginx with sendfile", &floor);
    } else {
        notice("not measured: nginx with files; install nginx for it");
        report.rates(&name, &ours);
    }
    grown(pid, before, "RSS grown by transfers", report)?;
    fs::remove_file(&file).context("cannot remove the file")
}

async fn upload(execd: &Execd, file: &Path) -> Result<()> {
    let metadata = json!({ "path": file, "owner": null, "group": null, "mode": 644 });
    let part = |name: &str, filename: &str, kind: &str| {
        format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; \
             filename=\"{filename}\"\r\nContent-Type: {kind}\r\n\r\n"
        )
    };
    let begin = format!(
        "{}{metadata}\r\n{}",
        part("metadata", "metadata", "application/json"),
        part("file", "file", "application/octet-stream"),
    );
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let pieces = std::iter::once(Bytes::from(begin))
        .chain(std::iter::repeat_n(piece, SIZE / PIECE))
        .chain([Bytes::from(format!("\r\n--{BOUNDARY}--\r\n"))]);
    let frames = pieces.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    let body = StreamBody::new(stream::iter(frames)).boxed();
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let path = execd.path("/files/upload");
    let mut connection = execd.connect().await?;
    let reply = connection.open("POST", &path, Some(&kind), body).await?;
    ensure!(
        reply.status() == 200,
        "the upload answered {}",
        reply.status()
    );
    reply.into_body().collect().await?;
    Ok(())
}

async fn download(mut connection: Connection, path: &str) -> Result<Rates> {
    let mut rates = Rates::new("MB/s");
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let reply = connection
            .open("GET", path, None, Full::default().boxed())
            .await?;
        ensure!(
            reply.status() == 200,
            "GET {path} answered {}",
            reply.status()
        );
        let mut body = reply.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame
                .context("the download broke")?
                .data_ref()
                .map_or(0, Bytes::len);
        }
        ensure!(bytes == SIZE, "{bytes} bytes arrived");
        rates.add(megabytes(SIZE), start.elapsed());
    }
    Ok(rates)
}

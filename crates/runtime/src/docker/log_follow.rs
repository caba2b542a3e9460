//! The output of a sandbox's entry point, line by line.

use bollard::{container::LogOutput, query_parameters::LogsOptionsBuilder};
use futures::{Stream, StreamExt, stream};
use osb_protocol::SandboxId;
use tokio::time::timeout;

use super::{DockerRuntime, error};
use crate::{LogFollow, LogLine, LogLines, LogStream, RuntimeError, log_lines::LineJoiner};

impl DockerRuntime {
    pub(super) async fn open_output(
        &self,
        id: &SandboxId,
        wanted: LogFollow,
    ) -> Result<LogLines, RuntimeError> {
        let mut options = LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .timestamps(true)
            .follow(wanted.follow)
            .tail(&wanted.tail.to_string());
        if let Some(since) = wanted.since {
            // The engine takes whole seconds.
            let seconds = since.unix_ms().div_euclid(1000).max(0);
            options = options.since(i32::try_from(seconds).unwrap_or(i32::MAX));
        }
        let container = self.main_container(id).await?;
        let docker = self.docker()?;
        let mut output = Box::pin(docker.logs(&container, Some(options.build())));
        if wanted.follow {
            return Ok(lines(output).boxed());
        }
        // A log that does not grow is read within the time of any other call, a piece at a time.
        let limit = docker.timeout();
        let bounded = stream::poll_fn(move |context| output.poll_next_unpin(context));
        let bounded = stream::unfold(bounded, move |mut output| async move {
            let next = timeout(limit, output.next()).await;
            let next = next.unwrap_or(Some(Err(bollard::errors::Error::RequestTimeoutError)));
            Some((next?, output))
        });
        Ok(lines(Box::pin(bounded)).boxed())
    }
}

/// Joins pieces to lines. It ends with the first failure.
fn lines(
    output: impl Stream<Item = Result<LogOutput, bollard::errors::Error>> + Unpin + Send + 'static,
) -> impl Stream<Item = Result<LogLine, RuntimeError>> + Send + 'static {
    let joiners = [LogStream::Output, LogStream::Error].map(LineJoiner::new);
    stream::unfold((Some(output), joiners), async |(output, mut joiners)| {
        let Some(mut output) = output else {
            let rest = joiners.iter_mut().find_map(LineJoiner::finish)?;
            return Some((Ok(rest), (None, joiners)));
        };
        loop {
            match output.next().await {
                Some(Ok(piece)) => {
                    let [out, err] = &mut joiners;
                    let joiner = match piece {
                        LogOutput::StdErr { .. } => err,
                        _ => out,
                    };
                    if let Some(line) = joiner.push(&piece.into_bytes()) {
                        return Some((Ok(line), (Some(output), joiners)));
                    }
                }
                Some(Err(failure)) => {
                    let failure = error::other("follow the log", &failure);
                    let spent = [LogStream::Output, LogStream::Error].map(LineJoiner::new);
                    return Some((Err(failure), (None, spent)));
                }
                None => {
                    let rest = joiners.iter_mut().find_map(LineJoiner::finish)?;
                    return Some((Ok(rest), (None, joiners)));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use serde_json::json;

    use crate::{
        Diagnostics, LogFollow, LogLine, LogStream,
        docker::{fake_engine::FakeEngine, labels},
    };

    const TIME: &str = "2031-05-03T10:00:01.2Z";

    /// A frame: the stream, three zeros, four bytes of length, the bytes.
    fn frame(stream: char, text: &str) -> String {
        let text = format!("{TIME} {text}");
        let length = char::from(u8::try_from(text.len()).unwrap());
        format!("{stream}\0\0\0\0\0\0{length}{text}")
    }

    #[tokio::test]
    async fn frames_of_both_outputs_become_lines() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /containers/json") => {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                (200, json!([{"Id": "c1", "Labels": labels}]).to_string())
            }
            _ if request.starts_with("GET /containers/c1/logs") && request.contains("tail=7") => {
                let frames = [
                    frame('\u{1}', "be"),
                    frame('\u{2}', "error\n"),
                    frame('\u{1}', "gin\n"),
                    frame('\u{1}', "no end"),
                ];
                (200, frames.concat())
            }
            _ => (404, json!({"message": "No such container"}).to_string()),
        })
        .await;
        for follow in [false, true] {
            let wanted = LogFollow {
                tail: 7,
                since: None,
                follow,
            };
            let runtime = engine.runtime();
            let lines = Diagnostics::open_log(&runtime, &"a".into(), wanted).await;
            let lines: Vec<LogLine> = lines.unwrap().try_collect().await.unwrap();
            let seen: Vec<_> = lines
                .iter()
                .map(|it| (it.stream, it.text.as_str()))
                .collect();
            let wanted = [
                (LogStream::Error, "error"),
                (LogStream::Output, "begin"),
                (LogStream::Output, "no end"),
            ];
            assert_eq!(seen, wanted);
            assert!(lines.iter().all(|line| line.at.is_some()), "{lines:?}");
        }
    }
}

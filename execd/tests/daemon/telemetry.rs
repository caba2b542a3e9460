//! Export of metrics to a collector (contract: execd §13).

use std::{
    fs,
    io::Read,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse},
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::{Metric, metric::Data, number_data_point::Value as Number},
};
use osb_service::Supervisor;
use prost::Message;
use rustix::process::Signal;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{Daemon, eventually};

/// One export request.
#[derive(Clone)]
struct Export {
    path: String,
    headers: HeaderMap,
    metrics: ExportMetricsServiceRequest,
}

/// A collector on loopback.
#[derive(Clone)]
struct Collector {
    port: u16,
    exports: Arc<Mutex<Vec<Export>>>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let collector = Self {
            port: listener.local_addr().unwrap().port(),
            exports: Arc::default(),
        };
        let serving = collector.clone();
        Supervisor::new().spawn("collector", async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let collector = serving.clone();
                let service = service_fn(move |request| take(collector.clone(), request));
                let connection = http1::Builder::new();
                let connection = connection.serve_connection(TokioIo::new(stream), service);
                // Daemons may disconnect at any time.
                let _ended = connection.await;
            }
        });
        collector
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn exports(&self) -> Vec<Export> {
        self.exports.lock().unwrap().clone()
    }

    /// Returns the last state of every metric.
    fn last(&self) -> Option<Vec<Metric>> {
        let exports = self.exports();
        let resource = exports.last()?.metrics.resource_metrics.first()?.clone();
        let [scope] = &resource.scope_metrics[..] else {
            panic!("{resource:?}");
        };
        assert_eq!(scope.scope.as_ref().unwrap().name, "opensandbox/execd");
        Some(scope.metrics.clone())
    }
}

async fn take(
    collector: Collector,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let zipped = head.headers.get("content-encoding").is_some();
    let mut bytes = Vec::new();
    match zipped {
        true => flate2::read::GzDecoder::new(&body[..])
            .read_to_end(&mut bytes)
            .unwrap(),
        false => body.as_ref().read_to_end(&mut bytes).unwrap(),
    };
    collector.exports.lock().unwrap().push(Export {
        path: head.uri.to_string(),
        headers: head.headers,
        metrics: ExportMetricsServiceRequest::decode(&bytes[..]).unwrap(),
    });
    let answer = ExportMetricsServiceResponse::default().encode_to_vec();
    Ok(Response::new(Full::from(answer)))
}

/// Joins attributes into a text, in the order of their names.
fn join_attributes(attributes: &[KeyValue]) -> String {
    let value = |pair: &KeyValue| match pair.value.as_ref().unwrap().value.as_ref().unwrap() {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let mut pairs: Vec<String> = attributes
        .iter()
        .map(|pair| format!("{}={}", pair.key, value(pair)))
        .collect();
    pairs.sort();
    pairs.join(" ")
}

/// Returns the points of a histogram: attributes and number of recorded values.
fn recorded(metrics: &[Metric], name: &str) -> Vec<(String, u64)> {
    let Some(metric) = metrics.iter().find(|metric| metric.name == name) else {
        return Vec::new();
    };
    assert_eq!(metric.unit, "ms", "{name}");
    let Some(Data::Histogram(histogram)) = &metric.data else {
        panic!("{metric:?}");
    };
    let points = histogram.data_points.iter();
    let points = points.inspect(|point| assert!(point.sum.is_some_and(|sum| sum >= 0.0)));
    points
        .map(|point| (join_attributes(&point.attributes), point.count))
        .collect()
}

/// Returns the unit and the points of a gauge or a counter.
fn observed(metrics: &[Metric], name: &str) -> (String, Vec<(String, f64)>) {
    let metric = metrics.iter().find(|metric| metric.name == name);
    let metric = metric.unwrap_or_else(|| panic!("no {name}"));
    let points = match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => &gauge.data_points,
        Data::Sum(sum) => {
            assert!(sum.is_monotonic, "{name}");
            &sum.data_points
        }
        other => panic!("{other:?}"),
    };
    let value = |number: &Number| match number {
        Number::AsDouble(number) => *number,
        Number::AsInt(number) => f64::from(u32::try_from(*number).unwrap_or(u32::MAX)),
    };
    let points = points.iter().map(|point| {
        let number = value(point.value.as_ref().unwrap());
        (join_attributes(&point.attributes), number)
    });
    (metric.unit.clone(), points.collect())
}

/// Returns the names of a daemon's threads.
fn threads(daemon: &Daemon) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    tasks
        .map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap())
        .collect()
}

#[tokio::test]
async fn every_documented_metric_is_exported() {
    let collector = Collector::start().await;
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
            .env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=seven")
            .env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "100")
            .env("OTEL_SERVICE_NAME", "ignored")
            .env("OTEL_RESOURCE_ATTRIBUTES", "zone=a,service.name=ignored")
            .env("OPENSANDBOX_ID", "sandbox-7")
            .env(
                "OPENSANDBOX_EXECD_METRICS_EXTRA_ATTRS",
                "team = x,bad,=y,z=",
            );
    });
    let place = tempfile::tempdir().unwrap();
    let path = place.path().display();

    daemon.run(json!({ "command": "true" })).await;
    daemon.run(json!({ "command": "exit 3" })).await;
    daemon.run(json!({ "argv": ["/no/such/program"] })).await;
    let made = daemon.post("/session", json!({})).await.json();
    let run = format!("/session/{}/run", made["session_id"].as_str().unwrap());
    daemon.post(&run, json!({ "command": "true" })).await;
    for (url, status) in [
        (format!("/files/info?path={path}"), 200),
        (format!("/files/info?path={path}/none"), 404),
        (format!("/files/download?path={path}/none"), 404),
        (format!("/directories/list?path={path}"), 200),
        ("/none".to_owned(), 404),
        ("/proxy/1/files/info".to_owned(), 502),
    ] {
        assert_eq!(daemon.get(&url).await.status, status, "{url}");
    }
    daemon.send(Method::PUT, "/command", &[], "").await;
    // An empty response stays empty, also when it is timed.
    assert_eq!(daemon.get("/ping").await.headers["content-length"], "0");

    let shared = "sandbox_id=sandbox-7 team=x";
    let request = |method: &str, route: &str, status: u16| {
        format!("http_method={method} http_route={route} http_status_code={status} {shared}")
    };
    let ended =
        |operation: &str, result: &str| format!("operation={operation} result={result} {shared}");
    let want = [
        (
            "execd.http.request.duration",
            request("GET", "/ping", 200),
            1,
        ),
        (
            "execd.http.request.duration",
            request("POST", "/command", 200),
            3,
        ),
        (
            "execd.http.request.duration",
            request("POST", "/session/:sessionId/run", 200),
            1,
        ),
        (
            "execd.http.request.duration",
            request("GET", "/files/info", 200),
            1,
        ),
        (
            "execd.http.request.duration",
            request("GET", "/files/info", 404),
            1,
        ),
        (
            "execd.http.request.duration",
            request("GET", "unknown", 404),
            1,
        ),
        (
            "execd.http.request.duration",
            request("GET", "unknown", 502),
            1,
        ),
        (
            "execd.http.request.duration",
            request("PUT", "unknown", 404),
            1,
        ),
        (
            "execd.execution.duration",
            ended("run_command", "success"),
            1,
        ),
        (
            "execd.execution.duration",
            ended("run_command", "failure"),
            2,
        ),
        (
            "execd.execution.duration",
            ended("run_in_session", "success"),
            1,
        ),
        (
            "execd.filesystem.operations.duration",
            ended("info", "success"),
            1,
        ),
        (
            "execd.filesystem.operations.duration",
            ended("info", "failure"),
            1,
        ),
        (
            "execd.filesystem.operations.duration",
            ended("download", "failure"),
            1,
        ),
        (
            "execd.filesystem.operations.duration",
            ended("listdir", "success"),
            1,
        ),
    ];
    let mut missing = Vec::new();
    let metrics = eventually("all metrics were exported", async || {
        let metrics = collector.last()?;
        missing = want
            .iter()
            .filter(|(name, point, count)| {
                !recorded(&metrics, name).contains(&(point.clone(), *count))
            })
            .collect();
        missing.is_empty().then_some(metrics)
    })
    .await;

    for (name, unit, attributes) in [
        ("execd.system.process.count", "", &[""][..]),
        ("execd.system.cpu.usage", "%", &[""]),
        ("execd.system.memory.usage_bytes", "By", &[""]),
        (
            "execd.system.network.io.bytes",
            "By",
            &["direction=in ", "direction=out "],
        ),
        (
            "execd.system.network.connections.active",
            "",
            &["protocol=tcp ", "protocol=udp "],
        ),
    ] {
        let (shown_unit, mut points) = observed(&metrics, name);
        assert_eq!(shown_unit, unit, "{name}");
        points.sort_by(|a, b| a.0.cmp(&b.0));
        let want = attributes.iter().map(|own| format!("{own}{shared}"));
        assert!(
            points
                .iter()
                .map(|(attributes, _)| attributes.clone())
                .eq(want),
            "{name}: {points:?}"
        );
        if name.ends_with("count") || name.ends_with("usage_bytes") {
            assert!(points[0].1 > 0.0, "{name}: {points:?}");
        }
    }

    let export = collector.exports().last().cloned().unwrap();
    assert_eq!(export.path, "/v1/metrics");
    for (name, value) in [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "gzip"),
        ("x-tenant", "seven"),
    ] {
        assert_eq!(export.headers[name], value);
    }
    let resource = export.metrics.resource_metrics[0].resource.clone().unwrap();
    let resource = join_attributes(&resource.attributes);
    for pair in [
        concat!("service.name=opensandbox-execd-", env!("CARGO_PKG_VERSION")),
        "sandbox_id=sandbox-7",
        "zone=a",
    ] {
        assert!(
            resource.split(' ').any(|attribute| attribute == pair),
            "{resource}"
        );
    }
}

#[tokio::test]
async fn the_last_metrics_are_exported_at_shutdown() {
    let collector = Collector::start().await;
    let daemon = Daemon::start(&["--port", "0"], |command| {
        let endpoint = format!("{}/as/it/is", collector.endpoint());
        command.env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint);
    });
    daemon.run(json!({ "command": "true" })).await;
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().await.code(), Some(0));
    let exports = collector.exports();
    let paths: Vec<&str> = exports.iter().map(|export| &export.path[..]).collect();
    assert_eq!(paths, ["/as/it/is"]);
    let want = ("operation=run_command result=success".to_owned(), 1);
    let metrics = collector.last().unwrap();
    assert_eq!(recorded(&metrics, "execd.execution.duration"), [want]);
}

#[tokio::test]
async fn a_sandbox_id_set_later_is_exported_from_then_on() {
    let collector = Collector::start().await;
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
            .env("OTEL_METRIC_EXPORT_INTERVAL", "100")
            .env("OPENSANDBOX_ID", "warm")
            .env("OPENSANDBOX_EXECD_METRICS_EXTRA_ATTRS", "pool=p,team=none")
            .env("EXECD_RUNTIME_INIT", "1");
    });
    let order = json!({
        "sandboxId": "s-1", "generation": 1, "telemetry": { "attributes": { "team": "x" } },
    });
    assert_eq!(daemon.post("/internal/init", order).await.status, 200);
    daemon.run(json!({ "command": "true" })).await;
    let point = "operation=run_command pool=p result=success sandbox_id=s-1 team=x";
    eventually("the sandbox id was exported", async || {
        let points = recorded(&collector.last()?, "execd.execution.duration");
        (points == [(point.to_owned(), 1)]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_unavailable_collector_blocks_nothing() {
    // One collector accepts connections and never replies, the other does not listen.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ports = [&silent, &gone].map(|listener| listener.local_addr().unwrap().port());
    drop(gone);
    for (port, complains) in ports.into_iter().zip([false, true]) {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let outputs = format!("stderr,{}", log.display());
        let daemon = Daemon::start(&["--port", "0"], |command| {
            command
                .env(
                    "OTEL_EXPORTER_OTLP_ENDPOINT",
                    format!("http://127.0.0.1:{port}"),
                )
                // The daemon ends in time only because the last export is bounded.
                .env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
                .env("OTEL_METRIC_EXPORT_INTERVAL", "20")
                .env("OPENSANDBOX_LOG_OUTPUT", outputs);
        });
        let complaints = || {
            let log = fs::read_to_string(&log).unwrap();
            log.matches("metrics cannot be sent").count()
        };
        if complains {
            eventually("the failure is logged", async || {
                (complaints() > 0).then_some(())
            })
            .await;
        }
        let events = daemon.run(json!({ "command": "echo works" })).await;
        assert!(
            events.iter().any(|event| event.text == "works"),
            "{events:?}"
        );
        assert_eq!(daemon.get("/ping").await.status, 200);
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.wait().await.code(), Some(0));
        assert_eq!(complaints(), usize::from(complains), "logged once only");
    }
}

#[tokio::test]
async fn nothing_is_started_without_a_destination() {
    let exports = |daemon: &Daemon| {
        let threads = threads(daemon);
        threads.iter().any(|name| name.starts_with("OpenTelemetry"))
    };
    for (variable, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", " "),
        ("HOST_IP", "no address"),
    ] {
        let daemon = Daemon::start(&["--port", "0"], |command| {
            command.env(variable, value);
        });
        // The daemon answers only after all of its threads have started.
        assert_eq!(daemon.get("/ping").await.status, 200);
        assert!(!exports(&daemon), "{variable}");
    }
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.env("HOST_IP", "127.0.0.1");
    });
    let started = async || exports(&daemon).then_some(());
    eventually("the export thread started", started).await;
}

#[tokio::test]
async fn an_invalid_destination_is_reported_and_ignored() {
    for (destination, rule) in [
        ("http://me:hunter2@collector", "must hold no user"),
        // Built together with the server, execd could speak TLS, and another rule is broken.
        ("https://me:hunter2@collector", "must "),
    ] {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let outputs = format!("stderr,{}", log.display());
        let daemon = Daemon::start(&["--port", "0"], |command| {
            command
                .env("OTEL_EXPORTER_OTLP_ENDPOINT", destination)
                .env("OPENSANDBOX_LOG_OUTPUT", outputs);
        });
        assert_eq!(daemon.get("/ping").await.status, 200);
        let expected = format!("OTEL_EXPORTER_OTLP_ENDPOINT {rule}");
        // The file is written beside the answer.
        let log = eventually(&format!("{destination}: {rule}"), async || {
            let text = fs::read_to_string(&log).ok()?;
            text.contains(&expected).then_some(text)
        })
        .await;
        assert!(!log.contains("hunter2"), "{log}");
    }
}

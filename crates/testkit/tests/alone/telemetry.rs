//! What a collector receives from the server. The receiver of spans belongs to the whole process, so
//! there is one test.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    metrics::v1::metric::Data,
    trace::v1::Span,
};
use osb_runtime::{Address, Ports, sim::SimRuntime};
use osb_server::{config::OtelSection, otel::Otel, sandbox::RuntimeHealth};
use osb_service::{
    Supervisor,
    telemetry::{self, LogFormat, Receivers},
};
use osb_testkit::{TestServer, running_at};
use prost::Message;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The trace of a client, and the client's span in it.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";

/// Head and body of a request.
type Recorded = (String, Vec<u8>);

/// A program that keeps every request and answers 200 without a body.
#[derive(Clone)]
struct Recorder {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
}

impl Recorder {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let recorder = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
        };
        let serving = recorder.clone();
        Supervisor::new().spawn("recorder", async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.take(stream).await;
            }
        });
        recorder
    }

    async fn take(&self, mut stream: TcpStream) {
        let mut read = Vec::new();
        let end = loop {
            if let Some(at) = read.windows(4).position(|end| end == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        let mut body = read.split_off(end);
        while body.len() < length {
            assert_ne!(stream.read_buf(&mut body).await.unwrap(), 0);
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        self.requests.lock().unwrap().push((head, body));
    }

    fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().unwrap().clone()
    }

    fn bodies(&self, path: &str) -> Vec<Vec<u8>> {
        let start = format!("post {path} ");
        let requests = self.requests().into_iter();
        let of_path = requests.filter(|(head, _)| head.starts_with(&start));
        of_path.map(|(_, body)| body).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Attributes as JSON text, which has numbers and strings.
fn attribute(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|pair| pair.key == name);
    format!(
        "{:?}",
        found.unwrap_or_else(|| panic!("{name}: {span:?}")).value
    )
}

#[tokio::test]
async fn a_collector_gets_metrics_and_traces_that_go_on_behind_the_proxy() {
    let (collector, program) = (Recorder::start().await, Recorder::start().await);
    let endpoint = |path: &str| Some(format!("http://{}{path}", collector.address));
    let section = OtelSection {
        enabled: true,
        endpoint: endpoint("/own/metrics"),
        service_name: "boxes".to_owned(),
        traces: true,
        traces_endpoint: endpoint("/own/traces"),
        ..OtelSection::default()
    };
    let otel = Otel::start(&section, |_| None).unwrap();
    let receivers = Receivers {
        spans: otel.spans(),
        file: None,
    };
    telemetry::init_with("off", LogFormat::Json, receivers).unwrap();
    let sandbox = running_at("there", IpAddr::V4(Ipv4Addr::LOCALHOST), None);
    let sim = Arc::new(SimRuntime::with([sandbox]));
    // Every new sandbox has this execd.
    let execd = Recorder::start().await;
    sim.set_address(Address {
        ports: Ports {
            execd: Some(execd.address.port()),
            ..Ports::default()
        },
        ..Address::default()
    });
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::over(sim, folder.path(), "").await.unwrap();
    let mut health = server.service.registry().watch_health();
    let up = health.wait_for(|health| *health == RuntimeHealth::Up);
    up.await.unwrap();
    server.observe_with(otel.observer().unwrap());

    let traceparent = format!("00-{TRACE}-{CLIENT_SPAN}-01");
    let create = server
        .request(Method::POST, "/v1/sandboxes")
        .header("traceparent", &traceparent)
        .json(&TestServer::good_create());
    let created = create.send().await.unwrap();
    assert_eq!(created.status(), StatusCode::ACCEPTED);
    let id = created.json::<Value>().await.unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let proxied = format!(
        "/v1/sandboxes/there/proxy/{}/x?secret=1",
        program.address.port()
    );
    let proxied = server
        .request(Method::GET, &proxied)
        .header("traceparent", &traceparent);
    assert_eq!(proxied.send().await.unwrap().status(), StatusCode::OK);
    let event = json!({"eventType": "sandbox.create", "createDurationMs": 300, "success": true});
    let event = server
        .request(Method::POST, "/v1/metrics/events")
        .json(&event);
    assert_eq!(event.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    server.stop().await;
    otel.finish().await;

    let spans: Vec<Span> = collector
        .bodies("/own/traces")
        .iter()
        .map(|body| ExportTraceServiceRequest::decode(&body[..]).unwrap())
        .flat_map(|export| export.resource_spans)
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect();
    let ours = |span: &&Span| hex(&span.trace_id) == TRACE;
    let find = |name: &str| {
        let mut found = spans.iter().filter(ours).filter(|span| span.name == name);
        let span = found.next().unwrap_or_else(|| panic!("{name}: {spans:#?}"));
        assert!(found.next().is_none(), "{name} comes twice");
        span
    };
    let request = find("POST /sandboxes");
    assert_eq!(hex(&request.parent_span_id), CLIENT_SPAN);
    assert!(attribute(request, "http.response.status_code").contains("202"));
    let work = find("create a sandbox");
    assert_eq!(work.parent_span_id, request.span_id);
    assert!(attribute(work, "opensandbox.id").contains(&id));
    assert_eq!(find("runtime: create").parent_span_id, work.span_id);
    // The trace goes on into execd.
    let waiting = find("execd: wait until it answers");
    assert_eq!(waiting.parent_span_id, work.span_id);
    let want = format!("00-{TRACE}-{}-01", hex(&waiting.span_id));
    let (ping, _) = execd.requests().remove(0);
    assert!(ping.starts_with("get /ping "), "{ping}");
    assert!(ping.contains(&format!("traceparent: {want}\r\n")), "{ping}");
    let through = find("GET /sandboxes/{sandbox_id}/proxy/{port}/{*path}");
    assert_eq!(hex(&through.parent_span_id), CLIENT_SPAN);
    let (head, _) = program.requests().pop().unwrap();
    let passed = head
        .lines()
        .find_map(|line| line.strip_prefix("traceparent:"));
    let want = format!("00-{TRACE}-{}-01", hex(&through.span_id));
    assert_eq!(passed.map(str::trim), Some(want.as_str()), "{head}");
    assert!(
        !format!("{spans:?}").contains("secret"),
        "queries may be secret"
    );

    let exports = collector.bodies("/own/metrics");
    let last = ExportMetricsServiceRequest::decode(&exports.last().unwrap()[..]).unwrap();
    let [resource] = &last.resource_metrics[..] else {
        panic!("{last:?}");
    };
    assert!(
        format!("{:?}", resource.resource).contains("\"boxes\""),
        "{resource:?}"
    );
    let metrics = &resource.scope_metrics[0].metrics;
    let points = |name: &str| {
        let metric = metrics.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name}: {metrics:?}"));
        assert_eq!(metric.unit, "ms");
        let Some(Data::Histogram(histogram)) = &metric.data else {
            panic!("{metric:?}");
        };
        histogram.data_points.clone()
    };
    let requests = points("server.http.request.duration");
    let bounds = [
        1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0,
        30_000.0, 60_000.0,
    ];
    assert!(requests.iter().all(|point| point.explicit_bounds == bounds));
    let requests: u64 = requests.iter().map(|point| point.count).sum();
    assert_eq!(requests, 3);
    let [create] = &points("opensandbox.sandbox.create.duration")[..] else {
        panic!("{metrics:?}");
    };
    let bounds = [
        100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0, 30_000.0, 60_000.0,
    ];
    assert_eq!(create.explicit_bounds, bounds);
    assert_eq!(create.bucket_counts[2], 1, "300 ms");
}

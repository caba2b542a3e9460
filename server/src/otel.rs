//! OpenTelemetry: what the server sends to a collector (contract: lifecycle §A5).

use std::time::Duration;

use opentelemetry::{KeyValue, metrics::Histogram};
use osb_otlp::{Exporter, OtlpError, TraceExporter};
use osb_service::telemetry::{Registry, SpanLayer};
use tokio::time::Instant;

use crate::{
    config::OtelSection,
    durations::CREATE_MS,
    http::measure::{Observer, REQUEST_MS, RequestKind, SdkCreate},
};

/// Name of meter and tracer.
const SCOPE: &str = "opensandbox.server";
/// What the last export gets at a stop.
const FINISH: Duration = Duration::from_secs(5);

/// Exporters that are turned on.
#[derive(Debug, Default)]
pub struct Otel {
    metrics: Option<Exporter>,
    traces: Option<TraceExporter>,
}

impl Otel {
    /// Starts what the configuration turns on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When an address cannot be used.
    pub fn start(
        section: &OtelSection,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OtlpError> {
        if !section.enabled {
            return Ok(Self::default());
        }
        let service = || section.service_name.clone();
        let metrics = Exporter::start_configured(
            service(),
            "otel.endpoint",
            section.endpoint.as_deref(),
            Duration::from_millis(section.export_interval_millis),
            &variable,
        )?;
        let traces = section.traces.then(|| {
            let endpoint = section.traces_endpoint.as_deref();
            let key = "otel.traces_endpoint";
            TraceExporter::start_configured(service(), key, endpoint, &variable)
        });
        Ok(Self {
            metrics: Some(metrics),
            traces: traces.transpose()?,
        })
    }

    /// Logs what is sent where. The exporters start before the log, which one of them is part of.
    pub fn announce(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.announce();
        }
        if let Some(traces) = &self.traces {
            traces.announce();
        }
    }

    /// Receiver of spans, if traces are sent.
    #[must_use]
    pub fn spans(&self) -> Option<SpanLayer> {
        let traces = self.traces.as_ref()?;
        let layer = tracing_opentelemetry::layer::<Registry>()
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_tracer(traces.tracer(SCOPE));
        Some(Box::new(layer))
    }

    /// Receiver of measurements, if metrics are sent.
    #[must_use]
    pub fn observer(&self) -> Option<Box<dyn Observer>> {
        let meter = self.metrics.as_ref()?.meter(SCOPE);
        let histogram = |name, bounds: &[u64]| {
            let bounds = bounds.iter().map(|ms| Duration::from_millis(*ms));
            meter
                .f64_histogram(name)
                .with_unit("ms")
                .with_boundaries(bounds.map(milliseconds).collect())
                .build()
        };
        Some(Box::new(Instruments {
            requests: histogram("server.http.request.duration", &REQUEST_MS),
            creates: histogram("opensandbox.sandbox.create.duration", &CREATE_MS),
        }))
    }

    /// Sends the last data.
    pub async fn finish(self) {
        let deadline = Instant::now() + FINISH;
        if let Some(traces) = self.traces {
            traces.finish(deadline).await;
        }
        if let Some(metrics) = self.metrics {
            metrics.finish(deadline).await;
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[derive(Debug)]
struct Instruments {
    requests: Histogram<f64>,
    creates: Histogram<f64>,
}

impl Observer for Instruments {
    fn request(&self, request: &RequestKind, took: Duration) {
        let attributes = [
            KeyValue::new("http_method", request.method),
            KeyValue::new("http_route", request.route),
            KeyValue::new("http_status_code", i64::from(request.status)),
        ];
        self.requests.record(milliseconds(took), &attributes);
    }

    fn create(&self, create: &SdkCreate, took: Duration) {
        let attributes = [
            KeyValue::new("sdk.language", create.language.clone()),
            KeyValue::new("sdk.version", create.version.clone()),
            KeyValue::new("success", create.success),
        ];
        self.creates.record(milliseconds(took), &attributes);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::Arc};

    use osb_service::Supervisor;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::{ServerConfig, pki_types::PrivateKeyDer};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        sync::mpsc,
    };
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// Receives one request at a time over TLS, and passes on its first line.
    async fn collector(listener: TcpListener, acceptor: TlsAcceptor, lines: mpsc::Sender<String>) {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut read = Vec::new();
            while !read.windows(4).any(|end| end == b"\r\n\r\n") {
                if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let text = String::from_utf8_lossy(&read);
            let line = text.lines().next().unwrap_or_default().to_owned();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            // Before the answer, which ends the wait for it.
            lines.send(line).await.unwrap();
            stream.write_all(answer).await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_collector_behind_tls_gets_metrics_if_its_certificate_is_trusted() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let trusted = folder.path().join("ca.pem");
        std::fs::write(&trusted, cert.pem()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (lines, mut received) = mpsc::channel(8);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let tasks = Supervisor::new();
        tasks.spawn_abortable("collector", collector(listener, acceptor, lines));
        let section = OtelSection {
            enabled: true,
            endpoint: Some(format!("https://localhost:{port}/v1/metrics")),
            ..OtelSection::default()
        };
        for is_trusted in [false, true] {
            let file = trusted.display().to_string();
            let variable = |name: &str| {
                let is_file = name == "OTEL_EXPORTER_OTLP_CERTIFICATE" && is_trusted;
                is_file.then(|| file.clone())
            };
            let otel = Otel::start(&section, variable).unwrap();
            let request = RequestKind {
                route: "/health",
                method: "GET",
                status: 200,
            };
            let observer = otel.observer().unwrap();
            observer.request(&request, Duration::from_millis(1));
            otel.finish().await;
            let line = received.try_recv().ok();
            let want = is_trusted.then(|| "POST /v1/metrics HTTP/1.1".to_owned());
            assert_eq!(line, want, "trusted: {is_trusted}");
        }
        tasks.stop();
    }

    #[test]
    fn a_certificate_that_cannot_be_read_is_an_error() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _within = runtime.enter();
        let section = OtelSection {
            enabled: true,
            endpoint: Some("https://localhost/v1/metrics".to_owned()),
            ..OtelSection::default()
        };
        let absent = |name: &str| {
            let is_file = name == "OTEL_EXPORTER_OTLP_CERTIFICATE";
            is_file.then(|| "/nonexistent/ca.pem".to_owned())
        };
        let error = Otel::start(&section, absent).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("OTEL_EXPORTER_OTLP_CERTIFICATE"), "{text}");
    }
}

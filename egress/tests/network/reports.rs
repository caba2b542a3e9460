//! What the sidecar reports: its log and its metrics.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::json;

use crate::world::{World, wait_until};

const ALLOW: &str = r#"{"egress":[
    {"action":"allow","target":"*.example"},
    {"action":"deny","target":"203.0.113.0/24"}
]}"#;
const IDENTITY: [(&str, &str); 2] = [
    ("OPENSANDBOX_EGRESS_SANDBOX_ID", "sb-7"),
    (
        "OPENSANDBOX_EGRESS_METRICS_EXTRA_ATTRS",
        "team=blue,bad,msg=mine",
    ),
];

#[test]
fn every_line_names_the_sandbox_and_lists_are_lists() {
    for mode in ["dns", "dns+nft"] {
        let world = World::with(mode, ALLOW, &IDENTITY);
        world
            .internet
            .name("a.example", &["198.51.100.1", "198.51.100.2"]);
        world.internet.alias("none.example", "nowhere.example");
        world.resolve("a.example");
        world.resolve("none.example");
        let loaded = world.logged(&["egress.loaded"]);
        assert_eq!(
            loaded["rules"],
            json!([
                {"action": "allow", "target": "*.example"},
                {"action": "deny", "target": "203.0.113.0/24"},
            ])
        );
        assert_eq!(loaded["egress.default"], "deny");
        let outbound = world.logged(&["egress.outbound", "\"a.example\""]);
        assert_eq!(outbound["target.host"], "a.example", "{mode}");
        let mut ips = outbound["target.ips"].as_array().unwrap().clone();
        ips.sort_by_key(ToString::to_string);
        assert_eq!(ips, ["198.51.100.1", "198.51.100.2"], "{mode}");
        let empty = world.logged(&["egress.outbound", "\"none.example\""]);
        assert_eq!(empty.get("target.ips"), None, "{mode}");
        world.policy("PATCH", r#"[{"action":"allow","target":"B.test"}]"#);
        world.policy("DELETE", r#"["*.example", "unknown.test"]"#);
        let patched = world.logged(&["egress.updated", "B.test"]);
        let rule = json!([{"action": "allow", "target": "B.test"}]);
        assert_eq!(patched["rules"], rule);
        let removed = world.logged(&["egress.updated", "*.example"]);
        let rule = json!([{"action": "allow", "target": "*.example"}]);
        assert_eq!(removed["rules"], rule, "only what was removed");
        for line in [loaded, outbound, empty, patched, removed] {
            assert_eq!(line["logger"], "opensandbox.egress", "{line}");
            assert_eq!(line["sandbox_id"], "sb-7", "{line}");
            assert_eq!(line["team"], "blue", "{line}");
            assert_ne!(line["msg"], "mine", "{line}");
        }
    }
}

/// A collector in the sandbox: the bodies that it was sent.
fn collector(world: &World) -> Arc<Mutex<Vec<u8>>> {
    let listener = world.inside(|| TcpListener::bind("127.0.0.1:4318").unwrap());
    let bodies = Arc::<Mutex<Vec<u8>>>::default();
    let received = Arc::clone(&bodies);
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let body = take(&mut stream).unwrap_or_default();
            received.lock().unwrap().extend(body);
        }
    });
    bodies
}

/// Reads a request, answers it, and returns its body.
fn take(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some((head, _)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|it| it.strip_prefix("content-length:"))?;
        let length: usize = length.trim().parse().ok()?;
        if bytes.len() >= head.len() + 4 + length {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).ok()?;
            return Some(bytes.split_off(head.len() + 4));
        }
    }
}

#[test]
fn every_documented_metric_is_exported() {
    let mut world = World::without_sidecar();
    let bodies = collector(&world);
    let to = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
    ];
    let variables = [to.as_slice(), &IDENTITY].concat();
    world.start("dns+nft", ALLOW, &variables);
    world.internet.name("a.example", &["198.51.100.1"]);
    world.resolve("a.example");
    world.resolve("refused.test");
    // Names and attributes are texts in the binary form, too.
    for text in [
        "egress.dns.query.duration",
        "egress.policy.denied_total",
        "egress.nftables.rules.count",
        "egress.nftables.updates.count",
        "egress.system.memory.usage_bytes",
        "egress.system.cpu.utilization",
        "sb-7",
        "blue",
    ] {
        let is_sent = || {
            let bodies = bodies.lock().unwrap();
            bodies.windows(text.len()).any(|it| it == text.as_bytes())
        };
        wait_until(text, is_sent);
    }
}

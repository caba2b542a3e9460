//! Headers, path and query as the backend and the client receive them.

use std::net::{IpAddr, Ipv4Addr};

use crate::support::{Fixture, lines};
use axum::body::Body;
use futures::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header, uri::Scheme};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use osb_forward::{Forwarded, HeaderRules, Host, Peer};
use tokio::io::AsyncWriteExt;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn peer() -> Peer {
    Peer {
        address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
        scheme: Scheme::HTTPS,
    }
}

/// Sends a request and returns the head that the backend got.
async fn seen_by_backend(rules: HeaderRules, request: &str) -> String {
    let fixture = Fixture::new(rules).await;
    let mut client = fixture.send(request).await;
    let mut backend = fixture.accept().await;
    let head = backend.head().await;
    backend.write(OK).await;
    client.head().await;
    head
}

/// Answers a request with `response` and returns the head that the client got.
async fn seen_by_client(rules: HeaderRules, response: &str) -> String {
    let fixture = Fixture::new(rules).await;
    let mut client = fixture.send("GET /p/ HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend.write(response).await;
    client.head().await
}

#[tokio::test]
async fn path_and_query_arrive_byte_for_byte() {
    let head = seen_by_backend(
        HeaderRules::default(),
        "GET /p//a%2Fb/%7E//c;d?x&y=%20+&x=2&&flag HTTP/1.1\r\nhost: a\r\n\r\n",
    )
    .await;
    let first = head.lines().next().unwrap();
    assert_eq!(first, "GET //a%2Fb/%7E//c;d?x&y=%20+&x=2&&flag HTTP/1.1");
}

#[tokio::test]
async fn nothing_is_invented_and_repeated_headers_stay_apart() {
    let head = seen_by_backend(
        HeaderRules {
            host: Host::Keep,
            ..HeaderRules::default()
        },
        "GET /p/ HTTP/1.1\r\nHost: box.example\r\nX-A: 1\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\
         Cookie: c=d\r\nX-A: 2\r\nTE: trailers\r\nX-Empty:\r\n\r\n",
    )
    .await;
    let mut got: Vec<&str> = head
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty())
        .collect();
    got.sort_unstable();
    assert_eq!(
        got,
        [
            "cookie: c=d",
            "host: box.example",
            "x-a: 1",
            "x-a: 2",
            "x-empty: "
        ]
    );
}

#[tokio::test]
async fn rules_drop_and_set_request_headers() {
    let mut set_request = HeaderMap::new();
    set_request.insert("x-token", HeaderValue::from_static("ours"));
    let head = seen_by_backend(
        HeaderRules {
            drop_request: vec![
                header::AUTHORIZATION,
                HeaderName::from_static("open-sandbox-api-key"),
            ]
            .into(),
            set_request,
            ..HeaderRules::default()
        },
        "GET /p/ HTTP/1.1\r\nhost: a\r\nauthorization: x\r\nOPEN-SANDBOX-API-KEY: k\r\n\
         x-token: theirs\r\nx-token: theirs2\r\nconnection: x-token\r\n\r\n",
    )
    .await;
    assert_eq!(lines(&head, "x-token"), ["ours"]);
    assert!(lines(&head, "authorization").is_empty(), "{head}");
    assert!(lines(&head, "open-sandbox-api-key").is_empty(), "{head}");
    assert_ne!(lines(&head, "host"), ["a"], "the host is the target's");
    assert_eq!(lines(&head, "host").len(), 1);
}

#[tokio::test]
async fn forwarded_headers_are_rebuilt() {
    let head = seen_by_backend(
        HeaderRules {
            forwarded: Forwarded::Rebuild(peer()),
            ..HeaderRules::default()
        },
        "GET /p/ HTTP/1.1\r\nhost: box.example:81\r\nx-forwarded-for: 10.0.0.1\r\nforwarded: for=1\r\n\
         x-forwarded-host: evil\r\nx-forwarded-port: 1\r\nx-forwarded-proto: gopher\r\nx-real-ip: 1\r\n\r\n",
    )
    .await;
    assert_eq!(lines(&head, "x-forwarded-for"), ["192.0.2.7"]);
    assert_eq!(lines(&head, "x-forwarded-proto"), ["https"]);
    assert_eq!(lines(&head, "x-forwarded-host"), ["box.example:81"]);
    for gone in ["forwarded", "x-forwarded-port", "x-real-ip"] {
        assert!(lines(&head, gone).is_empty(), "{gone} in {head}");
    }
}

#[tokio::test]
async fn forwarded_headers_are_appended() {
    let head = seen_by_backend(
        HeaderRules {
            forwarded: Forwarded::Append(peer()),
            ..HeaderRules::default()
        },
        "GET /p/ HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 10.0.0.1, 10.0.0.2\r\n\
         x-forwarded-proto: http\r\nx-forwarded-for:\r\nx-forwarded-for: 10.0.0.3\r\n\r\n",
    )
    .await;
    assert_eq!(
        lines(&head, "x-forwarded-for"),
        ["10.0.0.1, 10.0.0.2, 10.0.0.3, 192.0.2.7"],
        "one line: many servers read no second"
    );
    assert_eq!(lines(&head, "x-forwarded-proto"), ["http"]);
}

#[tokio::test]
async fn responses_keep_what_is_end_to_end() {
    let head = seen_by_client(
        HeaderRules {
            drop_response: vec![header::SERVER].into(),
            ..HeaderRules::default()
        },
        "HTTP/1.1 299 Very Odd\r\nset-cookie: a=1, x\r\nserver: b\r\nset-cookie: b=2\r\n\
         connection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=9\r\ncontent-encoding: gzip\r\n\
         date: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 299 Very Odd\r\n"), "{head}");
    assert_eq!(lines(&head, "set-cookie"), ["a=1, x", "b=2"]);
    assert_eq!(lines(&head, "content-encoding"), ["gzip"]);
    assert_eq!(lines(&head, "date"), ["Thu, 01 Jan 1970 00:00:00 GMT"]);
    for gone in ["server", "x-hop", "keep-alive", "connection"] {
        assert!(lines(&head, gone).is_empty(), "{gone} in {head}");
    }
}

#[tokio::test]
async fn many_headers_pass() {
    let many: String = (0..250).map(|n| format!("x-{n}: {n}\r\n")).collect();
    let response = format!("HTTP/1.1 200 OK\r\n{many}content-length: 0\r\n\r\n");
    let head = seen_by_client(HeaderRules::default(), &response).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(lines(&head, "x-249"), ["249"]);
}

#[tokio::test]
async fn old_spellings_of_headers_are_normalised() {
    let head = seen_by_client(
        HeaderRules::default(),
        "HTTP/1.1 200 OK\r\nX-Space : a\r\nX-Tab\t: b\r\nX-Folded: one,\r\n  two\r\n\tthree\r\n\
         content-length: 0\r\n\r\n",
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(lines(&head, "x-space"), ["a"]);
    assert_eq!(lines(&head, "x-tab"), ["b"]);
    assert_eq!(lines(&head, "x-folded"), ["one, two three"]);
}

#[tokio::test]
async fn a_blank_before_the_colon_hides_no_framing() {
    let fixture = Fixture::new(HeaderRules::default()).await;
    let mut client = fixture
        .send("GET /p/ HTTP/1.1\r\nhost: a\r\n\r\nGET /p/second HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    let mut backend = fixture.accept().await;
    backend.head().await;
    backend
        .write(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\nContent-Length : 3\r\n\r\n\
             5\r\nwhole\r\n0\r\n\r\n",
        )
        .await;
    let head = client.head().await;
    assert!(lines(&head, "content-length").is_empty(), "{head}");
    assert_eq!(lines(&head, "transfer-encoding"), ["chunked"]);
    assert_eq!(client.read_to("0\r\n\r\n").await, "5\r\nwhole\r\n0\r\n\r\n");
    assert!(backend.head().await.starts_with("GET /second "));
    backend.write(OK).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn only_rooted_locations_get_the_prefix() {
    for (location, expected) in [
        ("/next?a", "/v1/sandboxes/b/proxy/80/next?a"),
        ("/", "/v1/sandboxes/b/proxy/80/"),
        ("//other.example/x", "//other.example/x"),
        ("http://other.example/", "http://other.example/"),
        ("next", "next"),
    ] {
        let rules = HeaderRules {
            location_prefix: Some("/v1/sandboxes/b/proxy/80".to_owned()),
            ..HeaderRules::default()
        };
        let response =
            format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let head = seen_by_client(rules, &response).await;
        assert!(head.starts_with("HTTP/1.1 302 "), "{head}");
        assert_eq!(lines(&head, "location"), [expected]);
    }
}

#[tokio::test]
async fn a_response_may_have_a_thousand_header_lines() {
    let lines_of = |count: usize, length: usize| -> String {
        let value = "v".repeat(length);
        (0..count).map(|n| format!("x-{n}: {value}\r\n")).collect()
    };
    // The response itself has one more.
    for (count, length, is_passed) in [
        (299, 1, true),
        (999, 1, true),
        (999, 200, true),
        (1000, 1, false),
        (10, 60_000, false),
    ] {
        let fixture = Fixture::new(HeaderRules::default()).await;
        let request = "GET /p/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let mut client = fixture.send(request).await;
        let mut backend = fixture.accept().await;
        backend.head().await;
        let lines = lines_of(count, length);
        let answer = format!("HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\nok");
        // The proxy may disconnect before it has read all of it.
        let _ = backend.0.write_all(answer.as_bytes()).await;
        let answer = client.rest().await;
        let status = if is_passed { "200" } else { "502" };
        let begin = &answer[..answer.len().min(30)];
        assert!(
            begin.starts_with(&format!("HTTP/1.1 {status} ")),
            "{count}: {begin}"
        );
        let passed = answer.lines().filter(|line| line.starts_with("x-")).count();
        assert_eq!(passed, if is_passed { count } else { 0 });
    }
}

#[tokio::test]
async fn what_a_proxy_behind_put_before_a_location_is_taken_away() {
    for (prefix, location, expected) in [
        (Some("/outer"), "/proxy/80/next?a", "/outer/next?a"),
        (Some("/outer"), "/proxy/80/proxy/80/x", "/outer/proxy/80/x"),
        (Some("/outer"), "/proxy/800/x", "/outer/proxy/800/x"),
        (Some("/outer"), "/next", "/outer/next"),
        (
            Some("/outer"),
            "//other.example/proxy/80/",
            "//other.example/proxy/80/",
        ),
        (None, "/proxy/80/next", "/next"),
        (None, "/next", "/next"),
        (None, "http://other.example/", "http://other.example/"),
    ] {
        let rules = HeaderRules {
            location_strip: Some("/proxy/80".to_owned()),
            location_prefix: prefix.map(str::to_owned),
            ..HeaderRules::default()
        };
        let response =
            format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let head = seen_by_client(rules, &response).await;
        assert_eq!(lines(&head, "location"), [expected]);
    }
}

#[tokio::test]
async fn a_response_with_two_lengths_has_the_one_of_its_chunks() {
    for order in [
        "content-length: 3\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 3",
        "transfer-encoding: Chunked\r\ncontent-length: 3\r\ncontent-length: 900",
    ] {
        let fixture = Fixture::new(HeaderRules::default()).await;
        let mut client = fixture.send("GET /p/ HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut backend = fixture.accept().await;
        backend.head().await;
        let body = "9\r\nall of it\r\n0\r\n\r\n";
        backend
            .write(&format!("HTTP/1.1 200 OK\r\n{order}\r\n\r\n{body}"))
            .await;
        let head = client.head().await;
        assert!(lines(&head, "content-length").is_empty(), "{order}: {head}");
        assert_eq!(lines(&head, "transfer-encoding"), ["chunked"], "{order}");
        assert_eq!(client.read_to("0\r\n\r\n").await, body, "{order}");
    }
}

#[tokio::test]
async fn a_response_in_an_unknown_transfer_coding_is_refused() {
    for coding in [
        "gzip, chunked",
        "gzip",
        "identity",
        "chunked\r\ntransfer-encoding: chunked",
    ] {
        let head = seen_by_client(
            HeaderRules::default(),
            &format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n0\r\n\r\n"),
        )
        .await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{coding}: {head}");
    }
}

#[tokio::test]
async fn a_head_response_keeps_the_length_of_the_body_it_lacks() {
    let fixture = Fixture::new(HeaderRules::default()).await;
    let mut client = fixture
        .send("HEAD /p/ HTTP/1.1\r\nhost: a\r\n\r\nGET /p/second HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    let mut backend = fixture.accept().await;
    assert!(backend.head().await.starts_with("HEAD / "));
    backend
        .write("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n")
        .await;
    assert_eq!(lines(&client.head().await, "content-length"), ["1234"]);
    // The connection is still in sync: it serves the next request.
    assert!(backend.head().await.starts_with("GET /second "));
    backend.write(OK).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn http2_becomes_http1() {
    let fixture = Fixture::new(HeaderRules {
        host: Host::Keep,
        ..HeaderRules::default()
    })
    .await;
    let body = Body::from_stream(stream::iter(["one", "two"].map(Ok::<_, std::io::Error>)));
    let request = Request::post(format!("http://{}/p/x?y", fixture.proxy))
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(body)
        .unwrap();
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let answer = async {
        let mut backend = fixture.accept().await;
        let head = backend.head().await;
        assert!(head.starts_with("POST /x?y HTTP/1.1\r\n"), "{head}");
        assert_eq!(lines(&head, "host"), [fixture.proxy.to_string()]);
        assert_eq!(lines(&head, "cookie"), ["a=1; b=2"]);
        assert_eq!(lines(&head, "transfer-encoding"), ["chunked"]);
        backend.read_to("0\r\n\r\n").await;
        backend.write(OK).await;
    };
    let (response, ()) = tokio::join!(client.request(request), answer);
    assert_eq!(response.unwrap().status(), 200);
}

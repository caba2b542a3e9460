//! The edge of the server on the wire: malformed requests, and what a hostile sandbox sends through
//! the proxy.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

use std::net::{IpAddr, Ipv4Addr};

use osb_testkit::{CannedProgram, TestServer, exchange, running_at};
use reqwest::Method;
use tokio::net::TcpStream;

/// Address of the sandbox.
const BOX: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

#[tokio::test]
async fn a_request_without_one_valid_host_is_refused() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for (version, hosts, status) in [
        ("1.1", "", 400),
        ("1.1", "Host: a\r\nHost: a\r\n", 400),
        ("1.1", "Host: a b\r\n", 400),
        ("1.1", "Host: user@a\r\n", 400),
        ("1.1", "Host: a/b\r\n", 400),
        ("1.1", "Host: a:8080\r\n", 200),
        ("1.1", "Host: [::1]:8080\r\n", 200),
        ("1.0", "", 200),
    ] {
        let request = format!("GET /health HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n");
        let answer = exchange(TcpStream::connect(server.address).await.unwrap(), &request)
            .await
            .unwrap();
        let start = format!("HTTP/{version} {status}");
        assert!(answer.starts_with(&start), "{hosts:?}: {answer}");
        assert!(answer.contains("x-request-id"), "{hosts:?}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_speaks_for_the_whole_origin_does_not_pass_the_proxy() {
    let dropped = [
        "Accept-CH: Sec-CH-UA",
        "Alt-Svc: h3=\":443\"",
        "Clear-Site-Data: \"*\"",
        "Critical-CH: Sec-CH-UA",
        "Expect-CT: max-age=1",
        "NEL: {}",
        "Public-Key-Pins: pin-sha256=\"a\"",
        "Public-Key-Pins-Report-Only: pin-sha256=\"a\"",
        "Refresh: 0;url=/console/sandboxes",
        "Report-To: {}",
        "Reporting-Endpoints: a=\"https://a.example\"",
        "Sec-Session-Registration: (ES256);path=\"/\"",
        "Server: inside",
        "Service-Worker-Allowed: /",
        "Set-Cookie: wide=1; Path=/; domain=example.org",
        "Set-Cookie: osb_console=x",
        "Set-Login: logged-out",
        "Strict-Transport-Security: max-age=1",
        "Use-As-Dictionary: match=\"/console/*\"",
        "WWW-Authenticate: Basic realm=\"OpenSandbox\"",
    ];
    let kept = ["Set-Cookie: own=1; Path=/", "X-Own: 1", "ETag: \"a\""];
    let lines: String = dropped
        .iter()
        .chain(&kept)
        .map(|line| format!("{line}\r\n"))
        .collect();
    let answer = format!("HTTP/1.1 401 No\r\n{lines}Content-Length: 0\r\n\r\n");
    let program = CannedProgram::start(BOX, answer).await.unwrap();
    let server = TestServer::around([running_at("a", BOX, None)], "")
        .await
        .unwrap();
    let path = format!("/sandboxes/a/proxy/{}/", program.address.port());
    let answer = server.bare(Method::GET, &path).send().await.unwrap();
    assert_eq!(answer.status(), 401);
    let headers = answer.headers();
    for line in dropped
        .iter()
        .filter(|line| !line.starts_with("Set-Cookie"))
    {
        let name = line.split(':').next().unwrap();
        assert!(headers.get(name).is_none(), "{line}");
    }
    let cookies: Vec<_> = headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["own=1; Path=/"]);
    assert_eq!(
        (&headers["x-own"], &headers["etag"]),
        (&"1".parse().unwrap(), &"\"a\"".parse().unwrap())
    );
    server.stop().await;
}

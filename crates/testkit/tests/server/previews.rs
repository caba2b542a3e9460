//! Previews with origins of their own: who gets in, and what passes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use osb_service::Supervisor;
use osb_testkit::{API_KEY, TestServer, patience, running_at};
use reqwest::{Client, Response, redirect::Policy};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Address of the sandboxes.
const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 83));
const CONFIG: &str = "[console]\npreview_address = '127.0.0.1:0'\n";

/// A program that answers with the head of the request, and tries to set cookies and more. After an upgrade
/// to `echo` it sends back what comes.
async fn mirror(tasks: &Supervisor) -> SocketAddr {
    let listener = TcpListener::bind((INSIDE, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let each = tasks.clone();
    tasks.spawn_abortable("program", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            each.spawn_abortable("exchange", async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_buf(&mut head).await {
                        Ok(1..) => {}
                        Ok(0) | Err(_) => return,
                    }
                }
                if head.windows(b": echo".len()).any(|part| part == b": echo") {
                    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                                    Upgrade: echo\r\n\r\n";
                    let _ = stream.write_all(switched.as_bytes()).await;
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                    return;
                }
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nSet-Cookie: osb_preview=stolen\r\nSet-Cookie: a=b\r\n\
                     Clear-Site-Data: \"cookies\"\r\nReferrer-Policy: no-referrer\r\n\
                     Content-Length: {}\r\nConnection: close\r\n\r\n",
                    head.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.write_all(&head).await;
            });
        }
    });
    address
}

/// A browser that is signed in.
struct Browser {
    http: Client,
    server: String,
    cookie: String,
}

impl Browser {
    async fn sign_in(server: &TestServer) -> Self {
        let http = Client::builder().redirect(Policy::none()).build().unwrap();
        let base = format!("http://{}", server.address);
        let form = [("key", API_KEY), ("next", "/console")];
        let login = http.post(format!("{base}/console/login"));
        let login = login.header("sec-fetch-site", "same-origin").form(&form);
        let answer = login.send().await.unwrap();
        Self {
            http,
            server: base,
            cookie: cookie(&answer),
        }
    }

    async fn console(&self, path: &str) -> Response {
        let request = self.http.get(format!("{}{path}", self.server));
        let request = request.header("cookie", &self.cookie);
        request.send().await.unwrap()
    }
}

fn cookie(answer: &Response) -> String {
    let cookie = answer.headers().get("set-cookie");
    let cookie = cookie.unwrap_or_else(|| panic!("no cookie: {answer:?}"));
    let cookie = cookie.to_str().unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

/// Where an answer leads.
fn location(answer: &Response) -> String {
    let location = answer.headers().get("location");
    let location = location.unwrap_or_else(|| panic!("it leads nowhere: {answer:?}"));
    location.to_str().unwrap().to_owned()
}

/// Requests to the listener, which is not found by its names here.
struct Listener<'a> {
    browser: &'a Browser,
    address: SocketAddr,
    host: String,
}

impl Listener<'_> {
    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let request = self
            .browser
            .http
            .get(format!("http://{}{path}", self.address));
        let request = request.header("host", &self.host);
        // As browsers that open a page.
        let request = request.header("accept", "text/html,*/*;q=0.8");
        self.get_with(request, headers).await
    }

    /// A request of a part of a page.
    async fn part(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let url = format!("http://{}{path}", self.address);
        let request = self.browser.http.get(url).header("host", &self.host);
        self.get_with(request.header("accept", "*/*"), headers)
            .await
    }

    async fn get_with(
        &self,
        request: reqwest::RequestBuilder,
        headers: &[(&str, &str)],
    ) -> Response {
        let with = |request: reqwest::RequestBuilder, header: &(&str, &str)| {
            request.header(header.0, header.1)
        };
        headers.iter().fold(request, with).send().await.unwrap()
    }

    /// A connection that the program echoes.
    async fn tunnel(&self, pass: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let host = &self.host;
        let head = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nCookie: {pass}\r\n\
             Connection: upgrade\r\nUpgrade: echo\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101"), "{answer:?}");
        echoed(&mut stream).await;
        stream
    }
}

async fn echoed(stream: &mut TcpStream) {
    stream.write_all(b"ping").await.unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"ping");
}

#[tokio::test]
async fn a_ticket_of_the_console_opens_one_origin_and_no_cookie_passes() {
    let tasks = Supervisor::new();
    let program = mirror(&tasks).await;
    let known = ["a", "b"].map(|id| running_at(id, INSIDE, None));
    let server = TestServer::around(known, CONFIG).await.unwrap();
    let address = server.preview_address().unwrap();
    let browser = Browser::sign_in(&server).await;
    let port = program.port();
    let led = location(&browser.console(&format!("/console/preview/a/{port}")).await);
    let host = format!("a-{port}.localhost:{}", address.port());
    let path = led.strip_prefix(&format!("http://{host}")).unwrap();
    let own = Listener {
        browser: &browser,
        address,
        host,
    };
    let other = Listener {
        host: format!("b-{port}.localhost:{}", address.port()),
        ..own
    };
    assert_eq!(own.get("/", &[]).await.status(), 403, "without a pass");
    let entered = own.get(path, &[]).await;
    assert_eq!(
        (entered.status().as_u16(), &*location(&entered)),
        (303, "/")
    );
    let attributes = entered.headers()["set-cookie"].to_str().unwrap();
    assert!(
        attributes.contains("HttpOnly; SameSite=Lax"),
        "{attributes}"
    );
    assert!(!attributes.contains("Domain"), "{attributes}");
    let pass = cookie(&entered);
    assert_eq!(own.get(path, &[]).await.status(), 403, "used");
    // HTTP/2 has no such header: the host is in the address.
    let name = own.host.split(':').next().unwrap();
    let newer = Client::builder().http2_prior_knowledge();
    let newer = newer.resolve(name, address).build().unwrap();
    let answer = newer
        .get(format!("http://{}/", own.host))
        .header("accept", "text/html")
        .header("cookie", &pass);
    let answer = answer.send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), answer.version()),
        (200, reqwest::Version::HTTP_2)
    );

    let cookies = format!("osb_preview=of-a-neighbour; {pass}; theirs=1");
    let headers = [("cookie", &*cookies), ("authorization", "Bearer theirs")];
    let shown = own.get("/a//b?x=%20", &headers).await;
    assert_eq!(shown.status(), 200);
    for absent in ["set-cookie", "clear-site-data"] {
        assert_eq!(shown.headers().get(absent), None, "{absent}");
    }
    let policy = shown.headers()["content-security-policy"].to_str().unwrap();
    assert_eq!(policy, "frame-ancestors 'self'");
    let referrer = shown.headers()["referrer-policy"].to_str().unwrap();
    assert_eq!(referrer, "same-origin", "or its parts are refused");
    let head = shown.text().await.unwrap().to_ascii_lowercase();
    assert!(head.starts_with("get /a//b?x=%20 http/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: bearer theirs"), "{head}");
    assert!(!head.contains("cookie"), "{head}");

    // The pass is for one origin.
    let wrong = other.get("/", &[("cookie", &pass)]).await;
    assert_eq!(wrong.status(), 403);
    // So is a ticket.
    let led = location(&browser.console(&format!("/console/preview/a/{port}")).await);
    let path = led.split_once(".localhost:").unwrap().1;
    let path = &path[path.find('/').unwrap()..];
    assert_eq!(other.get(path, &[]).await.status(), 403);
    assert_eq!(own.get(path, &[]).await.status(), 403, "it is used up");
    server.stop().await;
    tasks.stop();
}

#[tokio::test]
async fn pages_of_other_origins_get_nothing() {
    let tasks = Supervisor::new();
    let program = mirror(&tasks).await;
    let server = TestServer::around([running_at("a", INSIDE, None)], CONFIG).await;
    let server = server.unwrap();
    let address = server.preview_address().unwrap();
    let browser = Browser::sign_in(&server).await;
    let port = program.port();
    let path = format!("/console/preview/a/{port}");
    let foreign = browser.http.get(format!("{}{path}", browser.server));
    let foreign = foreign.header("cookie", &browser.cookie);
    let foreign = foreign.header("sec-fetch-site", "cross-site").send().await;
    assert_eq!(foreign.unwrap().status(), 403, "a link elsewhere");
    let led = location(&browser.console(&path).await);
    let listener = Listener {
        browser: &browser,
        address,
        host: format!("a-{port}.localhost:{}", address.port()),
    };
    let path = &led["http://".len()..];
    let pass = cookie(&listener.get(&path[path.find('/').unwrap()..], &[]).await);
    let own = format!("http://{}", listener.host);
    let cases: [(&[(&str, &str)], u16); 9] = [
        (&[("sec-fetch-site", "same-origin")], 200),
        (&[("sec-fetch-site", "none")], 200),
        (&[("origin", &own)], 200),
        (&[("origin", "http://b-80.localhost:8091")], 403),
        (&[("origin", "null")], 403),
        (
            &[
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-mode", "no-cors"),
            ],
            403,
        ),
        (
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "websocket"),
            ],
            403,
        ),
        (
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "iframe"),
            ],
            403,
        ),
        // The user follows a link.
        (
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "document"),
            ],
            200,
        ),
    ];
    for (headers, status) in cases {
        let headers: Vec<_> = headers
            .iter()
            .copied()
            .chain([("cookie", &*pass)])
            .collect();
        let answer = listener.get("/", &headers).await;
        assert_eq!(answer.status(), status, "{headers:?}");
    }
    // Browsers name no origin of a read, and by plain HTTP nothing else but the page.
    let own_page = format!("{own}/page?x");
    for (referer, status) in [
        (&*own_page, 200),
        (&*own, 200),
        ("http://b-80.localhost:8091/", 403),
        (
            "http://b-80.localhost:8091/?http://a-80.localhost:8091/",
            403,
        ),
        ("", 403),
    ] {
        let headers = [("cookie", &*pass), ("referer", referer)];
        let answer = listener.part("/", &headers).await;
        assert_eq!(answer.status(), status, "{referer:?}");
    }
    let answer = listener.part("/", &[("cookie", &pass)]).await;
    assert_eq!(answer.status(), 403, "without a page");
    for host in ["localhost", "a-44772.localhost", "127.0.0.1"] {
        let elsewhere = Listener {
            host: host.to_owned(),
            ..listener
        };
        for path in ["/", "/console", "/v1/sandboxes", "/docs"] {
            let status = elsewhere.get(path, &[("cookie", &pass)]).await.status();
            assert!(
                [403, 404].contains(&status.as_u16()),
                "{host}{path}: {status}"
            );
        }
    }
    server.stop().await;
    tasks.stop();
}

#[tokio::test]
async fn a_preview_ends_with_the_session_that_opened_it() {
    let tasks = Supervisor::new();
    let program = mirror(&tasks).await;
    let server = TestServer::around([running_at("a", INSIDE, None)], CONFIG).await;
    let server = server.unwrap();
    let address = server.preview_address().unwrap();
    let port = program.port();
    let mut open = Vec::new();
    let browsers = [
        Browser::sign_in(&server).await,
        Browser::sign_in(&server).await,
    ];
    for browser in &browsers {
        let led = location(&browser.console(&format!("/console/preview/a/{port}")).await);
        let listener = Listener {
            browser,
            address,
            host: format!("a-{port}.localhost:{}", address.port()),
        };
        let path = &led["http://".len()..];
        let pass = cookie(&listener.get(&path[path.find('/').unwrap()..], &[]).await);
        assert_eq!(listener.get("/", &[("cookie", &pass)]).await.status(), 200);
        let tunnel = listener.tunnel(&pass).await;
        open.push((listener, pass, tunnel));
    }
    let leaves = &browsers[0];
    let logout = leaves
        .http
        .post(format!("{}/console/logout", leaves.server));
    let logout = logout.header("cookie", &leaves.cookie);
    let logout = logout.header("sec-fetch-site", "same-origin");
    assert_eq!(logout.send().await.unwrap().status(), 303);
    let (listener, pass, tunnel) = &mut open[0];
    let mut rest = Vec::new();
    let ended = tunnel.read_to_end(&mut rest);
    let ended = tokio::time::timeout(patience(), ended).await;
    ended.expect("the connection ends, too").unwrap();
    let mut answers = 0;
    while listener.get("/", &[("cookie", pass)]).await.status() != 403 {
        answers += 1;
        assert!(answers < 10_000, "it goes on");
        tokio::task::yield_now().await;
    }
    let (listener, pass, tunnel) = &mut open[1];
    assert_eq!(listener.get("/", &[("cookie", pass)]).await.status(), 200);
    echoed(tunnel).await;
    server.stop().await;
    tasks.stop();
}

#[tokio::test]
async fn what_cannot_be_previewed_is_said() {
    let server = TestServer::around([running_at("a", INSIDE, None)], CONFIG).await;
    let server = server.unwrap();
    let browser = Browser::sign_in(&server).await;
    for (path, status) in [
        ("/console/preview/none/80", 404),
        ("/console/preview/a/44772", 422),
        ("/console/preview/a/0", 400),
        ("/console/preview/a/x", 400),
    ] {
        assert_eq!(browser.console(path).await.status(), status, "{path}");
    }
    server.stop().await;
    let server = TestServer::around([running_at("a", INSIDE, None)], "").await;
    let server = server.unwrap();
    assert_eq!(server.preview_address(), None);
    let browser = Browser::sign_in(&server).await;
    let answer = browser.console("/console/preview/a/80").await;
    assert_eq!(answer.status(), 501);
    let why = answer.text().await.unwrap();
    assert!(why.contains("console.preview_address"), "{why}");
    server.stop().await;
}

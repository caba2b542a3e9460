//! No page of another site acts through the console, whatever its visitor may do there: neither with
//! a form, nor with a call of a function, nor with a WebSocket.

use osb_testkit::wait_until;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    ServiceAdmin,
    cell::{Caller, answer, open_socket},
    cells, server_with,
};

/// How browsers name a page of another site.
const FOREIGN: [(&str, &str); 5] = [
    ("sec-fetch-site", "cross-site"),
    // A sandbox's own host name may share the site.
    ("sec-fetch-site", "same-site"),
    ("origin", "http://evil.test"),
    // A frame without an origin, such as a page of a sandbox behind the proxy.
    ("origin", "null"),
    // Another server of this machine.
    ("origin", "http://127.0.0.1:1"),
];

#[tokio::test]
async fn no_route_of_the_console_acts_for_another_origin() {
    let (server, _folder) = server_with(true, "").await;
    let admin = Caller::new(&server, ServiceAdmin, None).await;
    let id = admin.create(&server, "mark-of-own").await;
    // What acts could change; a key also knows when it was used last.
    let all = async || {
        let mut all = Vec::<Value>::new();
        for (path, fields) in [
            ("/v1/sandboxes", ["id", "status", "expiresAt"]),
            ("/v1/api-keys", ["id", "name", "role"]),
            ("/v1/users", ["id", "name", "role"]),
        ] {
            let request = server.request_as(admin.secret(), Method::GET, path);
            let (status, list) = answer(request).await;
            assert_eq!(status, 200, "{path}: {list}");
            let items = list["items"].as_array().unwrap();
            all.extend(
                items
                    .iter()
                    .map(|item| json!(fields.map(|field| &item[field]))),
            );
        }
        all
    };
    let is_running = |all: &Vec<Value>| all.iter().any(|it| it[1]["state"] == "Running");
    wait_until("the sandbox", all, is_running).await;
    let before = all().await;
    let (mut sockets, mut acts) = (0, 0);
    for cell in cells(&server) {
        if !cell.is_of_console() {
            continue;
        }
        for header in FOREIGN {
            let what = format!("{header:?}: {} {}", cell.method, cell.pattern);
            if cell.opens_a_socket() {
                if header.0 == "origin" {
                    let seen = open_socket(&server, &admin, &cell.path(&id), header.1).await;
                    assert_eq!(seen.status, 403, "{what}: {seen:?}");
                    sockets += 1;
                }
            } else if cell.method != Method::GET {
                let seen = cell.send_with(&server, &admin, &id, header).await;
                assert_eq!(seen.status, 403, "{what}: {seen:?}");
                acts += 1;
            }
        }
    }
    assert!(
        sockets >= 9 && acts >= 200,
        "{sockets} sockets, {acts} acts"
    );
    assert_eq!(all().await, before, "nothing was changed");
    server.stop().await;
}

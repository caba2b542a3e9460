//! A sidecar that is started before its sandbox, and claimed by it.

use hickory_server::proto::op::ResponseCode;

use crate::world::World;

const ALLOW_A: &str = r#"{"egress":[
    {"action":"allow","target":"a.example"},
    {"action":"allow","target":"203.0.113.0/24"}
]}"#;
const OPEN: &str = r#"{"defaultAction":"allow"}"#;

/// Settings of a sidecar that waits for sandbox `box-1`.
fn waiting(file: &str) -> [(&str, &str); 3] {
    [
        ("OPENSANDBOX_EGRESS_AWAIT_CLAIM", "true"),
        ("OPENSANDBOX_EGRESS_SANDBOX_ID", "box-1"),
        ("OPENSANDBOX_EGRESS_POLICY_FILE", file),
    ]
}

/// Whether a sandbox reaches nothing.
fn is_closed(world: &World) -> bool {
    let resolved = world.resolve("a.example");
    let addresses = ["198.51.100.1", "203.0.113.1", "2001:db8::1"];
    let mut addresses = addresses.into_iter();
    resolved.code == ResponseCode::NXDomain && addresses.all(|it| !world.reaches(it, 443))
}

fn world(file: &str) -> World {
    let world = World::with("dns+nft", "", &waiting(file));
    world.internet.name("a.example", &["198.51.100.1"]);
    world
}

fn place() -> (tempfile::TempDir, String) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("policy.json").display().to_string();
    (place, file)
}

fn status(world: &World, method: &str, path: &str, body: &str) -> u16 {
    world.call(method, path, body).expect("it answers").0
}

#[test]
fn everything_is_refused_until_the_claim_and_a_second_one_is_refused() {
    let (_place, file) = place();
    let world = world(&file);
    assert!(is_closed(&world));
    assert_eq!(status(&world, "PUT", "/policy", OPEN), 409);
    assert_eq!(status(&world, "POST", "/claim/box-2", OPEN), 409);
    assert!(is_closed(&world), "what is refused changes nothing");
    assert_eq!(status(&world, "POST", "/claim/box-1", ALLOW_A), 200);
    assert_eq!(world.resolve("a.example").code, ResponseCode::NoError);
    assert!(world.reaches("198.51.100.1", 443));
    assert!(world.reaches("203.0.113.1", 443));
    assert!(!world.reaches("198.51.100.2", 443));
    for sandbox in ["box-1", "box-2"] {
        let path = format!("/claim/{sandbox}");
        assert_eq!(status(&world, "POST", &path, OPEN), 409, "{sandbox}");
    }
    assert!(!world.reaches("198.51.100.2", 443));
    world.policy("PUT", OPEN);
    assert!(world.reaches("198.51.100.2", 443), "as in any sandbox");
}

#[test]
fn a_worker_that_starts_again_waits_on_or_goes_on_with_the_claimed_policy() {
    let (_place, file) = place();
    let mut world = world(&file);
    world.kill();
    assert!(!world.reaches("203.0.113.1", 443), "closed without it");
    world.start("dns+nft", "", &waiting(&file));
    assert!(is_closed(&world));
    assert_eq!(status(&world, "POST", "/claim/box-1", ALLOW_A), 200);
    world.policy("DELETE", r#"["203.0.113.0/24"]"#);
    world.kill();
    world.start("dns+nft", "", &waiting(&file));
    assert_eq!(world.resolve("a.example").code, ResponseCode::NoError);
    assert!(world.reaches("198.51.100.1", 443));
    assert!(
        !world.reaches("203.0.113.1", 443),
        "what was revoked stays so"
    );
    assert_eq!(status(&world, "POST", "/claim/box-1", OPEN), 409);
    assert!(!world.reaches("203.0.113.1", 443));
}

/// A container that starts again has a new network namespace, and its files.
#[test]
fn a_container_that_starts_again_is_as_closed_as_before() {
    let (_place, file) = place();
    drop(world(&file));
    let again = world(&file);
    assert!(is_closed(&again));
    assert_eq!(status(&again, "POST", "/claim/box-1", ALLOW_A), 200);
    drop(again);
    let again = world(&file);
    assert!(again.reaches("203.0.113.1", 443));
    assert!(!again.reaches("198.51.100.2", 443));
    assert_eq!(status(&again, "POST", "/claim/box-1", OPEN), 409);
}

#[test]
fn a_policy_file_that_is_spoilt_opens_nothing() {
    let (_place, file) = place();
    for text in ["", "{", r#"{"egress":[{"target":"*"}]}"#] {
        std::fs::write(&file, text).unwrap();
        let world = world(&file);
        assert!(is_closed(&world), "{text:?}");
    }
}

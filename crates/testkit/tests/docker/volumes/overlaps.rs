//! Directories of the host in two sandboxes, one of them below the other.

use super::*;

const NOT_ALLOWED: &str = "VOLUME::HOST_PATH_NOT_ALLOWED";

/// Asserts that a create is refused for its overlap with another sandbox's directory.
async fn assert_overlaps(server: &TestServer, volumes: Value, code: &str) {
    let (status, seen, message) = refused(server, volumes).await;
    assert_eq!((status, seen.as_str()), (400, code), "{message}");
    assert!(message.contains("storage.allow_racy_paths"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_of_two_sandboxes_may_overlap_only_if_the_upper_one_is_read_only() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let folder = Folder::new();
    let data = folder.path();
    let server = server_with(&stage, &folder, false).await;
    let at = |path: PathBuf, more: Value| host(&path, more);
    let first = create(&server, &with(at(data.join("x"), json!({})))).await;
    // One above it, so that it could be moved, and one below it.
    assert_overlaps(&server, at(data.clone(), json!({})), NOT_ALLOWED).await;
    assert_overlaps(&server, at(data.join("x/a"), json!({})), NOT_ALLOWED).await;
    let below = at(data.join("x"), json!({"subPath": "a"}));
    assert_overlaps(&server, below, "VOLUME::INVALID_SUB_PATH").await;
    // The same one, one beside it, and one above it without write access.
    for volumes in [
        at(data.join("x"), json!({})),
        at(data.join("y"), json!({})),
        at(data.clone(), json!({"readOnly": true})),
    ] {
        let id = create(&server, &with(volumes)).await;
        delete(&server, &id).await;
    }
    // One of two sandboxes with the same directory has ended.
    assert_overlaps(&server, at(data.clone(), json!({})), NOT_ALLOWED).await;
    // A create waits for a removal that was answered.
    let path = format!("/v1/sandboxes/{first}");
    assert_eq!(answer(server.request(Method::DELETE, &path)).await.0, 204);
    let whole = create(&server, &with(at(data, json!({})))).await;
    delete(&server, &whole).await;
    server.stop().await;
}

#[test]
fn a_directory_is_known_after_it_was_renamed_and_the_server_restarted() {
    let mut stage = Stage::set();
    let folder = Folder::new();
    let data = folder.path();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let at = |name: &str| host(&data.join(name), json!({}));
    let first = process();
    first.block_on(async {
        stage.engine.up().unwrap();
        let server = server_with(&stage, &folder, false).await;
        create(&server, &with(at("x"))).await;
    });
    first.shutdown_timeout(Duration::from_secs(60));
    // As a sandbox with the whole folder could, on a server without these checks.
    fs::rename(data.join("x"), data.join("y")).unwrap();
    fs::create_dir(data.join("y/sub")).unwrap();
    process().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let server = server_with(&stage, &folder, false).await;
        assert_overlaps(&server, at("y/sub"), NOT_ALLOWED).await;
        let same = create(&server, &with(at("y"))).await;
        delete(&server, &same).await;
        let [container] = &stage.containers()[..] else {
            panic!("{:?}", stage.containers());
        };
        docker(&["rm", "--force", container]);
        let below = create(&server, &with(at("y/sub"))).await;
        delete(&server, &below).await;
        server.stop().await;
    });
}

#[test]
fn a_directory_that_one_sandbox_moved_is_still_the_one_that_another_has() {
    let mut stage = Stage::set();
    let folder = Folder::new();
    let data = folder.path();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let at = |name: &str| host(&data.join(name), json!({}));
    // The operator accepts overlaps.
    let first = process();
    let holder = first.block_on(async {
        stage.engine.up().unwrap();
        let server = server(&stage, &folder).await;
        let holder = create(&server, &with(at("x"))).await;
        let mover = create(&server, &with(host(&data, json!({})))).await;
        shell(&stage, &mover, "mkdir /data/x/sub && mv /data/x /data/y");
        delete(&server, &mover).await;
        holder
    });
    first.shutdown_timeout(Duration::from_secs(60));
    // And no longer does.
    process().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let server = server_with(&stage, &folder, false).await;
        assert_eq!(shell(&stage, &holder, "ls /data"), "sub");
        assert_overlaps(&server, at("y/sub"), NOT_ALLOWED).await;
        delete(&server, &holder).await;
        let below = create(&server, &with(at("y/sub"))).await;
        delete(&server, &below).await;
        server.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_an_image_declares_is_in_no_sandboxs_way() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let folder = Folder::new();
    let image = Image::made(&stage, "declares", "true", "VOLUME /cache");
    let server = server_with(&stage, &folder, false).await;
    let mut body = body();
    body["image"]["uri"] = image.0.as_str().into();
    let first = create(&server, &body).await;
    let below = with(host(&folder.path().join("sub"), json!({})));
    let second = create(&server, &below).await;
    assert_eq!(shell(&stage, &first, "touch /cache/x; ls /cache"), "x");
    delete(&server, &second).await;
    delete(&server, &first).await;
    server.stop().await;
}

//! Mounts that lead over the platform's directories through links of the image.

use super::*;

/// Claims a volume at a path.
fn at(volume: &Kept, path: &str) -> Value {
    let name: String = path.chars().filter(char::is_ascii_alphanumeric).collect();
    json!({"name": name, "mountPath": path, "pvc": {"claimName": volume.0}})
}

fn of(image: &Image, volumes: &[Value]) -> Value {
    let mut body = with(volumes.into());
    body["image"]["uri"] = image.0.as_str().into();
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn no_link_of_an_image_leads_a_volume_over_the_platform() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let links = "ln -s /opt/opensandbox/.dist /last && ln -s /opt /middle && ln -s /last /chain && \
                 ln -s opt/opensandbox /relative && ln -s ../../../opt/opensandbox /upwards && \
                 ln -s / /root-of-all && ln -s /opt /above && ln -s /var/lib/execd/new /missing && \
                 mkdir /in && ln -s /var/lib /in/lib && mkdir -p /p/q && ln -s /data /p/q/r";
    let image = Image::made(&stage, "links", links, "ENV A=b");
    let server = stage.server().await;
    ready(&server).await;
    let (volume, other) = (Kept(name(&stage, "covers")), Kept(name(&stage, "links-in")));
    for path in [
        "/last",
        "/middle/opensandbox",
        "/middle/opensandbox/.dist",
        "/middle//./opensandbox/.dist/",
        "/chain",
        "/relative",
        "/relative/.dist",
        "/relative/.dist/execd",
        "/upwards/.dist",
        "/root-of-all",
        "/above",
        "/missing",
        "/missing/below",
        "/in/lib/execd",
        "/in/lib",
    ] {
        let (status, code, message) =
            refused_create(&server, &of(&image, &[at(&volume, path)])).await;
        assert_eq!(
            (status, code.as_str()),
            (400, "VOLUME::INVALID_MOUNT_PATH"),
            "{path}: {message}"
        );
        assert!(message.contains("volumes.0.mountPath"), "{path}: {message}");
    }
    // A link in another volume of the same request.
    let maker = create(&server, &with(json!([at(&other, "/data")]))).await;
    shell(&stage, &maker, "ln -s /opt/opensandbox /data/out");
    let over = [at(&other, "/data"), at(&volume, "/data/out/.dist")];
    // A third volume hides the first, once that has led the second away.
    let hidden = [
        at(&other, "/data"),
        at(&volume, "/data/out"),
        at(&volume, "/p/q/r"),
    ];
    for volumes in [&over[..], &hidden] {
        let (status, code, message) = refused_create(&server, &of(&image, volumes)).await;
        assert_eq!(
            (status, code.as_str()),
            (400, "VOLUME::INVALID_MOUNT_PATH"),
            "{message}"
        );
    }
    delete(&server, &maker).await;
    assert_eq!(stage.containers(), [""; 0]);
    // Links that lead elsewhere are used: those of Debian, and this image's own.
    // The engine fills an empty volume with what the image has at its path.
    let fresh = Kept(name(&stage, "fresh"));
    let good = [
        at(&fresh, "/var/run/data"),
        at(&other, "/middle/other"),
        at(&other, "/bin/tools"),
    ];
    let id = create(&server, &of(&image, &good)).await;
    let line = "touch /run/data/x /opt/other/y && ls /var/run/data /usr/bin/tools";
    let seen = shell(&stage, &id, line);
    assert_eq!(seen, "/usr/bin/tools:\nout\ny\n\n/var/run/data:\nx");
    delete(&server, &id).await;
    server.stop().await;
}

/// The platform's directory may be where a link of the image leads, so that a harmless path is its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_platforms_directories_are_found_behind_links() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let moved = "mkdir /moved && cp -a /opt/. /moved && rm -rf /opt && ln -s /moved /opt && \
                 mkdir -p /moved/opensandbox && ln -s /dist /moved/opensandbox/.dist";
    let image = Image::made(&stage, "moved", moved, "ENV A=b");
    let server = stage.server().await;
    ready(&server).await;
    let volume = Kept(name(&stage, "moved"));
    for path in ["/moved/opensandbox", "/moved", "/dist", "/dist/execd"] {
        let (status, code, message) =
            refused_create(&server, &of(&image, &[at(&volume, path)])).await;
        assert_eq!(
            (status, code.as_str()),
            (400, "VOLUME::INVALID_MOUNT_PATH"),
            "{path}: {message}"
        );
    }
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_volume_that_an_image_declares_covers_the_platform() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let before = create(&server, &body()).await;
    for (number, declared) in [
        "/opt/opensandbox/.dist/execd",
        "/opt/opensandbox/.dist/execd-x",
        "/opt/opensandbox",
        "/var/lib/execd/isolation",
        "/link",
        "/link/new",
        "/high",
    ]
    .iter()
    .enumerate()
    {
        let links = "ln -s /opt/opensandbox/.dist /link; ln -s /opt /high";
        let change = format!("VOLUME {declared}");
        let image = Image::made(&stage, &format!("declares-{number}"), links, &change);
        let (status, _, message) = refused_create(&server, &of(&image, &[])).await;
        assert_eq!(status, 400, "{declared}: {message}");
        assert!(
            message.contains("image.uri") && message.contains(declared),
            "{declared}: {message}"
        );
        // The volume that all sandboxes share is what it was.
        assert_eq!(
            shell(&stage, &before, "ls /opt/opensandbox/.dist"),
            "execd",
            "{declared}"
        );
    }
    // Below a directory of its own, and above the platform's, an image may declare one.
    let image = Image::made(
        &stage,
        "declares-above",
        "true",
        r#"VOLUME ["/var/lib", "/opt"]"#,
    );
    let id = create(&server, &of(&image, &[])).await;
    assert_eq!(shell(&stage, &id, "touch /opt/x; ls /opt/x"), "/opt/x");
    delete(&server, &id).await;
    delete(&server, &before).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

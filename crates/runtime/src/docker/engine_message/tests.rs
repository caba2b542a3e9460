//! Words of the tables in the texts of clients, in messages of Docker 20.10 and Docker 28.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::docker::{execd_volume::EXECD, labels, ports};

/// Messages with the places of a client's texts: `{path}`, and `{"path"}` in Go's quotes, `{volume}`,
/// `{image}`, `{arch}`, `{value}` of a variable, and `{entry}` of the entry point.
const WITH_TEXTS: [(&str, Option<Cause>); 15] = [
    // Docker 20.10, as it answered.
    (
        "lstat /var/lib/docker/overlay2/4119/merged{path}: not a directory",
        None,
    ),
    (
        "failed to create shim task: OCI runtime create failed: runc create failed: unable to start \
         container process: error during container init: error mounting \
         \"/var/lib/docker/volumes/{volume}/_data\" to rootfs at \"{\"path\"}\": mkdir \
         /var/lib/docker/overlay2/b950/merged{path}: not a directory: unknown: Are you trying to mount a \
         directory onto a file (or vice-versa)? Check if the specified host path exists and is the \
         expected type",
        Some(Cause::MountMissing),
    ),
    (
        "failed to create shim task: OCI runtime create failed: runc create failed: unable to start \
         container process: error during container init: error mounting \
         \"/var/lib/docker/volumes/{volume}/_data\" to rootfs at \"{\"path\"}\": \
         \"/var/lib/docker/overlay2/6b6a/merged{path}\" cannot be mounted because it is inside /proc: \
         unknown",
        Some(Cause::MountMissing),
    ),
    (
        "invalid mount config for type \"bind\": bind source path does not exist: {path}",
        Some(Cause::MountMissing),
    ),
    (
        "create {volume}: \"{volume}\" includes invalid characters for a local volume name, only \
         \"[a-zA-Z0-9][a-zA-Z0-9_.-]\" are allowed. If you intended to pass a host directory, use absolute \
         path",
        None,
    ),
    ("get {volume}: no such volume", Some(Cause::MountMissing)),
    (
        "image with reference {image} was found but does not match the specified platform: wanted \
         linux/{arch}, actual: linux/amd64",
        Some(Cause::WrongPlatform),
    ),
    ("No such image: {image}", Some(Cause::ImageNotFound)),
    ("invalid environment variable: ={value}", None),
    (
        "failed to create shim task: OCI runtime create failed: runc create failed: unable to start \
         container process: exec: \"{entry}\": executable file not found in $PATH: unknown",
        Some(Cause::EntrypointNotFound),
    ),
    (
        "failed to create shim task: OCI runtime create failed: runc create failed: unable to start \
         container process: exec: \"{entry}\": permission denied: unknown",
        Some(Cause::EntrypointNotExecutable),
    ),
    // Docker 28, by its sources and runc's.
    (
        "failed to create task for container: failed to create shim task: OCI runtime create failed: runc \
         create failed: unable to start container process: error during container init: error mounting \
         \"/var/lib/docker/volumes/{volume}/_data\" to rootfs at \"{\"path\"}\": create mountpoint for \
         {path} mount: mkdirat /var/lib/docker/overlay2/b950/merged{path}: not a directory",
        Some(Cause::MountMissing),
    ),
    (
        "Error response from daemon: invalid mount config for type \"bind\": bind source path does not \
         exist: {path}",
        Some(Cause::MountMissing),
    ),
    (
        "image with reference {image} was found but its platform (linux/amd64) does not match the \
         specified platform (linux/{arch})",
        Some(Cause::WrongPlatform),
    ),
    (
        "failed to create shim task: OCI runtime create failed: runc create failed: container process \
         \"{entry}\" cannot be started",
        None,
    ),
];

/// Messages that have no texts of clients, and what they mean.
const WITHOUT_TEXTS: [(&str, Option<Cause>); 9] = [
    (
        "driver failed programming external connectivity on endpoint em1 (4e21): Bind for 127.0.0.1:45991 \
         failed: port is already allocated",
        Some(Cause::PortTaken),
    ),
    (
        "driver failed programming external connectivity on endpoint em2 (21d9): Error starting userland \
         proxy: listen tcp4 127.0.0.1:54939: bind: address already in use",
        Some(Cause::PortTaken),
    ),
    (
        "failed to set up container networking: driver failed programming external connectivity on \
         endpoint em3 (4e21): failed to bind host port 127.0.0.1:45991/tcp: address already in use",
        Some(Cause::PortTaken),
    ),
    (
        "could not select device driver \"\" with capabilities: [[gpu]]",
        Some(Cause::NoGpu),
    ),
    (
        "Unknown runtime specified nope",
        Some(Cause::UnknownOciRuntime),
    ),
    (
        "Minimum memory limit allowed is 6MB",
        Some(Cause::LimitRefused),
    ),
    (
        "mkdir /var/lib/docker/overlay2/x: no space left on device",
        Some(Cause::DiskFull),
    ),
    (
        "failed to create shim task: OCI runtime create failed: runc create failed: unable to start \
         container process: exec: \"/opt/opensandbox/.dist/execd\": stat /opt/opensandbox/.dist/execd: no \
         such file or directory: unknown",
        Some(Cause::EntrypointNotFound),
    ),
    (
        "fork/exec /proc/self/exe: cannot allocate memory",
        Some(Cause::NoMemory),
    ),
];

/// Words and sentences that decide something, besides those of the causes.
const DECIDING: [&str; 9] = [
    "disable_ipv6",
    "open /proc/sys/net/ipv6/conf/all/disable_ipv6: no such file or directory",
    "/opt/opensandbox/.dist/execd",
    "exec: \"/opt/opensandbox/.dist/execd\": stat /opt/opensandbox/.dist/execd: no such file or directory",
    "network ours not found",
    "network ours is ambiguous",
    "driver failed programming external connectivity on endpoint a (b): port is already allocated",
    "could not select device driver",
    "image with reference a was found but does not match the specified platform",
];

/// Every word that decides, and what a client may put around it.
fn words() -> impl Strategy<Value = String> {
    let all: Vec<&str> = Cause::patterns().chain(DECIDING).collect();
    let around = prop::sample::select(vec![
        "",
        " ",
        ": ",
        "\"",
        "\\",
        "'",
        ": unknown",
        "\u{e4}",
        "A",
    ]);
    (around.clone(), prop::sample::select(all), around)
        .prop_map(|(before, word, after)| format!("{before}{word}{after}"))
}

/// What the engine takes for the name of an image or a volume.
fn as_name(words: &str) -> String {
    let words = words.to_lowercase();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric();
    let name: String = words
        .chars()
        .map(|letter| {
            if is_plain(letter) || letter == '.' {
                letter
            } else {
                '-'
            }
        })
        .collect();
    name.trim_matches(['-', '.']).to_owned()
}

fn read(message: &str, spec: &CreateSpec) -> EngineMessage {
    EngineMessage::of_text(message, &ClientTexts::of(spec))
}

fn spec(image: &str) -> CreateSpec {
    let mut spec = labels::tests::spec();
    spec.origin.source = Source::Image(image.to_owned());
    spec
}

fn volume(path: &str, claim: &str) -> osb_protocol::lifecycle::Volume {
    let volume = json!({"name": "v", "mountPath": path, "pvc": {"claimName": claim}});
    serde_json::from_value(volume).unwrap()
}

proptest! {
    #[test]
    fn a_clients_text_is_not_the_engines_word(
        words in words(),
        (message, cause) in prop::sample::select(WITH_TEXTS.to_vec()),
        above in 0..3_usize,
        is_long in any::<bool>(),
    ) {
        let name = as_name(&words);
        let image = format!("{name}/{name}:{name}");
        let filler = if is_long { "x".repeat(700) } else { "x".to_owned() };
        let parts = ["etc", &words, &filler, &words];
        let requested = format!("//{}/./", parts.join("//"));
        // The engine names a directory above if that is where it failed.
        let shown = format!("/{}", parts.join("/"));
        let shown: Vec<&str> = shown.split('/').filter(|it| !it.is_empty()).collect();
        let shown = format!("/{}", shown[..shown.len() - above.min(shown.len() - 1)].join("/"));
        let mut spec = spec(&image);
        spec.volumes = vec![volume(&requested, &name)];
        spec.origin.entrypoint = vec![words.clone()];
        spec.origin.metadata.insert(words.clone(), words.clone());
        spec.env.insert(String::new(), Some(words.clone()));
        spec.origin.platform = Some(osb_protocol::lifecycle::Platform {
            os: "linux".to_owned(),
            arch: words.clone(),
        });
        let message = message
            .replace("{path}", &shown)
            .replace("{\"path\"}", &quoted(&shown))
            .replace("{volume}", &name)
            .replace("{image}", &image)
            .replace("{arch}", &words)
            .replace("{value}", &words)
            .replace("{entry}", &quoted(&words));
        let read = read(&message, &spec);
        prop_assert_eq!(read.cause(), cause, "{} in {}", read.own_words(), message);
        prop_assert!(!ports::is_conflict(&read));
        prop_assert!(!read.begins_with("could not select device driver"));
        prop_assert!(!read.own_words().contains("disable_ipv6"));
        prop_assert!(read.text().len() <= 600);
    }

    /// Each plain word of a message, and each of its beginnings, as every name of a request.
    #[test]
    fn lengths_are_those_of_a_comparison_at_each_place(text in "[ab/]{1,12}", message in "[ab/é]{0,24}") {
        let (text, message) = (text.as_bytes(), message.as_bytes());
        let compared = (0..message.len()).map(|at| {
            let pairs = text.iter().zip(&message[at..]);
            pairs.take_while(|(one, other)| one == other).count()
        });
        let lengths = common_lengths(text, message).into_iter();
        // What follows the text in the message is compared with the message's own start.
        let lengths = lengths.map(|length| length.min(text.len()));
        prop_assert!(lengths.eq(compared));
    }

    #[test]
    fn a_plain_text_hides_no_words_of_the_engine(
        (message, cause) in prop::sample::select(WITHOUT_TEXTS.to_vec()),
        at in any::<prop::sample::Index>(),
        length in 1..20_usize,
    ) {
        let words: Vec<&str> = message.split([' ', ':', '"', '/']).filter(|it| !it.is_empty()).collect();
        let word: String = at.get(&words).chars().take(length).collect();
        let mut spec = spec(&word);
        spec.volumes = vec![volume("/data", &word)];
        spec.origin.entrypoint = vec![word.clone()];
        spec.origin.metadata.insert(word.clone(), word.clone());
        spec.env.insert(word.clone(), Some(word.clone()));
        let without = EngineMessage::of_text(message, &ClientTexts::default());
        let read = read(message, &spec);
        prop_assert_eq!(read.cause(), cause, "{} in {}", word, read.own_words());
        prop_assert_eq!(ports::is_conflict(&read), ports::is_conflict(&without), "{}", word);
        let gpu = "could not select device driver";
        prop_assert_eq!(read.begins_with(gpu), without.begins_with(gpu), "{}", word);
    }
}

#[test]
fn a_volume_above_the_platforms_directory_hides_no_missing_execd() {
    let mut spec = spec("any");
    spec.volumes = vec![volume("/opt/data", "any")];
    let message = "exec: \"/opt/opensandbox/.dist/execd\": stat /opt/opensandbox/.dist/execd: \
                   no such file or directory";
    assert!(read(message, &spec).mentions(EXECD));
}

#[test]
fn the_messages_without_texts_are_recognised() {
    for (message, cause) in WITHOUT_TEXTS {
        let read = EngineMessage::of_text(message, &ClientTexts::default());
        assert_eq!(read.cause(), cause, "{message}");
        let is_taken = cause == Some(Cause::PortTaken);
        assert_eq!(ports::is_conflict(&read), is_taken, "{message}");
    }
}

#[test]
fn what_is_beyond_the_part_that_is_read_explains_nothing() {
    let message = format!("{}no space left on device", "x ".repeat(MAX_READ));
    let read = EngineMessage::of_text(&message, &ClientTexts::default());
    assert_eq!(read.cause(), None);
    assert!(message.starts_with(read.text()) && read.text().len() > 500);
}

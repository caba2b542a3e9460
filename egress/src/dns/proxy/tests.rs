//! Refusals by the bytes of a query equal those of the query as a message.

use futures::FutureExt;
use hickory_server::net::xfer::Protocol;
use proptest::prelude::*;

use super::{super::respond::respond, udp::Refuser, *};
use crate::{
    config::Config,
    policy::{Policy, overlay::Overlay},
    policy_file::PolicyFile,
};

const POLICY: &str = r#"{"egress":[{"action":"allow","target":"*.b.example"},
    {"action":"deny","target":"*.example"}]}"#;

fn proxy() -> Shared {
    let policy = Policy::parse(POLICY.as_bytes()).unwrap();
    let overlay = Overlay::default();
    let effective = Arc::new(Effective::new(&policy, &overlay));
    let enforcer = Enforcer::new(policy, overlay, effective, PolicyFile::default(), None);
    let (config, _) = Config::read(|_| None).unwrap();
    let upstreams = Upstreams::open(&[], None, &config, &Supervisor::new()).unwrap();
    let observers = Observers {
        decisions: Arc::default(),
        webhook: None,
        instruments: Instruments::default(),
        log_skip: NameIndex::default(),
    };
    Shared(Arc::new(Proxy::new(
        Arc::new(enforcer),
        Arc::new(upstreams),
        observers,
    )))
}

/// The refusal by the query's bytes, if there is one.
fn by_bytes(proxy: &Shared, query: &[u8]) -> Option<Vec<u8>> {
    let (mut name, mut answer) = ("left over".to_owned(), b"before".to_vec());
    let is_refused = proxy.refuse(query, &mut name, &mut answer);
    let answer = answer.strip_prefix(b"before").unwrap().to_vec();
    assert!(is_refused || answer.is_empty());
    is_refused.then_some(answer)
}

/// The answer to the query as a message, and how often its name was asked for then.
fn by_message(proxy: &Shared, query: &[u8]) -> Option<Vec<u8>> {
    let peer = ([127, 0, 0, 1], 7).into();
    let answered = respond(query.to_vec(), peer, Protocol::Udp, proxy);
    answered.now_or_never().expect("no upstream is asked")
}

/// A query: flags, labels, type and class, and what a client can take.
fn query() -> impl Strategy<Value = Vec<u8>> {
    let label = prop_oneof![
        5 => "[a-zA-Z0-9_-]{1,12}",
        1 => "[a-zA-Z0-9]{60,63}",
        1 => "[ -~]{1,5}",
    ];
    let zone = prop::sample::select(vec!["example", "EXAMPLE", "b.example", "org", ""]);
    let kind = prop_oneof![
        prop::sample::select(vec![1, 28, 65, 255, 41, 252]),
        any::<u16>()
    ];
    let class = prop_oneof![4 => Just(1_u16), 1 => any::<u16>()];
    let payload = prop_oneof![Just(0), Just(512), Just(560), Just(1232), any::<u16>()];
    let extension = prop::option::of((payload, any::<[u8; 4]>(), 0..8_u8));
    let labels = prop::collection::vec(label, 0..5);
    (any::<[u8; 4]>(), labels, zone, kind, class, extension).prop_map(
        |([high, low, flags, more], labels, zone, kind, class, extension)| {
            // Mostly queries.
            let flags = if flags < 200 { flags & 0b111 } else { flags };
            let extensions = u8::from(extension.is_some());
            let mut query = vec![high, low, flags, more, 0, 1, 0, 0, 0, 0, 0, extensions];
            let zone = zone.split('.').filter(|it| !it.is_empty());
            for label in labels.iter().map(String::as_str).chain(zone) {
                query.push(u8::try_from(label.len()).unwrap());
                query.extend(label.as_bytes());
            }
            query.push(0);
            query.extend([kind.to_be_bytes(), class.to_be_bytes()].concat());
            if let Some((payload, ttl, rest)) = extension {
                query.extend([0, 0, 41]);
                query.extend(payload.to_be_bytes());
                // Mostly of the version without extensions of the code.
                query.extend(if rest < 6 {
                    [0, 0, ttl[2], ttl[3]]
                } else {
                    ttl
                });
                query.extend(if rest == 0 {
                    [0, 4].as_slice()
                } else {
                    &[0, 0]
                });
                query.extend(if rest == 0 {
                    [0, 10, 0, 0].as_slice()
                } else {
                    &[]
                });
            }
            query
        },
    )
}

#[tokio::test]
async fn a_refusal_by_bytes_is_that_of_the_message() {
    let proxy = proxy();
    let count = || proxy.0.observers.decisions.since(0).1;
    let by_bytes_count = std::cell::Cell::new(0);
    let run = |query: Vec<u8>| {
        let before = count();
        let fast = by_bytes(&proxy, &query);
        prop_assert_eq!(count() - before, u64::from(fast.is_some()));
        if let Some(fast) = fast {
            by_bytes_count.set(by_bytes_count.get() + 1);
            prop_assert_eq!(Some(fast), by_message(&proxy, &query));
            prop_assert_eq!(count() - before, 2, "both are recorded");
        }
        Ok(())
    };
    let mut runner = proptest::test_runner::TestRunner::default();
    let damaged = (query(), any::<prop::sample::Index>(), any::<u8>());
    let result = runner.run(&query(), run);
    result.unwrap();
    let result = runner.run(&damaged, |(mut query, at, byte)| {
        let at = at.index(query.len());
        query[at] = byte;
        run(query)
    });
    result.unwrap();
    assert!(by_bytes_count.get() > 50, "{by_bytes_count:?}");
}

#[tokio::test]
async fn what_programs_ask_is_refused_by_its_bytes() {
    let proxy = proxy();
    let plain = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03Ads\x07example\0\0\x01\0\x01".as_slice();
    let mut extended = [plain, b"\0\0\x29\x04\xd0\0\0\0\0\0\0"].concat();
    extended[11] = 1;
    let answer = by_bytes(&proxy, plain).unwrap();
    assert_eq!(answer[..4], [0, 7, 0x81, 3]);
    assert_eq!(answer[12..], plain[12..]);
    let text = String::from_utf8_lossy(&by_bytes(&proxy, &extended).unwrap()).into_owned();
    let reason = "the network policy refuses ads.example: deny *.example";
    assert!(text.ends_with(reason), "{text}");
    let noted = proxy.0.observers.decisions.since(0).0;
    assert_eq!((noted.len(), noted[0].count), (1, 2));
    assert_eq!(
        (&*noted[0].name, &*noted[0].rule),
        ("ads.example", "deny *.example")
    );
}

#[tokio::test]
async fn what_is_allowed_or_unusual_is_read_as_a_message() {
    let proxy = proxy();
    let plain = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03ads\x07example\0\0\x01\0\x01";
    assert!(by_bytes(&proxy, plain).is_some());
    for length in 0..plain.len() {
        assert_eq!(by_bytes(&proxy, &plain[..length]), None, "{length}");
    }
    // An answer, another operation, two questions, a record, a dot within a label, more bytes.
    for (at, byte) in [
        (2, 0x80),
        (2, 0x28),
        (5, 2),
        (7, 1),
        (9, 1),
        (11, 2),
        (14, b'.'),
    ] {
        let mut other = plain.to_vec();
        other[at] = byte;
        assert_eq!(by_bytes(&proxy, &other), None, "{at}");
    }
    assert_eq!(by_bytes(&proxy, &[plain.as_slice(), b"x"].concat()), None);
    let allowed = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\x01b\x07example\0\0\x01\0\x01";
    assert_eq!(by_bytes(&proxy, allowed), None);
}

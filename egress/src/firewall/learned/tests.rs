//! What is remembered of addresses, and what another policy changes.

use super::*;
use crate::policy::{Policy, overlay::Overlay};

fn policy(text: &str) -> Effective {
    Effective::new(
        &Policy::parse(text.as_bytes()).unwrap(),
        &Overlay::default(),
    )
}

fn lead(name: &str) -> Lead {
    Lead {
        name: name.into(),
        aliases: Arc::default(),
    }
}

fn address(last: u16) -> IpAddr {
    let [high, low] = last.to_be_bytes();
    IpAddr::from([198, 51, high, low])
}

#[test]
fn lives_have_a_slack_and_bounds() {
    for (ttl, seconds) in [
        (0, 60),
        (10, 70),
        (60, 120),
        (120, 180),
        (300, 360),
        (9999, 360),
    ] {
        assert_eq!(Learned::life(ttl).as_secs(), seconds, "{ttl}");
    }
    assert_eq!(Learned::life(u32::MAX).as_secs(), 360);
}

#[test]
fn an_address_is_renewed_unless_it_is_open_for_nearly_as_long() {
    let now = Instant::now();
    let mut learned = Learned::default();
    let name = lead("a.example");
    learned.note(&name, address(1), now + Learned::life(60));
    let after = |seconds| now + Duration::from_secs(seconds);
    assert!(learned.covers("a.example", address(1), 60, now));
    assert!(learned.covers("a.example", address(1), 60, after(10)));
    assert!(!learned.covers("a.example", address(1), 60, after(11)));
    // As name servers with a cache answer: the lifetime ends when it did before.
    assert!(learned.covers("a.example", address(1), 10, after(50)));
    assert!(!learned.covers("a.example", address(1), 60, after(50)));
    assert!(
        !learned.covers("b.example", address(1), 60, now),
        "its name is unknown"
    );
    assert!(!learned.covers("a.example", address(2), 60, now));
}

#[test]
fn an_address_has_the_names_that_led_to_it() {
    let now = Instant::now();
    let mut learned = Learned::default();
    assert_eq!(learned.names(address(1)), [""; 0]);
    for name in ["a.example", "b.example", "a.example"].map(lead) {
        learned.note(&name, address(1), now);
    }
    let names = learned.names(address(1));
    assert_eq!(names, ["b.example", "a.example"], "the last one is last");
    assert_eq!(learned.names(address(2)), [""; 0]);
}

/// The addresses of a list by their last number.
fn lasts(list: &[IpAddr]) -> Vec<u16> {
    let mut lasts: Vec<u16> = list
        .iter()
        .map(|it| match it {
            IpAddr::V4(it) => u16::from_be_bytes([it.octets()[2], it.octets()[3]]),
            IpAddr::V6(it) => panic!("{it}"),
        })
        .collect();
    lasts.sort_unstable();
    lasts
}

#[test]
fn a_new_policy_keeps_what_it_allows() {
    let now = Instant::now();
    let mut learned = Learned::default();
    let [a, b] = ["a.example", "b.example"].map(lead);
    let soon = now + Duration::from_secs(60);
    learned.note(&a, address(1), soon);
    learned.note(&b, address(1), soon);
    learned.note(&a, address(2), soon);
    learned.note(&b, address(3), now);
    learned.note(&a, address(4), now.checked_sub(2 * LATE).unwrap());
    let only_b = policy(r#"{"egress":[{"action":"allow","target":"b.example"}]}"#);
    let difference = learned.under(&only_b, &Touched::All, now);
    assert_eq!(
        lasts(&difference.closed),
        [2],
        "the last one is closed already"
    );
    assert_eq!(lasts(&difference.disconnected), [0; 0], "none was kept");
    assert_eq!(lasts(&difference.kept), [1, 3]);
    assert_eq!(difference.forgotten.len(), 2);
    learned.forget(&difference);
    assert!(!learned.covers("a.example", address(1), 0, now));
    assert!(learned.covers("b.example", address(1), 0, now));
    assert_eq!(learned.names(address(2)), [""; 0]);
    learned.made(&difference);
    let standing = learned.standing(now);
    assert_eq!(standing.live, [(address(1), Duration::from_secs(60))]);
    assert_eq!(lasts(&standing.kept), [1, 3]);
    // The same again changes nothing, and a refusal of all ends their connections.
    let again = learned.under(&only_b, &Touched::All, now);
    assert!(again.closed.is_empty() && again.kept.is_empty());
    let none = learned.under(&policy("{}"), &Touched::All, now);
    assert_eq!(lasts(&none.closed), [1, 3]);
    assert_eq!(lasts(&none.disconnected), [1, 3]);
}

#[test]
fn only_names_that_a_change_touches_are_judged() {
    let now = Instant::now();
    let mut learned = Learned::default();
    let soon = now + Duration::from_secs(60);
    let mut alias = lead("a.example");
    alias.aliases = [Arc::from("cdn.example")].into();
    learned.note(&alias, address(1), soon);
    learned.note(&lead("b.example"), address(2), soon);
    let before = policy(r#"{"defaultAction":"allow"}"#);
    let after =
        policy(r#"{"defaultAction":"allow","egress":[{"action":"deny","target":"cdn.example"}]}"#);
    let touched = Touched::between(&before, &after);
    let difference = learned.under(&after, &touched, now);
    assert_eq!(lasts(&difference.closed), [1], "its alias is refused");
    assert_eq!(lasts(&difference.kept), [2]);
    // Whatever the policy says, others stay as they are.
    let difference = learned.under(&policy("{}"), &touched, now);
    assert_eq!(lasts(&difference.closed), [1]);
}

#[test]
fn addresses_of_an_earlier_process_go_unless_they_are_resolved_again() {
    let now = Instant::now();
    let mut learned = Learned::default();
    let minute = Duration::from_secs(60);
    let live = [1, 2].map(|last| (address(last), minute));
    learned.inherit(&live, &[address(2), address(3)], now);
    assert!(!learned.covers("a.example", address(1), 0, now));
    assert_eq!(learned.left(address(1), now), minute);
    learned.note(&lead("a.example"), address(1), now + minute);
    let any = policy(r#"{"defaultAction":"allow"}"#);
    let touched = Touched::between(&any, &any);
    let difference = learned.under(&any, &touched, now);
    assert_eq!(lasts(&difference.kept), [1]);
    assert_eq!(lasts(&difference.closed), [2, 3]);
    assert_eq!(lasts(&difference.disconnected), [2, 3]);
}

#[test]
fn what_is_forgotten_in_between_is_no_longer_kept_after_a_change() {
    let start = Instant::now();
    let mut learned = Learned::default();
    let any = policy(r#"{"defaultAction":"allow"}"#);
    let touched = Touched::between(&any, &any);
    let count = u16::try_from(REMEMBERED).unwrap() + 1;
    for last in 0..count {
        learned.note(&lead("a.example"), address(last), start);
    }
    let difference = learned.under(&any, &touched, start);
    assert_eq!(difference.kept.len(), usize::from(count));
    learned.made(&difference);
    let later = start + 2 * LATE;
    let trimmed = learned.trim(later);
    assert!(trimmed > 0);
    let difference = learned.under(&any, &touched, later);
    assert_eq!(difference.disconnected.len(), trimmed);
    assert!(difference.closed.is_empty() && difference.kept.is_empty());
    learned.made(&difference);
    let nothing = learned.under(&any, &touched, later);
    assert!(nothing.disconnected.is_empty());
}

#[test]
fn in_doubt_every_address_is_opened_again() {
    let now = Instant::now();
    let mut learned = Learned::default();
    let life = Learned::life(60);
    learned.note(&lead("a.example"), address(1), now + life);
    assert_eq!(learned.left(address(1), now), life);
    learned.doubt(now);
    assert!(!learned.covers("a.example", address(1), 0, now));
    assert_eq!(learned.left(address(1), now), Duration::ZERO);
    assert_eq!(learned.names(address(1)), ["a.example"]);
}

#[test]
fn the_bytes_of_names_are_counted_until_they_are_forgotten() {
    let now = Instant::now();
    let mut learned = Learned::default();
    let counted = |learned: &Learned| {
        let bytes: usize = learned.addresses.values().map(Entry::bytes).sum();
        assert_eq!(learned.bytes, bytes);
        bytes
    };
    let mut alias = lead("a.example");
    alias.aliases = [Arc::from("cdn.example")].into();
    for (name, last) in [(&alias, 1), (&lead("b.example"), 1), (&alias, 2)] {
        learned.note(name, address(last), now + Duration::from_secs(60));
    }
    let full = counted(&learned);
    learned.note(&lead("a.example"), address(1), now);
    assert_eq!(full - counted(&learned), 16 + "cdn.example".len());
    for number in 0..=2 * NAMES {
        learned.note(&lead(&format!("n{number}.example")), address(3), now);
    }
    counted(&learned);
    let only_b = policy(r#"{"egress":[{"action":"allow","target":"b.example"}]}"#);
    let difference = learned.under(&only_b, &Touched::All, now);
    learned.forget(&difference);
    assert_eq!(counted(&learned), lead("b.example").bytes());
    assert!(learned.trim(now + Duration::from_secs(61)) == 0);
    learned.forget_expired(now + Duration::from_secs(61), 0);
    assert_eq!(counted(&learned), 0);
}

#[test]
fn names_have_room_until_their_limit_and_expired_ones_make_room() {
    let now = Instant::now();
    let mut learned = Learned::default();
    let mut large = lead("a.example");
    large.aliases = [Arc::from("x".repeat(limits::NAME_BYTES / 2))].into();
    let minute = Duration::from_secs(60);
    learned.note(&large, address(1), now + minute);
    assert!(learned.has_room(now));
    learned.note(&large, address(2), now + 2 * minute);
    assert!(!learned.has_room(now), "both are open");
    assert!(learned.has_room(now + minute + NEARLY));
    assert_eq!(learned.names(address(1)), [""; 0]);
    assert_eq!(learned.names(address(2)), ["a.example"]);
}

#[test]
fn connections_to_everything_that_is_remembered_can_go_on() {
    // As many as the set of open addresses has room for, and as many expired ones as are
    // remembered, all of one family.
    let now = Instant::now();
    let mut learned = Learned::default();
    let name = lead("a.example");
    let all = limits::LEARNED + 2 * REMEMBERED;
    for number in 0..u32::try_from(all).unwrap() {
        let address = IpAddr::from(number.to_be_bytes());
        let is_open = number < u32::try_from(limits::LEARNED).unwrap();
        let until = if is_open { now + LATE } else { now };
        learned.note(&name, address, until);
    }
    let later = now + COUNT;
    learned.trim(later);
    let standing = learned.standing(later);
    assert_eq!(standing.live.len(), limits::LEARNED);
    assert!(standing.kept.len() > limits::LEARNED);
    assert!(standing.kept.len() <= limits::LEARNED + REMEMBERED);
}

#[test]
fn what_expired_first_is_forgotten_first() {
    let start = Instant::now();
    let mut learned = Learned::default();
    let name = lead("a.example");
    let count = u16::try_from(REMEMBERED).unwrap() + 1;
    for last in 0..count {
        learned.note(
            &name,
            address(last),
            start + Duration::from_secs(last.into()),
        );
    }
    learned.trim(start);
    assert_eq!(
        learned.addresses.len(),
        usize::from(count),
        "none has expired"
    );
    learned.trim(start + Duration::from_secs(1 << 20));
    assert_eq!(learned.addresses.len(), REMEMBERED * 3 / 4);
    assert!(!learned.addresses.contains_key(&address(0)));
    assert!(learned.addresses.contains_key(&address(count - 1)));
}

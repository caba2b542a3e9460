use std::ops::RangeInclusive;

use super::*;

const KEEP: Keep = Keep {
    window: 20_000,
    replay: 0,
    unread: 1 << 30,
};

fn journal(keep: Keep) -> (Arc<Journal>, EventReader) {
    let memory = Arc::new(Memory::new(None));
    let (journal, reader) = Journal::new(keep, &memory);
    journal.extend(event(1), 1);
    (journal, reader)
}

fn event(seq: u64) -> Bytes {
    Bytes::from(format!("{seq}{}\n\n", "x".repeat(990)))
}

async fn append(journal: &Journal, events: RangeInclusive<u64>) {
    for seq in events {
        let numbers = Numbers {
            first: Some(seq),
            last: seq,
        };
        journal.append(event(seq), numbers).await;
    }
}

/// Numbers of the events up to one.
async fn read(reader: &mut EventReader, last: u64) -> Vec<u64> {
    let (mut text, mut numbers) = (String::new(), Vec::new());
    while numbers.last() != Some(&last) {
        let bytes = reader.next().await.expect("more to come");
        text.push_str(std::str::from_utf8(&bytes).unwrap());
        let whole = text.rfind("\n\n").map_or(0, |at| at + 2);
        let events = text[..whole].split_terminator("\n\n");
        numbers.extend(events.map(|event| event.trim_end_matches('x').parse::<u64>().unwrap()));
        text.drain(..whole);
    }
    numbers
}

fn all(range: RangeInclusive<u64>) -> Vec<u64> {
    range.collect()
}

#[tokio::test]
async fn what_does_not_fit_waits_on_disk_in_order() {
    let (journal, mut reader) = journal(KEEP);
    // The reader falls behind twice; in between everything was read.
    append(&journal, 2..=300).await;
    assert!(journal.held().disk > 200_000 && journal.held().memory <= 2 * KEEP.window);
    assert_eq!(read(&mut reader, 300).await, all(1..=300));
    assert_eq!((journal.held().memory, journal.held().files), (0, 0));
    append(&journal, 301..=600).await;
    journal.finish();
    assert_eq!(read(&mut reader, 600).await, all(301..=600));
    assert!(reader.next().await.is_none());
    assert_eq!((journal.held().memory, journal.held().files), (0, 0));
}

#[tokio::test]
async fn readers_begin_anywhere_and_each_gets_everything() {
    let keep = Keep {
        replay: 1 << 30,
        ..KEEP
    };
    let (journal, mut first) = journal(keep);
    append(&journal, 2..=1000).await;
    for since in [0, 1, 261, 262, 263, 264, 265, 999] {
        let mut reader = journal.reader(since).unwrap();
        assert_eq!(read(&mut reader, 1000).await, all(since + 1..=1000));
    }
    let mut at_end = journal.reader(1000).unwrap();
    assert_eq!(
        journal.reader(1001).unwrap_err(),
        Unavailable::Ahead { last: 1000 }
    );
    let (next, ()) = tokio::join!(read(&mut at_end, 1001), append(&journal, 1001..=1001));
    assert_eq!(next, [1001]);
    assert_eq!(read(&mut first, 1001).await, all(1..=1001));
    journal.finish();
    assert!(first.next().await.is_none());
    assert!(journal.reader(1001).unwrap().next().await.is_none());
}

#[tokio::test]
async fn what_all_have_seen_is_kept_up_to_a_limit() {
    let keep = Keep {
        replay: 1_000_000,
        ..KEEP
    };
    let (journal, mut reader) = journal(keep);
    append(&journal, 2..=6000).await;
    // No reader has read: all events are kept.
    assert_eq!(read(&mut reader, 6000).await, all(1..=6000));
    append(&journal, 6001..=6001).await;
    let Err(Unavailable::Forgotten { first }) = journal.reader(0) else {
        panic!("everything is kept");
    };
    assert!((4700..=5000).contains(&first), "{first}");
    let mut again = journal.reader(first - 1).unwrap();
    assert_eq!(read(&mut again, 6001).await, all(first..=6001));
    // Freed events are reported as such, and unread events are not freed.
    assert!(journal.held().disk < 1_400_000 + limits::JOURNAL_FREE);
    let mut slow = journal.reader(6000).unwrap();
    append(&journal, 6002..=9000).await;
    assert_eq!(read(&mut slow, 9000).await, all(6001..=9000));
}

#[tokio::test]
async fn too_much_that_is_unread_leaves_no_room() {
    let keep = Keep {
        unread: 100_000,
        ..KEEP
    };
    let (journal, mut reader) = journal(keep);
    let mut last = 1;
    while journal.has_room() {
        last += 1;
        append(&journal, last..=last).await;
    }
    assert!((90..=110).contains(&last), "{last}");
    assert_eq!(read(&mut reader, last).await, all(1..=last));
    assert!(journal.has_room());
}

#[tokio::test]
async fn nothing_is_kept_for_readers_that_left() {
    let (journal, reader) = journal(KEEP);
    append(&journal, 2..=300).await;
    let left = journal.left();
    assert!(!left.is_cancelled());
    drop(reader);
    assert!(left.is_cancelled());
    append(&journal, 301..=600).await;
    assert!(journal.has_room());
    assert_eq!((journal.held().memory, journal.held().files), (0, 0));
}

#[tokio::test]
async fn a_short_journal_is_one_piece_at_its_end() {
    let keep = Keep {
        replay: 1 << 30,
        ..KEEP
    };
    let (journal, mut reader) = journal(keep);
    append(&journal, 2..=5).await;
    journal.finish();
    assert_eq!(journal.state().window.len(), 1);
    assert_eq!(read(&mut reader, 5).await, all(1..=5));
    assert!(reader.next().await.is_none());
}

#[tokio::test]
async fn a_long_journal_is_on_disk_once_nothing_comes_any_more() {
    let keep = Keep {
        window: 1 << 20,
        replay: 1 << 30,
        unread: 1 << 30,
    };
    let (journal, mut reader) = journal(keep);
    append(&journal, 2..=200).await;
    journal.settle().await;
    assert_eq!(journal.held().files, 0, "more may come");
    journal.finish();
    journal.settle().await;
    let held = journal.held();
    assert_eq!((held.memory, held.files), (0, 1));
    assert_eq!(read(&mut reader, 200).await, all(1..=200));
    assert!(reader.next().await.is_none());
    assert_eq!(
        read(&mut journal.reader(7).unwrap(), 200).await,
        all(8..=200)
    );
}

#[tokio::test]
async fn who_keeps_up_loses_nothing_to_one_who_does_not() {
    let keep = Keep {
        replay: 100_000,
        unread: 400_000,
        ..KEEP
    };
    let (journal, mut stalled) = journal(keep);
    let mut follower = journal.reader(0).unwrap();
    assert_eq!(read(&mut follower, 1).await, [1]);
    for last in 2..=1500 {
        assert!(journal.has_room(), "{last}");
        append(&journal, last..=last).await;
        assert_eq!(read(&mut follower, last).await, [last]);
    }
    assert!(stalled.next().await.is_none());
    assert!(matches!(
        journal.reader(0).unwrap_err(),
        Unavailable::Forgotten { .. }
    ));
}

#[tokio::test]
async fn what_was_read_after_the_end_is_given_back() {
    let keep = Keep {
        replay: 1_000_000,
        ..KEEP
    };
    let (journal, mut reader) = journal(keep);
    append(&journal, 2..=20_000).await;
    journal.finish();
    assert!(journal.held().disk > 19_000_000);
    assert_eq!(read(&mut reader, 20_000).await, all(1..=20_000));
    drop(reader);
    assert!(journal.held().disk < 1_500_000 + limits::JOURNAL_FREE);
}

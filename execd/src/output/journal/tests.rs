use std::ops::RangeInclusive;

use super::*;

const KEEP: JournalLimits = JournalLimits {
    window: 20_000,
    replay: 0,
    unread: 1 << 30,
};

fn journal(keep: JournalLimits) -> (Arc<Journal>, EventReader) {
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
        let numbers = EventNumbers {
            first: Some(seq),
            last: seq,
        };
        journal.append(event(seq), numbers).await;
    }
}

/// Reads up to the event `last`, and returns the numbers of all events.
async fn read(reader: &mut EventReader, last: u64) -> Vec<u64> {
    let (mut text, mut numbers) = (String::new(), Vec::new());
    while numbers.last() != Some(&last) {
        let bytes = reader.next().await.expect("the journal is incomplete");
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
async fn unread_events_wait_on_disk_in_order() {
    let (journal, mut reader) = journal(KEEP);
    // The reader falls behind twice, and catches up in between.
    append(&journal, 2..=300).await;
    assert!(journal.usage().disk > 200_000 && journal.usage().memory <= 2 * KEEP.window);
    assert_eq!(read(&mut reader, 300).await, all(1..=300));
    assert_eq!((journal.usage().memory, journal.usage().files), (0, 0));
    append(&journal, 301..=600).await;
    journal.finish();
    assert_eq!(read(&mut reader, 600).await, all(301..=600));
    assert!(reader.next().await.is_none());
    assert_eq!((journal.usage().memory, journal.usage().files), (0, 0));
}

#[tokio::test]
async fn every_reader_gets_all_events_after_its_number() {
    let keep = JournalLimits {
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
async fn read_events_are_kept_up_to_the_replay_limit() {
    let keep = JournalLimits {
        replay: 1_000_000,
        ..KEEP
    };
    let (journal, mut reader) = journal(keep);
    append(&journal, 2..=6000).await;
    // No reader has read: all events are kept.
    assert_eq!(read(&mut reader, 6000).await, all(1..=6000));
    append(&journal, 6001..=6001).await;
    let Err(Unavailable::Forgotten { first }) = journal.reader(0) else {
        panic!("all events are kept");
    };
    assert!((4700..=5000).contains(&first), "{first}");
    let mut again = journal.reader(first - 1).unwrap();
    assert_eq!(read(&mut again, 6001).await, all(first..=6001));
    // The disk space of dropped events is freed. Unread events are not dropped.
    assert!(journal.usage().disk < 1_400_000 + limits::JOURNAL_FREE);
    let mut slow = journal.reader(6000).unwrap();
    append(&journal, 6002..=9000).await;
    assert_eq!(read(&mut slow, 9000).await, all(6001..=9000));
}

#[tokio::test]
async fn a_journal_is_full_at_the_limit_of_unread_events() {
    let keep = JournalLimits {
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
async fn without_readers_no_events_are_kept() {
    let (journal, reader) = journal(KEEP);
    append(&journal, 2..=300).await;
    let left = journal.left();
    assert!(!left.is_cancelled());
    drop(reader);
    assert!(left.is_cancelled());
    append(&journal, 301..=600).await;
    assert!(journal.has_room());
    assert_eq!((journal.usage().memory, journal.usage().files), (0, 0));
}

#[tokio::test]
async fn a_short_complete_journal_is_compacted() {
    let keep = JournalLimits {
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
async fn a_long_complete_journal_moves_to_disk() {
    let keep = JournalLimits {
        window: 1 << 20,
        replay: 1 << 30,
        unread: 1 << 30,
    };
    let (journal, mut reader) = journal(keep);
    append(&journal, 2..=200).await;
    journal.move_complete_to_disk().await;
    assert_eq!(
        journal.usage().files,
        0,
        "an incomplete journal stays in memory"
    );
    journal.finish();
    journal.move_complete_to_disk().await;
    let held = journal.usage();
    assert_eq!((held.memory, held.files), (0, 1));
    assert_eq!(read(&mut reader, 200).await, all(1..=200));
    assert!(reader.next().await.is_none());
    assert_eq!(
        read(&mut journal.reader(7).unwrap(), 200).await,
        all(8..=200)
    );
}

#[tokio::test]
async fn a_slow_reader_costs_a_fast_one_no_events() {
    let keep = JournalLimits {
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
async fn disk_space_is_freed_after_a_complete_journal_was_read() {
    let keep = JournalLimits {
        replay: 1_000_000,
        ..KEEP
    };
    let (journal, mut reader) = journal(keep);
    append(&journal, 2..=20_000).await;
    journal.finish();
    assert!(journal.usage().disk > 19_000_000);
    assert_eq!(read(&mut reader, 20_000).await, all(1..=20_000));
    drop(reader);
    assert!(journal.usage().disk < 1_500_000 + limits::JOURNAL_FREE);
}

/// The bytes may be freed between the two steps of a read from disk.
#[tokio::test]
async fn a_reader_that_was_dropped_gets_none_of_the_freed_bytes() {
    let keep = JournalLimits {
        unread: 100_000,
        ..KEEP
    };
    let (journal, slow) = journal(keep);
    let mut fast = journal.reader(0).unwrap();
    append(&journal, 2..=90).await;
    let attempt = journal.try_read(slow.id);
    assert!(matches!(attempt, ReadAttempt::OnDisk { .. }));
    read(&mut fast, 90).await;
    append(&journal, 91..=110).await;
    assert!(journal.has_room(), "the slow reader makes room");
    assert!(!journal.advance(&mut journal.state(), slow.id, 1000));
    assert!(journal.advance(&mut journal.state(), fast.id, 0));
}

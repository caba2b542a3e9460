//! What a tab watches: topics, how far each was followed, and who shows it.

use std::collections::BTreeMap;

use super::wire::Topic;

/// The topics of a tab. `H` is what handles the messages of one watch.
#[derive(Debug)]
pub(super) struct Watches<H> {
    topics: BTreeMap<Topic, Watched<H>>,
    /// Watches so far: the number of the next.
    count: u64,
}

#[derive(Debug)]
struct Watched<H> {
    /// The last message; `None` until a snapshot comes.
    seq: Option<u64>,
    /// Several parts of a page may show one topic, and the next page may begin to watch it before the
    /// last one ends.
    handlers: Vec<(u64, H)>,
}

/// What a message means for the tab.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival<H> {
    /// These show it.
    Shown(Vec<H>),
    /// It is known already, or nothing watches its topic.
    Old,
    /// Messages before it are missing: a snapshot is needed.
    Hole,
}

impl<H> Default for Watches<H> {
    fn default() -> Self {
        Self {
            topics: BTreeMap::new(),
            count: 0,
        }
    }
}

impl<H: Clone> Watches<H> {
    /// Begins a watch, which needs a snapshot, and returns its number.
    pub(super) fn begin(&mut self, topic: &Topic, handler: H) -> u64 {
        self.count += 1;
        let watched = self.topics.entry(topic.clone()).or_insert(Watched {
            seq: None,
            handlers: Vec::new(),
        });
        watched.seq = None;
        watched.handlers.push((self.count, handler));
        self.count
    }

    /// Ends a watch. Returns whether it was the last of its topic.
    pub(super) fn end(&mut self, topic: &Topic, number: u64) -> bool {
        let Some(watched) = self.topics.get_mut(topic) else {
            return false;
        };
        watched.handlers.retain(|(known, _)| *known != number);
        let is_over = watched.handlers.is_empty();
        if is_over {
            self.topics.remove(topic);
        }
        is_over
    }

    /// The topics, each once.
    pub(super) fn topics(&self) -> Vec<Topic> {
        self.topics.keys().cloned().collect()
    }

    /// The last message of a topic.
    pub(super) fn position(&self, topic: &Topic) -> Option<u64> {
        self.topics.get(topic)?.seq
    }

    /// Forgets how far a topic was followed: a snapshot is needed.
    pub(super) fn forget_position(&mut self, topic: &Topic) {
        if let Some(watched) = self.topics.get_mut(topic) {
            watched.seq = None;
        }
    }

    /// Forgets how far every topic was followed: snapshots are needed.
    pub(super) fn forget_positions(&mut self) {
        self.topics.values_mut().for_each(|it| it.seq = None);
    }

    /// Notes a message.
    pub(super) fn arrive(&mut self, topic: &Topic, seq: u64, is_delta: bool) -> Arrival<H> {
        let Some(watched) = self.topics.get_mut(topic) else {
            return Arrival::Old;
        };
        if is_delta {
            match watched.seq {
                Some(known) if seq == known + 1 => {}
                Some(known) if seq <= known => return Arrival::Old,
                _ => {
                    watched.seq = None;
                    return Arrival::Hole;
                }
            }
        }
        watched.seq = Some(seq);
        let handlers = watched.handlers.iter();
        Arrival::Shown(handlers.map(|(_, handler)| handler.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_follow_each_other_and_a_hole_needs_a_snapshot() {
        let mut watches = Watches::default();
        let topic = Topic::Sandboxes;
        assert_eq!(watches.arrive(&topic, 1, false), Arrival::Old);
        watches.begin(&topic, "list");
        assert_eq!(watches.arrive(&topic, 3, true), Arrival::Hole);
        assert_eq!(
            watches.arrive(&topic, 4, false),
            Arrival::Shown(vec!["list"])
        );
        assert_eq!(watches.arrive(&topic, 4, true), Arrival::Old);
        assert_eq!(
            watches.arrive(&topic, 5, true),
            Arrival::Shown(vec!["list"])
        );
        assert_eq!(watches.position(&topic), Some(5));
        assert_eq!(watches.arrive(&topic, 7, true), Arrival::Hole);
        assert_eq!(watches.position(&topic), None);
    }

    #[test]
    fn several_watch_one_topic_until_the_last_ends() {
        let mut watches = Watches::default();
        let topic = Topic::Logs("a".into());
        let page = watches.begin(&topic, "page");
        watches.arrive(&topic, 1, false);
        let dock = watches.begin(&topic, "dock");
        assert_eq!(
            watches.position(&topic),
            None,
            "the second needs a snapshot, too"
        );
        let both = Arrival::Shown(vec!["page", "dock"]);
        assert_eq!(watches.arrive(&topic, 2, false), both);
        assert!(!watches.end(&topic, page));
        assert_eq!(
            watches.arrive(&topic, 3, true),
            Arrival::Shown(vec!["dock"])
        );
        assert!(!watches.end(&topic, page), "it ended before");
        assert!(watches.end(&topic, dock));
        assert!(watches.topics().is_empty());
    }

    #[test]
    fn another_server_process_counts_from_the_start() {
        let mut watches = Watches::default();
        watches.begin(&Topic::Overview, ());
        watches.arrive(&Topic::Overview, 9, false);
        watches.forget_positions();
        assert_eq!(watches.position(&Topic::Overview), None);
        assert_eq!(watches.topics(), [Topic::Overview]);
    }
}

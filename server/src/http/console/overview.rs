//! The overview's data.

use std::collections::HashMap;

use osb_app::view::{
    Activity, ENDED_MAX, EXPIRING_SECONDS, FailureGroup, Host, HourCount, Overview, Pulse,
    Readiness, Split, StateCounts,
};
use osb_runtime::HostCapacity;
use osb_service::ErrorChain;

use crate::sandbox::{Service, activity, explain};

/// Most reasons of failures that are shown.
const REASONS: usize = 8;

/// Everything that the overview shows.
pub(super) async fn of(service: &Service, sees_host: bool) -> Overview {
    let most = u32::try_from(ENDED_MAX).unwrap_or(u32::MAX);
    let host = async {
        match sees_host {
            true => service.host().await,
            false => None,
        }
    };
    let (pulse, activity, ended, host) = tokio::join!(
        pulse(service),
        service.activity(),
        service.count_history(most),
        host
    );
    Overview {
        pulse,
        ended: ended.ok().map(|ended| ended as usize),
        activity: activity
            .map(summary)
            .map_err(|error| explain(ErrorChain(&error).to_string(), error.cause())),
        host: host.as_ref().map(described),
    }
}

/// The numbers of this moment.
pub(super) async fn pulse(service: &Service) -> Pulse {
    let mut counts = StateCounts::default();
    let mut expiring = 0;
    let soon = osb_app::browser::now_ms() + 1_000 * EXPIRING_SECONDS;
    let (records, seq) = service.snapshot();
    for record in records {
        counts.add(&record.sandbox.status.state);
        let expires = record.sandbox.expires_at;
        let is_alive = osb_app::view::is_alive(&record.sandbox.status.state);
        expiring += usize::from(is_alive && expires.is_some_and(|at| at.unix_ms() < soon));
    }
    let readiness = match service.ready().await {
        Ok(note) => Readiness::Ready(note),
        Err(error) => Readiness::NotReady(explain(ErrorChain(&error).to_string(), error.cause())),
    };
    let demand = service.demand();
    Pulse {
        seq,
        counts,
        expiring,
        readiness,
        centicores: demand.cores.map(|cores| rounded(cores * 100.0)),
        // Whole mebibytes, so that not every look finds another number.
        memory_bytes: demand
            .memory_bytes
            .map(|bytes| rounded(bytes / f64::from(1 << 20)) << 20),
        centicores_limit: demand.nano_cpus / 10_000_000,
        memory_limit: demand.memory_limits,
        without_cpu_limit: demand.without_cpu_limit,
        without_memory_limit: demand.without_memory_limit,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "saturates")]
fn rounded(number: f64) -> i64 {
    number.round() as i64
}

/// What the host has, as pages show it.
pub(super) fn described(host: &HostCapacity) -> Host {
    Host {
        name: host.name.clone(),
        engine: host.engine.clone(),
        processors: host.processors,
        memory_bytes: host.memory_bytes,
        available_bytes: host.available_bytes,
    }
}

fn summary(activity: activity::Activity) -> Activity {
    let times = &activity.create_ms;
    let hour = |hour: &activity::Hour| HourCount {
        start: hour.start,
        creates: hour.creates,
        failures: hour.failures,
    };
    let mut failed = Split::default();
    for failure in &activity.failures {
        failed.add(failure.has_ended);
    }
    Activity {
        created: Split {
            present: activity.created_present,
            ended: activity.created_ended,
        },
        failed,
        hours: activity.hours.iter().map(hour).collect(),
        timed: times.len(),
        median_ms: at_most(times, 50),
        p99_ms: at_most(times, 99),
        is_cut: activity.is_cut,
        failures: groups(activity.failures),
    }
}

/// The time that so many of 100 took at most. `times` ascend.
fn at_most(times: &[i64], percent: usize) -> Option<i64> {
    let place = (times.len() * percent).div_ceil(100);
    times.get(place.checked_sub(1)?).copied()
}

/// A message without what differs between sandboxes that failed alike: numbers, ids and digests.
fn kind_of(message: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut kind = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(first) = rest.chars().next() {
        let end = match is_part(first) {
            true => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(end);
        let has_digit = word.contains(|c: char| c.is_ascii_digit());
        kind.push_str(if has_digit { "#" } else { word });
        rest = after;
    }
    kind
}

/// Failures by reason, the most frequent first. `failures` are newest first. Exit codes, ids and other
/// texts of a message do not make a group: the lists that the numbers lead to know only the reason.
fn groups(failures: Vec<activity::Failure>) -> Vec<FailureGroup> {
    let mut places = HashMap::new();
    let mut groups: Vec<FailureGroup> = Vec::new();
    for failure in failures {
        let place = *places.entry(failure.reason.clone()).or_insert(groups.len());
        if groups.len() == place {
            groups.push(FailureGroup {
                title: failure
                    .name
                    .unwrap_or_else(|| failure.id.short().to_owned()),
                reason: failure.reason,
                count: Split::default(),
                newest: failure.id,
                at: failure.at,
                message: failure.message.clone(),
                others: 0,
            });
        }
        if let Some(group) = groups.get_mut(place) {
            group.count.add(failure.has_ended);
            let is_alike = kind_of(&group.message) == kind_of(&failure.message);
            group.others += usize::from(!is_alike);
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.count.total()));
    groups.truncate(REASONS);
    groups
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;

    #[test]
    fn percentiles_are_times_that_were_seen() {
        assert_eq!(at_most(&[], 50), None);
        assert_eq!(at_most(&[7], 50), Some(7));
        assert_eq!(at_most(&[7], 99), Some(7));
        let times: Vec<i64> = (1..=200).collect();
        assert_eq!(at_most(&times, 50), Some(100));
        assert_eq!(at_most(&times, 99), Some(198));
    }

    #[test]
    fn messages_that_differ_in_numbers_and_ids_are_alike() {
        let failure = |message: &str| activity::Failure {
            id: "a".into(),
            has_ended: false,
            name: None,
            at: WireTime::from_unix_ms(1).unwrap(),
            reason: "CONTAINER_EXITED_ERROR".to_owned(),
            message: message.to_owned(),
        };
        let ended = |what: &str| failure(&format!("The entry point ended with exit code {what}."));
        let seen = groups(vec![ended("3"), ended("137"), ended("9 in 0b6c1f2e-aaaa")]);
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!((seen[0].count.total(), seen[0].others), (3, 1));
        for (one, other) in [
            ("exit code 3", "exit code 255"),
            ("no 0b6c1f2e-aaaa-4c1d on disk", "no 77-1 on disk"),
            ("sha256:00ff is gone", "sha256:1234 is gone"),
        ] {
            assert_eq!(kind_of(one), kind_of(other));
        }
        assert_ne!(
            kind_of("exit code 3"),
            kind_of("exit code 3: it was killed")
        );
        assert_eq!(kind_of("ü – ok"), "ü – ok");
    }

    #[test]
    fn failures_are_grouped_by_reason_with_the_newest() {
        let failure = |id: &str, reason: &str, ms| activity::Failure {
            id: id.into(),
            has_ended: id != "c",
            name: (id == "b").then(|| "web".to_owned()),
            at: WireTime::from_unix_ms(ms).unwrap(),
            reason: reason.to_owned(),
            message: format!("of {id}"),
        };
        let failures = vec![
            failure("a", "OOM", 9),
            failure("b", "PULL", 8),
            failure("c", "PULL", 7),
        ];
        let groups = groups(failures);
        let seen: Vec<_> = groups
            .iter()
            .map(|it| {
                (
                    &*it.reason,
                    (it.count.present, it.count.ended),
                    it.newest.as_str(),
                    &*it.title,
                    &*it.message,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("PULL", (1, 1), "b", "web", "of b"),
                ("OOM", (0, 1), "a", "a", "of a")
            ]
        );
    }
}

//! What the host has, and what the sandboxes take of it.

use leptos::prelude::*;

use super::shown::Shown;
use crate::{
    ui::Unit,
    view::{Host, Pulse},
};

/// Cores and memory.
#[component]
pub(super) fn HostCard(shown: Shown) -> impl IntoView {
    let name = move || {
        let host = shown.host.read();
        host.as_ref().map(|host| match host.name.as_str() {
            "" => host.engine.clone(),
            name => format!("{name} · {}", host.engine),
        })
    };
    let row = move |title: &'static str, take: fn(&Pulse, Option<&Host>) -> Take| {
        let take = Memo::new(move |_| take(&shown.pulse.read(), shown.host.read().as_ref()));
        view! { <Resource title take /> }
    };
    view! {
        <section class="card" aria-labelledby="host-title">
            <h2 id="host-title">"Host"</h2>
            <p class="help">{name}</p>
            <dl class="host">{row("CPU", cores)} {row("Memory", memory)}</dl>
        </section>
    }
    .into_any()
}

/// How much sandboxes take of a resource.
#[derive(Clone, Debug, Default, PartialEq)]
struct Take {
    /// What they use, in words.
    used: String,
    /// What they may use, in words.
    allowed: String,
    /// Hundredths of the whole that they use, and that they may use; `None` if it is not known.
    parts: Option<(i64, i64)>,
}

fn cores(pulse: &Pulse, host: Option<&Host>) -> Take {
    let all = host.map(|host| i64::from(host.processors));
    let words = |centicores: i64| format!("{}.{:02}", centicores / 100, centicores % 100);
    Take {
        used: used(
            pulse.centicores.map(words),
            all.map(|cores| cores.to_string()),
            "cores",
        ),
        allowed: allowed(
            &format!("{} cores", words(pulse.centicores_limit)),
            pulse.centicores_limit == 0,
            pulse.without_cpu_limit,
        ),
        parts: all.map(|cores| {
            let all = cores * 100;
            let used = pulse.centicores.unwrap_or_default();
            (percent(used, all), percent(pulse.centicores_limit, all))
        }),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn memory(pulse: &Pulse, host: Option<&Host>) -> Take {
    let words = |bytes: i64| Unit::Bytes.text(bytes as f64);
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let all = host.map(|host| signed(host.memory_bytes));
    let mut take = Take {
        used: used(pulse.memory_bytes.map(words), all.map(words), ""),
        allowed: allowed(
            &words(pulse.memory_limit),
            pulse.memory_limit == 0,
            pulse.without_memory_limit,
        ),
        parts: all.map(|all| {
            let used = pulse.memory_bytes.unwrap_or_default();
            (percent(used, all), percent(pulse.memory_limit, all))
        }),
    };
    if let Some(free) = host.and_then(|host| host.available_bytes) {
        take.allowed += &format!(" {} of the host are free.", words(signed(free)));
    }
    take
}

fn used(used: Option<String>, all: Option<String>, unit: &str) -> String {
    let text = match (used, all) {
        (Some(used), Some(all)) => format!("{used} of {all} {unit}"),
        (Some(used), None) => format!("{used} {unit}"),
        (None, Some(all)) => format!("{all} {unit}"),
        (None, None) => return "not known".to_owned(),
    };
    text.trim_end().to_owned()
}

fn allowed(limits: &str, is_none: bool, without: usize) -> String {
    let rest = match without {
        0 => String::new(),
        1 => ", and 1 sandbox has no limit".to_owned(),
        many => format!(", and {many} sandboxes have no limit"),
    };
    match (is_none, without) {
        (true, 0) => "No sandbox takes any.".to_owned(),
        (true, 1) => "The only sandbox has no limit.".to_owned(),
        (true, many) => format!("All {many} sandboxes have no limit."),
        (false, _) => format!("The limits allow {limits}{rest}."),
    }
}

fn percent(part: i64, all: i64) -> i64 {
    part.saturating_mul(100)
        .checked_div(all)
        .unwrap_or_default()
        .clamp(0, 100)
}

#[component]
fn Resource(title: &'static str, take: Memo<Take>) -> impl IntoView {
    let bar = move || {
        take.read().parts.map(|(used, allowed)| {
            view! {
                <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
                    <rect class="bar-all" width="100" height="4"></rect>
                    <rect class="bar-allowed" width=allowed height="4"></rect>
                    <rect class="bar-used" width=used height="4"></rect>
                </svg>
            }
        })
    };
    view! {
        <dt>{title}</dt>
        <dd>
            <p class="num">{move || take.read().used.clone()}</p>
            {bar}
            <p class="help num">{move || take.read().allowed.clone()}</p>
        </dd>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Readiness, StateCounts};

    fn pulse() -> Pulse {
        Pulse {
            seq: 0,
            counts: StateCounts::default(),
            expiring: 0,
            readiness: Readiness::Ready(None),
            centicores: Some(142),
            memory_bytes: Some(1 << 30),
            centicores_limit: 650,
            memory_limit: 3 << 30,
            without_cpu_limit: 1,
            without_memory_limit: 0,
        }
    }

    fn host() -> Host {
        Host {
            name: "box".to_owned(),
            engine: "Docker 28".to_owned(),
            processors: 4,
            memory_bytes: 8 << 30,
            available_bytes: Some(5 << 30),
        }
    }

    #[test]
    fn what_sandboxes_take_is_said_in_words_and_parts() {
        let take = cores(&pulse(), Some(&host()));
        assert_eq!(take.used, "1.42 of 4 cores");
        assert_eq!(
            take.allowed,
            "The limits allow 6.50 cores, and 1 sandbox has no limit."
        );
        assert_eq!(take.parts, Some((35, 100)));
        let take = memory(&pulse(), Some(&host()));
        assert_eq!(take.used, "1.0 GiB of 8.0 GiB");
        assert_eq!(
            take.allowed,
            "The limits allow 3.0 GiB. 5.0 GiB of the host are free."
        );
        assert_eq!(take.parts, Some((12, 37)));
    }

    #[test]
    fn sandboxes_without_limits_are_counted() {
        let without = |count| {
            let pulse = Pulse {
                centicores_limit: 0,
                without_cpu_limit: count,
                ..pulse()
            };
            cores(&pulse, None).allowed
        };
        assert_eq!(without(0), "No sandbox takes any.");
        assert_eq!(without(1), "The only sandbox has no limit.");
        assert_eq!(without(2), "All 2 sandboxes have no limit.");
    }

    #[test]
    fn what_is_not_known_is_not_claimed() {
        let silent = Pulse {
            centicores: None,
            memory_bytes: None,
            ..pulse()
        };
        assert_eq!(cores(&silent, None).used, "not known");
        assert_eq!(cores(&silent, None).parts, None);
        assert_eq!(cores(&silent, Some(&host())).used, "4 cores");
        assert_eq!(memory(&pulse(), None).used, "1.0 GiB");
        let empty = Host {
            processors: 0,
            ..host()
        };
        assert_eq!(cores(&pulse(), Some(&empty)).parts, Some((0, 0)));
    }
}

//! Events on the time axis: what is known of a sandbox's life, and what happens while the page is open.

use leptos::prelude::*;
use osb_protocol::{WireTime, lifecycle::SandboxState};

use crate::{browser, ui::When, view::SandboxDetail};

/// Most events that are kept.
const MOST: usize = 50;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: WireTime,
    /// What, in a word.
    pub(super) name: String,
}

impl Mark {
    /// When, in Unix seconds.
    pub(super) fn second(&self) -> i64 {
        self.at.unix_ms().div_euclid(1_000)
    }
}

/// What a sandbox shows of its life now.
fn of_detail(detail: &SandboxDetail) -> Vec<Mark> {
    let mark = |at: Option<WireTime>, name: &str| {
        at.map(|at| Mark {
            at,
            name: name.to_owned(),
        })
    };
    let reached = |stage: &str| detail.stages.iter().find(|it| it.name == stage)?.at;
    let status = &detail.sandbox.status;
    let state = match &status.state {
        // A sandbox that runs since it became ready was not resumed.
        SandboxState::Running => match (status.last_transition_at, reached("ready")) {
            (Some(at), Some(ready)) if at.unix_ms() - ready.unix_ms() > SAME_MS => {
                mark(Some(at), "Resumed")
            }
            _ => None,
        },
        SandboxState::Pending => None,
        state => mark(status.last_transition_at, &state.to_string()),
    };
    let ended = detail.ended.as_ref();
    let marks = [
        mark(Some(detail.sandbox.created_at), "Created"),
        mark(reached("ready"), "Ready"),
        state,
        ended.and_then(|it| mark(Some(it.at), it.outcome.word())),
    ];
    marks.into_iter().flatten().collect()
}

/// Events of one name that are so near are the same one, reported twice.
const SAME_MS: i64 = 2_000;

/// Adds what is new, by time.
fn add(marks: &mut Vec<Mark>, new: Vec<Mark>) {
    for mark in new {
        let is_same = |known: &Mark| {
            let apart = (known.at.unix_ms() - mark.at.unix_ms()).abs();
            known.name == mark.name && apart <= SAME_MS
        };
        if !marks.iter().any(is_same) {
            marks.push(mark);
        }
    }
    marks.sort_by_key(|mark| mark.at);
    marks.drain(..marks.len().saturating_sub(MOST));
}

/// The events of the sandbox, which grow while the page is open.
pub(super) fn followed(current: RwSignal<SandboxDetail>) -> RwSignal<Vec<Mark>> {
    let marks = RwSignal::new(current.with_untracked(of_detail));
    Effect::new(move |before: Option<Option<WireTime>>| {
        let (mut new, expires) =
            current.with(|detail| (of_detail(detail), detail.sandbox.expires_at));
        // When it was renewed is not reported, only that it was.
        if before.is_some_and(|before| before != expires)
            && let Some(at) = WireTime::from_unix_ms(browser::now_ms())
        {
            let name = "Renewed".to_owned();
            new.push(Mark { at, name });
        }
        let mut next = marks.get_untracked();
        add(&mut next, new);
        if next != marks.get_untracked() {
            marks.set(next);
        }
        expires
    });
    marks
}

/// The events as text.
#[component]
pub(super) fn Marks(marks: RwSignal<Vec<Mark>>) -> impl IntoView {
    let list = move || {
        let item = |mark: Mark| {
            view! {
                <li>
                    {mark.name}
                    " "
                    <When at=Signal::stored(mark.at) />
                </li>
            }
        };
        marks.get().into_iter().map(item).collect_view()
    };
    view! {
        <ul class="chart-events" aria-label="Events on the time axis">
            {list}
        </ul>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(ms: i64, name: &str) -> Mark {
        let at = WireTime::from_unix_ms(ms).unwrap();
        let name = name.to_owned();
        Mark { at, name }
    }

    #[test]
    fn events_are_kept_once_and_in_order() {
        let mut marks = vec![mark(1_000, "Created"), mark(9_000, "Paused")];
        add(
            &mut marks,
            vec![
                mark(9_500, "Paused"),
                mark(20_000, "Paused"),
                mark(5_000, "Ready"),
            ],
        );
        let names: Vec<_> = marks.iter().map(|it| (it.second(), &*it.name)).collect();
        let wanted = [(1, "Created"), (5, "Ready"), (9, "Paused"), (20, "Paused")];
        assert_eq!(names, wanted);
        add(
            &mut marks,
            (0..100).map(|it| mark(it * 10_000, "x")).collect(),
        );
        assert_eq!(marks.len(), MOST);
    }
}

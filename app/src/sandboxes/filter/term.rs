//! What a word of the filter asks of a sandbox, and whether it holds.

use osb_protocol::{WireTime, lifecycle::SandboxState};

use super::pattern::{Pattern, contains};
use crate::view::{self, SandboxRow};

/// A word that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) negated: bool,
    pub(super) test: Test,
}

/// Texts are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Anywhere(String),
    /// Any of these.
    State(Vec<Pattern>),
    Image(Pattern),
    Id(Pattern),
    Name(Pattern),
    Tenant(Pattern),
    Reason(Pattern),
    /// Exactly this code; empty for none.
    Code(String),
    HasLabel(Pattern),
    Label(String, Pattern),
    NoExpiry,
    Left(Order, i64),
    Age(Order, i64),
    Changed(Order, i64),
}

/// How a time is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Below,
    Above,
    AtMost,
    AtLeast,
}

impl Order {
    fn holds(self, value: i64, bound: i64) -> bool {
        match self {
            Self::Below => value < bound,
            Self::Above => value > bound,
            Self::AtMost => value <= bound,
            Self::AtLeast => value >= bound,
        }
    }
}

impl Test {
    pub(super) fn holds(&self, row: &SandboxRow, now_ms: i64) -> bool {
        let sandbox = &row.sandbox;
        let status = &sandbox.status;
        let labels = &sandbox.metadata;
        let outcome = row.ended.map_or("", |ended| ended.outcome.word());
        let seconds = |at: WireTime| (at.unix_ms() - now_ms) / 1_000;
        match self {
            Self::Anywhere(word) => {
                contains(sandbox.id.as_str(), word)
                    || contains(row.origin(), word)
                    || contains(row.state_word(), word)
                    || labels
                        .iter()
                        .any(|(key, value)| contains(key, word) || contains(value, word))
            }
            Self::State(any) => any.iter().any(|it| it.matches(row.state_word())),
            Self::Image(pattern) => pattern.matches(row.origin()),
            Self::Id(pattern) => pattern.matches(sandbox.id.as_str()),
            Self::Name(pattern) => pattern.matches(view::title(sandbox)),
            Self::Tenant(pattern) => pattern.matches(row.tenant.as_deref().unwrap_or("none")),
            Self::Reason(pattern) => {
                pattern.matches(status.reason.as_deref().unwrap_or_default())
                    || pattern.matches(status.message.as_deref().unwrap_or_default())
                    || pattern.matches(outcome)
            }
            Self::Code(code) => {
                let reason = status.reason.as_deref().unwrap_or_default();
                reason.to_lowercase() == *code
            }
            Self::HasLabel(pattern) => labels.keys().any(|key| pattern.matches(key)),
            Self::Label(name, pattern) => labels
                .iter()
                .any(|(key, value)| key.to_lowercase() == *name && pattern.matches(value)),
            Self::NoExpiry => sandbox.expires_at.is_none(),
            Self::Left(order, bound) => {
                let left = sandbox.expires_at.map_or(i64::MAX, seconds);
                row.ended.is_none() && order.holds(left, *bound)
            }
            Self::Age(order, bound) => order.holds(-seconds(sandbox.created_at), *bound),
            Self::Changed(order, bound) => order.holds(-seconds(row.changed_at()), *bound),
        }
    }
}

impl SandboxRow {
    /// When its state changed last, or it ended.
    fn changed_at(&self) -> WireTime {
        let sandbox = &self.sandbox;
        let changed = sandbox.status.last_transition_at;
        let ended = self.ended.map(|ended| ended.at);
        ended.or(changed).unwrap_or(sandbox.created_at)
    }

    /// How it ended, else its state.
    #[must_use]
    pub fn state_word(&self) -> &str {
        match (&self.ended, &self.sandbox.status.state) {
            (Some(ended), _) => ended.outcome.word(),
            (None, state) => SandboxState::as_str(state),
        }
    }
}

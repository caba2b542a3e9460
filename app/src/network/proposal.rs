//! The smallest policy for what was asked for, as a review of what it would change.

use std::collections::HashSet;

use leptos::{ev, prelude::*};
use leptos_router::hooks::use_navigate;
use osb_protocol::{
    SandboxId,
    lifecycle::{NetworkPolicy, NetworkPolicyProposal, NetworkRule},
};

use super::{
    PolicyChange,
    api::{self, Answer},
    change::{Meaning, meaning_of},
    live::State,
    parts::form_address,
};
use crate::{
    query_string::use_query,
    tab::Tab,
    ui::{Icon, LoadError},
    view::LOOKS_ONLY,
};

/// What a rule is to a change of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Kept,
    Added,
    Removed,
}

impl Part {
    /// Word and icon.
    fn look(self) -> (&'static str, &'static str) {
        match self {
            Self::Kept => ("kept", "circle-dashed"),
            Self::Added => ("added", "plus"),
            Self::Removed => ("removed", "minus"),
        }
    }
}

/// A rule of a review: what becomes of it, the rule, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    part: Part,
    rule: String,
    covers: Vec<String>,
}

fn meanings(rules: &[NetworkRule]) -> HashSet<Meaning<'_>> {
    rules.iter().map(meaning_of).collect()
}

/// The rules of the proposal, then those that it drops.
fn review(known: &NetworkPolicy, proposal: &NetworkPolicyProposal) -> Vec<Line> {
    let next = &proposal.policy.egress;
    let (known_rules, next_rules) = (meanings(&known.egress), meanings(next));
    let reasons = proposal.reasons.iter().map(|reason| reason.covers.clone());
    let reasons = reasons.chain(std::iter::repeat(Vec::new()));
    let proposed = next.iter().zip(reasons).map(|(rule, covers)| Line {
        part: match known_rules.contains(&meaning_of(rule)) {
            true => Part::Kept,
            false => Part::Added,
        },
        rule: format!("{} {}", rule.action, rule.target),
        covers,
    });
    let dropped = known.egress.iter();
    let dropped = dropped.filter(|rule| !next_rules.contains(&meaning_of(rule)));
    let dropped = dropped.map(|rule| Line {
        part: Part::Removed,
        rule: format!("{} {}", rule.action, rule.target),
        covers: Vec::new(),
    });
    proposed.chain(dropped).collect()
}

/// What a proposal is read into: nothing as long as none is wanted, else whether it allows what was
/// refused as well, and the answer.
pub(super) type Proposed = Resource<Option<(bool, Answer<NetworkPolicyProposal>)>>;

/// Reads a proposal while the address asks for one. The server renders what a page waits for several
/// times, and numbers resources in their order: only one that is made beside the first resource of the
/// tab has the same number in the browser.
pub(super) fn propose(id: SandboxId) -> Proposed {
    let query = use_query();
    let wanted = Memo::new(move |_| match query.read().get_str("propose") {
        None => None,
        Some("denied") => Some(true),
        Some(_) => Some(false),
    });
    Resource::new_blocking(
        move || wanted.get(),
        move |wanted| {
            let id = id.clone();
            async move {
                match wanted {
                    None => None,
                    Some(with_denied) => Some((with_denied, api::propose(id, with_denied).await)),
                }
            }
        },
    )
}

/// A link that asks for a proposal, and the review. Without script it is a link to this page with
/// `?propose=now`.
#[component]
pub(super) fn ProposalSection(state: State, answer: Proposed) -> impl IntoView {
    let tab = Tab::Network.address(&state.id());
    let again = Callback::new(move |()| answer.refetch());
    let address = format!("{tab}?propose=now");
    view! {
        <section aria-labelledby="proposal-title">
            <div class="card-head">
                <h2 id="proposal-title">"Learn a policy"</h2>
                <a class="button" href=address data-command="Propose a network policy">
                    <Icon name="stethoscope" />
                    "Propose a policy"
                </a>
            </div>
            <p class="help">
                "The smallest policy that allows what this sandbox asked for and got. To learn everything that a job needs, create the sandbox with a policy that allows everything, and let the job run to its end first."
            </p>
            <Transition fallback=|| view! { <p class="help">"Reading the decisions …"</p> }>
                {move || {
                    let tab = tab.clone();
                    Suspend::new(async move {
                        match answer.await {
                            None => ().into_any(),
                            Some((with_denied, Ok(Ok(proposal)))) => {
                                view! { <Review state proposal with_denied tab /> }.into_any()
                            }
                            Some((_, Ok(Err(why)))) => {
                                view! { <p class="help" role="status">{why}</p> }.into_any()
                            }
                            Some((_, Err(error))) => {
                                view! { <LoadError error again /> }.into_any()
                            }
                        }
                    })
                }}
            </Transition>
        </section>
    }
    .into_any()
}

#[component]
fn Review(
    state: State,
    proposal: NetworkPolicyProposal,
    with_denied: bool,
    tab: String,
) -> impl IntoView {
    let policy = proposal.policy.clone();
    let missing = (!proposal.nonexistent.is_empty()).then(|| {
        let names = proposal.nonexistent.join(", ");
        view! {
            <p class="help">
                "Asked for, but without a rule, because they do not exist: " <code>{names}</code>
            </p>
        }
    });
    let lines = Memo::new(move |_| review(&state.network.read().policy, &proposal));
    let allows_rest = Memo::new(move |_| {
        let known = state.network.read().policy.default_action.clone();
        known.as_deref() == Some("allow")
    });
    let changes_nothing = move || {
        let is_kept = |line: &Line| line.part == Part::Kept;
        !allows_rest.get() && lines.read().iter().all(is_kept)
    };
    let line = |line: Line| {
        let (word, icon) = line.part.look();
        let covers = line.covers.join(", ");
        view! {
            <li data-line=word>
                <Icon name=icon />
                <span class="visually-hidden">{format!("{word}: ")}</span>
                <code>{line.rule}</code>
                " "
                <span class="fine">{covers}</span>
            </li>
        }
    };
    let list = move || lines.get().into_iter().map(line).collect_view();
    let other = match with_denied {
        false => (
            format!("{tab}?propose=denied"),
            "Allow what was refused, too",
        ),
        true => (format!("{tab}?propose=now"), "Leave out what was refused"),
    };
    let status = move || match (changes_nothing(), lines.read().len()) {
        (true, _) => "The policy is this one already.",
        (false, 0) => "Nothing that exists was asked for: this would refuse everything.",
        (false, _) => "What it would change:",
    };
    view! {
        <div class="proposal" role="group" aria-label="Proposed policy">
            <p role="status">{status}</p>
            <ul class="proposal-lines">
                <Show when=move || allows_rest.get()>
                    <li data-line="added">
                        <Icon name="plus" />
                        "Everything else is refused. Now it is allowed."
                    </li>
                </Show>
                {list}
            </ul>
            {missing}
            <div class="choices">
                <Apply state policy tab=tab.clone() />
                <a class="button" href=other.0>
                    {other.1}
                </a>
                <a class="button" href=tab>
                    "Close"
                </a>
            </div>
        </div>
    }
    .into_any()
}

#[component]
fn Apply(state: State, policy: NetworkPolicy, tab: String) -> impl IntoView {
    if !state.may_change {
        return view! {
            <button type="button" class="button" aria-disabled="true" title=LOOKS_ONLY>
                "Apply"
            </button>
        }
        .into_any();
    }
    let navigate = use_navigate();
    let text = serde_json::to_string(&policy).unwrap_or_default();
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let change = PolicyChange::Replace(policy.clone());
        let (navigate, tab) = (navigate.clone(), tab.clone());
        state.change(
            change,
            "The proposed policy is in force".to_owned(),
            move || {
                navigate(&tab, Default::default());
            },
        );
    };
    view! {
        <form method="post" action=form_address(state, "put") on:submit=submit>
            <input type="hidden" name="policy" value=text />
            <button
                type="submit"
                class="button primary"
                aria-disabled=move || state.busy.get().then_some("true")
            >
                <Icon name="check" />
                "Apply"
            </button>
        </form>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use osb_protocol::lifecycle::ProposedRule;

    use super::*;

    fn policy(rules: &[(&str, &str)]) -> NetworkPolicy {
        let rules = rules.iter().map(|(action, target)| NetworkRule {
            action: (*action).to_owned(),
            target: (*target).to_owned(),
        });
        NetworkPolicy {
            default_action: Some("deny".to_owned()),
            egress: rules.collect(),
        }
    }

    #[test]
    fn a_review_names_what_is_kept_added_and_removed() {
        let proposal = NetworkPolicyProposal {
            policy: policy(&[("allow", "a.example"), ("allow", "*.b.example")]),
            reasons: vec![
                ProposedRule {
                    target: "a.example".to_owned(),
                    covers: vec!["a.example".to_owned()],
                },
                ProposedRule {
                    target: "*.b.example".to_owned(),
                    covers: vec!["x.b.example".to_owned(), "y.b.example".to_owned()],
                },
            ],
            nonexistent: Vec::new(),
        };
        let known = policy(&[("deny", "*.b.example"), ("Allow", "A.example.")]);
        let lines = review(&known, &proposal);
        let seen: Vec<_> = lines.iter().map(|line| (line.part, &*line.rule)).collect();
        let wanted = [
            (Part::Kept, "allow a.example"),
            (Part::Added, "allow *.b.example"),
            (Part::Removed, "deny *.b.example"),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(lines[1].covers.len(), 2);
    }
}

//! The policy as a table of rules, which can be changed.

use leptos::{ev, html, prelude::*};
use osb_protocol::{
    lifecycle::{NetworkPolicy, NetworkRule},
    network_policy::{Action, Target},
};

use super::{
    Network, PolicyChange,
    change::target_problem,
    live::State,
    parts::{ChangeButton, form_address, verdict},
};
use crate::{
    browser,
    ui::{ColumnTitle, Icon, TableHead},
};

/// Titles of the columns of rules.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("#").class("n-place"),
    ColumnTitle::new("Action").class("n-verdict"),
    ColumnTitle::new("Target"),
    ColumnTitle::new("Covers").class("n-kind"),
    ColumnTitle::new("Changes").class("n-acts").hidden(),
];
/// Rules that are shown. A longer policy is changed through the API.
const SHOWN: usize = 500;
/// Id of the field for the target of a new rule.
const TARGET: &str = "rule-target";

/// What is in force, and the ways to change it.
#[component]
pub(super) fn PolicySection(state: State) -> impl IntoView {
    let rules = Memo::new(move |_| state.network.read().policy.egress.clone());
    let enforces_addresses = Memo::new(move |_| state.network.read().enforces_addresses());
    let table = move || {
        let addresses = enforces_addresses.get();
        rules.with(|rules| rules_table(state, rules, addresses))
    };
    view! {
        <section aria-labelledby="policy-title">
            <h2 id="policy-title">"Policy"</h2>
            <p>{move || summary(&state.network.read())}</p>
            <DefaultForm state />
            {table}
            <AddForm state />
            <TestHost state />
            <p class="fine">
                "The first rule that covers a name decides. For addresses, rules that refuse come first, whatever their order. The operator can put rules around every policy: they are not listed here, and decisions name them."
            </p>
        </section>
    }
    .into_any()
}

/// The policy in words.
fn summary(network: &Network) -> String {
    let policy = &network.policy;
    let rest = match (is_allowed(policy), policy.egress.is_empty()) {
        (true, true) => "Everything is allowed.",
        (true, false) => "Everything is allowed, unless a rule refuses it.",
        (false, true) => "Everything is refused.",
        (false, false) => "Everything is refused, unless a rule allows it.",
    };
    let enforced = match network.enforces_addresses() {
        true => "It is enforced for names and addresses (dns+nft).",
        false => {
            "It is enforced for names only (dns): a program that knows an address connects to it."
        }
    };
    let source = match network.is_default {
        true => " This is the default policy of this server.",
        false => "",
    };
    format!("{rest} {enforced}{source}")
}

/// Whether what no rule covers is allowed.
fn is_allowed(policy: &NetworkPolicy) -> bool {
    let action = policy.default_action.as_deref();
    action.and_then(Action::parse) == Some(Action::Allow)
}

/// Chooses what happens to everything without a rule.
#[component]
fn DefaultForm(state: State) -> impl IntoView {
    let select = NodeRef::<html::Select>::new();
    let current = Memo::new(move |_| is_allowed(&state.network.read().policy));
    let first = current.get_untracked();
    // Others may change it.
    Effect::new(move |_| {
        let word = if current.get() { "allow" } else { "deny" };
        if let Some(select) = select.get() {
            select.set_value(word);
        }
    });
    if !state.may_change {
        return ().into_any();
    }
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let Some(action) = select.get_untracked().map(|select| select.value()) else {
            return;
        };
        let done = match action.as_str() {
            "allow" => "What no rule covers is allowed",
            _ => "What no rule covers is refused",
        };
        let change = PolicyChange::Default(action);
        state.change(change, done.to_owned(), || ());
    };
    view! {
        <form
            method="post"
            action=form_address(state, "default")
            on:submit=submit
            class="inline-form"
        >
            <label class="select">
                "What no rule covers is " <select name="action" node_ref=select>
                    <option value="deny" selected=!first>
                        "refused"
                    </option>
                    <option value="allow" selected=first>
                        "allowed"
                    </option>
                </select>
            </label>
            <button
                type="submit"
                class="button"
                aria-disabled=move || state.busy.get().then_some("true")
            >
                "Set"
            </button>
        </form>
    }
    .into_any()
}

fn rules_table(state: State, rules: &[NetworkRule], addresses: bool) -> AnyView {
    if rules.is_empty() {
        return view! { <p class="help">"There are no rules."</p> }.into_any();
    }
    let count = rules.len();
    let shown = rules.iter().take(SHOWN).enumerate();
    let rows = shown.map(|(place, rule)| rule_row(state, rule, (place, count), addresses));
    let more = (count > SHOWN).then(|| {
        let more = count - SHOWN;
        view! { <p class="help">{format!("And {more} more, which the API shows.")}</p> }
    });
    view! {
        <table class="list rule-list">
            <caption class="visually-hidden">"Rules, in their order"</caption>
            <TableHead of=TITLES />
            <tbody>{rows.collect_view()}</tbody>
        </table>
        {more}
    }
    .into_any()
}

fn rule_row(
    state: State,
    rule: &NetworkRule,
    (place, count): (usize, usize),
    addresses: bool,
) -> AnyView {
    let target = rule.target.clone();
    let action = Action::parse(&rule.action).unwrap_or(Action::Deny);
    let move_to = |up: bool| {
        let (word, icon, id) = match up {
            true => ("up", "arrow-up", format!("rule-up-{place}")),
            false => ("down", "arrow-down", format!("rule-down-{place}")),
        };
        let next = match up {
            true => place.checked_sub(1).map(|next| format!("rule-up-{next}")),
            false => Some(format!("rule-down-{}", place + 1)),
        };
        let is_end = match up {
            true => place == 0,
            false => place + 1 == count,
        };
        ChangeButton {
            path: "move",
            fields: vec![("target", target.clone()), ("up", up.to_string())],
            change: PolicyChange::Move {
                target: target.clone(),
                up,
            },
            done: format!("The rule for {target} is moved {word}"),
            label: format!("Move the rule for {target} {word}"),
            icon,
            text: None,
            why: is_end.then_some("It is at this end already."),
            id: Some(id),
            next,
        }
        .view(state)
    };
    let next = match place + 1 < count {
        true => format!("rule-remove-{place}"),
        false => TARGET.to_owned(),
    };
    let remove = ChangeButton {
        path: "remove",
        fields: vec![("target", target.clone())],
        change: PolicyChange::Remove(target.clone()),
        done: format!("The rule for {target} is removed"),
        label: format!("Remove the rule for {target}"),
        icon: "trash-2",
        text: None,
        why: None,
        id: Some(format!("rule-remove-{place}")),
        next: Some(next),
    };
    let (up, down) = (move_to(true), move_to(false));
    view! {
        <tr>
            <td class="num n-place">{place + 1}</td>
            <td class="n-verdict">{verdict(action)}</td>
            <th scope="row" class="mono n-target">
                {target}
            </th>
            <td class="n-kind">{covered(&rule.target, addresses)}</td>
            <td class="row-actions n-acts">{up} {down} {remove.view(state)}</td>
        </tr>
    }
    .into_any()
}

/// What a target covers, in words.
fn covered(target: &str, addresses: bool) -> &'static str {
    match Target::parse(target) {
        Ok(Target::Name(_)) => "This name",
        Ok(Target::Subdomains(_)) => "All names below",
        Ok(Target::Network(_)) if !addresses => "Nothing: addresses are not enforced",
        Ok(Target::Network(network)) if network.prefix_len() == network.max_prefix_len() => {
            "This address"
        }
        Ok(Target::Network(_)) => "This network",
        Err(_) => "Nothing",
    }
}

/// Adds a rule. Its target is checked by the sidecar's parser while it is typed.
#[component]
fn AddForm(state: State) -> impl IntoView {
    if !state.may_change {
        return ().into_any();
    }
    let (select, input) = (
        NodeRef::<html::Select>::new(),
        NodeRef::<html::Input>::new(),
    );
    let problem = RwSignal::new(None::<String>);
    let check = move |text: &str, is_sent: bool| {
        let is_judged = is_sent || !text.trim().is_empty();
        let found = target_problem(text).filter(|_| is_judged);
        let is_good = found.is_none();
        problem.set(found);
        is_good
    };
    let on_input = move |event: ev::Event| {
        check(&event_target_value(&event), false);
    };
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let (Some(select), Some(field)) = (select.get_untracked(), input.get_untracked()) else {
            return;
        };
        let target = field.value().trim().to_owned();
        if !check(&target, true) {
            browser::focus(TARGET);
            return;
        }
        let action = select.value();
        let done = match action.as_str() {
            "allow" => format!("{target} is allowed"),
            _ => format!("{target} is refused"),
        };
        let change = PolicyChange::Add(NetworkRule { action, target });
        state.change(change, done, move || {
            if let Some(Some(input)) = input.try_get_untracked() {
                input.set_value("");
            }
        });
    };
    view! {
        <form method="post" action=form_address(state, "add") on:submit=submit class="inline-form">
            <label class="select">
                <span class="visually-hidden">"Action of the new rule"</span>
                <select name="action" node_ref=select>
                    <option value="allow">"Allow"</option>
                    <option value="deny">"Refuse"</option>
                </select>
            </label>
            <label class="n-new" for=TARGET>
                <span class="visually-hidden">"Target of the new rule"</span>
                <input
                    id=TARGET
                    name="target"
                    type="text"
                    class="mono"
                    node_ref=input
                    placeholder="*.example.org, 203.0.113.0/24"
                    spellcheck="false"
                    autocapitalize="off"
                    autocomplete="off"
                    aria-invalid=move || problem.read().is_some().then_some("true")
                    aria-describedby="rule-problem"
                    on:input=on_input
                />
            </label>
            <button
                type="submit"
                class="button"
                aria-disabled=move || state.busy.get().then_some("true")
            >
                <Icon name="plus" />
                "Add rule"
            </button>
            <p id="rule-problem" class="problem">
                {move || problem.get()}
            </p>
        </form>
    }
    .into_any()
}

/// Says what the policy makes of a destination, without connecting to it.
#[component]
fn TestHost(state: State) -> impl IntoView {
    let typed = RwSignal::new(String::new());
    let answer = move || {
        let text = typed.read();
        let text = text.trim();
        if text.is_empty() {
            return ().into_any();
        }
        let target = match Target::parse(text) {
            Ok(target @ (Target::Name(_) | Target::Network(_))) => target,
            Ok(Target::Subdomains(_)) => {
                return view! { <p class="help">"Test one name, not a wildcard."</p> }.into_any();
            }
            Err(error) => {
                return view! { <p class="problem">{format!("The host {error}.")}</p> }.into_any();
            }
        };
        let policy = state.policy.read();
        let Some(policy) = policy.as_ref() else {
            return ().into_any();
        };
        let (action, rule) = policy.decide(&target);
        let by = match rule {
            Some(rule) => format!("by the rule “{rule}”"),
            None => "by the default".to_owned(),
        };
        view! { <p>{verdict(action)} " " {by}</p> }.into_any()
    };
    view! {
        <div class="inline-form needs-script">
            <label class="n-new" for="test-host">
                "Test a host"
                <input
                    id="test-host"
                    type="text"
                    class="mono"
                    placeholder="api.example.org"
                    spellcheck="false"
                    autocapitalize="off"
                    autocomplete="off"
                    on:input=move |event: ev::Event| typed.set(event_target_value(&event))
                />
            </label>
            <div role="status">{answer}</div>
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_said_in_words() {
        let mut network = Network {
            enforcement: "dns+nft".to_owned(),
            ..Network::default()
        };
        assert!(
            summary(&network).starts_with("Everything is refused. It is enforced for names and")
        );
        network.policy.egress.push(NetworkRule {
            action: "allow".to_owned(),
            target: "a.example".to_owned(),
        });
        assert!(summary(&network).starts_with("Everything is refused, unless a rule allows it."));
        network.policy.default_action = Some("ALLOW".to_owned());
        network.enforcement = "dns".to_owned();
        network.is_default = true;
        let text = summary(&network);
        assert!(text.starts_with("Everything is allowed, unless"), "{text}");
        assert!(text.contains("names only"), "{text}");
        assert!(text.ends_with("default policy of this server."), "{text}");
    }

    #[test]
    fn each_kind_of_target_is_explained() {
        for (target, words) in [
            ("a.example", "This name"),
            ("*.example", "All names below"),
            ("203.0.113.7", "This address"),
            ("2001:db8::/32", "This network"),
        ] {
            assert_eq!(covered(target, true), words, "{target}");
        }
        assert!(covered("203.0.113.7", false).contains("not enforced"));
    }
}

//! What was decided, as a table that follows the sidecar. A refused destination can be allowed from it.

use leptos::{ev, prelude::*};
use osb_protocol::network_policy::{Action, Target};

use super::{
    PolicyChange,
    decided::{Filter, Row, Rows, SHOWN},
    live::State,
    parts::{ChangeButton, LastChange, verdict},
};
use crate::{
    query_string::use_query,
    tab::Tab,
    ui::{ColumnTitle, TableHead, When},
};

/// Titles of the columns of decisions.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Name"),
    ColumnTitle::new("Address").class("n-address"),
    ColumnTitle::new("Port").class("n-port"),
    ColumnTitle::new("Decision").class("n-verdict"),
    ColumnTitle::new("Rule").class("n-rule"),
    ColumnTitle::new("Count").class("n-count"),
    ColumnTitle::new("First").class("n-time"),
    ColumnTitle::new("Last").class("n-time"),
    ColumnTitle::new("Changes").class("n-allow").hidden(),
];

/// In place of the name of a destination to which no name has led.
const NO_NAME: &str = "(no name)";

/// Decisions with their filter.
#[component]
pub(super) fn DecisionsSection(state: State) -> impl IntoView {
    let query = use_query();
    let filter = Memo::new(move |_| {
        let query = query.read();
        Filter::of_word(query.get_str("show").unwrap_or_default())
    });
    let text = RwSignal::new(String::new());
    let rows = Memo::new(move |_| {
        let decided = state.decided.read();
        let rows = decided.as_ref();
        rows.map(|it| it.rows(filter.get(), &text.read()))
            .unwrap_or_default()
    });
    let are_kept = Memo::new(move |_| state.decided.read().is_some());
    view! {
        <section aria-labelledby="decisions-title">
            <h2 id="decisions-title">"Decisions"</h2>
            <LastChange state />
            <p class="help" role="status">
                {move || state.failure.get().map(|why| format!("This is not up to date: {why}"))}
            </p>
            <Show
                when=move || are_kept.get()
                fallback=|| {
                    view! {
                        <p class="help">
                            "The sidecar of this sandbox is older than this server, and keeps no decisions."
                        </p>
                    }
                }
            >
                <Filters state filter text />
                <Table state rows />
            </Show>
            <p class="fine">
                "The names that were asked for last, and destinations of the last hour. Only mode dns+nft sees destinations. A restart of the sidecar empties the list."
            </p>
        </section>
    }
    .into_any()
}

#[component]
fn Filters(state: State, filter: Memo<Filter>, text: RwSignal<String>) -> impl IntoView {
    let tab = Tab::Network.address(&state.id());
    let link = |choice: Filter| {
        let address = match choice {
            Filter::All => tab.clone(),
            _ => format!("{tab}?show={}", choice.word()),
        };
        view! {
            <a
                class="button"
                href=address
                aria-current=move || (filter.get() == choice).then_some("true")
            >
                {choice.title()}
            </a>
        }
    };
    let links = Filter::ALL.into_iter().map(link).collect_view();
    view! {
        <div class="choices decision-filter">
            <nav class="choices" aria-label="Which decisions">
                {links}
            </nav>
            <input
                type="text"
                class="needs-script"
                aria-label="Find a name or an address"
                placeholder="Find a name or an address"
                spellcheck="false"
                autocapitalize="off"
                autocomplete="off"
                on:input=move |event: ev::Event| text.set(event_target_value(&event))
            />
        </div>
    }
    .into_any()
}

#[component]
fn Table(state: State, rows: Memo<Rows>) -> impl IntoView {
    let keys = Memo::new(move |_| rows.read().keys());
    let total = Memo::new(move |_| rows.read().total);
    let note = move || match total.get() {
        0 => Some("Nothing was decided yet, or nothing fits.".to_owned()),
        total if total > SHOWN => Some(format!("The first {SHOWN} of {total} are shown.")),
        _ => None,
    };
    view! {
        <table class="list decision-list" hidden=move || total.get() == 0>
            <caption class="visually-hidden">"Names and destinations"</caption>
            <TableHead of=TITLES />
            <tbody>
                <For
                    each=move || keys.get()
                    key=Clone::clone
                    children=move |key| view! { <DecisionRow state rows key /> }
                />
            </tbody>
        </table>
        <p class="help">{note}</p>
    }
    .into_any()
}

#[component]
fn DecisionRow(state: State, rows: Memo<Rows>, key: String) -> impl IntoView {
    let row = Memo::new(move |_| rows.read().find(&key).unwrap_or_default());
    let action = Memo::new(move |_| match row.read().is_denied {
        true => Action::Deny,
        false => Action::Allow,
    });
    // The button keeps the focus while only the numbers change.
    let offer = Memo::new(move |_| Offer::of(&row.read(), state));
    view! {
        <tr data-verdict=move || action.get().word()>
            <th scope="row" class="mono n-name">
                {move || match row.read().name.as_str() {
                    "" => NO_NAME.to_owned(),
                    name => name.to_owned(),
                }}
            </th>
            <td class="mono n-address">{move || row.read().address.clone()}</td>
            <td class="num n-port">{move || row.read().port.clone()}</td>
            <td class="n-verdict">{move || verdict(action.get())}</td>
            <td class="n-rule">{move || row.read().rule.clone()}</td>
            <td class="num n-count">{move || row.read().count.to_string()}</td>
            <td class="n-time">{move || row.read().first.map(|at| view! { <When at /> })}</td>
            <td class="n-time">{move || row.read().last.map(|at| view! { <When at /> })}</td>
            <td class="row-actions n-allow">{move || offer.get().view(state)}</td>
        </tr>
    }
    .into_any()
}

/// What a row offers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Offer {
    Nothing,
    /// The policy allows it by now, and nothing asked for it since.
    AllowedNow,
    /// A rule for this target; with a reason why it would not help.
    Allow(String, Option<&'static str>),
}

impl Offer {
    fn of(row: &Row, state: State) -> Self {
        if !row.is_denied {
            return Self::Nothing;
        }
        let Ok(target) = Target::parse(&row.target) else {
            return Self::Nothing;
        };
        if row.is_operators() {
            let why = "The operator refuses it for every sandbox.";
            return Self::Allow(row.target.clone(), Some(why));
        }
        let policy = state.policy.read();
        let policy = policy.as_ref();
        let allows = policy.is_some_and(|policy| policy.decide(&target).0 == Action::Allow);
        match (allows, row.is_withheld()) {
            (true, false) => Self::AllowedNow,
            // The text in place of the rule says what would help.
            (true, true) => Self::Nothing,
            (false, _) => Self::Allow(row.target.clone(), None),
        }
    }

    fn view(self, state: State) -> AnyView {
        let (target, why) = match self {
            Self::Nothing => return ().into_any(),
            Self::AllowedNow => {
                return view! { <span class="fine">"Allowed by now"</span> }.into_any();
            }
            Self::Allow(target, why) => (target, why),
        };
        ChangeButton {
            path: "add",
            fields: vec![("action", "allow".to_owned()), ("target", target.clone())],
            change: PolicyChange::allow(&target),
            done: format!("{target} is allowed"),
            label: format!("Allow {target}"),
            icon: "check",
            text: Some("Allow"),
            why,
            id: None,
            next: None,
        }
        .view(state)
    }
}

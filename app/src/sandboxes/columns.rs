//! Which columns the list shows: the names of those that are hidden stand in the URL, so that a column
//! that a later release adds is shown.
//!
//! A table has the hidden ones in `data-hidden`, and the style sheet leaves them out, so that rows do not
//! depend on them. Narrow windows have no room for some of the shown ones.

use leptos::prelude::*;

use super::ListQuery;
use crate::ui::Icon;

/// Name and title of a column that can be hidden.
type Choice = (&'static str, &'static str);

/// Columns of sandboxes that exist.
const PRESENT: [Choice; 7] = [
    ("image", "Image"),
    ("expires", "Expires in"),
    ("cpu", "CPU"),
    ("memory", "Memory"),
    ("age", "Age"),
    TENANT,
    ("labels", "Labels"),
];
/// Columns of sandboxes that are gone.
const ENDED: [Choice; 6] = [
    ("reason", "Reason"),
    ("image", "Image"),
    ("ended", "Ended"),
    ("lived", "Lived"),
    TENANT,
    ("labels", "Labels"),
];
/// The column that needs sandboxes of tenants.
const TENANT: Choice = ("tenant", "Tenant");

impl ListQuery {
    /// The columns that can be hidden.
    fn choices(&self) -> &'static [Choice] {
        match self.is_of_ended() {
            true => &ENDED,
            false => &PRESENT,
        }
    }

    /// Whether a column is shown.
    fn shows(&self, column: &str) -> bool {
        self.hide.split(',').all(|hidden| hidden != column)
    }

    /// Whether a column with the use of sandboxes is shown.
    pub(super) fn shows_use(&self) -> bool {
        self.shows("cpu") || self.shows("memory")
    }

    /// The same with a column shown that was hidden, or the other way round. Hidden columns of the other
    /// list stay hidden; names that no list has are dropped.
    fn with_column_switched(&self, column: &str) -> Self {
        let of_ended = ENDED.iter().filter(|choice| !PRESENT.contains(choice));
        let known = PRESENT.iter().chain(of_ended).map(|(name, _)| *name);
        let hidden: Vec<&str> = known
            .filter(|name| self.shows(name) == (*name == column))
            .collect();
        Self {
            hide: hidden.join(","),
            ..self.clone()
        }
    }
}

/// The names of the hidden columns, with spaces between them.
pub(super) fn hidden(
    query: Memo<ListQuery>,
    has_tenants: Signal<bool>,
) -> impl Fn() -> String + Clone + Send + 'static {
    move || {
        let query = query.read();
        let is_shown = |name: &str| query.shows(name) && (name != TENANT.0 || has_tenants.get());
        let mut hidden = String::new();
        for (name, _) in query.choices() {
            if !is_shown(name) {
                hidden.push_str(name);
                hidden.push(' ');
            }
        }
        hidden
    }
}

/// Chooses the columns. Each is a link, which also works without script.
#[component]
pub(super) fn Columns(query: Memo<ListQuery>, has_tenants: Signal<bool>) -> impl IntoView {
    let link = move |(name, title): Choice| {
        let is_shown = move || query.read().shows(name);
        let label = move || match is_shown() {
            true => ["Hide the column ", title].concat(),
            false => ["Show the column ", title].concat(),
        };
        let icon = Signal::derive(move || if is_shown() { "check" } else { "minus" });
        view! {
            <li>
                <a
                    href=move || query.read().with_column_switched(name).url()
                    aria-label=label
                    data-shown=move || is_shown().then_some("true")
                >
                    <Icon name=icon />
                    {title}
                </a>
            </li>
        }
    };
    let of_ended = Memo::new(move |_| query.read().is_of_ended());
    let links = move || {
        let has_tenants = has_tenants.get();
        let choices: &[Choice] = if of_ended.get() { &ENDED } else { &PRESENT };
        let offered = choices
            .iter()
            .filter(|choice| **choice != TENANT || has_tenants);
        offered.copied().map(link).collect_view()
    };
    view! {
        <details class="confirm choose" name="confirm">
            <summary class="button" title="Choose the columns">
                <Icon name="columns-3" />
                "Columns"
            </summary>
            <div class="card confirm-card">
                <ul class="choices">{links}</ul>
            </div>
        </details>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(hide: &str, state: &str) -> ListQuery {
        ListQuery {
            hide: hide.to_owned(),
            state: state.to_owned(),
            ..ListQuery::default()
        }
    }

    fn hidden_with(query: ListQuery, has_tenants: bool) -> String {
        Owner::new().with(|| {
            let query = Memo::new(move |_| query.clone());
            hidden(query, Signal::stored(has_tenants))()
        })
    }

    #[test]
    fn a_column_is_hidden_and_shown_again() {
        let all = query("", "");
        let fewer = all.with_column_switched("image");
        assert_eq!(fewer.hide, "image");
        assert_eq!(hidden_with(fewer.clone(), true), "image ");
        assert_eq!(fewer.with_column_switched("image"), all);
        let names = PRESENT.map(|(name, _)| name);
        let none = names
            .iter()
            .fold(all.clone(), |query, name| query.with_column_switched(name));
        assert_eq!(none.hide, names.join(","));
        assert_eq!(hidden_with(none, true), names.join(" ") + " ");
    }

    #[test]
    fn columns_of_the_other_list_stay_hidden() {
        let of_ended = query("age", "Ended").with_column_switched("reason");
        assert_eq!(of_ended.hide, "age,reason");
        assert_eq!(hidden_with(of_ended.clone(), true), "reason ");
        let present = of_ended.with_state("");
        assert_eq!(hidden_with(present.clone(), true), "age ");
        assert_eq!(present.with_column_switched("age").hide, "reason");
    }

    #[test]
    fn unknown_names_hide_nothing() {
        let unknown = query("no,such,,image ", "");
        assert_eq!(hidden_with(unknown.clone(), true), "");
        assert_eq!(unknown.with_column_switched("cpu").hide, "cpu");
    }

    #[test]
    fn the_tenant_is_shown_where_there_are_tenants() {
        assert_eq!(hidden_with(query("", ""), true), "");
        assert_eq!(hidden_with(query("", ""), false), "tenant ");
        assert_eq!(hidden_with(query("", "Ended"), false), "tenant ");
        assert_eq!(
            hidden_with(query("labels,tenant,age", ""), true),
            "age tenant labels "
        );
    }
}

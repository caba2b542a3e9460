//! Which columns the list shows: the names of those that are shown stand in the URL.
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
/// The value of the URL when every column is hidden.
const NONE: &str = "none";

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
        self.cols.is_empty() || self.cols.split(',').any(|shown| shown == column)
    }

    /// Whether a column with the use of sandboxes is shown.
    pub(super) fn shows_use(&self) -> bool {
        self.shows("cpu") || self.shows("memory")
    }

    /// The same with a column shown that was hidden, or the other way round.
    fn with_column_switched(&self, column: &str) -> Self {
        let wanted = |name: &str| self.shows(name) != (name == column);
        let choices = self.choices();
        let shown: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let shown: Vec<&str> = shown.into_iter().filter(|name| wanted(name)).collect();
        let cols = match shown.len() {
            0 => NONE.to_owned(),
            all if all == choices.len() => String::new(),
            _ => shown.join(","),
        };
        Self {
            cols,
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

    fn query(cols: &str, state: &str) -> ListQuery {
        ListQuery {
            cols: cols.to_owned(),
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
        assert_eq!(fewer.cols, "expires,cpu,memory,age,tenant,labels");
        assert_eq!(hidden_with(fewer.clone(), true), "image ");
        assert_eq!(fewer.with_column_switched("image"), all);
        let one = query("age", "");
        assert_eq!(one.with_column_switched("age").cols, NONE);
        assert_eq!(query(NONE, "").with_column_switched("age"), one);
        let of_ended = query("", "Ended").with_column_switched("image");
        assert_eq!(of_ended.cols, "reason,ended,lived,tenant,labels");
    }

    #[test]
    fn the_tenant_is_shown_where_there_are_tenants() {
        assert_eq!(hidden_with(query("", ""), true), "");
        assert_eq!(hidden_with(query("", ""), false), "tenant ");
        assert_eq!(hidden_with(query("", "Ended"), false), "tenant ");
        assert_eq!(
            hidden_with(query("age,unknown", ""), true),
            "image expires cpu memory tenant labels "
        );
    }
}

//! Sandboxes that were created from a snapshot or a template.

use leptos::prelude::*;

use crate::{
    tab::Tab,
    ui::{Icon, StateBadge},
    view::Kin,
};

/// How many sandboxes were created from something and exist.
pub(crate) fn user_count(count: usize) -> String {
    match count {
        0 => "none".to_owned(),
        1 => "1 sandbox".to_owned(),
        count => format!("{count} sandboxes"),
    }
}

/// The sandboxes that were created from something, of which some are named.
pub(crate) fn users(some: &[Kin], count: usize) -> AnyView {
    if count == 0 {
        return view! { <p class="help">"No sandbox that exists was created from it."</p> }
            .into_any();
    }
    let more = count.saturating_sub(some.len());
    let more =
        (more > 0).then(|| view! { <li class="lineage-soft">{format!("and {more} more")}</li> });
    view! {
        <h3 class="lineage-title">{heading(count)}</h3>
        <ul class="lineage-users">{some.iter().map(line).collect_view()} {more}</ul>
    }
    .into_any()
}

fn heading(users: usize) -> String {
    match users {
        1 => "1 sandbox was created from it".to_owned(),
        users => format!("{users} sandboxes were created from it"),
    }
}

/// A sandbox with its state, as an item of a list.
pub(crate) fn line(kin: &Kin) -> AnyView {
    let state = match kin.state.clone() {
        Some(state) => view! { <StateBadge state=Signal::stored(state) /> }.into_any(),
        None => view! { <span class="lineage-soft">"gone"</span> }.into_any(),
    };
    view! {
        <li>
            <Icon name="box" />
            <a href=Tab::Overview.address(&kin.id) title=kin.id.to_string()>{kin.title.clone()}</a>
            {state}
        </li>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_counted() {
        assert_eq!(user_count(0), "none");
        assert_eq!(user_count(1), "1 sandbox");
        assert_eq!(user_count(2), "2 sandboxes");
    }
}

//! The way between the pages of a list.

use leptos::prelude::*;

use super::Icon;

/// How many rows there are, and links to the pages beside this one.
#[component]
pub(crate) fn Pager(
    /// How many rows there are, in words.
    #[prop(into)]
    count: Signal<String>,
    /// The page that is shown, from 1.
    #[prop(into)]
    page: Signal<usize>,
    /// The last page.
    #[prop(into)]
    last: Signal<usize>,
    /// Address of a page.
    #[prop(into)]
    address: Callback<usize, String>,
) -> impl IntoView {
    let place = move || {
        let last = last.get();
        (last > 1).then(|| format!("Page {} of {last}", page.get()))
    };
    let link = move |step: isize, label: &'static str| {
        move || {
            let to = page.get().saturating_add_signed(step);
            let is_page = (1..=last.get()).contains(&to);
            is_page.then(|| view! { <a class="button" href=address.run(to)>{label}</a> })
        }
    };
    view! {
        <nav class="pager" aria-label="Pages">
            <p class="fine num" aria-live="polite">{move || count.get()}</p>
            <span class="fine num">{place}</span>
            {link(-1, "Previous")}
            {link(1, "Next")}
        </nav>
    }
    .into_any()
}

/// Says that the page that was asked for does not exist.
#[component]
pub(crate) fn BeyondPages(
    /// The page that was asked for.
    asked: usize,
    /// The page that is shown.
    #[prop(into)]
    page: Signal<usize>,
    /// Address of the first page.
    first: String,
) -> impl IntoView {
    move || {
        let page = page.get();
        (asked > page).then(|| {
            view! {
                <p class="banner" data-tone="quiet" role="status">
                    <Icon name="info" />
                    {format!("There is no page {asked}. This is the last one, page {page}. ")}
                    <a href=first.clone()>"First page"</a>
                </p>
            }
        })
    }
}

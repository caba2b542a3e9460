//! What stands in the place of a page that has nothing to show.

use leptos::prelude::*;

use super::{Icon, PageTitle};

/// Stands in the place of the page of something in a list.
#[component]
pub(crate) fn NotShown(
    /// Title of the page.
    title: &'static str,
    icon: &'static str,
    heading: &'static str,
    /// Address of the list, and the text of the link to it.
    list: (&'static str, &'static str),
    /// Why it is not shown.
    children: Children,
) -> impl IntoView {
    let (address, all) = list;
    view! {
        <PageTitle text=title />
        <section class="empty">
            <Icon name=icon />
            <h1>{heading}</h1>
            {children()}
            <a class="button" href=address>
                {all}
            </a>
        </section>
    }
    .into_any()
}

/// Stands in the place of a list on a runtime that does not have what it lists.
#[component]
pub(crate) fn NotOffered(
    /// Title of the page.
    title: &'static str,
    icon: &'static str,
    /// What the runtime does not have.
    text: &'static str,
) -> impl IntoView {
    view! {
        <PageTitle text=title />
        <div class="page-head">
            <h1>{title}</h1>
        </div>
        <section class="empty">
            <Icon name=icon />
            <h2>"Not available"</h2>
            <p>{text}</p>
        </section>
    }
    .into_any()
}

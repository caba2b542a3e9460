//! The table of the sandboxes that are not gone.

use leptos::prelude::*;

use super::{
    ListQuery,
    bulk::{BulkBar, SHOW_LIST, SHOW_SELECTED},
    columns::hidden,
    list_page::ListPage,
    query::{Column, last_page},
    row::Row,
    selection::{Only, Selection},
};
use crate::{
    browser,
    ui::{Clock, Icon},
    view::{LOOKS_ONLY, offers_changes},
};

/// What the numbers of the use mean.
const IN_PERCENT: &str =
    "Of the last minutes, in percent of the limit; without a limit in cores or MiB";

/// The rows that the query asks for, kept up to date.
#[component]
pub(super) fn LiveTable(page: ListPage) -> impl IntoView {
    let ListPage {
        query,
        filter,
        rows,
        usage,
    } = page;
    let Clock(clock) = Clock::current();
    let only = Only::new(None);
    let shown = Memo::new(move |_| {
        if let Some(ids) = &*only.read() {
            return rows.select_only(ids, &query.read());
        }
        let filter = filter.read();
        let now = match filter.depends_on_time() {
            true => clock.get(),
            false => clock.get_untracked(),
        };
        rows.select(&query.read(), &filter, now)
    });
    let selection = Selection::of(shown, only);
    let filtered = Memo::new(move |_| {
        let query = query.read();
        (query.q.clone(), query.state.clone())
    });
    Effect::new(move |before: Option<()>| {
        filtered.track();
        if before.is_some() {
            selection.show_all();
        }
    });
    usage.follow(shown, Memo::new(move |_| query.read().shows_use()));
    Effect::new(move |_| {
        rows.track();
        selection.retain_existing(|id| rows.get(id).is_some());
    });
    let count = move || {
        let shown = shown.read();
        match (shown.matching, shown.total) {
            (all, total) if all == total => format!("{total} in total"),
            (some, total) => format!("{some} of {total}"),
        }
    };
    let matching = Signal::derive(move || shown.read().matching);
    let number = Signal::derive(move || shown.read().page);
    let total = Signal::derive(move || shown.read().total);
    let has_tenants = Signal::from(rows.have_tenants());
    let is_empty = Memo::new(move |_| shown.read().matching == 0);
    let table = move || match is_empty.get() {
        true => view! { <Empty query total /> }.into_any(),
        false => view! {
            <Show when=move || !selection.is_shown_only()>
                <BeyondLast query number />
            </Show>
            <table class="list" data-hidden=hidden(query, has_tenants)>
                <caption class="visually-hidden">"Sandboxes"</caption>
                <thead>
                    <Head query selection />
                </thead>
                <tbody>
                    <For
                        each=move || shown.read().rows.clone()
                        key=|(id, _)| id.clone()
                        let((id, row))
                    >
                        <Row id row page selection />
                    </For>
                </tbody>
            </table>
            <nav class="pager" aria-label="Pages">
                <p class="fine num" aria-live="polite">{count}</p>
                <PageLinks query number matching />
            </nav>
        }
        .into_any(),
    };
    view! {
        <BulkBar page selection />
        <OnlySelected selection />
        {table}
    }
    .into_any()
}

/// Says that the page shows what was selected, and leads back to what the filter finds.
#[component]
fn OnlySelected(selection: Selection) -> impl IntoView {
    let back = move |_| {
        selection.show_all();
        browser::focus_or_page_if_lost(SHOW_SELECTED);
    };
    view! {
        <Show when=move || selection.is_shown_only()>
            <p class="banner" data-tone="quiet" role="status">
                <Icon name="info" />
                "This is what you selected, whatever the filter says. "
                <button id=SHOW_LIST type="button" class="button" on:click=back>
                    "Back to the list"
                </button>
            </p>
        </Show>
    }
    .into_any()
}

#[component]
fn Head(query: Memo<ListQuery>, selection: Selection) -> impl IntoView {
    let sorted = move |label, by, class| sort_title(query, label, by, class);
    let all = view! {
        <input
            type="checkbox"
            class="needs-script"
            aria-label="Select all on this page"
            title="Select all on this page"
            prop:checked=move || selection.has_page()
            on:change=move |event| selection.set_page(event_target_checked(&event))
        />
    };
    view! {
        <tr>
            <td class="c-select">{all}</td>
            {sorted("Sandbox", Column::Name, "c-name")}
            {sorted("State", Column::State, "c-state")}
            {sorted("Image", Column::Image, "c-image")}
            {sorted("Expires in", Column::Expires, "c-expires")}
            <th scope="col" class="c-cpu needs-script" title=IN_PERCENT>"CPU"</th>
            <th scope="col" class="c-memory needs-script" title=IN_PERCENT>"Memory"</th>
            {sorted("Age", Column::Age, "c-age")}
            <th scope="col" class="c-tenant">"Tenant"</th>
            <th scope="col" class="c-labels">"Labels"</th>
            <th scope="col" class="c-actions"><span class="visually-hidden">"Actions"</span></th>
        </tr>
    }
    .into_any()
}

/// The title of a column, which orders the list by it.
pub(super) fn sort_title(
    query: Memo<ListQuery>,
    label: &'static str,
    by: Column,
    class: &'static str,
) -> AnyView {
    let direction = move || {
        let order = query.read().order();
        (order.by == by).then_some(match order.is_descending {
            true => "descending",
            false => "ascending",
        })
    };
    view! {
        <th scope="col" class=class aria-sort=direction>
            <a href=move || query.read().sorted_by(by).url()>{label}</a>
        </th>
    }
    .into_any()
}

/// A link to the create form, for a role that may create sandboxes; for others it says why not.
pub(super) fn create_link(text: &'static str, class: &'static str) -> AnyView {
    let content = view! {
        <Icon name="plus" />
        {text}
    };
    match offers_changes() {
        true => view! { <a class=class href="/console/create">{content}</a> }.into_any(),
        false => view! {
            <button
                type="button"
                class=class
                aria-disabled="true"
                title=LOOKS_ONLY
            >
                {content}
            </button>
        }
        .into_any(),
    }
}

/// Says that the requested page does not exist.
#[component]
pub(super) fn BeyondLast(query: Memo<ListQuery>, number: Signal<usize>) -> impl IntoView {
    move || {
        let (asked, shown) = (query.read().page, number.get());
        (asked > shown).then(|| {
            view! {
                <p class="banner" data-tone="quiet" role="status">
                    <Icon name="info" />
                    {format!("There is no page {asked}. This is the last one, page {shown}. ")}
                    <a href=query.read().on_page(1).url()>"First page"</a>
                </p>
            }
        })
    }
}

/// Links to the pages before and after.
#[component]
pub(super) fn PageLinks(
    query: Memo<ListQuery>,
    /// The shown page.
    number: Signal<usize>,
    matching: Signal<usize>,
) -> impl IntoView {
    let link = move |step: isize, label: &'static str| {
        move || {
            let last = last_page(matching.get());
            let page = number.get().saturating_add_signed(step);
            let to = query.read().on_page(page);
            (1..=last)
                .contains(&page)
                .then(|| view! { <a class="button" href=to.url()>{label}</a> })
        }
    };
    let place = move || {
        let last = last_page(matching.get());
        (last > 1).then(|| format!("Page {} of {last}", number.get()))
    };
    view! {
        <span class="fine num">{place}</span>
        {link(-1, "Previous")}
        {link(1, "Next")}
    }
    .into_any()
}

/// The empty list: there are no sandboxes, or none match the filter.
#[component]
pub(super) fn Empty(query: Memo<ListQuery>, total: Signal<usize>) -> impl IntoView {
    let content = move || {
        let query = query.read();
        let is_filtered = total.get() > 0 && query.filters();
        let (title, text) = match (is_filtered, query.is_of_ended()) {
            (true, _) => (
                "No matches",
                "No sandbox matches the filter. Those that are gone are under Ended.",
            ),
            (false, true) => (
                "Nothing has ended",
                "Sandboxes that failed, expired, were deleted or vanished are listed here, with the reason.",
            ),
            (false, false) => (
                "No sandboxes yet",
                "A sandbox is a container with a daemon that runs commands, moves files and opens terminals. The first one takes seconds.",
            ),
        };
        let way_on = match is_filtered {
            true => view! { <a class="button" href="/console/sandboxes">"Clear the filter"</a> }
                .into_any(),
            false => create_link("Create a sandbox", "button"),
        };
        view! {
            <h2>{title}</h2>
            <p>{text}</p>
            {way_on}
        }
        .into_any()
    };
    view! {
        <section class="empty">
            <Icon name="box" />
            {content}
        </section>
    }
    .into_any()
}

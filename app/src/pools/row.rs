//! One line of the list.

use leptos::prelude::*;

use super::{badge::PoolBadge, shown::Shown, words::range};
use crate::{browser, pool::address, ui::Age, view::PoolNumbers};

/// One pool.
#[component]
pub(super) fn Row(name: String, shown: Shown) -> impl IntoView {
    let row = shown.row(name.clone());
    // Rows are made of what is listed.
    let Some(first) = row.get_untracked() else {
        return ().into_any();
    };
    let created = first.created_at;
    let row = Signal::derive(move || row.get().unwrap_or_else(|| first.clone()));
    let state = Signal::derive(move || row.read().state());
    let why = move || row.read().why().to_owned();
    let image = move || row.read().image.clone();
    let number = move |class: &'static str, label: &'static str, of: fn(&PoolNumbers) -> u32| {
        view! {
            <td class=["c-number num ", class].concat() data-label=label>
                {move || of(&row.read().numbers)}
            </td>
        }
    };
    let buffer = move || {
        let capacity = row.read().capacity;
        range(capacity.buffer_min, capacity.buffer_max)
    };
    let pool = move || {
        let capacity = row.read().capacity;
        range(capacity.pool_min, capacity.pool_max)
    };
    let opened = name.clone();
    view! {
        <tr>
            <th scope="row" class="c-name">
                <a
                    class="row-link mono"
                    data-row-link=name.clone()
                    href=address(&name)
                    title=name.clone()
                    on:click=move |_| browser::remember_row(&opened)
                >
                    {name.clone()}
                </a>
            </th>
            <td class="c-state" title=why>
                <PoolBadge state />
                <span class="visually-hidden">{why}</span>
            </td>
            <td class="c-image mono clip" title=image>
                {image}
            </td>
            {number("c-ready", "Ready", |numbers| numbers.ready)}
            {number("c-warming", "Starting", |numbers| numbers.warming)}
            {number("c-claimed", "Claimed", |numbers| numbers.claimed)}
            {number("c-draining", "Draining", |numbers| numbers.draining)}
            <td class="c-range num">{buffer}</td>
            <td class="c-range num">{pool}</td>
            <td class="c-age">
                <Age at=created />
            </td>
        </tr>
    }
    .into_any()
}

//! The table of the sandboxes that are gone, with how each ended.

use leptos::prelude::*;

use super::{
    columns::hidden,
    list_page::ListPage,
    query::Column,
    row::{Name, RowLabels, image_name},
    table::{BeyondLast, Empty, PageLinks, sort_title},
};
use crate::{
    ui::{Age, OutcomeBadge, duration},
    view::{ENDED_MAX, SandboxList, SandboxRow},
};

/// One page of the sandboxes that are gone, as the server selected it.
#[component]
pub(super) fn EndedTable(list: SandboxList, page: ListPage) -> impl IntoView {
    let SandboxList {
        rows,
        matching,
        total,
        page: number,
        ..
    } = list;
    let query = page.query;
    if matching == 0 {
        return view! { <Empty query total=Signal::stored(total) /> }.into_any();
    }
    let count = match matching == total {
        true => format!("{total} in total"),
        false => format!("{matching} of {total}"),
    };
    let bound = (total >= ENDED_MAX).then(
        || view! { <p class="help">{format!("Only the newest {ENDED_MAX} are listed.")}</p> },
    );
    let number = Signal::stored(number);
    let has_tenants = Signal::stored(rows.iter().any(|row| row.tenant.is_some()));
    view! {
        <BeyondLast query number />
        <table class="list ended" data-hidden=hidden(query, has_tenants)>
            <caption class="visually-hidden">"Sandboxes that ended"</caption>
            <thead>
                <tr>
                    {sort_title(query, "Sandbox", Column::Name, "c-name")}
                    {sort_title(query, "Outcome", Column::State, "c-outcome")}
                    {sort_title(query, "Reason", Column::Reason, "c-reason")}
                    {sort_title(query, "Image", Column::Image, "c-image")}
                    {sort_title(query, "Ended", Column::Ended, "c-ended")}
                    {sort_title(query, "Lived", Column::Lived, "c-lived")}
                    <th scope="col" class="c-tenant">"Tenant"</th>
                    <th scope="col" class="c-labels">"Labels"</th>
                </tr>
            </thead>
            <tbody>
                {rows.into_iter().map(|row| view! { <EndedRow row page /> }).collect_view()}
            </tbody>
        </table>
        {bound}
        <nav class="pager" aria-label="Pages">
            <p class="fine num">{count}</p>
            <PageLinks query number matching=Signal::stored(matching) />
        </nav>
    }
    .into_any()
}

#[component]
fn EndedRow(row: SandboxRow, page: ListPage) -> impl IntoView {
    let Some(ended) = row.ended else {
        return ().into_any();
    };
    let sandbox = &row.sandbox;
    let message = sandbox.status.message.clone().unwrap_or_default();
    let title = [
        sandbox.status.reason.as_deref().unwrap_or_default(),
        ": ",
        &message,
    ]
    .concat();
    let origin = row.origin().to_owned();
    let lived = duration((ended.at.unix_ms() - sandbox.created_at.unix_ms()) / 1_000);
    let labels = Signal::stored(sandbox.metadata.clone());
    let tenant = row.tenant.clone();
    view! {
        <tr>
            <Name id=sandbox.id.clone() row=Signal::stored(row) />
            <td class="c-outcome">
                <OutcomeBadge outcome=ended.outcome />
            </td>
            <td class="c-reason clip" title=title>
                {message}
            </td>
            <td class="c-image mono clip" title=origin.clone()>
                {image_name(&origin)}
            </td>
            <td class="c-ended">
                <Age at=Signal::stored(ended.at) />
                " ago"
            </td>
            <td class="c-lived num">{lived}</td>
            <td class="c-tenant clip">{tenant}</td>
            <td class="c-labels">
                <RowLabels of=labels query=page.query />
            </td>
        </tr>
    }
    .into_any()
}

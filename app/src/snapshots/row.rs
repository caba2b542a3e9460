//! One line of the list.

use leptos::prelude::*;

use super::{
    act::{create_address, hindrance},
    delete::DeleteButton,
    shown::Shown,
};
use crate::{
    browser,
    kin::user_count,
    sandbox::CreateLink,
    snapshot::{SnapshotBadge, address, reason, short, size, title},
    tab::Tab,
    ui::Age,
    view::{SnapshotRow, kin_names},
};

/// One snapshot.
#[component]
pub(super) fn Row(id: String, shown: Shown) -> impl IntoView {
    let row = shown.row(id.clone());
    // Rows are made of what is listed.
    let Some(first) = row.get_untracked() else {
        return ().into_any();
    };
    let source = first.source.id.clone();
    let created = first.snapshot.created_at;
    let row = Signal::derive(move || row.get().unwrap_or_else(|| first.clone()));
    let name = Signal::derive(move || title(&row.read().snapshot).to_owned());
    let opened = id.clone();
    let page = address(&id);
    let id_short = short(&id).to_owned();
    let has_name = Memo::new({
        let short = id_short.clone();
        move |_| name.get() != short
    });
    let why = move || reason(&row.read().snapshot.status);
    let state = Signal::derive(move || row.read().snapshot.status.state);
    let barred = Signal::derive(move || hindrance(state.get()));
    view! {
        <tr>
            <th scope="row" class="c-name">
                <a
                    class="row-link"
                    class:mono=move || !has_name.get()
                    data-row-link=id.clone()
                    href=page
                    title=id.clone()
                    on:click=move |_| browser::remember_row(&opened)
                >
                    {name}
                </a>
                {move || {
                    has_name
                        .get()
                        .then(|| view! { <span class="row-id mono">{id_short.clone()}</span> })
                }}
            </th>
            <td class="c-state" title=why>
                <SnapshotBadge state />
                <span class="visually-hidden">{why}</span>
            </td>
            <td class="c-source clip">
                <a class="row-link" href=Tab::Overview.address(&source) title=source.to_string()>
                    {move || row.read().source.title.clone()}
                </a>
                {move || row.read().source.state.is_none().then_some(" (gone)")}
            </td>
            <td class="c-parent clip">
                {move || parent(&row.read(), shown)}
            </td>
            <td class="c-size num">{move || size(row.read().snapshot.size_bytes)}</td>
            <td class="c-age">
                <Age at=created />
            </td>
            <td class="c-users num" title=move || users_title(&row.read())>
                {move || user_count(row.read().user_count)}
            </td>
            <td class="c-actions row-actions">
                <CreateLink address=create_address(&id) name why=barred />
                <div data-act="delete">
                    <DeleteButton id row read_again=move |()| shown.read_again() />
                </div>
            </td>
        </tr>
    }
    .into_any()
}

/// The snapshot that the sandbox was created from: by its name, if the page lists it.
fn parent(row: &SnapshotRow, shown: Shown) -> Option<AnyView> {
    let id = row.snapshot.source_snapshot_id.clone()?;
    let short = short(&id).to_owned();
    let listed = shown.list.with(|list| {
        let row = list.row(&id)?;
        Some(title(&row.snapshot).to_owned())
    });
    let text = listed.unwrap_or_else(|| short.clone());
    let is_id = text == short;
    let link = view! {
        <a class="row-link" class:mono=is_id href=address(&id) title=id.clone()>
            {text}
        </a>
    };
    Some(link.into_any())
}

fn users_title(row: &SnapshotRow) -> Option<String> {
    (row.user_count > 0).then(|| kin_names(&row.users, row.user_count))
}

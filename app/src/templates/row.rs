//! One line of the list.

use leptos::prelude::*;

use super::{delete::DeleteButton, shown::Shown};
use crate::{
    browser,
    kin::user_count,
    sandbox::CreateLink,
    template::{TemplateBadge, address, hindrance, reason, short, size},
    ui::Age,
    view::{TemplateRow, kin_names},
};

/// The create form, with this template.
pub(super) fn create_address(id: &str) -> String {
    ["/console/create?template=", id].concat()
}

/// One template.
#[component]
pub(super) fn Row(id: String, shown: Shown) -> impl IntoView {
    let row = shown.row(id.clone());
    // Rows are made of what is listed.
    let Some(first) = row.get_untracked() else {
        return ().into_any();
    };
    let created = first.created_at;
    let row = Signal::derive(move || row.get().unwrap_or_else(|| first.clone()));
    let name = Signal::derive(move || row.read().title().to_owned());
    let opened = id.clone();
    let id_short = short(&id).to_owned();
    let has_name = Memo::new(move |_| row.read().name.is_some());
    let why = move || reason(&row.read());
    let phase = Signal::derive(move || row.read().phase);
    let barred = Signal::derive(move || hindrance(phase.get()));
    let origin = move || row.read().origin.words().to_owned();
    view! {
        <tr>
            <th scope="row" class="c-name">
                <a
                    class="row-link"
                    class:mono=move || !has_name.get()
                    data-row-link=id.clone()
                    href=address(&id)
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
            <td class="c-source clip" title=origin>
                <span class:mono=move || !row.read().origin.is_build()>{origin}</span>
            </td>
            <td class="c-state" title=why>
                <TemplateBadge phase />
                <span class="visually-hidden">{why}</span>
            </td>
            <td class="c-size num">{move || size(&row.read())}</td>
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

fn users_title(row: &TemplateRow) -> Option<String> {
    (row.user_count > 0).then(|| kin_names(&row.users, row.user_count))
}

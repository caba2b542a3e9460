//! One line of the list.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use crate::{
    sandbox::{DeleteForm, PauseForm, RenewButton},
    tab::Tab,
    ui::{Age, Countdown, Icon, Labels, StateBadge},
    view::{SandboxRow, is_alive},
};

/// One sandbox.
#[component]
pub(super) fn Row(id: SandboxId, row: ArcRwSignal<SandboxRow>) -> impl IntoView {
    let row = RwSignal::from(row);
    let state = Signal::derive(move || row.read().sandbox.status.state.clone());
    let alive = Memo::new(move |_| is_alive(&row.read().sandbox.status.state));
    view! {
        <tr>
            <th scope="row">
                <a class="mono row-link" data-row-link href=Tab::Overview.address(&id) title=id.to_string()>
                    {id.short().to_owned()}
                </a>
            </th>
            <td>
                <StateBadge state stage=Signal::derive(move || row.read().stage.clone()) />
            </td>
            <td class="mono clip" title=move || row.read().origin().to_owned()>
                {move || row.read().origin().to_owned()}
            </td>
            <td>
                <Countdown until=Signal::derive(move || row.read().sandbox.expires_at) />
            </td>
            <td class="optional">
                <Age at=Signal::derive(move || row.read().sandbox.created_at) />
            </td>
            <td class="optional">
                <Labels of=Signal::derive(move || row.read().sandbox.metadata.clone()) />
            </td>
            <td class="row-actions">
                <a
                    class="icon-button"
                    data-tab-link=Tab::Terminal.segment()
                    href=Tab::Terminal.address(&id)
                    aria-label=format!("Terminal of {}", id.short())
                    title="Terminal (t)"
                >
                    <Icon name="terminal" />
                </a>
                <RenewButton id=id.clone() alive seconds=1_800 />
                <PauseForm id=id.clone() state compact=true />
                <DeleteForm id compact=true />
            </td>
        </tr>
    }
    .into_any()
}

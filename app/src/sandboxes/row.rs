//! One line of the list.

use leptos::prelude::*;
use osb_protocol::{SandboxId, WireTime};

use crate::{
    sandbox::{DeleteForm, PauseForm, RenewButton},
    tab::Tab,
    ui::{Age, Clock, Countdown, Icon, Labels, StateBadge},
    view::{SandboxRow, extends, is_alive},
};

/// Time to which one click extends a life, in seconds.
const QUICK_SECONDS: i64 = 1_800;

/// One sandbox.
#[component]
pub(super) fn Row(id: SandboxId, row: ArcRwSignal<SandboxRow>) -> impl IntoView {
    let row = RwSignal::from(row);
    let state = Signal::derive(move || row.read().sandbox.status.state.clone());
    let Clock(now) = Clock::current();
    let extendable = Memo::new(move |_| {
        let sandbox = &row.read().sandbox;
        let at = WireTime::from_unix_ms(now.get() + 1_000 * QUICK_SECONDS);
        is_alive(&sandbox.status.state) && at.is_some_and(|at| extends(sandbox.expires_at, at))
    });
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
                <RenewButton id=id.clone() extends=extendable seconds=QUICK_SECONDS />
                <PauseForm id=id.clone() state compact=true />
                <DeleteForm id compact=true />
            </td>
        </tr>
    }
    .into_any()
}

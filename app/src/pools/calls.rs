//! What the page does, as calls of the API.

use leptos::prelude::*;
use osb_protocol::lifecycle::PoolCapacity;

use crate::calls::{CurlBlock, PoolCall};

/// The page's actions as `curl` commands.
#[component]
pub(super) fn Calls(name: String, capacity: Memo<PoolCapacity>) -> impl IntoView {
    let one = |call: fn(PoolCapacity) -> PoolCall| {
        let name = name.clone();
        let title = call(capacity.get_untracked()).title();
        view! {
            <details class="call" name="call">
                <summary>{title}</summary>
                <CurlBlock
                    what=title
                    code=move |target| call(capacity.get()).code(&target, &name)
                />
            </details>
        }
    };
    let all: [fn(PoolCapacity) -> PoolCall; 4] = [
        |_| PoolCall::Claim,
        |_| PoolCall::Show,
        PoolCall::Resize,
        |_| PoolCall::Delete,
    ];
    view! {
        <details class="card">
            <summary><h2>"As API calls"</h2></summary>
            <div class="call-list">{all.map(one).collect_view()}</div>
        </details>
    }
    .into_any()
}

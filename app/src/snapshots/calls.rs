//! What the page does, as calls of the API.

use leptos::prelude::*;
use serde_json::json;

use crate::calls::{self, LanguageTabs, SnapshotCall};

/// The page's actions as code in each language, one of them open.
#[component]
pub(super) fn Calls(id: String) -> impl IntoView {
    let body = json!({
        "snapshotId": id,
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": { "cpu": "1", "memory": "512Mi" },
        "timeout": 1800,
    });
    let one = move |call: SnapshotCall| {
        let id = id.clone();
        view! {
            <details class="call" name="call">
                <summary>{call.title()}</summary>
                <LanguageTabs
                    name=["call-", call.title()].concat()
                    code=move |(language, target)| call.code(language, &target, &id)
                />
            </details>
        }
    };
    view! {
        <details class="card">
            <summary><h2>"As API calls"</h2></summary>
            <div class="call-list">
                <details class="call" name="call">
                    <summary>"Create a sandbox"</summary>
                    <LanguageTabs
                        name="call-create"
                        code=move |(language, target)| calls::create(language, &target, &body)
                    />
                </details>
                {SnapshotCall::ALL.map(one).collect_view()}
            </div>
        </details>
    }
    .into_any()
}

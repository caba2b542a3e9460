//! What the page does, as calls of the API.

use leptos::prelude::*;
use serde_json::json;

use crate::calls::{self, CurlBlock, LanguageTabs, TemplateCall};

/// The page's actions as code in each language, one of them open.
#[component]
pub(super) fn Calls(
    id: String,
    /// Whether the image is built, so that there is a log.
    is_build: bool,
) -> impl IntoView {
    let body = json!({ "templateId": id, "timeout": 1800 });
    let of_log = id.clone();
    let one = move |call: TemplateCall| {
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
    let log = is_build.then(|| {
        view! {
            <details class="call" name="call">
                <summary>"Read the log"</summary>
                <CurlBlock
                    what="Read the log"
                    code=move |target| TemplateCall::log(&target, &of_log)
                />
            </details>
        }
    });
    view! {
        <details class="card">
            <summary><h2>"As API calls"</h2></summary>
            <div class="call-list">
                <details class="call" name="call">
                    <summary>"Create from this template"</summary>
                    <LanguageTabs
                        name="call-create"
                        code=move |(language, target)| calls::create(language, &target, &body)
                    />
                </details>
                {TemplateCall::ALL.map(one).collect_view()}
                {log}
            </div>
        </details>
    }
    .into_any()
}

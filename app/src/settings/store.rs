//! The store, and the host below the runtime.

use leptos::{ev, prelude::*};
use leptos_router::{NavigateOptions, hooks::use_navigate};

use super::look::look;
use crate::{
    ui::{Icon, Unit},
    view::{CheckState, Host, StoreView},
};

/// What is known of the store, with a check on request.
#[component]
pub(super) fn StoreCard(
    /// Kind of store.
    kind: Option<String>,
    /// What the check found, if it was asked for.
    store: Option<Result<StoreView, String>>,
    /// What the host has.
    host: Option<Host>,
    /// Reads the settings again.
    again: Callback<()>,
) -> impl IntoView {
    let navigate = use_navigate();
    let is_checked = store.is_some();
    // The browser itself would leave the page, also for a server that is away.
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        if is_checked {
            again.run(());
        } else {
            let options = NavigateOptions {
                scroll: false,
                ..Default::default()
            };
            navigate("/console/settings?check=store", options);
        }
    };
    let found = store.map(|found| match found {
        Ok(found) => view! { <Found found /> }.into_any(),
        Err(why) => view! { <Line state=CheckState::Bad text=why /> }.into_any(),
    });
    let host = host.map(|host| {
        let memory = Unit::Bytes.text(float(host.memory_bytes));
        let text = format!(
            "{}: {} processors, {memory} of memory",
            host.name, host.processors
        );
        view! {
            <dt>"Host"</dt>
            <dd>{text}</dd>
            <dt>"Engine"</dt>
            <dd>{host.engine}</dd>
        }
    });
    view! {
        <section class="card store-card" aria-labelledby="store-title">
            <h2 id="store-title">"Store and host"</h2>
            <dl class="facts">
                <dt>"Store"</dt>
                <dd>{kind.unwrap_or_else(|| "not known".to_owned())}</dd>
                {host}
            </dl>
            {found}
            <form method="get" action="/console/settings" on:submit=submit>
                <button type="submit" class="button" name="check" value="store">
                    <Icon name="search" />
                    "Look for damage"
                </button>
            </form>
            <p class="help">"Reads the whole store; the server goes on meanwhile."</p>
        </section>
    }
    .into_any()
}

#[expect(clippy::cast_precision_loss, reason = "shown to three digits")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[component]
fn Line(state: CheckState, text: String) -> impl IntoView {
    let (tone, icon) = look(state);
    view! {
        <p class="banner" data-tone=tone>
            <Icon name=icon />
            <span>{text}</span>
        </p>
    }
    .into_any()
}

#[component]
fn Found(found: StoreView) -> impl IntoView {
    let StoreView {
        database,
        schema: (schema, newest),
        tables,
        bytes,
        problems,
        notes,
    } = found;
    let sound = problems
        .is_empty()
        .then(|| view! { <Line state=CheckState::Good text="No damage was found.".to_owned() /> });
    let problem = |text: String| view! { <Line state=CheckState::Bad text /> };
    let note = |text: String| view! { <Line state=CheckState::Note text /> };
    let size = bytes.map(|bytes| format!(", {}", Unit::Bytes.text(float(bytes))));
    let row = |(table, rows): (String, u64)| {
        view! {
            <tr>
                <th scope="row" class="mono">{table}</th>
                <td class="num">{rows}</td>
            </tr>
        }
    };
    view! {
        {sound}
        {problems.into_iter().map(problem).collect_view()}
        {notes.into_iter().map(note).collect_view()}
        <p>{format!("{database}, schema {schema} of {newest}")}{size}</p>
        <details>
            <summary>"Rows of its tables"</summary>
            <table class="plain-table">
                <tbody>{tables.into_iter().map(row).collect_view()}</tbody>
            </table>
        </details>
    }
    .into_any()
}

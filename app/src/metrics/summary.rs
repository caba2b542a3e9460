//! CPU and memory, for the overview.

use leptos::prelude::*;
use osb_protocol::{SandboxId, lifecycle::MetricsHistory};

use super::{
    api,
    series::{CPU, MEMORY, Range, Usage, limits},
};
use crate::{
    live::Live,
    tab::{Current, Tab},
    ui::{LoadError, Sparkline},
};

/// A card with the present use of CPU and memory, and the last 15 minutes as small lines; where nothing
/// is measured, why.
#[component]
pub fn UsageSummary(
    /// The sandbox.
    id: SandboxId,
) -> impl IntoView {
    let asked = id.clone();
    let first =
        Resource::new_blocking(|| (), move |()| api::history(asked.clone(), Range::Quarter));
    view! {
        <Transition>
            {move || {
                let id = id.clone();
                let again = Callback::new(move |()| first.refetch());
                Suspend::new(async move {
                    match first.await {
                        Ok(Ok(history)) => view! { <Lines id history /> }.into_any(),
                        Ok(Err(why)) => view! { <Missing><p class="help">{why}</p></Missing> }.into_any(),
                        Err(error) => view! { <Missing><LoadError error again /></Missing> }.into_any(),
                    }
                })
            }}
        </Transition>
    }
    .into_any()
}

/// The card without lines.
#[component]
fn Missing(children: Children) -> impl IntoView {
    view! {
        <section class="card" aria-labelledby="usage-title">
            <h2 id="usage-title">"CPU and memory"</h2>
            {children()}
        </section>
    }
    .into_any()
}

#[component]
fn Lines(id: SandboxId, history: MetricsHistory) -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    let limits = current.with_untracked(|detail| limits(&detail.resources));
    let usage = Usage::new(history);
    let live = use_context::<Live>();
    let watched = id.clone();
    Effect::new(move |_| {
        if let Some(live) = live {
            live.watch_metrics(watched.clone(), move |samples| {
                // A hole in so small a line does no harm.
                usage.add(samples);
            });
        }
    });
    let line = |chart: usize| {
        let limit = limits[chart];
        let data = Memo::new(move |_| usage.chart(chart, Range::Quarter, None, limit));
        let points = Signal::derive(move || data.with(|data| data.lines[0].points.clone()));
        let text = move || {
            data.with(|data| {
                let last = data.lines[0]
                    .points
                    .iter()
                    .rev()
                    .find_map(|(_, value)| *value);
                let unit = data.unit;
                match (last, data.limit) {
                    (Some(last), Some(limit)) => {
                        format!("{} of {}", unit.text(last), unit.text(limit))
                    }
                    (Some(last), None) => unit.text(last),
                    (None, _) => "not measured yet".to_owned(),
                }
            })
        };
        let title = data.with_untracked(|data| data.title);
        view! {
            <div class="usage-line">
                <dt>{title}</dt>
                <dd class="num">{text}</dd>
                <dd><Sparkline points limit /></dd>
            </div>
        }
    };
    view! {
        <section class="card" aria-labelledby="usage-title">
            <div class="card-head">
                <h2 id="usage-title">"CPU and memory"</h2>
                <a href=Tab::Metrics.address(&id)>"All metrics"</a>
            </div>
            <dl class="usage">{line(CPU)} {line(MEMORY)}</dl>
        </section>
    }
    .into_any()
}

//! CPU and memory in two lines, for the overview.

use leptos::prelude::*;
use osb_protocol::{SandboxId, lifecycle::MetricsHistory};

use super::{
    api,
    series::{CPU, MEMORY, Range, Usage, limits},
};
use crate::{
    live::Live,
    tab::{Current, Tab},
    ui::Sparkline,
};

/// A card with the present use of CPU and memory, and the last 15 minutes as small lines. Nothing where
/// nothing is measured.
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
                Suspend::new(async move {
                    match first.await {
                        Ok(Ok(history)) => view! { <Lines id history /> }.into_any(),
                        _ => ().into_any(),
                    }
                })
            }}
        </Transition>
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
        let data = Memo::new(move |_| usage.chart(chart, Range::Quarter, limit));
        let points = Signal::derive(move || data.with(|data| data.lines[0].points.clone()));
        let text = move || {
            data.with(|data| {
                let last = data.lines[0]
                    .points
                    .iter()
                    .rev()
                    .find_map(|(_, value)| *value);
                let unit = data.unit;
                let last = last.map_or_else(|| "not measured yet".to_owned(), |it| unit.text(it));
                match data.limit {
                    Some(limit) => format!("{last} of {}", unit.text(limit)),
                    None => last,
                }
            })
        };
        let title = data.with_untracked(|data| data.title);
        view! {
            <dt>{title}</dt>
            <dd class="usage-line"><Sparkline points limit /> <span class="num">{text}</span></dd>
        }
    };
    view! {
        <section class="card" aria-labelledby="usage-title">
            <h2 id="usage-title">"Usage"</h2>
            <dl class="facts">{line(CPU)} {line(MEMORY)}</dl>
            <p><a href=Tab::Metrics.address(&id)>"All metrics"</a></p>
        </section>
    }
    .into_any()
}

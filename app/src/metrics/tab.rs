//! The view of the metrics tab.

use leptos::prelude::*;
use leptos_router::hooks::{use_location, use_query_map};
use osb_protocol::{SandboxId, lifecycle::MetricsHistory};

use super::{
    api,
    series::{CHARTS, Range, Usage, limits},
};
use crate::{
    browser,
    live::Live,
    tab::Current,
    ui::{Chart, ChartData, Icon, LoadError, When, thinned, time_of},
};

/// Rows of the table.
const ROWS: usize = 30;
/// Least time between two loads that live samples ask for, in milliseconds.
const RELOAD_MS: i64 = 20_000;

/// Charts of the sandbox's resource use.
#[component]
pub fn MetricsTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let params = use_query_map();
    let range = Memo::new(move |_| Range::of_key(&params.read().get("range").unwrap_or_default()));
    let has_table = Memo::new(move |_| params.read().get("table").is_some());
    let asked = id.clone();
    let first = Resource::new_blocking(
        move || range.get(),
        move |range| api::history(asked.clone(), range),
    );
    let reload = Reload {
        last_ms: StoredValue::new(0),
        again: Callback::new(move |()| first.refetch()),
    };
    view! {
        <Ranges range has_table />
        <Transition fallback=|| view! { <div class="skeleton" aria-busy="true"><div class="skeleton-row"></div></div> }>
            {move || {
                let id = id.clone();
                Suspend::new(async move {
                    match first.await {
                        Ok(Ok(history)) => {
                            let range = range.get_untracked();
                            view! { <Charts id history range has_table reload /> }.into_any()
                        }
                        Ok(Err(why)) => view! { <NoMetrics why /> }.into_any(),
                        Err(error) => view! { <LoadError error again=reload.again /> }.into_any(),
                    }
                })
            }}
        </Transition>
    }
    .into_any()
}

/// Loads the recording again, but not too often.
#[derive(Clone, Copy)]
struct Reload {
    last_ms: StoredValue<i64>,
    again: Callback<()>,
}

impl Reload {
    fn ask(self) {
        let now = browser::now_ms();
        if now - self.last_ms.get_value() >= RELOAD_MS {
            self.last_ms.set_value(now);
            self.again.run(());
        }
    }
}

#[component]
fn NoMetrics(why: String) -> impl IntoView {
    view! {
        <section class="empty">
            <Icon name="activity" />
            <h2>"No metrics"</h2>
            <p>{why}</p>
        </section>
    }
    .into_any()
}

/// Links to the ranges and to the table.
#[component]
fn Ranges(range: Memo<Range>, has_table: Memo<bool>) -> impl IntoView {
    let path = use_location().pathname;
    let address = move |range: Range, table: bool| {
        let table = if table { "&table=on" } else { "" };
        format!("{}?range={}{table}", path.get(), range.key())
    };
    let link = move |of: Range| {
        view! {
            <a
                class="button"
                href=move || address(of, has_table.get())
                aria-current=move || (range.get() == of).then_some("true")
            >
                {of.title()}
            </a>
        }
    };
    view! {
        <nav class="ranges" aria-label="Time">
            {Range::ALL.map(link).collect_view()}
            <a class="button table-link" href=move || address(range.get(), !has_table.get())>
                {move || if has_table.get() { "Hide the table" } else { "Show as table" }}
            </a>
        </nav>
    }
    .into_any()
}

#[component]
fn Charts(
    id: SandboxId,
    history: MetricsHistory,
    range: Range,
    has_table: Memo<bool>,
    reload: Reload,
) -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    let limits = current.with_untracked(|detail| limits(&detail.resources));
    let usage = Usage::new(history);
    let live = use_context::<Live>();
    Effect::new(move |_| {
        if let Some(live) = live {
            live.watch_metrics(id.clone(), move |samples| {
                if !usage.add(samples) {
                    reload.ask();
                }
            });
        }
    });
    let data: [Memo<ChartData>; CHARTS] =
        std::array::from_fn(|chart| Memo::new(move |_| usage.chart(chart, range, limits[chart])));
    let is_empty = move || data[0].with(|it| it.to == 0);
    view! {
        <Show
            when=move || !is_empty()
            fallback=|| view! { <p class="help">"Nothing was recorded yet. A sandbox is measured every ten seconds while it runs."</p> }
        >
            <Show when=move || has_table.get()>
                <Table data />
            </Show>
            <div class="charts">
                {data.map(|data| view! { <section class="card"><Chart data /></section> }).collect_view()}
            </div>
        </Show>
    }
    .into_any()
}

/// The values of all charts as text.
#[component]
fn Table(data: [Memo<ChartData>; CHARTS]) -> impl IntoView {
    let heads = move || {
        let heads = data.iter().flat_map(|data| {
            data.with(|data| {
                let title = data.title;
                let name = |name: &str| format!("{title} {name}");
                data.lines
                    .iter()
                    .map(|line| name(line.name))
                    .collect::<Vec<_>>()
            })
        });
        heads
            .map(|head| view! { <th scope="col">{head}</th> })
            .collect_view()
    };
    let rows = move || {
        let mut columns: Vec<Vec<String>> = Vec::new();
        let mut times = Vec::new();
        for data in &data {
            data.with(|data| {
                for line in &data.lines {
                    let points = thinned(&line.points, ROWS);
                    let text = |value: &Option<f64>| {
                        value.map_or_else(|| "unknown".to_owned(), |it| data.unit.text(it))
                    };
                    columns.push(points.iter().map(|(_, value)| text(value)).collect());
                    if times.is_empty() {
                        times = points.iter().map(|(at, _)| *at).collect();
                    }
                }
            });
        }
        let row = |(index, at): (usize, &i64)| {
            let cell = |column: &Vec<String>| {
                view! { <td class="num">{column.get(index).cloned()}</td> }
            };
            let cells = columns.iter().map(cell).collect_view();
            view! { <tr><th scope="row"><When at=Signal::stored(time_of(*at)) /></th>{cells}</tr> }
        };
        times.iter().enumerate().rev().map(row).collect_view()
    };
    view! {
        <div class="table-scroll" tabindex="0" role="region" aria-label="Values as a table">
            <table class="values">
                <caption class="visually-hidden">"Highest values of each stretch of time, newest first"</caption>
                <thead><tr><th scope="col">"Time"</th>{heads}</tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}

//! The view of the metrics tab.

use leptos::prelude::*;
use leptos_router::{
    NavigateOptions,
    hooks::{use_location, use_navigate},
};
use osb_protocol::{SandboxId, lifecycle::MetricsHistory};

use super::{
    api,
    chart::{Axis, TimeChart},
    marks::{self, Marks},
    series::{CHARTS, CPU, Range, Stretch, Usage, limits},
    window::{Move, View},
};
use crate::{
    browser,
    live::Live,
    query_string::use_query,
    tab::Current,
    ui::{ChartData, Icon, LoadError, When, thinned, time_of},
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
    let params = use_query();
    let shown = Memo::new(move |_| View::of(|name| params.read().get(name)));
    let range = Memo::new(move |_| shown.read().range);
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
        <Ranges shown />
        <Transition fallback=|| view! { <div class="skeleton" aria-busy="true"><div class="skeleton-row"></div></div> }>
            {move || {
                let id = id.clone();
                Suspend::new(async move {
                    match first.await {
                        Ok(Ok(history)) => {
                            let range = range.get_untracked();
                            view! { <Charts id history range shown reload /> }.into_any()
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
    let current = use_context::<Current>();
    let why = move || {
        let ended = current.and_then(|current| current.of_ended("Its resource use is not known."));
        ended.unwrap_or_else(|| why.clone())
    };
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
fn Ranges(shown: Memo<View>) -> impl IntoView {
    let path = use_location().pathname;
    let address = move |view: View| format!("{}{}", path.get(), view.query());
    let link = move |range: Range| {
        let of = move || View {
            range,
            window: None,
            ..shown.get()
        };
        view! {
            <a
                class="button"
                href=move || address(of())
                aria-current=move || (shown.read().range == range).then_some("true")
            >
                {range.title()}
            </a>
        }
    };
    let other = move || View {
        has_table: !shown.read().has_table,
        ..shown.get()
    };
    view! {
        <nav class="ranges" aria-label="Time">
            {Range::ALL.map(link).collect_view()}
            <a class="button table-link" href=move || address(other())>
                {move || if shown.read().has_table { "Hide the table" } else { "Show as table" }}
            </a>
        </nav>
    }
    .into_any()
}

/// Links to other parts of the time.
#[component]
fn Windows(
    shown: Memo<View>,
    /// What is shown.
    part: Memo<Stretch>,
    /// All of the range.
    whole: Memo<Stretch>,
) -> impl IntoView {
    let path = use_location().pathname;
    let link = move |to: Move| {
        let address = move || {
            let window = to.of(part.get(), whole.get());
            let view = View {
                window,
                ..shown.get()
            };
            format!("{}{}", path.get(), view.query())
        };
        view! {
            <a class="button" href=address>
                {to.title()}
            </a>
        }
    };
    let is_part = Memo::new(move |_| shown.read().window.is_some());
    view! {
        <nav class="ranges" aria-label="Part of the time">
            {link(Move::In)}
            <Show when=move || is_part.get()>
                {Move::ALL.into_iter().filter(|it| *it != Move::In).map(link).collect_view()}
            </Show>
        </nav>
    }
    .into_any()
}

#[component]
fn Charts(
    id: SandboxId,
    history: MetricsHistory,
    range: Range,
    shown: Memo<View>,
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
    let window = Memo::new(move |_| shown.read().window);
    let data: [Memo<ChartData>; CHARTS] = std::array::from_fn(|chart| {
        Memo::new(move |_| usage.chart(chart, range, window.get(), limits[chart]))
    });
    let stretch = |window: Option<Memo<Option<Stretch>>>| {
        Memo::new(move |_| {
            let window = window.and_then(|window| window.get());
            let data = usage.chart(CPU, range, window, None);
            (data.from, data.to)
        })
    };
    let (part, whole) = (stretch(Some(window)), stretch(None));
    let (navigate, here) = (use_navigate(), use_location().pathname);
    let axis = Axis {
        cursor: RwSignal::new(None),
        anchor: RwSignal::new(None),
        show: Callback::new(move |window| {
            let view = View {
                window: Some(window),
                ..shown.get_untracked()
            };
            let options = NavigateOptions {
                scroll: false,
                ..Default::default()
            };
            let to = format!("{}{}", here.get_untracked(), view.query());
            navigate(&to, options);
        }),
        marks: marks::followed(current),
    };
    let is_empty = move || whole.with(|(_, to)| *to == 0);
    view! {
        <Show
            when=move || !is_empty()
            fallback=|| view! { <p class="help">"Nothing was recorded yet. A sandbox is measured every ten seconds while it runs."</p> }
        >
            <Windows shown part whole />
            <Show when=move || shown.read().has_table>
                <Table data />
            </Show>
            <div class="charts">
                {data
                    .map(|data| view! { <section class="card"><TimeChart data axis /></section> })
                    .collect_view()}
            </div>
            <p id="chart-help" class="fine needs-script">
                "Drag over a chart to show a part of the time. With keys: arrows move the cursor, with Shift they choose a part, and Enter shows it."
            </p>
            <Marks marks=axis.marks />
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

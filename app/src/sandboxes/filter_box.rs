//! The field for the filter, with what is wrong in it and its help.

use leptos::{ev, html::Input, prelude::*};
use leptos_router::{NavigateOptions, hooks::use_navigate};

use super::{columns::Columns, filter::SYNTAX, list_page::ListPage, views::Views};
use crate::{
    browser::{self, FOCUS_FILTER, Memory},
    ui::Icon,
};

/// A plain GET form: without script, Enter or the button applies it.
#[component]
pub(super) fn FilterBox(page: ListPage) -> impl IntoView {
    let query = page.query;
    let navigate = use_navigate();
    let field = NodeRef::<Input>::new();
    // What was typed and is on its way into the URL.
    let typed = StoredValue::new(Vec::<String>::new());
    let on_input = move |event: ev::Event| {
        let text = event_target_value(&event);
        typed.update_value(|typed| typed.push(text.clone()));
        let options = NavigateOptions {
            replace: true,
            scroll: false,
            ..Default::default()
        };
        navigate(&query.get_untracked().with_filter(text).url(), options);
    };
    // A link or the Back button changes the URL: the field follows. It does not follow what it sent
    // itself, because more may have been typed since.
    Effect::new(move |_| {
        let wanted = query.read().q.clone();
        let Some(field) = field.get() else {
            return;
        };
        let shown = field.value();
        typed.update_value(|typed| match typed.iter().position(|it| *it == wanted) {
            _ if shown == wanted => typed.clear(),
            Some(place) => drop(typed.drain(..=place)),
            None => {
                typed.clear();
                field.set_value(&wanted);
            }
        });
    });
    Effect::new(move |_| {
        if field.get().is_some() && Memory::Tab.get(FOCUS_FILTER).is_some() {
            Memory::Tab.set(FOCUS_FILTER, None);
            browser::focus("filter");
        }
    });
    let problems = move || {
        page.filter.with(|filter| {
            let line = |problem: &super::filter::Problem| {
                view! {
                    <p class="problem">
                        <code>{problem.word.clone()}</code>
                        " "
                        {problem.why.clone()}
                        "."
                    </p>
                }
            };
            filter.problems().iter().map(line).collect_view()
        })
    };
    let has_problem = move || page.filter.with(|filter| !filter.problems().is_empty());
    let kept = query.get_untracked();
    let has_tenants = Signal::from(page.rows.have_tenants());
    view! {
        <div class="filter-bar">
        <form
            method="get"
            action="/console/sandboxes"
            role="search"
            class="filter"
            on:submit=|event| event.prevent_default()
        >
            <label class="search">
                <Icon name="search" />
                <span class="visually-hidden">"Filter"</span>
                <input
                    id="filter"
                    node_ref=field
                    type="search"
                    name="q"
                    value=kept.q
                    placeholder="Filter: words, state:running, image:python*, label.team=a, ttl<10m"
                    autocomplete="off"
                    autocapitalize="off"
                    spellcheck="false"
                    aria-describedby="filter-problems"
                    aria-invalid=move || has_problem().then_some("true")
                    on:input=on_input
                />
                <kbd class="needs-script" aria-hidden="true">"/"</kbd>
            </label>
            <input type="hidden" name="state" value=kept.state />
            <input type="hidden" name="sort" value=kept.sort />
            <input type="hidden" name="hide" value=kept.hide />
            <button type="submit" class="button needs-no-script">"Apply"</button>
            <Syntax />
            <div id="filter-problems" class="filter-problems" role="status">{problems}</div>
        </form>
        <Columns query has_tenants />
        <Views query />
        </div>
    }
    .into_any()
}

/// The query language.
#[component]
fn Syntax() -> impl IntoView {
    let line = |(example, meaning): (&'static str, &'static str)| {
        view! {
            <dt>
                <code>{example}</code>
            </dt>
            <dd>{meaning}</dd>
        }
    };
    view! {
        <details class="confirm syntax" name="confirm">
            <summary class="button" aria-label="What the filter understands" title="What the filter understands">
                "?"
            </summary>
            <div class="card confirm-card">
                <h2>"Filter"</h2>
                <p>"Every word has to match. Upper and lower case are the same."</p>
                <dl class="keys">{SYNTAX.map(line).collect_view()}</dl>
            </div>
        </details>
    }
    .into_any()
}

//! The page of the list.

use leptos::prelude::*;
use serde_json::json;

use super::{
    add::AddForm,
    form::{PUBLISH, TemplateDraft},
    row::Row,
    shown::Shown,
};
use crate::{
    calls::{CurlBlock, add_template},
    query_string::use_query,
    template::{self, offers_templates},
    ui::{BeyondPages, ColumnTitle, Icon, LoadError, NotOffered, PageTitle, Pager, TableHead},
    view::TemplateList,
};

/// Titles of the columns.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Template").class("c-name"),
    ColumnTitle::new("Made from").class("c-source"),
    ColumnTitle::new("Phase").class("c-state"),
    ColumnTitle::new("Size").class("c-size"),
    ColumnTitle::new("Age").class("c-age"),
    ColumnTitle::new("In use by").class("c-users"),
    ColumnTitle::new("Actions").class("c-actions").hidden(),
];

/// What a template is for.
const WHY: &str = "A template is an image that was made ready under a name of its own, with what its sandboxes run. Creates from it need no pull, and find the same image after its name has moved on. Name it in a create as templateId.";

/// The address of a page of the list.
fn page_address(page: usize) -> String {
    match page {
        0 | 1 => "/console/templates".to_owned(),
        page => format!("/console/templates?page={page}"),
    }
}

/// The list of templates.
#[component]
pub fn TemplatesPage() -> impl IntoView {
    if !offers_templates() {
        let text = "The runtime of this server has no templates.";
        return view! { <NotOffered title="Templates" icon="package" text /> }.into_any();
    }
    let draft = SharedValue::new(use_context::<TemplateDraft>).into_inner();
    let params = use_query();
    let page = Memo::new(move |_| {
        let page = params.read().get("page");
        let page = page.and_then(|page| page.trim().parse::<usize>().ok());
        page.unwrap_or(1).max(1)
    });
    let list = Resource::new_blocking(move || page.get(), template::list);
    let refresh = move |event: leptos::ev::MouseEvent| {
        event.prevent_default();
        list.refetch();
    };
    view! {
        <PageTitle text="Templates" />
        <div class="page-head">
            <h1>"Templates"</h1>
            <a
                class="button"
                rel="external"
                href=move || page_address(page.get())
                on:click=refresh
            >
                <Icon name="refresh-cw" />
                "Refresh"
            </a>
        </div>
        <AddForm draft />
        <Transition fallback=|| {
            view! {
                <div class="skeleton" aria-busy="true">
                    <div class="skeleton-row"></div>
                    <div class="skeleton-row"></div>
                </div>
            }
        }>
            {move || Suspend::new(async move {
                let list_now = list.await;
                let asked = page.get_untracked();
                match list_now {
                    Ok(now) => view! { <Loaded list=now asked /> }.into_any(),
                    Err(error) => {
                        view! { <LoadError error again=move |()| list.refetch() /> }.into_any()
                    }
                }
            })}
        </Transition>
    }
    .into_any()
}

#[component]
fn Loaded(list: TemplateList, asked: usize) -> impl IntoView {
    let shown = Shown::new(list, asked);
    shown.follow();
    let is_empty = Memo::new(move |_| shown.list.read().rows.is_empty());
    let page = Signal::derive(move || shown.list.read().page);
    let last = Signal::derive(move || shown.list.read().last_page());
    let count = Signal::derive(move || format!("{} in total", shown.list.read().total));
    view! {
        <Show when=move || !is_empty.get() fallback=|| view! { <Empty /> }>
            <BeyondPages asked page first=page_address(1) />
            <table class="list templates">
                <caption class="visually-hidden">"Templates, newest first"</caption>
                <TableHead of=TITLES />
                <tbody>
                    <For
                        each=move || shown.ids()
                        key=Clone::clone
                        children=move |id| view! { <Row id shown /> }
                    />
                </tbody>
            </table>
            <Pager count page last address=page_address />
        </Show>
    }
    .into_any()
}

/// There are no templates.
#[component]
fn Empty() -> impl IntoView {
    let body = json!({
        "image": "python:3.12",
        "publish": PUBLISH,
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": { "cpu": "1", "memory": "512Mi" },
        "metadata": { "name": "python" },
    });
    view! {
        <section class="empty">
            <Icon name="package" />
            <h2>"No templates yet"</h2>
            <p>{WHY}</p>
            <p>"Make one above, or with a call of the API:"</p>
            <div class="template-example">
                <CurlBlock what="Make a template" code=move |target| add_template(&target, &body) />
            </div>
        </section>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_has_the_plain_address() {
        assert_eq!(page_address(1), "/console/templates");
        assert_eq!(page_address(3), "/console/templates?page=3");
    }
}

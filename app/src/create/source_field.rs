//! The fields for what a new sandbox is created from.

use leptos::{ev, html, prelude::*, task::spawn_local};
use osb_protocol::lifecycle::Snapshot;

use super::{Field, inputs::TextField, source, state::State};
use crate::{
    snapshot::{short, size, title},
    view::{
        OFFERED_MAX, OfferedSnapshots, OfferedTemplates, ServerInfo, TemplateRow, template_short,
    },
};

/// What is there to create from, besides images.
#[derive(Clone, Debug, Default)]
pub(super) struct Offered {
    /// The snapshots that are ready.
    pub(super) snapshots: OfferedSnapshots,
    /// The templates that are made.
    pub(super) templates: OfferedTemplates,
}

/// The image, or where the runtime has more the choice between an image, a snapshot and a template.
/// Without script all fields are shown, and the choice decides which of them counts.
#[component]
pub(super) fn SourceField(
    state: State,
    /// What else is there to create from.
    offered: StoredValue<Offered>,
    /// Id of the suggested images.
    images: &'static str,
    /// What is said about the image.
    image_note: Memo<String>,
) -> impl IntoView {
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    // A request as JSON, or an address, may ask for one where there are none: then it can be taken back.
    let first = state.form.with_untracked(|form| form.source.clone());
    let choices: Vec<_> = source::choices(features, &first).collect();
    if choices.len() == 1 {
        return view! { <TextField state field=Field::Image name="image" list=images help=image_note /> }
            .into_any();
    }
    let has = |choice: &str| choices.iter().any(|(value, _)| *value == choice);
    let snapshots = has(source::SNAPSHOT).then(|| {
        let (options, help) = offered.with_value(|all| of_snapshots(&all.snapshots));
        view! {
            <Part state choice=source::SNAPSHOT>
                <OfferedField state field=Field::Snapshot name="snapshot"
                    none="Choose a snapshot …" short=short options help />
            </Part>
        }
    });
    let templates = has(source::TEMPLATE).then(|| {
        let (options, help) = offered.with_value(|all| of_templates(&all.templates));
        view! {
            <Part state choice=source::TEMPLATE>
                <OfferedField state field=Field::Template name="template"
                    none="Choose a template …" short=template_short options help />
            </Part>
        }
    });
    view! {
        <Choice state choices />
        <Part state choice=source::IMAGE>
            <TextField state field=Field::Image name="image" list=images help=image_note />
        </Part>
        {snapshots}
        {templates}
    }
    .into_any()
}

/// The part of the form for a choice.
#[component]
fn Part(state: State, choice: &'static str, children: Children) -> impl IntoView {
    let is_off = Memo::new(move |_| source::meant(&state.form.read().source) != choice);
    view! {
        <div class="source-part" class:off=move || is_off.get()>
            {children()}
        </div>
    }
    .into_any()
}

/// The snapshots to choose from, and what helps to choose.
fn of_snapshots(all: &OfferedSnapshots) -> (Vec<(String, String)>, String) {
    let options = all.snapshots.iter();
    let options = options.map(|(snapshot, source)| (snapshot.id.clone(), words(snapshot, source)));
    let help = match (all.snapshots.is_empty(), all.is_cut) {
        (true, _) => {
            "No snapshot is ready. One is taken on the page of a sandbox that runs.".to_owned()
        }
        (false, true) => format!(
            "The newest {OFFERED_MAX} that are ready. For an older one, open it under Snapshots and choose “Create a sandbox”."
        ),
        (false, false) => {
            "Its files are there as they were. Programs start anew, and volumes are not part of it."
                .to_owned()
        }
    };
    (options.collect(), help)
}

/// The same of templates.
fn of_templates(all: &OfferedTemplates) -> (Vec<(String, String)>, String) {
    const HAS: &str = "It brings the entry point, the variables and the limits of the sandbox, in place of those below. A lifetime is required.";
    let options = all.templates.iter();
    let options = options.map(|row| (row.id.clone(), template_words(row)));
    let help = match (all.templates.is_empty(), all.is_cut) {
        (true, _) => "No template is made. One is added under Templates.".to_owned(),
        (false, true) => format!(
            "{HAS} Listed are those among the newest {OFFERED_MAX}. For an older one, open it under Templates and choose “Create from this template”."
        ),
        (false, false) => HAS.to_owned(),
    };
    (options.collect(), help)
}

/// A template in a line: name, id and origin.
fn template_words(row: &TemplateRow) -> String {
    let (name, id) = (row.title(), template_short(&row.id));
    let origin = row.origin.words();
    match name == id {
        true => format!("{id}, {origin}"),
        false => format!("{name} ({id}), {origin}"),
    }
}

#[component]
fn Choice(state: State, choices: Vec<(&'static str, &'static str)>) -> impl IntoView {
    let first = state.form.read_untracked().source.clone();
    let option = |(value, words): (&'static str, &'static str)| {
        view! {
            <option value=value selected=value == first>
                {words}
            </option>
        }
    };
    let select = NodeRef::<html::Select>::new();
    let chosen = Memo::new(move |_| state.form.read().source.clone());
    Effect::new(move |ran: Option<()>| {
        let wanted = chosen.get();
        let Some(select) = select.get() else {
            return;
        };
        match ran {
            // The user may have chosen before the page was live.
            None => state.choose_source(select.value()),
            Some(()) => select.set_value(&wanted),
        }
    });
    view! {
        <div class="field">
            <label for="source">"Source"</label>
            <select
                id="source"
                name="source"
                node_ref=select
                autocomplete="off"
                aria-describedby="source-help"
                on:change=move |event: ev::Event| state.choose_source(event_target_value(&event))
            >
                {choices.into_iter().map(option).collect_view()}
            </select>
            <p id="source-help" class="help">
                "A snapshot has the files of the sandbox that it was taken of; a template is an image that was made ready."
            </p>
        </div>
    }
    .into_any()
}

/// A field with what there is of a kind.
#[component]
fn OfferedField(
    state: State,
    field: Field,
    /// Its name, and its id in the page.
    name: &'static str,
    /// The option that is none.
    none: &'static str,
    /// The short form of an id.
    short: fn(&str) -> &str,
    /// Ids, and what is said of each.
    options: Vec<(String, String)>,
    help: String,
) -> impl IntoView {
    let first = state.form.read_untracked().text(field).to_owned();
    let chosen = Memo::new(move |_| state.form.read().text(field).to_owned());
    let known: Vec<_> = options.iter().map(|(id, _)| id.clone()).collect();
    // What was chosen stays in the form, also if it is not offered: the server says what is wrong.
    let other = move || {
        let id = chosen.get();
        (!id.is_empty() && !known.contains(&id)).then(|| {
            let words = format!("{}, which is not listed as ready", short(&id));
            view! {
                <option value=id selected=true>
                    {words}
                </option>
            }
        })
    };
    let option = |(id, words): (String, String)| {
        let is_first = id == first;
        view! {
            <option value=id selected=is_first>
                {words}
            </option>
        }
    };
    let options = options.into_iter().map(option).collect_view();
    let select = NodeRef::<html::Select>::new();
    Effect::new(move |ran: Option<()>| {
        let wanted = chosen.get();
        let Some(select) = select.get() else {
            return;
        };
        let shown = select.value();
        match ran {
            _ if shown == wanted => {}
            // The user may have chosen before the page was live.
            None => state.edit(field, shown),
            // After the options: what is wanted may be a new one.
            Some(()) => spawn_local(async move { select.set_value(&wanted) }),
        }
    });
    let invalid = move || state.problem(field).is_some().then_some("true");
    view! {
        <div class="field">
            <label for=name>{field.label()}</label>
            <select
                id=name
                name=name
                node_ref=select
                autocomplete="off"
                aria-invalid=invalid
                aria-describedby=format!("{name}-problem {name}-help")
                on:change=move |event: ev::Event| state.edit(field, event_target_value(&event))
            >
                <option value="" selected=first.is_empty()>
                    {none}
                </option>
                {other}
                {options}
            </select>
            <p id=format!("{name}-help") class="help">{help}</p>
            <p id=format!("{name}-problem") class="problem">{move || state.problem(field)}</p>
        </div>
    }
    .into_any()
}

/// A snapshot in a line: name, id, sandbox and size.
fn words(snapshot: &Snapshot, source: &str) -> String {
    let (name, id) = (title(snapshot), short(&snapshot.id));
    let id = match name == id {
        true => String::new(),
        false => format!(" ({id})"),
    };
    let size = snapshot
        .size_bytes
        .map(|bytes| format!(", {}", size(Some(bytes))));
    format!("{name}{id} of {source}{}", size.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use osb_protocol::lifecycle::{SnapshotState, TemplatePhase};

    use super::*;
    use crate::{snapshot::sample, template};

    #[test]
    fn a_snapshot_is_said_in_a_line() {
        let mut snapshot = sample::snapshot("0b6c1f2e-aaaa", SnapshotState::Ready);
        assert_eq!(words(&snapshot, "web"), "0b6c1f2e of web");
        snapshot.name = Some("before".to_owned());
        snapshot.size_bytes = Some(2 << 20);
        let line = "before (0b6c1f2e) of web, 2.0 MiB";
        assert_eq!(words(&snapshot, "web"), line);
    }

    #[test]
    fn a_template_is_said_in_a_line() {
        let mut row = template::sample::row("tpl-0b6c1f2e-aaaa", TemplatePhase::Succeeded);
        assert_eq!(template_words(&row), "tpl-0b6c1f2e, debian:12");
        row.name = Some("base".to_owned());
        assert_eq!(template_words(&row), "base (tpl-0b6c1f2e), debian:12");
    }
}

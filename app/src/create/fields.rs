//! The fields of the create form.

use leptos::{ev, html, prelude::*};

use super::{
    Field,
    advanced::Advanced,
    as_json::AsJson,
    host_images,
    inputs::{CommandField, TextField, TextInput},
    kept::KeptVariables,
    lifetime,
    pairs::PairsField,
    source_field::{Offered, SourceField},
    state::State,
};
use crate::view::{HostImages, ServerInfo};

/// Ids of the suggestions, and the suggested amounts.
const CPUS: (&str, [&str; 5]) = ("cpus", ["0.5", "1", "2", "4", "8"]);
const MEMORIES: (&str, [&str; 6]) = ("memories", ["256Mi", "512Mi", "1Gi", "2Gi", "4Gi", "8Gi"]);
/// Id of the suggested images.
const IMAGES: &str = "images";

/// All fields.
#[component]
pub(super) fn Fields(
    state: State,
    /// What is on the host.
    images: StoredValue<HostImages>,
    /// The snapshots that are ready, and the templates that are made.
    offered: StoredValue<Offered>,
    /// Whether the variables of the original are known, if this is to be a copy.
    are_known: bool,
) -> impl IntoView {
    let image_note = Memo::new(move |_| {
        images.with_value(|images| host_images::note(images, &state.form.read().image))
    });
    let memory_note = Memo::new(move |_| {
        images.with_value(|host| host_images::memory_note(host, &state.form.read().memory))
    });
    let names = images.with_value(|images| {
        let all = images.images.iter().flatten();
        all.map(|image| image.reference.clone()).collect::<Vec<_>>()
    });
    // A template says what runs in the sandbox, and its limits.
    let is_whole = Memo::new(move |_| state.form.read().is_of_template());
    view! {
        <TextField state field=Field::Name name="name"
            help="The label that is its title in lists. May be empty." />
        <SourceField state offered images=IMAGES image_note />
        <Suggestions id=IMAGES of=names />
        <div class="source-part" class:off=move || is_whole.get()>
            <CommandField state field=Field::Entrypoint name="entrypoint"
                help="The sandbox lives as long as this command. Quotes group words, as in a shell." />
        </div>
        <LifetimeField state />
        <div class="pair source-part" class:off=move || is_whole.get()>
            <TextField state field=Field::Cpu name="cpu" list=CPUS.0 help="Cores: 0.5 or 500m. Empty: no limit." />
            <TextField state field=Field::Memory name="memory" list=MEMORIES.0 help=memory_note />
        </div>
        <Suggestions id=CPUS.0 of=CPUS.1 />
        <Suggestions id=MEMORIES.0 of=MEMORIES.1 />
        <PairsField state field=Field::Env name="env" what="Variable"
            help="" line_help="One per line: NAME=value.">
            <KeptVariables state are_known />
        </PairsField>
        <PairsField state field=Field::Metadata name="metadata" what="Label"
            help="To find the sandbox by. " line_help="One per line: name=value." />
        <Advanced state />
        <AsJson state />
    }
    .into_any()
}

/// Suggestions for a field.
#[component]
fn Suggestions(id: &'static str, #[prop(into)] of: SuggestedTexts) -> impl IntoView {
    let options =
        of.0.into_iter()
            .map(|text| view! { <option value=text></option> });
    view! { <datalist id=id>{options.collect_view()}</datalist> }.into_any()
}

/// Texts of a list of suggestions.
struct SuggestedTexts(Vec<String>);

impl From<Vec<String>> for SuggestedTexts {
    fn from(texts: Vec<String>) -> Self {
        Self(texts)
    }
}

impl<const N: usize> From<[&str; N]> for SuggestedTexts {
    fn from(texts: [&str; N]) -> Self {
        Self(texts.map(str::to_owned).into())
    }
}

#[component]
fn LifetimeField(state: State) -> impl IntoView {
    let most = use_context::<ServerInfo>().and_then(|info| info.max_timeout_seconds);
    let chosen = move || state.form.read().lifetime.clone();
    let first = state.form.read_untracked().lifetime.clone();
    let option = |(value, words): (String, &'static str)| {
        view! {
            <option value=value.clone() selected=value == first>
                {words}
            </option>
        }
    };
    let is_other = Memo::new(move |_| chosen() == lifetime::OTHER);
    let invalid = move || state.problem(Field::Ttl).is_some().then_some("true");
    let choose = move |event: ev::Event| state.choose_lifetime(event_target_value(&event));
    let select = NodeRef::<html::Select>::new();
    let shown = Memo::new(move |_| chosen());
    Effect::new(move |ran: Option<()>| {
        let wanted = shown.get();
        if let (Some(()), Some(select)) = (ran, select.get()) {
            select.set_value(&wanted);
        }
    });
    view! {
        <div class="field">
            <label for="lifetime">{Field::Ttl.label()}</label>
            <div class="lifetime">
                <select
                    id="lifetime"
                    name="lifetime"
                    node_ref=select
                    aria-invalid=move || if is_other.get() { None } else { invalid() }
                    aria-describedby="ttl-problem lifetime-help"
                    on:change=choose
                >
                    {lifetime::choices(most).map(option).collect_view()}
                </select>
                <div class="ttl" class:off=move || !is_other.get()>
                    <label for="ttl">"Time to live"</label>
                    <TextInput state field=Field::Ttl name="ttl" list=None />
                    <p id="ttl-help" class="help">
                        "Such as 90s, 45m, 2h or 1d; at least a minute."
                        <span class="needs-no-script">" If filled in, it is used instead."</span>
                    </p>
                </div>
            </div>
            <p id="lifetime-help" class="help">"Then it is deleted. It can be extended."</p>
            <p id="ttl-problem" class="problem">{move || state.problem(Field::Ttl)}</p>
        </div>
    }
    .into_any()
}

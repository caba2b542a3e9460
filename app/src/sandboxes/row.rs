//! One line of the list.

use std::collections::BTreeMap;

use leptos::{ev, prelude::*};
use osb_protocol::{SandboxId, WireTime};

use super::{ListQuery, list_page::ListPage, selection::Selection};
use crate::{
    browser,
    sandbox::{BarredButton, DeleteButton, PauseButton, RenewButton},
    tab::Tab,
    ui::{Age, Clock, Countdown, Icon, StateBadge},
    view::{SandboxRow, extends, is_alive, offers_changes, reason_words, title},
};

/// Time to which one click extends a life, in seconds.
const QUICK_SECONDS: i64 = 1_800;
/// Labels that can be read in a line, on most screens.
const LABELS: usize = 1;

/// One sandbox.
#[component]
pub(super) fn Row(
    id: SandboxId,
    row: ArcRwSignal<SandboxRow>,
    page: ListPage,
    selection: Selection,
) -> impl IntoView {
    let flash = flash(&id, &row, page);
    let row = RwSignal::from(row);
    let state = Signal::derive(move || row.read().sandbox.status.state.clone());
    let Clock(now) = Clock::current();
    // One that does not run any more is kept until then, and its life is over.
    let lives = Memo::new(move |_| is_alive(&row.read().sandbox.status.state));
    let extendable = Memo::new(move |_| {
        let expires_at = row.read().sandbox.expires_at;
        let at = WireTime::from_unix_ms(now.get() + 1_000 * QUICK_SECONDS);
        lives.get() && at.is_some_and(|at| extends(expires_at, at))
    });
    let selected = Memo::new({
        let id = id.clone();
        move |_| selection.contains(&id)
    });
    let name = Signal::derive(move || title(&row.read().sandbox).to_owned());
    let origin = move || row.read().origin().to_owned();
    let labels = Signal::derive(move || row.read().sandbox.metadata.clone());
    view! {
        <tr data-flash=flash data-selected=move || selected.get().then_some("true")>
            <td class="c-select">
                <SelectBox id=id.clone() row selection selected />
            </td>
            <Name id=id.clone() row=row.into() />
            <td class="c-state">
                <StateBadge state stage=Signal::derive(move || note(&row.read())) />
            </td>
            <td class="c-image mono clip" title=origin>
                {move || image_name(row.read().origin())}
            </td>
            <td class="c-expires">
                <Show when=move || lives.get()>
                    <Countdown until=Signal::derive(move || row.read().sandbox.expires_at) />
                </Show>
            </td>
            {page.usage.cell(id.clone(), "c-cpu needs-script", |row| &row.cpu)}
            {page.usage.cell(id.clone(), "c-memory needs-script", |row| &row.memory)}
            <td class="c-age">
                <Age at=Signal::derive(move || row.read().sandbox.created_at) />
            </td>
            <td class="c-tenant clip">{move || row.read().tenant.clone()}</td>
            <td class="c-labels">
                <RowLabels of=labels query=page.query />
            </td>
            <td class="c-actions row-actions">
                <a
                    class="icon-button"
                    href=Tab::Terminal.address(&id)
                    aria-label=format!("Terminal of {}", id.short())
                    title="Terminal (t)"
                >
                    <Icon name="terminal" />
                </a>
                <CloneLink id=id.clone() />
                <div data-act="renew">
                    <RenewButton id=id.clone() name extends=extendable seconds=QUICK_SECONDS />
                </div>
                <div data-act="pause">
                    <PauseButton id=id.clone() name state />
                </div>
                <div data-act="delete">
                    <DeleteButton id name />
                </div>
            </td>
        </tr>
    }
    .into_any()
}

/// The name of an image, and before it the registry and the folder, which narrow windows leave out.
pub(super) fn image_name(image: &str) -> impl IntoView + use<> {
    let start = image.rfind('/').map_or(0, |slash| slash + 1);
    let (place, name) = image.split_at(start);
    let place =
        (!place.is_empty()).then(|| view! { <span class="image-place">{place.to_owned()}</span> });
    (place, name.to_owned())
}

/// A link to the create form, filled in with what this sandbox was created with.
#[component]
fn CloneLink(id: SandboxId) -> impl IntoView {
    let label = format!("Clone {}", id.short());
    if !offers_changes() {
        return view! { <BarredButton label icon="copy-plus" /> }.into_any();
    }
    view! {
        <a
            class="icon-button"
            href=format!("/console/create?from={id}")
            aria-label=label
            title="Clone: create another like it"
        >
            <Icon name="copy-plus" />
        </a>
    }
    .into_any()
}

/// Marks a row that appeared or changed while it was shown. Two values alternate, so that the
/// animation begins again.
fn flash(
    id: &SandboxId,
    row: &ArcRwSignal<SandboxRow>,
    page: ListPage,
) -> impl Fn() -> Option<&'static str> + Clone + 'static {
    let count = RwSignal::new(u32::from(page.rows.take_fresh(id)));
    let row = row.clone();
    Effect::new(move |before: Option<()>| {
        row.track();
        if before.is_some() {
            count.update(|count| *count += 1);
        }
    });
    move || match count.get() {
        0 => None,
        odd if odd % 2 == 1 => Some("one"),
        _ => Some("other"),
    }
}

/// The title, which leads to the sandbox's page, and the id.
#[component]
pub(super) fn Name(id: SandboxId, row: Signal<SandboxRow>) -> impl IntoView {
    let short = id.short().to_owned();
    let opened = id.clone();
    let name = move || title(&row.read().sandbox).to_owned();
    let has_name = Memo::new({
        let short = short.clone();
        move |_| title(&row.read().sandbox) != short
    });
    view! {
        <th scope="row" class="c-name">
            <a
                class="row-link"
                class:mono=move || !has_name.get()
                data-row-link=id.to_string()
                href=Tab::Overview.address(&id)
                title=id.to_string()
                on:click=move |_| browser::remember_row(opened.as_str())
            >
                {name}
            </a>
            {move || has_name.get().then(|| view! { <span class="row-id mono">{short.clone()}</span> })}
        </th>
    }
    .into_any()
}

#[component]
fn SelectBox(
    id: SandboxId,
    row: RwSignal<SandboxRow>,
    selection: Selection,
    selected: Memo<bool>,
) -> impl IntoView {
    let value = id.to_string();
    let on_click = move |event: ev::MouseEvent| {
        selection.set(&id, event_target_checked(&event), event.shift_key());
    };
    view! {
        <input
            type="checkbox"
            form="bulk"
            name="id"
            value=value
            autocomplete="off"
            aria-label=move || ["Select ", title(&row.read().sandbox)].concat()
            prop:checked=move || selected.get()
            on:click=on_click
        />
    }
    .into_any()
}

/// The stage of a create, or why the sandbox is not what it should be.
fn note(row: &SandboxRow) -> Option<String> {
    let stage = row.stage.clone();
    stage.or_else(|| reason_words(&row.sandbox.status))
}

/// The first label, and the number of the others, which a click shows. A click on one filters by it.
#[component]
pub(super) fn RowLabels(
    of: Signal<BTreeMap<String, String>>,
    query: Memo<ListQuery>,
) -> impl IntoView {
    let chip = move |(key, value): (String, String)| {
        let text = [key.as_str(), "=", value.as_str()].concat();
        let word = word_of_label(&key, &value);
        let title = text.clone();
        view! {
            <li>
                <a
                    class="label"
                    title=title
                    href=move || query.read().with_word(&word).url()
                >
                    {text}
                </a>
            </li>
        }
    };
    let chips = move || {
        // The title has the name.
        let labels = of.get().into_iter().filter(|(key, _)| key != "name");
        let mut labels: Vec<_> = labels.collect();
        let others = labels.split_off(labels.len().min(LABELS));
        let more = (!others.is_empty()).then(|| {
            let count = others.len();
            view! {
                <details class="confirm more" name="confirm">
                    <summary class="label" aria-label=format!("+{count} further labels")>
                        {format!("+{count}")}
                    </summary>
                    <ul class="card confirm-card labels">
                        {others.into_iter().map(chip).collect_view()}
                    </ul>
                </details>
            }
        });
        view! {
            <ul class="labels">{labels.into_iter().map(chip).collect_view()}</ul>
            {more}
        }
    };
    view! { <div class="one-line">{chips}</div> }.into_any()
}

/// The word of a filter that selects a label.
fn word_of_label(key: &str, value: &str) -> String {
    let is_plain = |text: &str| !text.contains(|char: char| char.is_whitespace() || char == '"');
    match (value.is_empty(), is_plain(key) && is_plain(value)) {
        (true, _) => ["label:", key].concat(),
        (false, true) => ["label.", key, "=", value].concat(),
        (false, false) => ["\"", &value.replace('"', ""), "\""].concat(),
    }
}

impl ListQuery {
    /// The same with a further word in the filter, from the first page on.
    #[must_use]
    fn with_word(&self, word: &str) -> Self {
        let q = self.q.trim();
        let has_it = q.split_whitespace().any(|known| known == word);
        match (q.is_empty(), has_it) {
            (true, _) => self.with_filter(word.to_owned()),
            (false, true) => self.with_filter(q.to_owned()),
            (false, false) => self.with_filter([q, " ", word].concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sandboxes::filter::Filter, ui::sample};

    #[test]
    fn a_create_under_way_shows_its_stage() {
        let mut pending = sample::row("a", "Pending");
        pending.stage = Some("image".to_owned());
        assert_eq!(note(&pending).as_deref(), Some("image"));
    }

    #[test]
    fn a_click_on_a_label_selects_what_has_it() {
        for (key, value) in [("team", "a"), ("empty", ""), ("text", "two \"words\"")] {
            let mut row = sample::row("a", "Running");
            let labels = &mut row.sandbox.metadata;
            labels.insert(key.to_owned(), value.replace('"', ""));
            let query = ListQuery {
                q: "debian".to_owned(),
                ..ListQuery::default()
            };
            let word = word_of_label(key, value);
            let clicked = query.with_word(&word);
            let filter = Filter::parse(&clicked.q);
            assert!(filter.problems().is_empty(), "{}", clicked.q);
            assert!(filter.matches(&row, 0), "{}", clicked.q);
            assert!(
                !filter.matches(&sample::row("b", "Running"), 0),
                "{}",
                clicked.q
            );
        }
        let query = ListQuery::default().with_word("label.team=a");
        assert_eq!(query.with_word("label.team=a").q, "label.team=a");
    }
}

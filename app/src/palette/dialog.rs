//! The field and its results.

use std::time::Duration;

use leptos::{ev, html, prelude::*, task::spawn_local};
use leptos_router::hooks::{use_location, use_navigate};
use osb_protocol::Feature;

use super::commands::{Act, COMMAND, Offer, Offered, matching, of_page, of_row};
use crate::{
    browser,
    frame::{PaletteOpen, TypedEarly},
    sandboxes::{self, ListQuery},
    ui::{Clock, Icon},
    view::{ServerInfo, offers_changes},
};

/// Rest after a key before the server is asked.
const REST: Duration = Duration::from_millis(120);
/// Sandboxes that are offered.
const SANDBOXES: usize = 8;

/// What is known of the sandboxes that match.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Searching,
    Sandboxes(Vec<Offer>),
    Failed(String),
}

/// The content of the open palette.
#[component]
pub(super) fn PaletteDialog() -> impl IntoView {
    let PaletteOpen(is_open) = expect_context();
    let TypedEarly(early) = expect_context();
    let field = NodeRef::<html::Input>::new();
    let text = RwSignal::new(String::new());
    let found = search(text.into());
    let offers = page_offers(is_open);
    let shown = Memo::new(move |_| {
        let text = text.read();
        let mut shown = offers.with(|offers| matching(offers, &text));
        if let Found::Sandboxes(sandboxes) = &*found.read() {
            // What a page's title does not tell is most likely a sandbox.
            let place = shown.iter().position(|offer| offer.group == "Actions");
            let place = if text.trim().is_empty() {
                shown.len()
            } else {
                place.unwrap_or(shown.len())
            };
            shown.splice(place..place, sandboxes.iter().cloned());
        }
        shown
    });
    let chosen = RwSignal::new(0_usize);
    Effect::new(move |_| {
        shown.track();
        chosen.set(0);
    });
    let act = actor(is_open);
    let act_early = act.clone();
    Effect::new(move |_| {
        if let (true, Some(field)) = (is_open.get(), field.get()) {
            let mut typed = early.try_update_value(std::mem::take).unwrap_or_default();
            let has_enter = typed.ends_with('\n');
            typed.truncate(typed.trim_end_matches('\n').len());
            field.set_value(&typed);
            text.set(typed);
            let _ = field.focus();
            let offer = shown.with_untracked(|shown| shown.first().cloned());
            if let (true, Some(offer)) = (has_enter, offer) {
                act_early(offer.act);
            }
        }
    });
    let act_by_key = act.clone();
    let on_key = move |event: ev::KeyboardEvent| {
        let count = shown.with_untracked(Vec::len);
        match event.key().as_str() {
            "ArrowDown" if count > 0 => chosen.update(|at| *at = (*at + 1) % count),
            "ArrowUp" if count > 0 => chosen.update(|at| *at = (*at + count - 1) % count),
            "Enter" => {
                let offer =
                    shown.with_untracked(|shown| shown.get(chosen.get_untracked()).cloned());
                if let Some(offer) = offer {
                    act_by_key(offer.act);
                }
            }
            _ => return,
        }
        event.prevent_default();
        browser::scroll_into_view(&option_id(chosen.get_untracked()));
    };
    let options = move || {
        let shown = shown.get();
        let mut last = "";
        let option = |(at, offer): (usize, Offer)| {
            let heading = (offer.group != last).then_some(offer.group);
            last = offer.group;
            let act = act.clone();
            view! {
                {heading
                    .map(|heading| {
                        view! {
                            <li class="palette-group" role="presentation">
                                {heading}
                            </li>
                        }
                    })}
                <li
                    id=option_id(at)
                    class="palette-option"
                    role="option"
                    aria-selected=move || (chosen.get() == at).to_string()
                    on:pointermove=move |_| chosen.set(at)
                    on:click=move |_| act(offer.act.clone())
                >
                    <Icon name=offer.icon />
                    <span class="palette-title">{offer.title.clone()}</span>
                    <span class="palette-detail">{offer.detail.clone()}</span>
                </li>
            }
        };
        shown.into_iter().enumerate().map(option).collect_view()
    };
    let note = move || match &*found.read() {
        Found::Searching => "Searching …".to_owned(),
        Found::Failed(why) => format!("Sandboxes could not be searched: {why}"),
        Found::Sandboxes(_) if shown.with(Vec::is_empty) => "Nothing matches.".to_owned(),
        Found::Sandboxes(_) => String::new(),
    };
    view! {
        <div class="palette-field">
            <Icon name="search" />
            <input
                node_ref=field
                type="text"
                role="combobox"
                aria-label="Go to a sandbox, a page or an action"
                aria-expanded="true"
                aria-controls="palette-options"
                aria-autocomplete="list"
                aria-activedescendant=move || {
                    let at = chosen.get();
                    shown.with(|shown| shown.get(at).map(|_| option_id(at)))
                }
                placeholder="Sandbox, page or action"
                autocomplete="off"
                spellcheck="false"
                on:input=move |event| text.set(event_target_value(&event))
                on:keydown=on_key
            />
            <kbd>"Esc"</kbd>
        </div>
        <ul id="palette-options" role="listbox" aria-label="Results">
            {options}
        </ul>
        <p class="fine palette-note" role="status">
            {note}
        </p>
    }
    .into_any()
}

fn option_id(at: usize) -> String {
    format!("palette-{at}")
}

/// What the page offers, each time when the palette is opened.
fn page_offers(is_open: RwSignal<bool>) -> Memo<Vec<Offer>> {
    let path = use_location().pathname;
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    let offered = Offered {
        may_change: offers_changes(),
        has_snapshots: features.contains(Feature::Snapshots),
        has_pools: features.contains(Feature::Pools),
        has_templates: features.contains(Feature::Templates),
    };
    Memo::new(move |_| match is_open.get() {
        true => of_page(
            &path.read(),
            offered,
            |tab| tab.is_offered(features),
            browser::data_of_all(COMMAND),
        ),
        false => Vec::new(),
    })
}

/// The sandboxes that match the text, from the server.
fn search(text: Signal<String>) -> RwSignal<Found> {
    let found = RwSignal::new(Found::Searching);
    let Clock(clock) = Clock::current();
    // An answer counts only if nothing was typed meanwhile.
    let asked = StoredValue::new(0_u64);
    Effect::new(move |_| {
        let q = text.get().trim().to_owned();
        let Some(number) = asked.try_update_value(|asked| {
            *asked += 1;
            *asked
        }) else {
            return;
        };
        found.set(Found::Searching);
        let is_last = move || asked.try_with_value(|asked| *asked == number) == Some(true);
        let ask = move || {
            if !is_last() {
                return;
            }
            spawn_local(async move {
                let query = ListQuery {
                    q,
                    page: 1,
                    ..ListQuery::default()
                };
                let answer = sandboxes::list(query).await;
                if !is_last() {
                    return;
                }
                let now = clock.get_untracked();
                let _ = found.try_set(match answer {
                    Ok(list) => {
                        let rows = list.rows.iter().take(SANDBOXES);
                        Found::Sandboxes(rows.map(|row| of_row(row, now)).collect())
                    }
                    Err(error) => Found::Failed(error.to_string()),
                });
            });
        };
        set_timeout(ask, REST);
    });
    found
}

/// Does what was chosen, once the palette is closed.
fn actor(is_open: RwSignal<bool>) -> impl Fn(Act) + Clone + 'static {
    let navigate = use_navigate();
    move |act| {
        is_open.set(false);
        match act {
            Act::Open(address) => navigate(&address, Default::default()),
            Act::Leave(address) => {
                // Fails only for an invalid address.
                let _ = window().location().set_href(address);
            }
            Act::Click(name) => request_animation_frame(move || {
                browser::click(&format!("[data-{COMMAND}='{name}']"));
            }),
        }
    }
}

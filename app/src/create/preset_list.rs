//! The presets above the create form.

use leptos::prelude::*;

use super::{
    host_images::{Presence, presence},
    presets::{PRESETS, Preset},
    state::State,
};
use crate::{ui::Icon, view::HostImages};

/// Links that fill the form in; without script they load the page with the preset.
#[component]
pub(super) fn PresetList(state: State, images: StoredValue<HostImages>) -> impl IntoView {
    let cards = PRESETS.iter().map(move |preset| {
        let found = images.with_value(|images| presence(images, preset.image));
        view! {
            <li>
                <PresetLink state preset found />
            </li>
        }
    });
    view! {
        <section class="presets" aria-labelledby="presets-title">
            <h2 id="presets-title">"Start from"</h2>
            <ul>{cards.collect_view()}</ul>
        </section>
    }
    .into_any()
}

#[component]
fn PresetLink(state: State, preset: &'static Preset, found: Presence) -> impl IntoView {
    let is_current = Memo::new(move |_| preset.is_in(&state.form.read()));
    let (mark, icon, words) = match found {
        Presence::Here(_) => ("here", Some("check"), "On this host"),
        Presence::Absent => ("absent", Some("download"), "Not on this host"),
        Presence::Unknown => ("unknown", None, ""),
    };
    view! {
        <a
            class="preset"
            href=format!("/console/create?preset={}", preset.id)
            aria-current=move || is_current.get().then_some("true")
            on:click=move |_| state.fill(preset)
        >
            <Icon name=preset.icon />
            <span class="preset-title">{preset.title}</span>
            <span class="preset-about">{preset.about}</span>
            <span class="preset-mark" data-mark=mark>
                {icon.map(|icon| view! { <Icon name=icon /> })}
                {words}
            </span>
        </a>
    }
    .into_any()
}

//! The theme: light, dark or the system's.

use leptos::prelude::*;

use crate::{
    browser::{self, Memory},
    ui::Icon,
};

/// Name in the browser's memory; the script in `shell.rs` reads it before the first paint.
const NAME: &str = "osb.theme";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Theme {
    System,
    Light,
    Dark,
}

impl Theme {
    fn stored() -> Self {
        match Memory::Browser.get(NAME).as_deref() {
            Some("light") => Self::Light,
            Some("dark") => Self::Dark,
            _ => Self::System,
        }
    }

    fn name(self) -> Option<&'static str> {
        match self {
            Self::System => None,
            Self::Light => Some("light"),
            Self::Dark => Some("dark"),
        }
    }

    fn next(self) -> Self {
        match self {
            Self::System => Self::Light,
            Self::Light => Self::Dark,
            Self::Dark => Self::System,
        }
    }
}

/// A button that cycles through the three themes.
#[component]
pub(super) fn ThemeSwitch() -> impl IntoView {
    let theme = RwSignal::new(Theme::System);
    Effect::new(move |_| theme.set(Theme::stored()));
    let switch = move |_| {
        let next = theme.get_untracked().next();
        Memory::Browser.set(NAME, next.name());
        browser::set_document_data("theme", next.name());
        theme.set(next);
    };
    let icon = Signal::derive(move || match theme.get() {
        Theme::System => "monitor",
        Theme::Light => "sun",
        Theme::Dark => "moon",
    });
    let label = move || format!("Theme: {}", theme.get().name().unwrap_or("system"));
    view! {
        <button
            type="button"
            class="icon-button needs-script"
            data-command="Switch the theme"
            on:click=switch
            aria-label=label
            title=label
        >
            <Icon name=icon />
        </button>
    }
    .into_any()
}

//! xterm's colours, which follow the theme of the page.

use leptos::prelude::{document, window};
use wasm_bindgen::{JsCast, closure::Closure};
use web_sys::{MediaQueryList, MutationObserver, MutationObserverInit};

/// xterm's colours, from the custom properties of style/terminal.css.
pub(super) fn colours(place: &web_sys::HtmlElement) -> Vec<(&'static str, String)> {
    const NAMES: [(&str, &str); 20] = [
        ("background", "--term-bg"),
        ("foreground", "--term-fg"),
        ("cursor", "--term-cursor"),
        ("selectionBackground", "--term-selection"),
        ("black", "--term-black"),
        ("red", "--term-red"),
        ("green", "--term-green"),
        ("yellow", "--term-yellow"),
        ("blue", "--term-blue"),
        ("magenta", "--term-magenta"),
        ("cyan", "--term-cyan"),
        ("white", "--term-white"),
        ("brightBlack", "--term-bright-black"),
        ("brightRed", "--term-red"),
        ("brightGreen", "--term-green"),
        ("brightYellow", "--term-yellow"),
        ("brightBlue", "--term-blue"),
        ("brightMagenta", "--term-magenta"),
        ("brightCyan", "--term-cyan"),
        ("brightWhite", "--term-fg"),
    ];
    let style = window().get_computed_style(place).ok().flatten();
    let read = |property| style.as_ref()?.get_property_value(property).ok();
    let named = NAMES
        .into_iter()
        .filter_map(|(name, property)| Some((name, read(property)?)));
    named
        .map(|(name, colour)| (name, colour.trim().to_owned()))
        .collect()
}

/// Reports changes of the theme, by the switch of the page or by the system, until it is dropped.
pub(super) struct ThemeWatch {
    switch: MutationObserver,
    system: Option<MediaQueryList>,
    act: Closure<dyn FnMut()>,
}

impl ThemeWatch {
    /// Calls `act` after each change; `None` if the browser refuses.
    pub(super) fn new(act: impl FnMut() + 'static) -> Option<Self> {
        let act = Closure::new(act);
        let call = act.as_ref().unchecked_ref();
        let switch = MutationObserver::new(call).ok()?;
        let attributes = MutationObserverInit::new();
        attributes.set_attributes(true);
        let root = document().document_element()?;
        switch.observe_with_options(&root, &attributes).ok()?;
        let system = window().match_media("(prefers-color-scheme: dark)");
        let system = system.ok().flatten();
        if let Some(system) = &system {
            let _ = system.add_event_listener_with_callback("change", call);
        }
        Some(Self {
            switch,
            system,
            act,
        })
    }
}

impl Drop for ThemeWatch {
    fn drop(&mut self) {
        self.switch.disconnect();
        if let Some(system) = &self.system {
            let act = self.act.as_ref().unchecked_ref();
            let _ = system.remove_event_listener_with_callback("change", act);
        }
    }
}

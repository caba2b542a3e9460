//! What pages use of the browser. On the server these functions do nothing or return a default;
//! none panics there.

/// Unix milliseconds.
#[must_use]
pub fn now_ms() -> i64 {
    #[cfg(target_arch = "wasm32")]
    #[expect(clippy::cast_possible_truncation, reason = "a date fits 53 bits")]
    return js_sys::Date::now() as i64;
    #[cfg(not(target_arch = "wasm32"))]
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
}

/// Minutes by which the browser's time is ahead of UTC; 0 on the server.
#[must_use]
pub fn minutes_east_of_utc() -> i64 {
    #[cfg(target_arch = "wasm32")]
    #[expect(clippy::cast_possible_truncation, reason = "at most a day")]
    return -js_sys::Date::new_0().get_timezone_offset() as i64;
    #[cfg(not(target_arch = "wasm32"))]
    0
}

/// `data-<name>` of the document element: where the server leaves constants for the page.
#[must_use]
pub fn document_data(name: &str) -> Option<String> {
    let root = leptos::prelude::document().document_element()?;
    root.get_attribute(&format!("data-{name}"))
}

/// Sets or removes `data-<name>` of the document element.
pub fn set_document_data(name: &str, value: Option<&str>) {
    let Some(root) = leptos::prelude::document().document_element() else {
        return;
    };
    let name = format!("data-{name}");
    // Neither fails for a valid attribute name.
    let _ = match value {
        Some(value) => root.set_attribute(&name, value),
        None => root.remove_attribute(&name),
    };
}

/// Storage that outlives the page: `localStorage` for the browser, `sessionStorage` for the tab.
/// Browsers may refuse both; then nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Shared by all tabs.
    Browser,
    /// This tab's own; survives a reload.
    Tab,
}

impl Memory {
    fn storage(self) -> Option<web_sys::Storage> {
        let window = web_sys::window()?;
        match self {
            Self::Browser => window.local_storage().ok()?,
            Self::Tab => window.session_storage().ok()?,
        }
    }

    /// The value under this name.
    #[must_use]
    pub fn get(self, name: &str) -> Option<String> {
        self.storage()?.get_item(name).ok()?
    }

    /// Sets or removes a value.
    pub fn set(self, name: &str, value: Option<&str>) {
        let Some(storage) = self.storage() else {
            return;
        };
        let _ = match value {
            Some(value) => storage.set_item(name, value),
            None => storage.remove_item(name),
        };
    }
}

/// Copies text to the clipboard. Browsers allow it on HTTPS and localhost only.
pub fn copy(text: &str) {
    if let Some(window) = web_sys::window() {
        let _ = window.navigator().clipboard().write_text(text);
    }
}

/// The address of a WebSocket on this server.
#[must_use]
pub fn socket_url(path: &str) -> String {
    let location = leptos::prelude::window().location();
    let host = location.host().unwrap_or_default();
    let scheme = match location.protocol().as_deref() {
        Ok("https:") => "wss",
        _ => "ws",
    };
    format!("{scheme}://{host}{path}")
}

/// Focuses the element with this id.
pub fn focus(id: &str) {
    use wasm_bindgen::JsCast;
    let element = leptos::prelude::document().get_element_by_id(id);
    if let Some(element) = element.and_then(|it| it.dyn_into::<web_sys::HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

/// Whether the page has such an element.
#[must_use]
pub fn exists(selector: &str) -> bool {
    matches!(
        leptos::prelude::document().query_selector(selector),
        Ok(Some(_))
    )
}

/// Moves the focus to the next (`1`) or previous (`-1`) of these elements; to the first when
/// none of them, nor anything inside their row, has it.
pub fn focus_step(selector: &str, step: i32) {
    let document = leptos::prelude::document();
    let Ok(all) = document.query_selector_all(selector) else {
        return;
    };
    let count = i32::try_from(all.length()).unwrap_or(i32::MAX);
    let at = |index: i32| element(all.get(u32::try_from(index).ok()?)?);
    let row = document
        .active_element()
        .and_then(|it| it.closest("tr").ok()?);
    let here = row.and_then(|row| {
        (0..count).find(|index| at(*index).is_some_and(|it| row.contains(Some(&it))))
    });
    let next = here.map_or(0, |here| (here + step).clamp(0, count - 1));
    if let Some(target) = at(next) {
        let _ = target.focus();
    }
}

/// Clicks a link: the one in the focused row, else the first of the page.
pub fn click_near_focus(selector: &str) {
    let document = leptos::prelude::document();
    let row = document
        .active_element()
        .and_then(|it| it.closest("tr").ok()?);
    let found = match row {
        Some(row) => row.query_selector(selector),
        None => document.query_selector(selector),
    };
    if let Some(link) = found.ok().flatten().and_then(|it| element(it.into())) {
        link.click();
    }
}

fn element(node: web_sys::Node) -> Option<web_sys::HtmlElement> {
    use wasm_bindgen::JsCast;
    node.dyn_into().ok()
}

//! What pages use of the browser. On the server these functions do nothing or return a default;
//! none panics there.

use std::time::Duration;

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

/// Minutes by which the browser's time is ahead of UTC at a moment in Unix milliseconds: summer time
/// counts. 0 on the server.
#[must_use]
pub fn minutes_east_at(ms: i64) -> i64 {
    #[cfg(target_arch = "wasm32")]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "a date fits 53 bits, and an offset is at most a day"
    )]
    return {
        let date = js_sys::Date::new(&wasm_bindgen::JsValue::from_f64(ms as f64));
        -date.get_timezone_offset() as i64
    };
    #[cfg(not(target_arch = "wasm32"))]
    {
        let _ = ms;
        0
    }
}

/// `data-<name>` of the document element: where the server leaves constants for the page.
#[must_use]
pub fn document_data(name: &str) -> Option<String> {
    let root = leptos::prelude::document().document_element()?;
    root.get_attribute(&format!("data-{name}"))
}

/// `data-<name>` of every element that has it, in the order of the page.
#[must_use]
pub fn data_of_all(name: &str) -> Vec<String> {
    let attribute = format!("data-{name}");
    let Ok(all) = leptos::prelude::document().query_selector_all(&format!("[{attribute}]")) else {
        return Vec::new();
    };
    (0..all.length())
        .filter_map(|index| element(all.get(index)?)?.get_attribute(&attribute))
        .collect()
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

/// Waits for so many milliseconds.
#[cfg(feature = "hydrate")]
pub(crate) async fn pause(ms: i32) {
    let promise = js_sys::Promise::new(&mut |resolve, _| {
        let window = leptos::prelude::window();
        // Fails only for what is no function.
        let _ = window.set_timeout_with_callback_and_timeout_and_arguments_0(&resolve, ms);
    });
    let _ = wasm_bindgen_futures::JsFuture::from(promise).await;
}

/// Copies text to the clipboard, in an event of the user; whether that worked. Pages over plain HTTP
/// have no clipboard but that of the selection.
pub async fn copy(text: String) -> bool {
    let window = leptos::prelude::window();
    if !window.is_secure_context() {
        return copy_by_selection(&text).unwrap_or(false);
    }
    let written = window.navigator().clipboard().write_text(&text);
    wasm_bindgen_futures::JsFuture::from(written).await.is_ok()
}

/// Copies what a field has selected. The field is beside what has the focus: outside of an open dialog
/// nothing can be selected.
fn copy_by_selection(text: &str) -> Option<bool> {
    use wasm_bindgen::JsCast;
    let document = leptos::prelude::document();
    let focused: Option<web_sys::HtmlElement> =
        document.active_element().and_then(|it| it.dyn_into().ok());
    let beside = focused.as_ref().and_then(|it| it.parent_element());
    let place = beside.or_else(|| Some(document.body()?.into()))?;
    let field = document.create_element("textarea").ok()?;
    let field: web_sys::HtmlTextAreaElement = field.dyn_into().ok()?;
    field.set_value(text);
    field.set_class_name("visually-hidden");
    place.append_child(&field).ok()?;
    field.select();
    let document: web_sys::HtmlDocument = document.dyn_into().ok()?;
    let copied = document.exec_command("copy");
    field.remove();
    if let Some(focused) = focused {
        // Fails only for an element that is gone.
        let _ = focused.focus();
    }
    copied.ok()
}

/// A path on this server with its origin.
#[must_use]
pub fn url_of(path: &str) -> String {
    let location = leptos::prelude::window().location();
    format!("{}{path}", location.origin().unwrap_or_default())
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

/// The fields of the form that is sent.
pub fn form_fields(event: &leptos::ev::SubmitEvent) -> Option<web_sys::UrlSearchParams> {
    use wasm_bindgen::JsCast;
    let form = event.target()?.dyn_into().ok()?;
    let fields = web_sys::FormData::new_with_form(&form).ok()?;
    web_sys::UrlSearchParams::new_with_str_sequence_sequence(&fields).ok()
}

/// Focuses the element with this id.
pub fn focus(id: &str) {
    use wasm_bindgen::JsCast;
    let element = leptos::prelude::document().get_element_by_id(id);
    if let Some(element) = element.and_then(|it| it.dyn_into::<web_sys::HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

/// Focuses the first element that one of these selectors finds and that is visible.
pub fn focus_first_visible(selectors: &[&str]) {
    let mut all = selectors.iter().flat_map(|selector| elements(selector));
    if let Some(first) = all.find(|element| element.offset_width() > 0) {
        let _ = first.focus();
    }
}

/// Sets a property of the style of the whole document.
pub fn set_document_style(name: &str, value: &str) {
    let root = leptos::prelude::document().document_element();
    let root = root.and_then(|it| wasm_bindgen::JsCast::dyn_into::<web_sys::HtmlElement>(it).ok());
    if let Some(root) = root {
        // Fails only for names that are no properties.
        let _ = root.style().set_property(name, value);
    }
}

/// Height of the browser's window, in CSS pixels.
#[must_use]
pub fn window_height() -> u32 {
    let height = leptos::prelude::window().inner_height().ok();
    let height = height.and_then(|it| it.as_f64()).unwrap_or_default();
    // Windows are lower than that.
    format!("{height:.0}").parse().unwrap_or_default()
}

/// Focuses the element with this id once what was set until now is shown, and scrolls to it.
pub fn focus_when_shown(id: impl AsRef<str> + 'static) {
    leptos::prelude::request_animation_frame(move || focus(id.as_ref()));
}

/// When [`focus_if_lost`] looks again.
const FOCUS_AGAIN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

/// Focuses the element with this id once what was set until now is shown, if what had the focus is
/// gone, or disabled. Looks again a little later: a page that loads keeps the elements of the one before
/// it, and a dialog that closes gives the focus back.
pub fn focus_if_lost(id: &'static str) {
    let focus = move || give_lost_focus_to(id);
    // Another page is shown a little later than its address.
    let next_frame = move || leptos::prelude::request_animation_frame(focus);
    leptos::prelude::request_animation_frame(next_frame);
    for delay in FOCUS_AGAIN {
        leptos::prelude::set_timeout(focus, delay);
    }
}

/// The same, or the page if there is no such element in the end.
pub fn focus_or_page_if_lost(id: &'static str) {
    focus_if_lost(id);
    let [_, last] = FOCUS_AGAIN;
    leptos::prelude::set_timeout(|| give_lost_focus_to(MAIN), last);
}

fn give_lost_focus_to(id: &str) {
    let document = leptos::prelude::document();
    let is_lost = document
        .active_element()
        .is_none_or(|it| it.tag_name() == "BODY" || matches!(it.matches(":disabled"), Ok(true)));
    let found = document.get_element_by_id(id).filter(|_| is_lost);
    if let Some(target) = found.and_then(|it| element(it.into())) {
        let options = web_sys::FocusOptions::new();
        // The router and the browser scroll to where a page is to be read.
        options.set_prevent_scroll(id == MAIN);
        let _ = target.focus_with_options(&options);
    }
}

/// Whether the page is in a tab of the browser that is not shown.
#[must_use]
pub fn is_hidden() -> bool {
    leptos::prelude::document().hidden()
}

/// Whether the page has such an element.
#[must_use]
pub fn exists(selector: &str) -> bool {
    matches!(
        leptos::prelude::document().query_selector(selector),
        Ok(Some(_))
    )
}

/// Id of the element that the current page is in.
pub const MAIN: &str = "main";
/// Name in the tab's memory: whether the field of the filter is to be focused when the list opens.
pub const FOCUS_FILTER: &str = "osb.filter";
/// Selects the elements that `j` and `k` step through.
const ROW_LINK: &str = "[data-row-link]";
/// Name in the tab's memory: the row that had the focus last.
const LAST_ROW: &str = "osb.row";

/// Moves the focus to the link of the next (`1`) or previous (`-1`) row: from the row that has the focus,
/// or had it before another page was opened; else to the first. The value of `data-row-link` names a
/// row.
pub fn focus_step(step: i32) {
    let links = elements(ROW_LINK);
    let last = links.len().saturating_sub(1);
    let next = match row_place(&links) {
        Some(here) if step < 0 => here.saturating_sub(1),
        Some(here) => (here + 1).min(last),
        None => 0,
    };
    if let Some(target) = links.get(next) {
        Memory::Tab.set(LAST_ROW, target.get_attribute("data-row-link").as_deref());
        let _ = target.focus();
    }
}

/// Gives the focus back to the row that had it before another page was opened, if nothing else has
/// it. Returns whether it did.
pub fn return_to_row() -> bool {
    let document = leptos::prelude::document();
    let active = document.active_element();
    let is_free = active.is_none_or(|it| matches!(it.id().as_str(), "" | MAIN) && !is_control(&it));
    if !is_free {
        return false;
    }
    let links = elements(ROW_LINK);
    remembered_place(&links).is_some_and(|place| links[place].focus().is_ok())
}

fn is_control(element: &web_sys::Element) -> bool {
    matches!(
        element.closest("a, button, input, select, textarea, summary"),
        Ok(Some(_))
    )
}

/// Remembers the row of a link that is about to be opened.
pub fn remember_row(id: &str) {
    Memory::Tab.set(LAST_ROW, Some(id));
}

/// The value of `data-row-link` of the row that has the focus, or had it last, among the links that
/// this selector finds.
#[must_use]
pub fn current_row(selector: &str) -> Option<String> {
    let links = elements(selector);
    let place = row_place(&links)?;
    links.get(place)?.get_attribute("data-row-link")
}

fn elements(selector: &str) -> Vec<web_sys::HtmlElement> {
    let Ok(all) = leptos::prelude::document().query_selector_all(selector) else {
        return Vec::new();
    };
    (0..all.length())
        .filter_map(|index| element(all.get(index)?))
        .collect()
}

/// The place of the row that has the focus, or had it.
fn row_place(links: &[web_sys::HtmlElement]) -> Option<usize> {
    match focused_row() {
        Some(row) => links.iter().position(|link| row.contains(Some(link))),
        None => remembered_place(links),
    }
}

fn remembered_place(links: &[web_sys::HtmlElement]) -> Option<usize> {
    let last = Memory::Tab.get(LAST_ROW)?;
    let is_last = |link: &web_sys::HtmlElement| {
        link.get_attribute("data-row-link").as_deref() == Some(last.as_str())
    };
    links.iter().position(is_last)
}

fn focused_row() -> Option<web_sys::Element> {
    let active = leptos::prelude::document().active_element()?;
    active.closest("tr").ok()?
}

/// Closes what was opened over the page, except what this node is in. The focus returns to what
/// opened it. Returns whether anything was open.
pub fn close_popovers(except: Option<&web_sys::Node>) -> bool {
    let active = leptos::prelude::document().active_element();
    let mut was_open = false;
    for popover in elements("details.confirm[open]") {
        if except.is_some_and(|node| popover.contains(Some(node))) {
            continue;
        }
        was_open = true;
        // Fails only for an invalid name.
        let _ = popover.remove_attribute("open");
        let had_focus = active.as_ref().is_some_and(|it| popover.contains(Some(it)));
        let opener = popover.query_selector("summary").ok().flatten();
        if let (true, Some(opener)) = (had_focus, opener.and_then(|it| element(it.into()))) {
            let _ = opener.focus();
        }
    }
    was_open
}

/// Clicks an element of the focused row; on a page without rows, the first of the page. Nothing
/// while no row has the focus, because the action would be done to any of them.
pub fn click_in_focus(selector: &str) {
    let found = match focused_row() {
        Some(row) => row.query_selector(selector),
        None if exists("[data-row-link]") => return,
        None => leptos::prelude::document().query_selector(selector),
    };
    if let Some(target) = found.ok().flatten().and_then(|it| element(it.into())) {
        target.click();
    }
}

/// Clicks the first element that the selector finds.
pub fn click(selector: &str) {
    let found = leptos::prelude::document().query_selector(selector);
    if let Some(target) = found.ok().flatten().and_then(|it| element(it.into())) {
        target.click();
    }
}

/// Scrolls the element with this id into view, by no more than needed.
pub fn scroll_into_view(id: &str) {
    if let Some(element) = leptos::prelude::document().get_element_by_id(id) {
        let options = web_sys::ScrollIntoViewOptions::new();
        options.set_block(web_sys::ScrollLogicalPosition::Nearest);
        element.scroll_into_view_with_scroll_into_view_options(&options);
    }
}

/// Scrolls a bar sideways until the element in it that the selector finds is in view, by no more than
/// needed and at once. The page stays where it is.
pub fn scroll_inside(bar: &web_sys::HtmlElement, selector: &str) {
    let found = bar.query_selector(selector).ok().flatten();
    let Some(target) = found.and_then(|it| element(it.into())) else {
        return;
    };
    // Places in parts of a pixel.
    let (within, it) = (
        bar.get_bounding_client_rect(),
        target.get_bounding_client_rect(),
    );
    let left = within.left() + f64::from(bar.client_left());
    let right = left + f64::from(bar.client_width());
    let by = if it.left() < left {
        (it.left() - left).floor()
    } else if it.right() > right {
        (it.right() - right).ceil()
    } else {
        return;
    };
    bar.scroll_by_with_x_and_y(by, 0.0);
}

fn element(node: web_sys::Node) -> Option<web_sys::HtmlElement> {
    use wasm_bindgen::JsCast;
    node.dyn_into().ok()
}

//! xterm, as far as the console needs it. Everything else in this crate speaks to it through here,
//! so that another terminal changes one file.
//!
//! The types come from `xterm-js-rs`; what xterm changed since that was written is bound here. Its
//! constructors are not used: with them, every page would load xterm.

use std::cell::RefCell;

use js_sys::{Array, Function, Object, Reflect, Uint8Array};
use leptos::prelude::{document, window};
use wasm_bindgen::{JsCast, JsValue, closure::Closure, prelude::wasm_bindgen};
use web_sys::{Element, HtmlElement, HtmlTextAreaElement, KeyboardEvent};
use xterm_js_rs::{Terminal, addons::fit::FitAddon};

use crate::vendor::export;

/// Files below `vendor/`, with their versions as in package.json, and the class that each exports.
const TERMINAL: (&str, &str) = ("xterm-6.0.0.mjs", "Terminal");
const FIT: (&str, &str) = ("xterm-addon-fit-0.11.0.mjs", "FitAddon");
const LINKS: (&str, &str) = ("xterm-addon-web-links-0.12.0.mjs", "WebLinksAddon");
const SEARCH: (&str, &str) = ("xterm-addon-search-0.16.0.mjs", "SearchAddon");
const UNICODE: (&str, &str) = ("xterm-addon-unicode11-0.9.0.mjs", "Unicode11Addon");

#[wasm_bindgen(module = "xterm")]
extern "C" {
    /// xterm's terminal again, with what replaced the methods that `xterm-js-rs` knows.
    #[wasm_bindgen(js_name = "Terminal")]
    type Modern;

    #[wasm_bindgen(method, js_name = "write")]
    fn write_bytes(this: &Modern, data: &Uint8Array, done: &JsValue);

    #[wasm_bindgen(method, getter)]
    fn options(this: &Modern) -> Object;

    #[wasm_bindgen(method, getter)]
    fn unicode(this: &Modern) -> Object;

    #[wasm_bindgen(method, js_name = "onData")]
    fn on_data(this: &Modern, act: &Closure<dyn FnMut(String)>) -> JsValue;

    #[wasm_bindgen(method, js_name = "onResize")]
    fn on_resize(this: &Modern, act: &Closure<dyn FnMut(JsValue)>) -> JsValue;

    #[wasm_bindgen(method, js_name = "onTitleChange")]
    fn on_title(this: &Modern, act: &Closure<dyn FnMut(String)>) -> JsValue;

    #[wasm_bindgen(method, js_name = "attachCustomKeyEventHandler")]
    fn on_key(this: &Modern, act: &Closure<dyn FnMut(KeyboardEvent) -> bool>);

    #[wasm_bindgen(method, js_name = "getSelection")]
    fn selection(this: &Modern) -> String;

    #[wasm_bindgen(method)]
    fn focus(this: &Modern);
}

#[wasm_bindgen]
extern "C" {
    /// The search addon.
    type Search;

    #[wasm_bindgen(method, js_name = "findNext")]
    fn find_next(this: &Search, text: &str) -> bool;

    #[wasm_bindgen(method, js_name = "findPrevious")]
    fn find_previous(this: &Search, text: &str) -> bool;

    /// The document, with the one way to copy that also works without HTTPS.
    type OldDocument;

    #[wasm_bindgen(method, js_name = "execCommand")]
    fn exec_command(this: &OldDocument, command: &str) -> bool;
}

/// The classes of xterm.
pub(super) struct Classes {
    terminal: Function,
    fit: Function,
    links: Function,
    unicode: Function,
}

impl Classes {
    /// Loads xterm, unless it is loaded.
    ///
    /// # Errors
    ///
    /// A file cannot be loaded. Browsers do not try again before the page is reloaded.
    pub(super) async fn load() -> Result<Self, JsValue> {
        Ok(Self {
            terminal: export(TERMINAL).await?,
            fit: export(FIT).await?,
            links: export(LINKS).await?,
            unicode: export(UNICODE).await?,
        })
    }

    /// Loads what searches the output, unless it is loaded.
    ///
    /// # Errors
    ///
    /// As for [`Classes::load`].
    pub(super) async fn load_search() -> Result<Function, JsValue> {
        export(SEARCH).await
    }
}

/// What a terminal calls.
pub(super) struct Handlers {
    /// With what was typed, and with answers of the terminal to programs.
    pub(super) on_data: Closure<dyn FnMut(String)>,
    /// With the new columns and rows.
    pub(super) on_resize: Box<dyn FnMut(u32, u32)>,
    /// With the title that a program sets.
    pub(super) on_title: Closure<dyn FnMut(String)>,
}

/// A terminal in the page. Dropping it removes it.
pub(super) struct Xterm {
    raw: Terminal,
    fit: FitAddon,
    search: RefCell<Option<Search>>,
    _on_data: Closure<dyn FnMut(String)>,
    _on_resize: Closure<dyn FnMut(JsValue)>,
    _on_title: Closure<dyn FnMut(String)>,
    _on_key: Closure<dyn FnMut(KeyboardEvent) -> bool>,
    _on_link: Closure<dyn FnMut(JsValue, String)>,
}

impl Xterm {
    /// Opens a terminal inside an element.
    ///
    /// # Errors
    ///
    /// xterm threw this.
    pub(super) fn open(
        classes: &Classes,
        place: &HtmlElement,
        theme: &[(&str, String)],
        handlers: Handlers,
    ) -> Result<Self, JsValue> {
        let options = Object::new();
        set(&options, "allowProposedApi", JsValue::TRUE);
        set(&options, "cursorBlink", JsValue::TRUE);
        set(&options, "lineHeight", 1.25.into());
        set(&options, "scrollback", 100_000.into());
        // Programs choose colours for a theme they do not know; WCAG AA wants this much.
        set(&options, "minimumContrastRatio", 4.5.into());
        let font = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
        set(&options, "fontFamily", font.into());
        set(&options, "theme", colours(theme).into());
        let raw = Reflect::construct(&classes.terminal, &Array::of1(&options))?;
        let raw: Terminal = raw.unchecked_into();
        let fit: FitAddon = Reflect::construct(&classes.fit, &Array::new())?.unchecked_into();
        raw.load_addon(AsRef::<JsValue>::as_ref(&fit).clone().unchecked_into());
        let unicode = Reflect::construct(&classes.unicode, &Array::new())?;
        raw.load_addon(unicode.unchecked_into());
        // The widths that today's shells use; xterm's own are those of 2010.
        let widths = raw.unchecked_ref::<Modern>().unicode();
        set(&widths, "activeVersion", "11".into());
        raw.open(place.clone());
        let on_link = Closure::new(|_: JsValue, address: String| {
            let _ = window().open_with_url_and_target_and_features(
                &address,
                "_blank",
                "noopener,noreferrer",
            );
        });
        let links = Reflect::construct(&classes.links, &Array::of1(on_link.as_ref()))?;
        raw.load_addon(links.unchecked_into());
        let Handlers {
            on_data,
            mut on_resize,
            on_title,
        } = handlers;
        let on_resize = Closure::new(move |size: JsValue| {
            on_resize(number(&size, "cols"), number(&size, "rows"));
        });
        let modern: &Modern = raw.unchecked_ref();
        let keys: Modern = AsRef::<JsValue>::as_ref(&raw).clone().unchecked_into();
        let on_key = Closure::new(move |event: KeyboardEvent| passes_key(&keys, &event));
        modern.on_data(&on_data);
        modern.on_resize(&on_resize);
        modern.on_title(&on_title);
        modern.on_key(&on_key);
        Ok(Self {
            raw,
            fit,
            search: RefCell::new(None),
            _on_data: on_data,
            _on_resize: on_resize,
            _on_title: on_title,
            _on_key: on_key,
            _on_link: on_link,
        })
    }

    /// Resizes to the columns and rows that fit.
    pub(super) fn fit(&self) {
        self.fit.fit();
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (u32, u32) {
        (self.raw.get_cols(), self.raw.get_rows())
    }

    /// Shows output; `done` is called once it is on the screen.
    pub(super) fn write(&self, bytes: &[u8], done: impl FnOnce() + 'static) {
        let modern: &Modern = self.raw.unchecked_ref();
        modern.write_bytes(&Uint8Array::from(bytes), &Closure::once_into_js(done));
    }

    /// Focuses the terminal.
    pub(super) fn focus(&self) {
        self.raw.focus();
    }

    /// Clears the terminal.
    pub(super) fn reset(&self) {
        self.raw.reset();
    }

    /// Copies what is selected. Returns whether it was copied.
    pub(super) fn copy(&self) -> bool {
        copy_selection(self.raw.unchecked_ref())
    }

    /// Selects the next place with this text, or the previous one. Returns whether there is one.
    pub(super) fn find(&self, class: &Function, text: &str, back: bool) -> bool {
        let mut search = self.search.borrow_mut();
        if search.is_none() {
            let Ok(addon) = Reflect::construct(class, &Array::new()) else {
                return false;
            };
            self.raw.load_addon(addon.clone().unchecked_into());
            *search = Some(addon.unchecked_into());
        }
        search.as_ref().is_some_and(|search| match back {
            true => search.find_previous(text),
            false => search.find_next(text),
        })
    }

    /// Sets whether nothing can be typed.
    pub(super) fn set_read_only(&self, on: bool) {
        let modern: &Modern = self.raw.unchecked_ref();
        set(&modern.options(), "disableStdin", on.into());
    }

    /// Sets the size of the text, in CSS pixels.
    pub(super) fn set_font_size(&self, size: u32) {
        let modern: &Modern = self.raw.unchecked_ref();
        set(&modern.options(), "fontSize", size.into());
    }

    /// Sets whether the output is also in the page as text that screen readers read. It costs time
    /// for every line.
    pub(super) fn set_screen_reader(&self, on: bool) {
        let modern: &Modern = self.raw.unchecked_ref();
        set(&modern.options(), "screenReaderMode", on.into());
    }

    /// Sets the colours.
    pub(super) fn set_theme(&self, theme: &[(&str, String)]) {
        let modern: &Modern = self.raw.unchecked_ref();
        set(&modern.options(), "theme", colours(theme).into());
    }
}

impl Drop for Xterm {
    fn drop(&mut self) {
        let raw: &xterm_js_rs::Disposable = self.raw.unchecked_ref();
        raw.dispose();
    }
}

/// Whether a key is for the program. Ctrl+Shift+C copies, instead of opening the browser's tools,
/// Ctrl+Shift+V is left to the browser, which pastes, and Ctrl+Shift+Up leads out of the terminal,
/// where Tab belongs to the program.
fn passes_key(terminal: &Modern, event: &KeyboardEvent) -> bool {
    if !event.ctrl_key() || !event.shift_key() || event.alt_key() || event.meta_key() {
        return true;
    }
    match event.code().as_str() {
        "KeyC" => {
            event.prevent_default();
            if event.type_() == "keydown" {
                copy_selection(terminal);
            }
            false
        }
        "KeyV" => false,
        "ArrowUp" => {
            event.prevent_default();
            if event.type_() == "keydown" {
                focus_tools(event);
            }
            false
        }
        _ => true,
    }
}

/// Focuses the first tool of the terminal that the key was pressed in.
fn focus_tools(event: &KeyboardEvent) {
    let target = event.target().and_then(|it| it.dyn_into::<Element>().ok());
    let card = target.and_then(|it| it.closest(".terminal-card").ok().flatten());
    let tool = card.and_then(|it| it.query_selector(".terminal-tools > *").ok().flatten());
    if let Some(tool) = tool.and_then(|it| it.dyn_into::<HtmlElement>().ok()) {
        // Fails only for what cannot be focused.
        let _ = tool.focus();
    }
}

/// Copies what is selected, and returns whether it was copied. The clipboard of browsers takes text
/// directly only with HTTPS; a selected field can be copied everywhere.
fn copy_selection(terminal: &Modern) -> bool {
    let text = terminal.selection();
    let document = document();
    let field = document.create_element("textarea").ok();
    let field = field.and_then(|it| it.dyn_into::<HtmlTextAreaElement>().ok());
    let (Some(field), Some(body), false) = (field, document.body(), text.is_empty()) else {
        return false;
    };
    field.set_value(&text);
    field.set_class_name("visually-hidden");
    if body.append_child(&field).is_err() {
        return false;
    }
    field.select();
    let copied = document.unchecked_ref::<OldDocument>().exec_command("copy");
    field.remove();
    terminal.focus();
    copied
}

fn colours(theme: &[(&str, String)]) -> Object {
    let object = Object::new();
    for (name, colour) in theme {
        set(&object, name, colour.as_str().into());
    }
    object
}

fn set(object: &Object, name: &str, value: JsValue) {
    // Fails only on frozen objects.
    let _ = Reflect::set(object, &name.into(), &value);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of columns and rows"
)]
fn number(object: &JsValue, name: &str) -> u32 {
    let value = Reflect::get(object, &name.into()).ok();
    value.and_then(|it| it.as_f64()).unwrap_or_default() as u32
}

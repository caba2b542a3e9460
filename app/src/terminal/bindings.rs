//! xterm, as far as the console needs it. Everything else in this crate speaks to it through here,
//! so that another terminal changes one file.
//!
//! The types come from `xterm-js-rs`; what xterm changed since that was written is bound here. Its
//! constructors are not used: with them, every page would load xterm.

use js_sys::{Array, Function, Object, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue, closure::Closure, prelude::wasm_bindgen};
use xterm_js_rs::{Terminal, addons::fit::FitAddon};

use crate::ui::AssetRoot;

/// Files below `vendor/`, with their versions as in package.json, and the class that each exports.
const TERMINAL: (&str, &str) = ("xterm-6.0.0.mjs", "Terminal");
const FIT: (&str, &str) = ("xterm-addon-fit-0.11.0.mjs", "FitAddon");
const UNICODE: (&str, &str) = ("xterm-addon-unicode11-0.9.0.mjs", "Unicode11Addon");

#[wasm_bindgen(raw_module = "../import.mjs")] // relative to `pkg/`, from `public/`
extern "C" {
    #[wasm_bindgen(catch)]
    async fn load(address: &str) -> Result<JsValue, JsValue>;
}

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
}

/// The classes of xterm.
pub(super) struct Classes {
    terminal: Function,
    fit: Function,
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
            terminal: class(TERMINAL).await?,
            fit: class(FIT).await?,
            unicode: class(UNICODE).await?,
        })
    }
}

async fn class((file, name): (&str, &str)) -> Result<Function, JsValue> {
    let AssetRoot(root) = AssetRoot::current();
    let module = load(&format!("{root}/vendor/{file}")).await?;
    Reflect::get(&module, &name.into())?.dyn_into()
}

/// A terminal in the page. Dropping it removes it.
pub(super) struct Xterm {
    raw: Terminal,
    fit: FitAddon,
    _on_data: Closure<dyn FnMut(String)>,
    _on_resize: Closure<dyn FnMut(JsValue)>,
}

impl Xterm {
    /// Opens a terminal inside an element.
    ///
    /// # Errors
    ///
    /// xterm threw this.
    pub(super) fn open(
        classes: &Classes,
        place: &web_sys::HtmlElement,
        theme: &[(&str, String)],
        on_data: impl FnMut(String) + 'static,
        mut on_resize: impl FnMut(u32, u32) + 'static,
    ) -> Result<Self, JsValue> {
        let options = Object::new();
        set(&options, "allowProposedApi", JsValue::TRUE);
        set(&options, "cursorBlink", JsValue::TRUE);
        set(&options, "fontSize", 13.into());
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
        let on_data = Closure::new(on_data);
        let on_resize = Closure::new(move |size: JsValue| {
            on_resize(number(&size, "cols"), number(&size, "rows"));
        });
        let modern: &Modern = raw.unchecked_ref();
        modern.on_data(&on_data);
        modern.on_resize(&on_resize);
        Ok(Self {
            raw,
            fit,
            _on_data: on_data,
            _on_resize: on_resize,
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

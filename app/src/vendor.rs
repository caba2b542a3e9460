//! Scripts of other projects, loaded when they are first used.

use js_sys::{Function, Reflect};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};

use crate::ui::AssetRoot;

#[wasm_bindgen(raw_module = "../import.mjs")] // relative to `pkg/`, from `public/`
extern "C" {
    #[wasm_bindgen(catch)]
    async fn load(address: &str) -> Result<JsValue, JsValue>;
}

/// A class or function that a file below `vendor/` exports under this name. The file is loaded once.
///
/// # Errors
///
/// The file cannot be loaded. Browsers do not try again before the page is reloaded.
pub(crate) async fn export((file, name): (&str, &str)) -> Result<Function, JsValue> {
    let AssetRoot(root) = AssetRoot::current();
    let module = load(&format!("{root}/vendor/{file}")).await?;
    Reflect::get(&module, &name.into())?.dyn_into()
}

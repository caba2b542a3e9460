//! The console's wasm entry point.

use wasm_bindgen::prelude::wasm_bindgen;

/// Called by the page's own script once the module is loaded.
#[wasm_bindgen]
pub fn hydrate() {
    osb_app::hydrate();
}

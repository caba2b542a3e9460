//! The console's wasm entry point.

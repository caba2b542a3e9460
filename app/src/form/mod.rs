//! Forms of several pages: their fields, how they stand, how they are read and sent with script, and
//! how something is deleted.

mod delete;
mod fields;
mod progress;

use leptos::{ev, form::FromFormData};
use serde::de::DeserializeOwned;

pub(crate) use delete::{DeleteIcon, Deleting};
pub(crate) use fields::{Field, TextField, raw_text};
pub(crate) use progress::Progress;

/// Reads a form that is being sent with script.
pub(crate) fn read<T: DeserializeOwned>(event: &ev::SubmitEvent) -> Option<T> {
    event.prevent_default();
    // Only text fields and check boxes: nothing that could not be read.
    T::from_event(event).ok()
}

/// Empties the fields of the form that was sent.
pub(crate) fn reset(event: &ev::SubmitEvent) -> impl FnOnce() + use<> {
    use leptos::{wasm_bindgen::JsCast, web_sys::HtmlFormElement};
    let form = event
        .target()
        .and_then(|form| form.dyn_into::<HtmlFormElement>().ok());
    move || {
        if let Some(form) = form {
            form.reset();
        }
    }
}

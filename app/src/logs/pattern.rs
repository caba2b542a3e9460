//! Regular expressions of the browser: the wasm brings none of its own.

use js_sys::{Array, Error, Function, Reflect, RegExp};
use wasm_bindgen::{JsCast, JsValue};

/// A regular expression. Without capital letters it finds both cases.
pub(super) struct Pattern(RegExp);

impl Pattern {
    /// Reads a regular expression.
    ///
    /// # Errors
    /// The browser's message, when it is not valid.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let flags = match text.chars().any(char::is_uppercase) {
            true => "",
            false => "i",
        };
        let arguments = Array::of2(&text.into(), &flags.into());
        let made = Reflect::get(&js_sys::global(), &"RegExp".into())
            .and_then(|class| Reflect::construct(class.unchecked_ref::<Function>(), &arguments));
        match made {
            Ok(made) => Ok(Self(made.unchecked_into())),
            Err(error) => Err(reason(&error)),
        }
    }

    pub(super) fn finds(&self, text: &str) -> bool {
        self.0.test(text)
    }
}

/// Browsers repeat the expression before the reason.
fn reason(error: &JsValue) -> String {
    let message = error
        .dyn_ref::<Error>()
        .map(|error| String::from(error.message()));
    let message = message.unwrap_or_default();
    let reason = message.rsplit(": ").next().unwrap_or(&message);
    format!("This is no regular expression: {}.", reason.to_lowercase())
}

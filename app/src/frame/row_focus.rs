//! The focus of a list that is shown again.

use leptos::{ev, prelude::*};
use wasm_bindgen::{JsCast, closure::Closure};
use web_sys::{MutationObserver, MutationObserverInit};

use crate::browser::{self, MAIN};

/// After each change of the page's path, gives the focus to the row that had it before another page was
/// opened, as soon as that row is in the page and nothing else has the focus. The data of a list may come
/// late, and what had the focus on the other page may stay until then. Ends with the next press of a key
/// or of the pointer.
pub(super) fn return_to_row(path: Memo<String>) {
    Effect::new(move |_| {
        let watch = StoredValue::new_local(None);
        Effect::new(move |_| {
            path.track();
            watch.set_value(PageWatch::new(move || {
                if browser::return_to_row() {
                    watch.set_value(None);
                }
            }));
            request_animation_frame(|| {
                browser::return_to_row();
            });
        });
        let key = window_event_listener(ev::keydown, move |_| watch.set_value(None));
        let pointer = window_event_listener(ev::pointerdown, move |_| watch.set_value(None));
        on_cleanup(move || {
            key.remove();
            pointer.remove();
        });
    });
}

/// Reports changes of what the page contains, until it is dropped.
struct PageWatch {
    observer: MutationObserver,
    _act: Closure<dyn FnMut()>,
}

impl PageWatch {
    /// Calls `act` after each change; `None` if the browser refuses.
    fn new(act: impl FnMut() + 'static) -> Option<Self> {
        let act = Closure::new(act);
        let observer = MutationObserver::new(act.as_ref().unchecked_ref()).ok()?;
        let content = MutationObserverInit::new();
        content.set_child_list(true);
        content.set_subtree(true);
        let page = document().get_element_by_id(MAIN)?;
        observer.observe_with_options(&page, &content).ok()?;
        Some(Self {
            observer,
            _act: act,
        })
    }
}

impl Drop for PageWatch {
    fn drop(&mut self) {
        self.observer.disconnect();
    }
}

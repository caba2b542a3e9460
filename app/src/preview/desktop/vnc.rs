//! noVNC, as far as the console needs it.

use std::{cell::RefCell, rc::Rc};

use js_sys::{Array, Function, Object, Reflect};
use leptos::{html::Div, prelude::*, task::spawn_local};
use osb_protocol::SandboxId;
use wasm_bindgen::{JsCast, JsValue, closure::Closure, prelude::wasm_bindgen};
use web_sys::{CloseEvent, EventTarget, HtmlElement, KeyboardEvent, WebSocket};

use super::{Order, Phase, Ui};
use crate::{browser, live::says_signed_out, vendor::export};

/// File below `vendor/`, with the version as in package.json, and the class that it exports.
const NOVNC: (&str, &str) = ("novnc-1.7.0.mjs", "default");

#[wasm_bindgen]
extern "C" {
    /// noVNC's client of a desktop.
    #[wasm_bindgen(extends = EventTarget)]
    type Rfb;

    #[wasm_bindgen(method, setter, js_name = "scaleViewport")]
    fn set_scale_viewport(this: &Rfb, on: bool);

    #[wasm_bindgen(method, setter, js_name = "viewOnly")]
    fn set_view_only(this: &Rfb, on: bool);

    #[wasm_bindgen(method, setter, js_name = "background")]
    fn set_background(this: &Rfb, colour: &str);

    #[wasm_bindgen(method, js_name = "sendCtrlAltDel")]
    fn send_ctrl_alt_del(this: &Rfb);

    #[wasm_bindgen(method, js_name = "sendCredentials")]
    fn send_credentials(this: &Rfb, credentials: &Object);

    #[wasm_bindgen(method, js_name = "clipboardPasteFrom")]
    fn clipboard_paste_from(this: &Rfb, text: &str);

    #[wasm_bindgen(method, js_name = "approveServer")]
    fn approve_server(this: &Rfb);

    #[wasm_bindgen(method)]
    fn disconnect(this: &Rfb);

    #[wasm_bindgen(method)]
    fn focus(this: &Rfb);
}

/// An open connection. Dropping it closes it.
struct Connection {
    rfb: Rfb,
    place: HtmlElement,
    /// What noVNC, its socket and its place call, by the name of the event.
    listeners: Vec<(EventTarget, &'static str, Closure<dyn FnMut(JsValue)>)>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        for (target, name, act) in &self.listeners {
            let act = act.as_ref().unchecked_ref();
            // Fails only for what is no function.
            let _ = target.remove_event_listener_with_callback_and_bool(name, act, true);
            let _ = target.remove_event_listener_with_callback(name, act);
        }
        self.rfb.disconnect();
        self.place.set_text_content(None);
    }
}

type Shared = Rc<RefCell<Option<Connection>>>;

/// Mounts a desktop in `place` once that is in the page, and removes it with its owner.
pub(super) fn mount(id: SandboxId, port: u16, place: NodeRef<Div>, ui: Ui) {
    let connection = StoredValue::new_local(Shared::default());
    let path = format!("/console/tunnel/{id}/{port}");
    Effect::new(move |_| {
        ui.attempt.track();
        if let Some(place) = place.get() {
            start(&connection.get_value(), path.clone(), place.into(), ui);
        }
    });
    Effect::new(move |_| {
        let (fits, views_only) = (ui.fits.get(), ui.views_only.get());
        if let Some(open) = &*connection.get_value().borrow() {
            open.rfb.set_scale_viewport(fits);
            open.rfb.set_view_only(views_only);
        }
    });
    Effect::new(move |_| {
        let Some(order) = ui.order.get() else {
            return;
        };
        if let Some(open) = &*connection.get_value().borrow() {
            open.obey(order);
        }
    });
    on_cleanup(move || {
        let open = connection.get_value().borrow_mut().take();
        drop(open);
    });
}

fn start(connection: &Shared, path: String, place: HtmlElement, ui: Ui) {
    let before = connection.borrow_mut().take();
    drop(before);
    ui.phase.set(Phase::Connecting);
    ui.name.set(String::new());
    let waiting = Rc::downgrade(connection);
    spawn_local(async move {
        let class = export(NOVNC).await;
        // None when the desktop was left meanwhile.
        let Some(connection) = waiting.upgrade() else {
            return;
        };
        let opened = class.and_then(|class| Connection::open(&class, &path, place, ui));
        match opened {
            Ok(open) => *connection.borrow_mut() = Some(open),
            Err(_) => {
                let _ = ui.phase.try_set(Phase::NotLoaded);
            }
        }
    });
}

impl Connection {
    fn open(class: &Function, path: &str, place: HtmlElement, ui: Ui) -> Result<Self, JsValue> {
        let socket = WebSocket::new(&browser::socket_url(path))?;
        // noVNC does not pass on why its socket closed.
        let end = StoredValue::new((0, String::new()));
        let on_close = Closure::<dyn FnMut(JsValue)>::new(move |event: JsValue| {
            let event: CloseEvent = event.unchecked_into();
            end.try_set_value((event.code(), event.reason()));
        });
        socket.add_event_listener_with_callback("close", on_close.as_ref().unchecked_ref())?;
        let options = Object::new();
        Reflect::set(&options, &"shared".into(), &true.into())?;
        let arguments = Array::of3(&place, &socket, &options);
        let rfb: Rfb = Reflect::construct(class, &arguments)?.unchecked_into();
        rfb.set_scale_viewport(ui.fits.get_untracked());
        rfb.set_view_only(ui.views_only.get_untracked());
        rfb.set_background("transparent");
        let mut open = Self {
            rfb,
            place,
            listeners: vec![(socket.into(), "close", on_close)],
        };
        open.follow(ui, end)?;
        open.let_out()?;
        Ok(open)
    }

    /// Listens to noVNC.
    fn follow(&mut self, ui: Ui, end: StoredValue<(u16, String)>) -> Result<(), JsValue> {
        let rfb: Rfb = JsValue::clone(self.rfb.as_ref()).unchecked_into();
        self.listen("connect", move |_| {
            let _ = ui.phase.try_set(Phase::Open);
            rfb.focus();
        })?;
        self.listen("disconnect", move |_| {
            let (code, reason) = end.try_get_value().unwrap_or_default();
            let was_open = ui.phase.try_get_untracked() == Some(Phase::Open);
            let phase = match (code, reason.as_str()) {
                (code, _) if says_signed_out(code, was_open) => Phase::SignedOut,
                (_, "") if was_open => Phase::Closed("The connection ended.".to_owned()),
                (_, "") => Phase::Closed("There is no connection to the desktop.".to_owned()),
                (_, reason) => Phase::Closed(reason.to_owned()),
            };
            // Why the desktop refused is known already.
            if !matches!(ui.phase.try_get_untracked(), Some(Phase::Closed(_)) | None) {
                ui.phase.set(phase);
            }
        })?;
        self.listen("credentialsrequired", move |event| {
            let types = Array::from(&detail(&event, "types"));
            let name = types.includes(&"username".into(), 0);
            let _ = ui.phase.try_set(Phase::Asks { name });
        })?;
        self.listen("securityfailure", move |event| {
            let reason = detail(&event, "reason").as_string();
            let reason = reason.unwrap_or_else(|| "no reason is given".to_owned());
            let why = format!("The desktop refused the connection: {reason}");
            let _ = ui.phase.try_set(Phase::Closed(why));
        })?;
        self.listen("desktopname", move |event| {
            let name = detail(&event, "name").as_string().unwrap_or_default();
            let _ = ui.name.try_set(name);
        })?;
        self.listen("clipboard", move |event| {
            let text = detail(&event, "text").as_string().unwrap_or_default();
            let _ = ui.clipboard.try_set(text);
        })?;
        // The tunnel ends in the sandbox: no other desktop can answer.
        let rfb: Rfb = JsValue::clone(self.rfb.as_ref()).unchecked_into();
        self.listen("serververification", move |_| rfb.approve_server())
    }

    fn listen(
        &mut self,
        name: &'static str,
        act: impl FnMut(JsValue) + 'static,
    ) -> Result<(), JsValue> {
        let target: EventTarget = JsValue::clone(self.rfb.as_ref()).unchecked_into();
        let act = Closure::<dyn FnMut(JsValue)>::new(act);
        target.add_event_listener_with_callback(name, act.as_ref().unchecked_ref())?;
        self.listeners.push((target, name, act));
        Ok(())
    }

    /// Ctrl+Shift+Up leads to the tools, once the keys are released: the desktop must see that.
    fn let_out(&mut self) -> Result<(), JsValue> {
        let leaves = Rc::new(RefCell::new(false));
        let place = self.place.clone();
        let noted = Rc::clone(&leaves);
        let on_down = Closure::<dyn FnMut(JsValue)>::new(move |event: JsValue| {
            let event: KeyboardEvent = event.unchecked_into();
            if event.key() == "ArrowUp" && event.ctrl_key() && event.shift_key() {
                event.prevent_default();
                event.stop_propagation();
                *noted.borrow_mut() = true;
            }
        });
        let on_up = Closure::<dyn FnMut(JsValue)>::new(move |event: JsValue| {
            let event: KeyboardEvent = event.unchecked_into();
            if !event.ctrl_key() && !event.shift_key() && leaves.replace(false) {
                let place = place.clone();
                // After noVNC has seen the key.
                request_animation_frame(move || focus_tools(&place));
            }
        });
        let target: EventTarget = self.place.clone().into();
        for (name, act) in [("keydown", on_down), ("keyup", on_up)] {
            let function = act.as_ref().unchecked_ref();
            target.add_event_listener_with_callback_and_bool(name, function, true)?;
            self.listeners.push((target.clone(), name, act));
        }
        Ok(())
    }

    fn obey(&self, order: Order) {
        match order {
            Order::CtrlAltDel => self.rfb.send_ctrl_alt_del(),
            Order::Clipboard(text) => self.rfb.clipboard_paste_from(&text),
            Order::Credentials(name, password) => {
                let credentials = Object::new();
                for (key, value) in [("username", name), ("password", password)] {
                    // Fails only on frozen objects.
                    let _ = Reflect::set(&credentials, &key.into(), &value.into());
                }
                self.rfb.send_credentials(&credentials);
            }
        }
    }
}

/// A part of what an event of noVNC carries.
fn detail(event: &JsValue, name: &str) -> JsValue {
    let detail = Reflect::get(event, &"detail".into()).unwrap_or_default();
    Reflect::get(&detail, &name.into()).unwrap_or_default()
}

fn focus_tools(place: &HtmlElement) {
    let section = place.closest(".desktop").ok().flatten();
    let tool = section.and_then(|it| it.query_selector(".terminal-tools button").ok().flatten());
    if let Some(tool) = tool.and_then(|it| it.dyn_into::<HtmlElement>().ok()) {
        // Fails only for what cannot be focused.
        let _ = tool.focus();
    }
}

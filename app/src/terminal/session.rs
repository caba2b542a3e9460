//! One terminal of the page: xterm, its connection, and reconnects.

use std::{cell::RefCell, rc::Rc, time::Duration};

use leptos::{html::Div, prelude::*, task::spawn_local};
use osb_protocol::{
    SandboxId,
    execd::pty::{BinaryFrame, ClientFrame, ServerFrame, close_code},
};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use web_sys::ResizeObserver;

use super::{
    Phase, Settings, TerminalAction,
    bindings::{Classes, Xterm},
    theme::{ThemeWatch, colours},
};
use crate::{
    browser::{self, Memory},
    live::says_signed_out,
    socket::{Socket, SocketEvent},
};

/// Most bytes in one input frame: the server takes messages of up to 1 MiB, and a paste may be
/// longer.
const INPUT_FRAME: usize = 64 << 10;
/// Attempts on a held shell before the user is asked: after a reload, the previous page may still
/// hold it.
const POLITE_ATTEMPTS: u32 = 6;
/// Pause before the next attempt.
const RETRY: Duration = Duration::from_millis(400);
/// Longest such pause.
const RETRY_MOST: Duration = Duration::from_secs(8);

struct Session {
    sandbox: SandboxId,
    phase: RwSignal<Phase>,
    settings: Settings,
    xterm: Option<Xterm>,
    socket: Option<Socket>,
    /// The PTY, once known.
    pty: Option<String>,
    /// Offset after the last shown byte of output.
    offset: u64,
    attempts: u32,
    observer: Option<(ResizeObserver, Closure<dyn FnMut()>)>,
    theme: Option<ThemeWatch>,
}

type Shared = Rc<RefCell<Session>>;

/// Mounts a terminal in `place` once that is in the page, and removes it with its owner.
pub(super) fn mount(
    sandbox: SandboxId,
    place: NodeRef<Div>,
    phase: RwSignal<Phase>,
    action: RwSignal<Option<TerminalAction>>,
    settings: Settings,
) {
    let session = Rc::new(RefCell::new(Session {
        pty: Memory::Tab.get(&memory_name(&sandbox)),
        sandbox,
        phase,
        settings,
        xterm: None,
        socket: None,
        offset: 0,
        attempts: 0,
        observer: None,
        theme: None,
    }));
    let kept = StoredValue::new_local(Rc::clone(&session));
    Effect::new(move |_| {
        if let Some(place) = place.get() {
            start(&kept.get_value(), &place);
        }
    });
    Effect::new(move |_| {
        if let Some(action) = action.get() {
            grant(&kept.get_value(), action);
        }
    });
    Effect::new(move |_| {
        let screen_reader = settings.screen_reader.get();
        if let Some(xterm) = &kept.get_value().borrow().xterm {
            xterm.set_screen_reader(screen_reader);
        }
    });
    on_cleanup(move || {
        let session = kept.get_value();
        let mut session = session.borrow_mut();
        if let Some((observer, _)) = session.observer.take() {
            observer.disconnect();
        }
        session.theme = None;
        session.socket = None;
        session.xterm = None;
    });
}

fn resize(cols: u32, rows: u32) -> String {
    ClientFrame::Resize { cols, rows }.encode()
}

fn memory_name(sandbox: &SandboxId) -> String {
    format!("osb.pty.{sandbox}")
}

/// Loads xterm and starts the session in it.
fn start(session: &Shared, place: &web_sys::HtmlElement) {
    let (waiting, place) = (Rc::downgrade(session), place.clone());
    spawn_local(async move {
        let classes = Classes::load().await;
        // None when the terminal was left meanwhile.
        let Some(session) = waiting.upgrade() else {
            return;
        };
        let opened = classes.and_then(|classes| open(&session, &classes, &place));
        if opened.is_err() {
            let phase = session.borrow().phase;
            let _ = phase.try_set(Phase::NotLoaded);
        }
    });
}

fn open(session: &Shared, classes: &Classes, place: &web_sys::HtmlElement) -> Result<(), JsValue> {
    if session.borrow().xterm.is_some() {
        return Ok(());
    }
    let (typed, resized) = (Rc::downgrade(session), Rc::downgrade(session));
    let xterm = Xterm::open(
        classes,
        place,
        &colours(place),
        move |text| {
            let Some(session) = typed.upgrade() else {
                return;
            };
            if let Some(socket) = &session.borrow().socket {
                for data in text.as_bytes().chunks(INPUT_FRAME) {
                    socket.send_bytes(&BinaryFrame::Stdin(data).encode());
                }
            }
        },
        move |columns, rows| {
            let Some(session) = resized.upgrade() else {
                return;
            };
            // A resize that xterm makes while this module holds the session is sent by its caller.
            if let Ok(session) = session.try_borrow()
                && let Some(socket) = &session.socket
            {
                socket.send_text(&resize(columns, rows));
            }
        },
    )?;
    let settings = session.borrow().settings;
    xterm.set_screen_reader(settings.screen_reader.get_untracked());
    xterm.fit();
    session.borrow_mut().xterm = Some(xterm);
    observe(session, place);
    connect(session, false);
    Ok(())
}

/// Follows the size of the place, and the theme of the page.
fn observe(session: &Shared, place: &web_sys::HtmlElement) {
    let (shown, at) = (Rc::downgrade(session), place.clone());
    let theme = ThemeWatch::new(move || {
        if let Some(session) = shown.upgrade()
            && let Some(xterm) = &session.borrow().xterm
        {
            xterm.set_theme(&colours(&at));
        }
    });
    session.borrow_mut().theme = theme;
    let seen = Rc::downgrade(session);
    let on_change = Closure::<dyn FnMut()>::new(move || {
        if let Some(session) = seen.upgrade()
            && let Some(xterm) = &session.borrow().xterm
        {
            xterm.fit();
        }
    });
    if let Ok(observer) = ResizeObserver::new(on_change.as_ref().unchecked_ref()) {
        observer.observe(place);
        session.borrow_mut().observer = Some((observer, on_change));
    }
}

fn connect(session: &Shared, take_over: bool) {
    let url = {
        let session = session.borrow();
        let mut path = format!(
            "/console/terminal/{}?since={}",
            session.sandbox, session.offset
        );
        if let Some(pty) = &session.pty {
            path = format!("{path}&pty={pty}");
        }
        if take_over {
            path.push_str("&takeover=1");
        }
        browser::socket_url(&path)
    };
    let heard = Rc::downgrade(session);
    let socket = Socket::open(&url, move |message| {
        if let Some(session) = heard.upgrade() {
            on_event(&session, message);
        }
    });
    session.borrow_mut().socket = socket;
}

fn on_event(session: &Shared, message: SocketEvent) {
    match message {
        SocketEvent::Bytes(message) => match BinaryFrame::decode(&message) {
            Some(BinaryFrame::Stdout(data) | BinaryFrame::Stderr(data)) => {
                session.borrow_mut().show(data);
            }
            Some(BinaryFrame::Replay { offset, data }) => {
                let mut session = session.borrow_mut();
                session.offset = offset;
                session.show(data);
            }
            Some(BinaryFrame::Stdin(_)) | None => {}
        },
        SocketEvent::Text(message) => match ServerFrame::decode(&message) {
            Some(ServerFrame::Connected { session_id, .. }) => {
                session.borrow_mut().connected(session_id);
            }
            Some(ServerFrame::Exit { exit_code }) => {
                session.borrow_mut().ended(Phase::Ended(exit_code));
            }
            Some(ServerFrame::Error { error, .. }) => {
                session.borrow().phase.set(Phase::Refused(error));
            }
            Some(ServerFrame::Pong) | None => {}
        },
        SocketEvent::Closed(code, reason) => closed(session, code, reason),
    }
}

fn closed(session: &Shared, code: u16, reason: String) {
    let phase = session.borrow().phase;
    session.borrow_mut().socket = None;
    if matches!(phase.get_untracked(), Phase::Ended(_)) {
        return;
    }
    match code {
        _ if says_signed_out(code, phase.get_untracked() == Phase::Open) => {
            phase.set(Phase::SignedOut);
        }
        close_code::TAKEN_OVER => phase.set(Phase::Taken),
        close_code::HELD if session.borrow().attempts >= POLITE_ATTEMPTS => phase.set(Phase::Taken),
        close_code::UNKNOWN_SESSION => {
            session.borrow_mut().forget();
            retry(session, Phase::Connecting);
        }
        close_code::REFUSED => session.borrow_mut().ended(Phase::Refused(reason)),
        close_code::HELD => retry(session, Phase::Connecting),
        _ => retry(session, Phase::Lost),
    }
}

fn retry(session: &Shared, meanwhile: Phase) {
    let attempts = {
        let mut session = session.borrow_mut();
        session.attempts += 1;
        session.phase.set(meanwhile);
        session.attempts
    };
    let again = Rc::downgrade(session);
    let pause = RETRY
        .saturating_mul(1 << (attempts / 3).min(6))
        .min(RETRY_MOST);
    set_timeout(
        move || {
            if let Some(session) = again.upgrade()
                && session.borrow().xterm.is_some()
                && session.borrow().socket.is_none()
            {
                connect(&session, false);
            }
        },
        pause,
    );
}

fn grant(session: &Shared, action: TerminalAction) {
    {
        let mut session = session.borrow_mut();
        session.attempts = 0;
        session.phase.set(Phase::Connecting);
        if action == TerminalAction::StartNew {
            session.forget();
            if let Some(xterm) = &session.xterm {
                xterm.reset();
            }
        }
    }
    connect(session, action == TerminalAction::TakeOver);
}

impl Session {
    fn show(&mut self, data: &[u8]) {
        self.offset += data.len() as u64;
        if let Some(xterm) = &self.xterm {
            xterm.write(data, || {});
        }
    }

    fn connected(&mut self, pty: String) {
        Memory::Tab.set(&memory_name(&self.sandbox), Some(&pty));
        self.pty = Some(pty);
        self.attempts = 0;
        self.phase.set(Phase::Open);
        if let (Some(xterm), Some(socket)) = (&self.xterm, &self.socket) {
            let (columns, rows) = xterm.size();
            socket.send_text(&resize(columns, rows));
            xterm.focus();
        }
    }

    fn ended(&mut self, phase: Phase) {
        self.forget();
        self.phase.set(phase);
    }

    fn forget(&mut self) {
        Memory::Tab.set(&memory_name(&self.sandbox), None);
        self.pty = None;
        self.offset = 0;
    }
}

//! One terminal of the page: xterm, its connection, and reconnects.
//!
//! xterm may call back before a call of it returns, so it is called only while the session is
//! borrowed for reading.

use std::{cell::RefCell, rc::Rc, time::Duration};

use leptos::{html::Div, prelude::*, task::spawn_local};
use osb_protocol::{
    SandboxId,
    execd::pty::{BinaryFrame, ClientFrame, PtyRole, ServerFrame, close_code},
};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use web_sys::ResizeObserver;

use super::{
    Phase, TerminalAction, Ui, api,
    asked::Asked,
    bindings::{Classes, Handlers, Xterm},
    flow::{Flow, Place},
    plain::plain,
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
/// Most bytes that xterm gets at once: it looks at the clock between two writes only.
const PIECE: usize = 16 << 10;
/// Attempts on a shell that the previous page of this tab, or its lost connection, may still hold.
const POLITE_ATTEMPTS: u32 = 10;
/// Pause before the next attempt.
const RETRY: Duration = Duration::from_millis(150);
/// Longest such pause.
const RETRY_MOST: Duration = Duration::from_secs(8);

/// How to attach.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Hold,
    TakeOver,
    View,
}

struct Session {
    sandbox: SandboxId,
    ui: Ui,
    asked: Asked,
    /// Whether the user agreed to start what the address asks for.
    is_confirmed: bool,
    xterm: Option<Xterm>,
    socket: Option<Socket>,
    /// The PTY, once known.
    pty: Option<String>,
    how: How,
    flow: Flow,
    attempts: u32,
    /// Whether this tab held the shell before, so that what holds it now may be left of this tab.
    held_before: bool,
    /// Whether the terminal takes the focus once it is connected: after an act of the user, and never
    /// after a reconnection, when the focus may be elsewhere.
    takes_focus: bool,
    observer: Option<(ResizeObserver, Closure<dyn FnMut()>)>,
    theme: Option<ThemeWatch>,
}

type Shared = Rc<RefCell<Session>>;

/// Mounts a terminal in `place` once that is in the page, and removes it with its owner.
pub(super) fn mount(sandbox: SandboxId, place: NodeRef<Div>, ui: Ui) {
    let asked = ui.asked.get_value();
    let own = |name: String| Memory::Tab.get(&name).filter(|_| asked.watched.is_none());
    let session = Rc::new(RefCell::new(Session {
        pty: own(memory_name(&sandbox, ui.shell)).or_else(|| asked.watched.clone()),
        held_before: own(left_name(&sandbox, ui.shell)).is_some(),
        is_confirmed: asked.take_confirmation(&sandbox),
        takes_focus: ui.takes_focus(&sandbox),
        sandbox,
        ui,
        asked,
        xterm: None,
        socket: None,
        how: How::Hold,
        flow: Flow::default(),
        attempts: 0,
        observer: None,
        theme: None,
    }));
    // A copy of this tab is not this tab.
    session
        .borrow()
        .remember(&left_name(&session.borrow().sandbox, ui.shell), None);
    let kept = StoredValue::new_local(Rc::clone(&session));
    Effect::new(move |_| {
        if let Some(place) = place.get() {
            start(&kept.get_value(), &place);
        }
    });
    Effect::new(move |_| {
        if let Some(action) = ui.action.get() {
            act(&kept.get_value(), action);
        }
    });
    Effect::new(move |before: Option<bool>| {
        let running = ui.running.get();
        if before.is_some_and(|before| before != running) {
            follow_sandbox(&kept.get_value(), running);
        }
        running
    });
    Effect::new(move |_| {
        let screen_reader = ui.settings.screen_reader.get();
        let font_size = ui.settings.font_size.get();
        if let Some(xterm) = &kept.get_value().borrow().xterm {
            xterm.set_screen_reader(screen_reader);
            xterm.set_font_size(font_size);
            xterm.fit();
        }
    });
    let leaving = window_event_listener(leptos::ev::pagehide, move |_| {
        kept.get_value().borrow().leave();
    });
    on_cleanup(move || {
        leaving.remove();
        let session = kept.get_value();
        session.borrow().leave();
        let mut session = session.borrow_mut();
        if ui.is_closed(&session.sandbox) {
            session.hang_up();
        }
        if let Some((observer, _)) = session.observer.take() {
            observer.disconnect();
        }
        session.theme = None;
        session.socket = None;
        let xterm = session.xterm.take();
        drop(session);
        drop(xterm);
    });
}

fn resize(cols: u32, rows: u32) -> String {
    ClientFrame::Resize { cols, rows }.encode()
}

/// Name of a shell's PTY in the tab's memory.
fn memory_name(sandbox: &SandboxId, shell: u32) -> String {
    match shell {
        0 => format!("osb.pty.{sandbox}"),
        number => format!("osb.pty.{sandbox}.{number}"),
    }
}

/// Name of the mark that this tab left a shell that it held.
fn left_name(sandbox: &SandboxId, shell: u32) -> String {
    match shell {
        0 => format!("osb.pty-left.{sandbox}"),
        number => format!("osb.pty-left.{sandbox}.{number}"),
    }
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
            let phase = session.borrow().ui.phase;
            let _ = phase.try_set(Phase::NotLoaded);
        }
    });
}

fn open(session: &Shared, classes: &Classes, place: &web_sys::HtmlElement) -> Result<(), JsValue> {
    if session.borrow().xterm.is_some() {
        return Ok(());
    }
    let (typed, resized) = (Rc::downgrade(session), Rc::downgrade(session));
    let ui = session.borrow().ui;
    let handlers = Handlers {
        on_data: Closure::new(move |text: String| {
            if let Some(session) = typed.upgrade()
                && let Ok(session) = session.try_borrow()
            {
                session.send_input(&text);
            }
        }),
        on_resize: Box::new(move |columns, rows| {
            if let Some(session) = resized.upgrade()
                && let Ok(session) = session.try_borrow()
            {
                session.send_size(columns, rows);
            }
        }),
        on_title: Closure::new(move |title: String| {
            let _ = ui.title.try_set(plain(&title));
        }),
    };
    let xterm = Xterm::open(classes, place, &colours(place), handlers)?;
    xterm.set_screen_reader(ui.settings.screen_reader.get_untracked());
    xterm.set_font_size(ui.settings.font_size.get_untracked());
    xterm.fit();
    session.borrow_mut().xterm = Some(xterm);
    observe(session, place);
    if ui.running.get_untracked() {
        let how = session.borrow().first();
        connect(session, how);
    }
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

fn connect(session: &Shared, how: How) {
    let question = session.borrow().question();
    if let Some(words) = question {
        session.borrow().ui.phase.set(Phase::Asked(words));
        return;
    }
    session.borrow_mut().how = how;
    let url = session.borrow().url();
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
            Some(BinaryFrame::Stdout(data) | BinaryFrame::Stderr(data)) => show(session, data),
            Some(BinaryFrame::Replay { offset, data }) => {
                session.borrow().flow.go_to(offset);
                show(session, data);
            }
            Some(BinaryFrame::Stdin(_)) | None => {}
        },
        SocketEvent::Text(message) => match ServerFrame::decode(&message) {
            Some(ServerFrame::Connected {
                session_id,
                role,
                window,
                ..
            }) => connected(session, session_id, role, window),
            Some(ServerFrame::Exit { exit_code }) => ended(session, Phase::Ended(exit_code)),
            Some(ServerFrame::Error { error, .. }) => {
                session.borrow().ui.phase.set(Phase::Refused(error));
            }
            Some(ServerFrame::Pong) | None => {}
        },
        SocketEvent::Closed(code, reason) => closed(session, code, reason),
    }
}

/// Shows output, and acknowledges it once it is on the screen.
fn show(session: &Shared, data: &[u8]) {
    let held = session.borrow();
    let Some(xterm) = &held.xterm else {
        return;
    };
    for piece in data.chunks(PIECE) {
        let place = held.flow.arrive(piece.len());
        let shown = Rc::downgrade(session);
        xterm.write(piece, move || {
            if let Some(session) = shown.upgrade()
                && let Ok(session) = session.try_borrow()
            {
                session.acknowledge(place);
            }
        });
    }
}

fn connected(session: &Shared, pty: String, role: PtyRole, window: Option<u64>) {
    let is_holder = role == PtyRole::Holder;
    {
        let mut session = session.borrow_mut();
        session.remember(&session.memory_name(), Some(&pty));
        session.ui.pty.set(Some(pty.clone()));
        session.pty = Some(pty);
        session.attempts = 0;
        session.held_before |= is_holder;
    }
    let takes_focus = is_holder && std::mem::take(&mut session.borrow_mut().takes_focus);
    let session = session.borrow();
    session.flow.connect(window);
    session.ui.phase.set(match role {
        PtyRole::Holder => Phase::Open,
        PtyRole::Viewer => Phase::Viewing,
    });
    let Some(xterm) = &session.xterm else {
        return;
    };
    xterm.set_read_only(!is_holder);
    if is_holder {
        let (columns, rows) = xterm.size();
        session.send_size(columns, rows);
    }
    if takes_focus {
        xterm.focus();
    }
}

fn closed(session: &Shared, code: u16, reason: String) {
    let ui = session.borrow().ui;
    let how = session.borrow().how;
    session.borrow_mut().socket = None;
    if matches!(ui.phase.get_untracked(), Phase::Ended(_)) {
        return;
    }
    match code {
        _ if says_signed_out(code, ui.phase.get_untracked() == Phase::Open) => {
            ui.phase.set(Phase::SignedOut);
        }
        close_code::TAKEN_OVER => taken(session),
        close_code::HELD if how == How::View => {
            ended(session, Phase::Refused("The shell has ended.".to_owned()));
        }
        close_code::HELD if !session.borrow().may_be_own() => taken(session),
        close_code::UNKNOWN_SESSION if session.borrow().is_watch() => {
            ended(session, Phase::Refused("This shell is gone.".to_owned()));
        }
        close_code::UNKNOWN_SESSION => {
            session.borrow_mut().forget();
            retry(session, Phase::Connecting);
        }
        // The sandbox may have ended or been paused since; its new state comes by another way.
        close_code::REFUSED => ended(session, Phase::Refused(reason)),
        close_code::HELD => retry(session, Phase::Connecting),
        _ => retry(session, Phase::Lost),
    }
}

/// Leaves the shell to another tab.
fn taken(session: &Shared) {
    let mut session = session.borrow_mut();
    session.held_before = false;
    session.ui.phase.set(Phase::Taken);
}

fn retry(session: &Shared, meanwhile: Phase) {
    let attempts = {
        let mut session = session.borrow_mut();
        session.attempts += 1;
        session.ui.phase.set(meanwhile);
        session.attempts
    };
    let again = Rc::downgrade(session);
    let pause = RETRY
        .saturating_mul(1 << (attempts / 3).min(6))
        .min(RETRY_MOST);
    set_timeout(
        move || {
            if let Some(session) = again.upgrade()
                && session.borrow().is_waiting()
            {
                let how = match session.borrow().how {
                    How::View => How::View,
                    How::Hold | How::TakeOver => How::Hold,
                };
                connect(&session, how);
            }
        },
        pause,
    );
}

fn act(session: &Shared, action: TerminalAction) {
    let how = match action {
        TerminalAction::Copy => {
            return with_xterm(session, |xterm, ui| ui.announce(xterm.copy()));
        }
        TerminalAction::Find { back } => return find(session, back),
        // What was found stays selected.
        TerminalAction::EndFind => return with_xterm(session, |xterm, _| xterm.focus()),
        TerminalAction::TakeOver => How::TakeOver,
        TerminalAction::View => How::View,
        TerminalAction::StartAsked => {
            session.borrow_mut().is_confirmed = true;
            How::Hold
        }
        TerminalAction::StartNew => {
            session.borrow_mut().forget();
            with_xterm(session, |xterm, _| xterm.reset());
            How::Hold
        }
    };
    {
        let mut session = session.borrow_mut();
        session.attempts = 0;
        session.takes_focus = true;
        session.socket = None;
        session.ui.phase.set(Phase::Connecting);
    }
    connect(session, how);
}

fn with_xterm(session: &Shared, act: impl FnOnce(&Xterm, Ui)) {
    let session = session.borrow();
    if let Some(xterm) = &session.xterm {
        act(xterm, session.ui);
    }
}

/// Searches the output for the text of the search field.
fn find(session: &Shared, back: bool) {
    let weak = Rc::downgrade(session);
    spawn_local(async move {
        let class = Classes::load_search().await;
        let Some(session) = weak.upgrade() else {
            return;
        };
        let Ok(class) = class else {
            let toasts = session.borrow().ui.toasts;
            return toasts.bad("The search could not be loaded.");
        };
        with_xterm(&session, |xterm, ui| {
            let text = ui.search.get_untracked();
            let found = (!text.is_empty()).then(|| xterm.find(&class, &text, back));
            let _ = ui.found.try_set(found);
        });
    });
}

/// The sandbox runs now, or no longer does.
fn follow_sandbox(session: &Shared, running: bool) {
    if running {
        if session.borrow().is_waiting() {
            session.borrow().ui.phase.set(Phase::Connecting);
            let how = session.borrow().first();
            connect(session, how);
        }
    } else if !session.borrow().ui.alive.get_untracked() {
        let mut session = session.borrow_mut();
        session.socket = None;
        session.forget();
    }
}

fn ended(session: &Shared, phase: Phase) {
    let mut session = session.borrow_mut();
    session.forget();
    session.ui.phase.set(phase);
}

impl Session {
    fn url(&self) -> String {
        let mut path = format!(
            "/console/terminal/{}?since={}",
            self.sandbox,
            self.flow.arrived()
        );
        if let Some(pty) = &self.pty {
            path = format!("{path}&pty={pty}");
        } else {
            path.push_str(&self.asked.start_query());
        }
        path.push_str(match self.how {
            How::Hold => "",
            How::TakeOver => "&takeover=1",
            How::View => "&view=1",
        });
        browser::socket_url(&path)
    }

    fn send_input(&self, text: &str) {
        if self.how == How::View {
            return;
        }
        if let Some(socket) = &self.socket {
            for data in text.as_bytes().chunks(INPUT_FRAME) {
                socket.send_bytes(&BinaryFrame::Stdin(data).encode());
            }
        }
    }

    fn send_size(&self, columns: u32, rows: u32) {
        if let (Some(socket), false) = (&self.socket, self.how == How::View) {
            socket.send_text(&resize(columns, rows));
        }
    }

    fn acknowledge(&self, place: Place) {
        if let (Some(socket), Some(offset)) = (&self.socket, self.flow.shown(place)) {
            socket.send_text(&ClientFrame::Ack { offset }.encode());
        }
    }

    /// What to ask the user before a connection, which would start a shell that someone else may have
    /// put into the address.
    fn question(&self) -> Option<String> {
        match (&self.pty, self.is_confirmed) {
            (None, false) => self.asked.words(),
            _ => None,
        }
    }

    /// Whether a new connection is wanted: a shell to attach to in a sandbox that runs.
    fn is_waiting(&self) -> bool {
        self.xterm.is_some()
            && self.socket.is_none()
            && self.ui.running.get_untracked()
            && matches!(
                self.ui.phase.get_untracked(),
                Phase::Connecting | Phase::Lost
            )
    }

    /// Whether what holds the shell may be a connection of this tab that ends soon.
    fn may_be_own(&self) -> bool {
        self.held_before && self.attempts < POLITE_ATTEMPTS
    }

    /// Whether it shows a shell of another tab, because the address asks for that.
    fn is_watch(&self) -> bool {
        self.asked.watched.is_some()
    }

    /// How to attach at first.
    fn first(&self) -> How {
        match self.is_watch() {
            true => How::View,
            false => How::Hold,
        }
    }

    /// Keeps something of the tab's own shell in its memory.
    fn remember(&self, name: &str, value: Option<&str>) {
        if !self.is_watch() {
            Memory::Tab.set(name, value);
        }
    }

    /// Marks that this tab leaves the shell that it holds.
    fn leave(&self) {
        if self.ui.phase.try_get_untracked() == Some(Phase::Open) {
            self.remember(&left_name(&self.sandbox, self.ui.shell), Some("on"));
        }
    }

    /// Ends the shell, unless another tab writes in it.
    fn hang_up(&mut self) {
        let pty = self.pty.take().filter(|_| self.how != How::View);
        if let Some(pty) = pty {
            let (id, toasts) = (self.sandbox.clone(), self.ui.toasts);
            spawn_local(async move {
                if let Err(error) = api::end(id, pty).await {
                    toasts.bad(format!("The shell could not be ended: {error}"));
                }
            });
        }
        self.remember(&left_name(&self.sandbox, self.ui.shell), None);
        self.forget();
    }

    fn memory_name(&self) -> String {
        memory_name(&self.sandbox, self.ui.shell)
    }

    fn forget(&mut self) {
        self.remember(&self.memory_name(), None);
        self.pty = self.asked.watched.clone();
        let _ = self.ui.pty.try_set(None);
        self.held_before = false;
        self.flow.reset();
        let _ = self.ui.title.try_set(String::new());
    }
}

//! The connection of a run: one WebSocket for each command.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use super::{
    runner::{Phase, Runner, Wanted},
    wire::{RunMessage, RunRequest},
};
use crate::{
    browser,
    live::CLOSE_SIGNED_OUT,
    socket::{Socket, SocketEvent},
};

/// Runs or follows what the tab wants, until the tab is left.
pub(super) fn mount(id: SandboxId, runner: Runner) {
    let socket = StoredValue::new_local(None::<Socket>);
    let send = move |request: &RunRequest| {
        if let Ok(text) = serde_json::to_string(request) {
            socket.try_with_value(|socket| {
                if let Some(socket) = socket {
                    socket.send_text(&text);
                }
            });
        }
    };
    Effect::new(move |_| {
        let (path, first) = match runner.wanted.get() {
            None => return,
            Some(Wanted::Run(order)) => {
                (format!("/console/run/{id}"), Some(RunRequest::Run(order)))
            }
            Some(Wanted::Follow { began, .. }) => {
                let began = began.unix_us();
                (format!("/console/output/{id}?began={began}"), None)
            }
        };
        let url = browser::socket_url(&path);
        let opened = Socket::open(&url, move |event| match event {
            SocketEvent::Text(text) => match serde_json::from_str(&text) {
                Ok(RunMessage::Ready) => first.iter().for_each(send),
                Ok(message) => runner.receive(message),
                // Of a newer server.
                Err(_) => {}
            },
            SocketEvent::Bytes(_) => {}
            SocketEvent::Closed(code, _) => runner.closed(code == CLOSE_SIGNED_OUT),
        });
        if opened.is_none() {
            let message = "This page may not connect to the server. Reload it.".to_owned();
            runner.phase.set(Phase::Refused(message));
        }
        // The connection of the command before ends here, the command does not.
        socket.set_value(opened);
    });
    Effect::new(move |_| {
        if runner.stops.get() > 0 {
            send(&RunRequest::Interrupt);
        }
    });
    on_cleanup(move || {
        socket.try_update_value(|socket| drop(socket.take()));
    });
}

//! A desktop over VNC: noVNC in the page, the server's tunnel to the port of the sandbox.

mod view;
#[cfg(feature = "hydrate")]
mod vnc;

use leptos::prelude::*;

pub(super) use view::Desktop;

/// State of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "hydrate"),
    expect(dead_code, reason = "set in the browser")
)]
enum Phase {
    /// The connection is being opened.
    #[default]
    Connecting,
    /// The desktop is shown.
    Open,
    /// It wants a password, and perhaps a name.
    Asks {
        /// Whether it wants a name, too.
        name: bool,
    },
    /// The session of the console ended.
    SignedOut,
    /// It ended, or there is none, for this reason.
    Closed(String),
    /// noVNC cannot be loaded.
    NotLoaded,
}

impl Phase {
    /// What the user reads.
    fn words(&self) -> String {
        match self {
            Self::Connecting => "Connecting …".to_owned(),
            Self::Open => "Connected".to_owned(),
            Self::Asks { name: false } => "The desktop wants a password.".to_owned(),
            Self::Asks { name: true } => "The desktop wants a name and a password.".to_owned(),
            Self::SignedOut => "You are signed out.".to_owned(),
            Self::Closed(why) => why.clone(),
            Self::NotLoaded => "noVNC could not be loaded. Reload the page.".to_owned(),
        }
    }
}

/// What the desktop and the page around it share.
#[derive(Clone, Copy)]
struct Ui {
    phase: RwSignal<Phase>,
    /// Counts the connections that were wanted.
    attempt: RwSignal<u32>,
    /// What it calls itself.
    name: RwSignal<String>,
    /// Whether it is made as small as its place.
    fits: RwSignal<bool>,
    /// Whether it gets neither keys nor the pointer.
    views_only: RwSignal<bool>,
    /// The text on its clipboard.
    clipboard: RwSignal<String>,
    /// What the user wants from it, once.
    order: RwSignal<Option<Order>>,
}

/// Something that the desktop is to get.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    /// Ctrl+Alt+Del, which the system of the user would take.
    CtrlAltDel,
    /// This text on its clipboard.
    Clipboard(String),
    /// Name and password.
    Credentials(String, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_shown_as_it_came() {
        let why = "no program accepts connections on port 5900";
        assert_eq!(Phase::Closed(why.to_owned()).words(), why);
        assert_ne!(
            Phase::Asks { name: true }.words(),
            Phase::Asks { name: false }.words()
        );
    }
}

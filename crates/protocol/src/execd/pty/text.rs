//! Text frames: JSON objects, distinguished by their member `type`.

use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{PtyMode, PtyRole};

/// A text frame to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ServerFrame {
    /// The client is attached; live output follows.
    Connected {
        /// Id of the session.
        session_id: String,
        /// How the process is connected.
        mode: PtyMode,
        /// What this connection may do.
        role: PtyRole,
        /// Most bytes of output on their way before [`ClientFrame::Ack`]; absent without flow
        /// control (not in the contract).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u64>,
    },
    /// Answer to [`ClientFrame::Ping`].
    Pong,
    /// The client's frame was refused, or the session could not start.
    Error {
        /// Text for people.
        error: String,
        /// Stable code.
        code: String,
    },
    /// The process ended, and all its output was sent before.
    Exit {
        /// Its status; -1 after a signal.
        exit_code: i32,
    },
}

impl ServerFrame {
    /// Encodes the frame as one message, which ends with a newline (contract: execd §9.3).
    #[must_use]
    pub fn encode(&self) -> String {
        let mut message = serde_json::to_string(self).expect("strings and numbers are JSON");
        message.push('\n');
        message
    }

    /// Decodes a message; `None` if it is not a frame that this build knows.
    #[must_use]
    pub fn decode(message: &str) -> Option<Self> {
        serde_json::from_str(message).ok()
    }
}

/// A text frame from the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ClientFrame {
    /// Text for standard input.
    Stdin {
        /// The text.
        #[serde(default)]
        data: String,
    },
    /// New size of the terminal.
    Resize {
        /// Columns.
        #[serde(default)]
        cols: u32,
        /// Rows.
        #[serde(default)]
        rows: u32,
    },
    /// A signal for the process group, by name.
    Signal {
        /// `SIGINT`, `SIGTERM`, `SIGKILL`, `SIGQUIT` or `SIGHUP`.
        #[serde(default)]
        signal: String,
    },
    /// The client has shown the output up to this offset, which makes room in its window. Only
    /// for connections with flow control (not in the contract).
    Ack {
        /// Offset in all output of the session.
        #[serde(default)]
        offset: u64,
    },
    /// Asks for a pong.
    Ping,
    /// A type this build does not know.
    #[serde(other)]
    Unknown,
}

impl ClientFrame {
    /// Encodes the frame as one message.
    #[must_use]
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers are JSON")
    }

    /// Decodes a message. Execd answers JSON that is not a known frame with an error and ignores
    /// other text (contract: execd §9.3), so the first is [`ClientFrame::Unknown`] and the second
    /// is `None`.
    #[must_use]
    pub fn decode(message: &str) -> Option<Self> {
        match serde_json::from_str(message) {
            Ok(frame) => Some(frame),
            Err(_) => {
                let is_json = serde_json::from_str::<IgnoredAny>(message).is_ok();
                is_json.then_some(Self::Unknown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_those_of_the_contract() {
        let exit = ServerFrame::Exit { exit_code: 0 };
        assert_eq!(exit.encode(), "{\"type\":\"exit\",\"exit_code\":0}\n");
        assert_eq!(ServerFrame::Pong.encode(), "{\"type\":\"pong\"}\n");
        let connected = ServerFrame::Connected {
            session_id: "a".into(),
            mode: PtyMode::Pipe,
            role: PtyRole::Viewer,
            window: None,
        };
        let message =
            "{\"type\":\"connected\",\"session_id\":\"a\",\"mode\":\"pipe\",\"role\":\"viewer\"}\n";
        assert_eq!(connected.encode(), message);
        // Later releases may know more members, earlier ones fewer.
        assert_eq!(ServerFrame::decode(message), Some(connected));
        let ack = ClientFrame::Ack { offset: 7 };
        assert_eq!(ack.encode(), r#"{"type":"ack","offset":7}"#);
        let size = ClientFrame::Resize {
            cols: 120,
            rows: 40,
        };
        assert_eq!(size.encode(), r#"{"type":"resize","cols":120,"rows":40}"#);
    }

    #[test]
    fn unknown_frames_of_a_client_are_distinguished_from_other_text() {
        let unknown = Some(ClientFrame::Unknown);
        for message in [
            r#"{"type":"dance","x":1}"#,
            r#"{"type":"resize","cols":-1}"#,
            r#"{"type":"resize","cols":99999999999}"#,
            r#"{"cols":1}"#,
            "[]",
            "1",
        ] {
            assert_eq!(ClientFrame::decode(message), unknown, "{message}");
        }
        for message in ["", "ls", "{", r#"{"type":"ping"} {}"#] {
            assert_eq!(ClientFrame::decode(message), None, "{message}");
        }
    }

    #[test]
    fn unknown_frames_of_a_server_are_ignored() {
        for message in ["", "nonsense", r#"{"type":"dance"}"#, r#"{"type":"exit"}"#] {
            assert_eq!(ServerFrame::decode(message), None, "{message}");
        }
        let pong = ServerFrame::decode("{\"type\":\"pong\"}\n");
        assert_eq!(pong, Some(ServerFrame::Pong));
    }

    fn client_frame() -> impl Strategy<Value = ClientFrame> {
        prop_oneof![
            any::<String>().prop_map(|data| ClientFrame::Stdin { data }),
            any::<(u32, u32)>().prop_map(|(cols, rows)| ClientFrame::Resize { cols, rows }),
            any::<String>().prop_map(|signal| ClientFrame::Signal { signal }),
            any::<u64>().prop_map(|offset| ClientFrame::Ack { offset }),
            Just(ClientFrame::Ping),
        ]
    }

    fn server_frame() -> impl Strategy<Value = ServerFrame> {
        let mode = prop_oneof![Just(PtyMode::Pty), Just(PtyMode::Pipe)];
        let role = prop_oneof![Just(PtyRole::Holder), Just(PtyRole::Viewer)];
        prop_oneof![
            (any::<String>(), mode, role, any::<Option<u64>>()).prop_map(
                |(session_id, mode, role, window)| ServerFrame::Connected {
                    session_id,
                    mode,
                    role,
                    window,
                }
            ),
            Just(ServerFrame::Pong),
            any::<(String, String)>().prop_map(|(error, code)| ServerFrame::Error { error, code }),
            any::<i32>().prop_map(|exit_code| ServerFrame::Exit { exit_code }),
        ]
    }

    proptest! {
        #[test]
        fn frames_of_a_client_round_trip(frame in client_frame()) {
            prop_assert_eq!(ClientFrame::decode(&frame.encode()), Some(frame));
        }

        #[test]
        fn frames_of_a_server_round_trip(frame in server_frame()) {
            let message = frame.encode();
            // A newline within the frame would end it early for line-oriented clients.
            prop_assert_eq!(message.find('\n'), Some(message.len() - 1));
            prop_assert_eq!(ServerFrame::decode(&message), Some(frame));
        }

        #[test]
        fn any_text_decodes_without_panic(text: String) {
            let _ = (ClientFrame::decode(&text), ServerFrame::decode(&text));
        }
    }
}

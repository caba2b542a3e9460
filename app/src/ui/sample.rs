//! Sandboxes for tests.

use osb_protocol::{
    WireTime,
    lifecycle::{ImageRef, Sandbox, SandboxStatus},
};

use crate::view::SandboxRow;

pub(crate) fn row(id: &str, state: &str) -> SandboxRow {
    SandboxRow {
        sandbox: Sandbox {
            id: id.into(),
            image: Some(ImageRef {
                uri: "debian:12".to_owned(),
            }),
            snapshot_id: None,
            platform: None,
            status: SandboxStatus {
                state: state.into(),
                reason: None,
                message: None,
                last_transition_at: None,
            },
            metadata: Default::default(),
            extensions: Default::default(),
            allocation: None,
            entrypoint: vec!["sleep".to_owned()],
            expires_at: None,
            created_at: WireTime::from_unix_ms(0).unwrap(),
        },
        stage: None,
        tenant: None,
        ended: None,
    }
}

pub(crate) fn row_at(id: &str, created_ms: i64) -> SandboxRow {
    let mut row = row(id, "Running");
    row.sandbox.created_at = WireTime::from_unix_ms(created_ms).unwrap();
    row
}

//! Three network namespaces: a sandbox with a sidecar, one without, and the internet of both.

use anyhow::Result;

use super::{
    dns,
    internet::{Internet, RESOLVER},
    namespace::Namespace,
};

/// Two sandboxes and the internet.
pub(super) struct World {
    /// Where the sidecar runs.
    pub(super) sandbox: Namespace,
    /// The same without a sidecar: what is measured here is the floor.
    pub(super) plain: Namespace,
    _internet: (Internet, Namespace),
}

impl World {
    /// Connects both sandboxes with the internet, each by a cable of its own.
    pub(super) fn new() -> Result<Self> {
        let (sandbox, plain, outside) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        for (inside, cable, network) in [
            (&sandbox, "sandbox", "10.99.0"),
            (&plain, "plain", "10.98.0"),
        ] {
            let gateway = format!("{network}.1");
            let (path, near) = (inside.path(), format!("{network}.2/24"));
            outside.ip(&[
                "link", "add", cable, "type", "veth", "peer", "name", cable, "netns", &path,
            ])?;
            outside.ip(&["addr", "add", &format!("{gateway}/24"), "dev", cable])?;
            inside.ip(&["addr", "add", &near, "dev", cable])?;
            outside.ip(&["link", "set", cable, "up"])?;
            inside.ip(&["link", "set", cable, "up"])?;
            inside.ip(&["route", "add", "default", "via", &gateway])?;
        }
        outside.ip(&["addr", "add", &format!("{RESOLVER}/32"), "dev", "lo"])?;
        outside.ip(&["route", "add", "local", dns::MACHINES, "dev", "lo"])?;
        let internet = Internet::start(&outside)?;
        Ok(Self {
            sandbox,
            plain,
            _internet: (internet, outside),
        })
    }
}

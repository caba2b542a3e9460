//! The server function of the tab. What execd refuses is a result, not an error: browsers would log
//! an error.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use super::Ports;
use crate::error::ConsoleError;

/// Most ports with an address.
#[cfg(feature = "ssr")]
const ADDRESSES: usize = 64;

/// The listening ports, and the way to one of them.
#[server(prefix = "/console/fn", endpoint = "preview/ports")]
pub async fn read_ports(
    id: SandboxId,
    port: Option<u16>,
) -> Result<Result<Ports, String>, ConsoleError> {
    // Both before the first wait: what a request provides is not found after it.
    let (ports, domain) = (super::backend::backend()?, crate::backend::backend()?);
    let read = async {
        let listening = ports.listening(&id).await?;
        let shown = match port {
            None => None,
            Some(port) => {
                let address = domain.port(&id, port).await?;
                Some(address.proxied)
            }
        };
        let mut addresses = Vec::new();
        for port in listening.iter().take(ADDRESSES) {
            // What cannot be reached has no address.
            addresses.extend(domain.port(&id, port.port).await.ok());
        }
        Ok::<_, ConsoleError>(Ports {
            listening,
            shown,
            addresses,
        })
    };
    match read.await {
        Ok(ports) => Ok(Ok(ports)),
        Err(why @ (ConsoleError::Refused { .. } | ConsoleError::NotFound)) => {
            Ok(Err(why.to_string()))
        }
        Err(error) => Err(error),
    }
}

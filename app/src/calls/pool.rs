//! The acts on a pool as `curl` commands. The SDKs and the command line client have none for the pools of
//! a server.

use osb_protocol::lifecycle::PoolCapacity;
use serde_json::{Value, json};

use super::language::{Target, curl};

/// A call about a pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PoolCall {
    /// Adds one.
    Add(Value),
    /// Creates a sandbox from one.
    Claim,
    /// Reads one.
    Show,
    /// Changes how many sandboxes one keeps.
    Resize(PoolCapacity),
    /// Removes one.
    Delete,
}

impl PoolCall {
    /// What it does.
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Self::Add(_) => "Add a pool",
            Self::Claim => "Create a sandbox from it",
            Self::Show => "Show",
            Self::Resize(_) => "Change its capacity",
            Self::Delete => "Delete",
        }
    }

    /// The call for the pool of this name.
    pub(crate) fn code(&self, target: &Target, name: &str) -> String {
        let pool = format!("/pools/{name}");
        match self {
            Self::Add(body) => curl(target, "POST", "/pools", Some(body)),
            Self::Claim => {
                let body = json!({ "extensions": { "poolRef": name }, "timeout": 1800 });
                curl(target, "POST", "/sandboxes", Some(&body))
            }
            Self::Show => curl(target, "GET", &pool, None),
            Self::Resize(capacity) => {
                let body = json!({ "capacitySpec": capacity });
                curl(target, "PUT", &pool, Some(&body))
            }
            Self::Delete => curl(target, "DELETE", &pool, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_its_address_and_its_body() {
        let capacity = PoolCapacity {
            buffer_max: 2,
            buffer_min: 1,
            pool_max: 9,
            pool_min: 0,
        };
        let target = Target::default();
        for (call, parts) in [
            (
                PoolCall::Add(json!({ "name": "python" })),
                [
                    "POST http://127.0.0.1:8080/v1/pools ",
                    "\"name\": \"python\"",
                ],
            ),
            (
                PoolCall::Claim,
                ["/v1/sandboxes ", "\"poolRef\": \"python\""],
            ),
            (PoolCall::Show, ["GET ", "/v1/pools/python "]),
            (PoolCall::Resize(capacity), ["PUT ", "\"poolMax\": 9"]),
            (PoolCall::Delete, ["DELETE ", "/v1/pools/python "]),
        ] {
            let code = call.code(&target, "python");
            for part in parts {
                assert!(code.contains(part), "{part} in {code}");
            }
            assert!(code.contains("$OPEN_SANDBOX_API_KEY"), "{code}");
        }
    }
}

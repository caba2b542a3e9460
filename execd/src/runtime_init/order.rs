//! Order of the control plane and its rules (contract: execd A9.5).

use std::{collections::BTreeMap, ffi::OsString};

use osb_service::ErrorChain;
use rustix::process::{Resource, getrlimit};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Attribution, Bound, EntrypointPolicy};
use crate::{
    env::{Variables, names},
    error::{ApiError, ApiResult},
    hook::Lifecycle,
    json, limits,
};

/// Maximum size of one variable in bytes, with its name, `=` and terminator: the limit of `execve`
/// for one string.
const VARIABLE: usize = 128 << 10;
/// Bytes that the kernel needs for each variable in addition to its text.
const POINTER: usize = size_of::<usize>();
/// Maximum length of a sandbox id (contract: execd A9.5).
const SANDBOX_ID: usize = 128;

/// Order of the control plane.
pub(super) struct Order {
    pub(super) bound: Bound,
    pub(super) attribution: Attribution,
    pub(super) entrypoint: EntrypointPolicy,
    /// What to run instead of the container's own entry point.
    pub(super) argv: Option<Vec<OsString>>,
    pub(super) envs: BTreeMap<String, String>,
    /// Variables of the container that the sandbox does not have.
    pub(super) unset: Vec<String>,
    /// Id of the claim, which may be repeated.
    pub(super) claim: Option<String>,
    /// `None` keeps the hooks that the container started with.
    pub(super) lifecycle: Option<Lifecycle>,
}

/// Values of variables and commands of hooks may be secrets.
impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Order")
            .field("bound", &self.bound)
            .field("attribution", &self.attribution)
            .field("entrypoint", &self.entrypoint)
            .field("envs", &self.envs.keys())
            .finish_non_exhaustive()
    }
}

/// SHA-256 hash of a token.
#[derive(Clone)]
pub(crate) struct TokenHash([u8; 32]);

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

impl TokenHash {
    /// Parses `sha256:` and 64 hexadecimal digits.
    fn read(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, at) in hash.iter_mut().zip((0..digits.len()).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
        }
        Some(Self(hash))
    }

    /// Hash of an arbitrary token.
    #[cfg(test)]
    pub(super) fn any() -> Self {
        Self([0; 32])
    }

    /// Compares a token in constant time.
    pub(crate) fn admits(&self, token: &[u8]) -> bool {
        Sha256::digest(token).ct_eq(&self.0).into()
    }
}

fn refuse(member: &str, rule: impl std::fmt::Display) -> ApiError {
    ApiError::invalid(format!("{member}: {rule}"))
}

impl Order {
    /// Parses a request body.
    ///
    /// # Errors
    /// 400 naming the member that breaks a rule.
    pub(super) fn read(body: &[u8]) -> ApiResult<Self> {
        let mut body: Body = json::object::<Map<String, Value>>(body).map(Body)?;
        let sandbox_id = body.text("sandboxId")?.filter(|id| is_sandbox_id(id));
        let rule = "expected 1 to 128 characters, none of them a control character";
        let sandbox_id = sandbox_id.ok_or_else(|| refuse("sandboxId", rule))?;
        let generation = body
            .take("generation")
            .and_then(|generation| generation.as_u64())
            .filter(|generation| *generation > 0);
        let rule = "expected an integer above 0";
        let generation = generation.ok_or_else(|| refuse("generation", rule))?;
        let entrypoint = match body.text("entrypointPolicy")?.as_deref() {
            None | Some("keep") => EntrypointPolicy::Keep,
            Some("restart") => EntrypointPolicy::Restart,
            Some(_) => return Err(refuse("entrypointPolicy", "expected keep or restart")),
        };
        let argv = argv(body.list("entrypoint")?, entrypoint)?;
        let claim = body.text("claimId")?.map(|claim| {
            let rule = "expected 1 to 128 characters, none of them a control character";
            match is_sandbox_id(&claim) {
                true => Ok(claim),
                false => Err(refuse("claimId", rule)),
            }
        });
        let claim = claim.transpose()?;
        let unset = body.list("unsetEnvs")?.unwrap_or_default();
        if let Some(name) = unset.iter().find(|name| names::is_configuration(name)) {
            return Err(refuse("unsetEnvs", format!("{name} is reserved")));
        }
        let token = body.text("accessTokenHash")?.map(|text| {
            let rule = "expected sha256: and 64 hexadecimal digits";
            TokenHash::read(&text).ok_or_else(|| refuse("accessTokenHash", rule))
        });
        let token = token.transpose()?;
        let envs = variables(body.texts("envs")?)?;
        let lifecycle = body.take("lifecycle").map(|lifecycle| {
            let read = match lifecycle {
                Value::Object(_) => Lifecycle::read(&lifecycle.to_string()),
                _ => return Err(refuse("lifecycle", "expected an object")),
            };
            read.map_err(|error| refuse("lifecycle", ErrorChain(&error)))
        });
        let lifecycle = lifecycle.transpose()?;
        let attributes = match body.take("telemetry") {
            None => BTreeMap::new(),
            Some(Value::Object(telemetry)) => {
                Body(telemetry).texts_of("attributes", "telemetry.attributes")?
            }
            Some(_) => return Err(refuse("telemetry", "expected an object")),
        };
        if attributes.len() > limits::ATTRIBUTES {
            let rule = format!("expected at most {}", limits::ATTRIBUTES);
            return Err(refuse("telemetry.attributes", rule));
        }
        let attribution = Attribution {
            sandbox_id: sandbox_id.clone(),
            generation,
            attributes,
        };
        let bound = Bound {
            sandbox: sandbox_id,
            generation,
            token,
        };
        Ok(Self {
            bound,
            attribution,
            entrypoint,
            argv,
            envs,
            unset,
            claim,
            lifecycle,
        })
    }

    /// Checks that programs can start with these variables on top of the daemon's own. `room` is
    /// the kernel's limit in bytes.
    ///
    /// # Errors
    /// 400 naming the member.
    pub(super) fn check_room(&self, own: &Variables, room: usize) -> ApiResult<()> {
        let kept = own
            .iter()
            .filter(|(name, _)| {
                name.to_str()
                    .is_none_or(|name| !self.envs.contains_key(name))
            })
            .map(|(name, value)| taken(name.len(), value.len()));
        let added = self
            .envs
            .iter()
            .map(|(name, value)| taken(name.len(), value.len()));
        let total: usize = kept.chain(added).sum();
        // The rest is reserved for arguments and for variables of requests.
        let most = room / 4 * 3;
        if total <= most {
            Ok(())
        } else {
            Err(refuse(
                "envs",
                format!("with the sandbox's own they take {total} bytes, more than {most}"),
            ))
        }
    }
}

/// Bytes that a variable takes of the space for arguments and variables.
fn taken(name: usize, value: usize) -> usize {
    name + value + "=\0".len() + POINTER
}

/// Space for arguments and variables of a program, in bytes (Linux, execve(2)).
pub(super) fn room() -> usize {
    const LEAST: usize = 128 << 10;
    const MOST: usize = 6 << 20;
    let stack = getrlimit(Resource::Stack)
        .current
        .and_then(|stack| usize::try_from(stack).ok());
    (stack.unwrap_or(usize::MAX) / 4).clamp(LEAST, MOST)
}

/// Members by their names in lower case, without null values.
struct Body(Map<String, Value>);

impl Body {
    fn take(&mut self, member: &str) -> Option<Value> {
        let name = member.to_ascii_lowercase();
        self.0.remove(&name).filter(|value| !value.is_null())
    }

    fn text(&mut self, member: &str) -> ApiResult<Option<String>> {
        match self.take(member) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(refuse(member, "expected a text")),
        }
    }

    fn list(&mut self, member: &str) -> ApiResult<Option<Vec<String>>> {
        let rule = || refuse(member, "expected a list of texts");
        let list = match self.take(member) {
            None => return Ok(None),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(rule()),
        };
        let text = |value| match value {
            Value::String(text) => Ok(text),
            _ => Err(rule()),
        };
        list.into_iter()
            .map(text)
            .collect::<Result<_, _>>()
            .map(Some)
    }

    fn texts(&mut self, member: &str) -> ApiResult<BTreeMap<String, String>> {
        self.texts_of(member, member)
    }

    fn texts_of(&mut self, member: &str, label: &str) -> ApiResult<BTreeMap<String, String>> {
        let rule = || refuse(label, "expected an object of texts");
        let map = match self.take(member) {
            None => return Ok(BTreeMap::new()),
            Some(Value::Object(map)) => map,
            Some(_) => return Err(rule()),
        };
        let text = |(name, value): (String, Value)| match value {
            Value::String(text) => Ok((name, text)),
            // As in all requests (contract: execd §2.3).
            Value::Null => Ok((name, String::new())),
            _ => Err(rule()),
        };
        map.into_iter().map(text).collect()
    }
}

fn is_sandbox_id(text: &str) -> bool {
    let length = text.chars().take(SANDBOX_ID + 1).count();
    (1..=SANDBOX_ID).contains(&length) && !text.contains(char::is_control)
}

/// Validates the entry point.
fn argv(words: Option<Vec<String>>, policy: EntrypointPolicy) -> ApiResult<Option<Vec<OsString>>> {
    let Some(words) = words else {
        return Ok(None);
    };
    if policy != EntrypointPolicy::Restart {
        return Err(refuse("entrypoint", "needs entrypointPolicy restart"));
    }
    if words.is_empty() || words.iter().any(|word| word.contains('\0')) {
        return Err(refuse(
            "entrypoint",
            "expected words without NUL characters",
        ));
    }
    Ok(Some(words.into_iter().map(OsString::from).collect()))
}

/// Validates the variables.
fn variables(given: BTreeMap<String, String>) -> ApiResult<BTreeMap<String, String>> {
    for (name, value) in &given {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(refuse("envs", format!("invalid variable {name:?}")));
        }
        if names::is_configuration(name) {
            return Err(refuse("envs", format!("{name} is reserved")));
        }
        if name.len() + value.len() + "=\0".len() > VARIABLE {
            let rule = format!("{name:.64} is longer than {VARIABLE} bytes");
            return Err(refuse("envs", rule));
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(more: Value) -> Result<Order, String> {
        let mut body = json!({ "sandboxId": "s-1", "generation": 7 });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        Order::read(body.to_string().as_bytes()).map_err(|error| {
            assert!(matches!(error, ApiError::Invalid(_)), "{error:?}");
            error.to_string()
        })
    }

    #[test]
    fn an_order_with_all_members_is_parsed() {
        let order = read(json!({
            "entrypointPolicy": "restart",
            "accessTokenHash":
                "sha256:2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B",
            "entrypoint": ["sleep", "9"],
            "claimId": "c-1",
            "unsetEnvs": ["C"],
            "envs": { "A": "1", "B": null },
            "lifecycle": { "preStart": { "command": ["true"] } },
            "telemetry": { "attributes": { "tenant": "t" } },
            "preserveRuntimeState": false,
        }))
        .unwrap();
        assert_eq!(order.bound.sandbox, "s-1");
        assert_eq!(order.bound.generation, 7);
        let token = order.bound.token.unwrap();
        assert!(token.admits(b"secret"));
        for wrong in [&b"secre"[..], b"secret ", b""] {
            assert!(!token.admits(wrong));
        }
        assert_eq!(order.entrypoint, EntrypointPolicy::Restart);
        assert_eq!(order.argv.unwrap(), ["sleep", "9"]);
        assert_eq!(
            (order.claim.as_deref(), order.unset.len()),
            (Some("c-1"), 1)
        );
        assert_eq!(order.envs["A"], "1");
        assert_eq!(order.envs["B"], "");
        assert!(order.lifecycle.is_some());
        assert_eq!(order.attribution.attributes["tenant"], "t");
    }

    #[test]
    fn most_members_are_optional() {
        for more in [
            json!({}),
            json!({ "entrypointPolicy": null, "accessTokenHash": null, "envs": null,
                    "lifecycle": null, "telemetry": null }),
            json!({ "telemetry": { "attributes": null } }),
        ] {
            let order = read(more).unwrap();
            assert_eq!(order.entrypoint, EntrypointPolicy::Keep);
            assert!(order.bound.token.is_none() && order.lifecycle.is_none());
            assert!(order.envs.is_empty() && order.attribution.attributes.is_empty());
        }
    }

    #[test]
    fn a_broken_rule_names_its_member() {
        let long = "x".repeat(129);
        for (member, value) in [
            ("sandboxId", json!("")),
            ("sandboxId", json!(long)),
            ("sandboxId", json!("a\nb")),
            ("sandboxId", json!(1)),
            ("sandboxId", json!(null)),
            ("generation", json!(0)),
            ("generation", json!(-1)),
            ("generation", json!(1.5)),
            ("generation", json!("1")),
            ("generation", json!(null)),
            ("entrypointPolicy", json!("replace")),
            ("entrypointPolicy", json!(1)),
            ("accessTokenHash", json!("secret")),
            ("accessTokenHash", json!("sha256:00")),
            (
                "accessTokenHash",
                json!(format!("sha256:{}", "+1".repeat(32))),
            ),
            (
                "accessTokenHash",
                json!(format!("sha256:{}", "é".repeat(32))),
            ),
            ("entrypoint", json!(["sleep"])),
            ("entrypoint", json!("sleep")),
            ("claimId", json!("")),
            ("claimId", json!("a\nb")),
            ("unsetEnvs", json!({ "A": null })),
            ("unsetEnvs", json!(["EXECD_ACCESS_TOKEN"])),
            ("envs", json!([])),
            ("envs", json!({ "A": 1 })),
            ("envs", json!({ "": "x" })),
            ("envs", json!({ "A=B": "x" })),
            ("envs", json!({ "A": "\0" })),
            ("envs", json!({ "EXECD_ACCESS_TOKEN": "x" })),
            ("envs", json!({ "EXECD_ENVS": "x" })),
            ("envs", json!({ "A": "x".repeat((128 << 10) - 2) })),
            ("lifecycle", json!("{}")),
            ("lifecycle", json!({ "preStart": { "command": [] } })),
            ("telemetry", json!([])),
        ] {
            let error = read(json!({ member: value })).unwrap_err();
            assert!(error.starts_with(&format!("{member}: ")), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let many: BTreeMap<_, _> = (0..65).map(|n| (n.to_string(), "x")).collect();
        for attributes in [json!({ "a": 1 }), json!(many)] {
            let error = read(json!({ "telemetry": { "attributes": attributes } })).unwrap_err();
            assert!(error.starts_with("telemetry.attributes: "), "{error}");
        }
    }

    #[test]
    fn an_entry_point_has_words_that_can_be_passed_to_a_program() {
        for words in [json!([]), json!(["a\0"]), json!([1])] {
            let more = json!({ "entrypointPolicy": "restart", "entrypoint": words });
            let error = read(more).unwrap_err();
            assert!(error.starts_with("entrypoint: "), "{error}");
        }
    }

    #[test]
    fn the_longest_variable_that_is_taken_can_be_passed_to_a_program() {
        let long = "x".repeat((128 << 10) - 3);
        let order = read(json!({ "envs": { "A": long } })).unwrap();
        let mut program = std::process::Command::new("true");
        assert!(program.envs(&order.envs).status().unwrap().success());
        program.env("A", format!("{long}x"));
        assert_eq!(program.status().unwrap_err().raw_os_error(), Some(7));
    }

    #[test]
    fn variables_that_leave_no_room_for_programs_are_refused() {
        let order = read(json!({ "envs": { "A": "x".repeat(1000), "B": "x" } })).unwrap();
        let own = Variables::from_iter([("A", "y".repeat(5000)), ("C", "z".repeat(1000))]);
        // The daemon's variable of the same name is replaced.
        assert!(order.check_room(&own, 2800).is_ok());
        let error = order.check_room(&own, 2600).unwrap_err().to_string();
        assert!(error.starts_with("envs: "), "{error}");
        assert!(room() >= 128 << 10);
    }

    #[test]
    fn possible_secrets_are_not_shown() {
        let order = read(json!({
            "accessTokenHash": format!("sha256:{}", "2b".repeat(32)),
            "envs": { "KEY": "hidden" },
            "lifecycle": { "preStart": { "command": ["true", "hidden"] } },
        }));
        let shown = format!("{:?}", order.unwrap());
        assert!(shown.contains("KEY"), "{shown}");
        assert!(
            !shown.contains("hidden") && !shown.contains("43"),
            "{shown}"
        );
    }
}

//! Lenient JSON parser, as clients need it (contract: execd §2.3): any content type, bytes after
//! the first value, member names in any case, `null` for every optional member, U+FFFD for unpaired
//! surrogates.

mod surrogate;

use axum::body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, Error as _};
use serde_json::{Map, Value};

use crate::{
    error::{ApiError, ApiResult},
    limits,
};

/// Members that contain objects, or lists of objects, with fixed member names. The client chooses
/// the names in all others, such as variables.
const OBJECTS: &[&str] = &["workspace", "overlays", "binds", "env_passthrough"];

/// Reads a complete body.
///
/// # Errors
/// When it is longer than [`limits::JSON_BODY`] or unreadable.
pub async fn bytes(body: Body) -> ApiResult<bytes::Bytes> {
    bytes_up_to(body, limits::JSON_BODY).await
}

/// Reads a complete body.
///
/// # Errors
/// When it is longer than `most` bytes or unreadable.
pub(crate) async fn bytes_up_to(body: Body, most: usize) -> ApiResult<bytes::Bytes> {
    match Limited::new(body, most).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::invalid(format!(
            "body is longer than {most} bytes"
        ))),
        Err(error) => Err(ApiError::invalid(format!("body cannot be read: {error}"))),
    }
}

/// Parses an object.
///
/// # Errors
/// When the text is not JSON, or does not match `T`.
pub fn object<T: DeserializeOwned>(text: &[u8]) -> ApiResult<T> {
    typed(first_value(text)?)
}

/// Parses an object whose member names the client chooses, such as paths.
///
/// # Errors
/// See [`object`].
pub fn map<T: DeserializeOwned>(text: &[u8]) -> ApiResult<Vec<(String, T)>> {
    let map: Map<String, Value> = exact(first_value(text)?)?;
    map.into_iter()
        .map(|(name, value)| Ok((name, typed(value)?)))
        .collect()
}

/// Parses a list of objects.
///
/// # Errors
/// See [`object`].
pub fn list<T: DeserializeOwned>(text: &[u8]) -> ApiResult<Vec<T>> {
    let list: Vec<Value> = exact(first_value(text)?)?;
    list.into_iter().map(typed).collect()
}

/// Replaces unpaired surrogates with U+FFFD; `None` if there are none.
pub(crate) fn repaired(text: &str) -> Option<String> {
    let repaired = surrogate::repaired(text.as_bytes())?;
    Some(String::from_utf8(repaired).expect("ASCII took the place of ASCII"))
}

/// Parses the first value of a text; ignores the rest.
fn first_value(text: &[u8]) -> ApiResult<Value> {
    let first = |text: &[u8]| {
        serde_json::Deserializer::from_slice(text)
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(serde_json::Error::custom("the body is empty")))
    };
    surrogate::repairing(text, first).map_err(refuse)
}

/// Converts an object; `null` counts as an empty one.
fn typed<T: DeserializeOwned>(value: Value) -> ApiResult<T> {
    match value {
        Value::Object(map) => exact(Value::Object(lenient(map))),
        Value::Null => exact(Value::Object(Map::new())),
        _ => Err(ApiError::invalid(
            "error parsing request: expected an object",
        )),
    }
}

/// Converts names to lower case and removes `null`, also in the nested objects of [`OBJECTS`].
fn lenient(map: Map<String, Value>) -> Map<String, Value> {
    let inside = |value| match value {
        Value::Object(map) => Value::Object(lenient(map)),
        other => other,
    };
    map.into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            let value = match value {
                other if !OBJECTS.contains(&name.as_str()) => other,
                Value::Array(list) => list.into_iter().map(inside).collect(),
                other => inside(other),
            };
            (name, value)
        })
        .collect()
}

fn exact<T: DeserializeOwned>(value: Value) -> ApiResult<T> {
    T::deserialize(value).map_err(refuse)
}

fn refuse(error: serde_json::Error) -> ApiError {
    ApiError::invalid(format!("error parsing request: {error}"))
}

#[cfg(test)]
mod tests {
    use osb_protocol::execd::{
        command::RunCommand,
        file::{Move, Permission},
        isolated::NewIsolatedSession,
        session::NewSession,
    };

    use super::*;

    #[test]
    fn bodies_are_parsed_leniently() {
        let run: RunCommand =
            object(br#"{"Command":"true","BACKGROUND":null,"envs":{"Aa":null},"new":1} trailing"#)
                .unwrap();
        assert_eq!(run.command.as_deref(), Some("true"));
        assert!(!run.background);
        assert_eq!(run.envs["Aa"], "", "names of variables keep their case");
        let moves: Vec<Move> = list(br#"[{"Src":"a","dest":"b"}]"#).unwrap();
        assert_eq!(moves[0].src, "a");
    }

    #[test]
    fn nested_objects_are_parsed_leniently() {
        let session: NewIsolatedSession = object(
            br#"{"Workspace":{"Path":"/w","MODE":null},
                "OVERLAYS":[{"PATH":"/o","Mode":"ro"}],
                "binds":[{"Source":"/a","DEST":"/B","ReadOnly":true}],
                "Env_Passthrough":{"Mode":"allow","KEYS":["Aa"]}}"#,
        )
        .unwrap();
        assert_eq!(session.workspace.unwrap().path, "/w");
        assert_eq!(session.overlays[0].path, "/o");
        assert_eq!(session.overlays[0].mode.as_deref(), Some("ro"));
        assert_eq!(session.binds[0].source, "/a");
        assert_eq!(session.binds[0].dest.as_deref(), Some("/B"));
        assert!(session.binds[0].readonly);
        let passed = session.env_passthrough.unwrap();
        assert_eq!(passed.mode.as_deref(), Some("allow"));
        assert_eq!(passed.keys, ["Aa"]);
        // Names that the client chose are not members.
        let free: Map<String, Value> =
            object(br#"{"ENVS":{"Aa":null},"Lifecycle":{"preStart":1}}"#).unwrap();
        let want = serde_json::json!({ "envs": { "Aa": null }, "lifecycle": { "preStart": 1 } });
        assert_eq!(Value::Object(free), want);
    }

    #[test]
    fn half_a_surrogate_pair_becomes_a_replacement_character() {
        let run: RunCommand =
            object(br#"{"command":"a\ud83d","envs":{"A":"\ude00b","\uD83D":"\ud83d\ude00"}}"#)
                .unwrap();
        assert_eq!(run.command.as_deref(), Some("a\u{fffd}"));
        assert_eq!(run.envs["A"], "\u{fffd}b");
        assert_eq!(run.envs["\u{fffd}"], "\u{1f600}", "whole pairs stay");
        assert!(object::<RunCommand>(br#"{"command":"\ud83d"#).is_err());
    }

    #[test]
    fn null_is_an_object_without_members() {
        let wanted: Vec<(String, Permission)> = map(br#"{"/a":null,"/b":{"mode":7}}"#).unwrap();
        let modes: Vec<_> = wanted
            .iter()
            .map(|(path, wanted)| (&**path, wanted.mode))
            .collect();
        assert_eq!(modes, [("/a", 0), ("/b", 7)]);
        assert_eq!(object::<NewSession>(b"null"), Ok(NewSession::default()));
        assert!(list::<Move>(b"[null]").is_err(), "a path is missing");
        let empty = object::<NewSession>(b" \n").unwrap_err();
        assert_eq!(
            empty.to_string(),
            "error parsing request: the body is empty"
        );
    }

    #[test]
    fn wrong_types_are_refused() {
        for bad in [
            "",
            "nonsense",
            "[]",
            r#"{"timeout":"1"}"#,
            r#"{"timeout":1.5}"#,
            r#"{"uid":-1}"#,
            r#"{"uid":4294967296}"#,
            r#"{"envs":{"A":1}}"#,
        ] {
            let error = object::<RunCommand>(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, ApiError::Invalid(_)), "{bad}: {error:?}");
        }
    }
}

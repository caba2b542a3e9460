//! Rules of what a sandbox of a pool gets when it becomes a client's: its execd runs already, and takes
//! entry point and environment from one request (contract: execd A9.5).

use std::collections::BTreeMap;

use osb_protocol::execd::{CONFIGURATION_VARIABLES, INIT_BODY_MAX};
use osb_runtime::SERVER_VARIABLES;

use crate::sandbox::Error;

/// Most bytes of entry point and environment. The rest of the request has names of fields and ids.
const MOST: usize = INIT_BODY_MAX - (4 << 10);

/// The rules that an entry point and an environment break.
pub(in crate::sandbox) fn check(
    entrypoint: &[String],
    env: &BTreeMap<String, Option<String>>,
) -> Vec<Error> {
    let reserved = env.keys().filter(|name| is_reserved(name));
    let mut broken: Vec<_> = reserved
        .map(|name| Error::Entry {
            map: "env",
            key: name.clone(),
            rule: "configures execd, which runs already in a sandbox of a pool; set it in the \
                   pool's template"
                .to_owned(),
        })
        .collect();
    let (words, variables) = (words_size(entrypoint), json_size(env));
    if words + variables > MOST {
        let field = if words > variables {
            "entrypoint"
        } else {
            "env"
        };
        let rule = format!(
            "entry point and environment must not be longer than {MOST} bytes as JSON with \
             extensions.poolRef"
        );
        broken.push(Error::rule(field, rule));
    }
    broken
}

/// Whether execd refuses a variable. Those of the server are passed over in every sandbox.
fn is_reserved(name: &str) -> bool {
    CONFIGURATION_VARIABLES.contains(&name) && !SERVER_VARIABLES.contains(&name)
}

/// Bytes of an entry point as JSON. A single word may be a command line, which becomes words.
fn words_size(entrypoint: &[String]) -> usize {
    let spaces = entrypoint.iter().flat_map(|word| word.chars());
    let spaces = spaces.filter(|it| it.is_whitespace()).count();
    json_size(&entrypoint) + spaces * r#"",""#.len()
}

fn json_size(value: &impl serde::Serialize) -> usize {
    let text = serde_json::to_string(value);
    text.expect("texts, and maps with string keys").len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(entrypoint: &[String], env: &[(&str, Option<String>)]) -> Vec<String> {
        let env = env.iter();
        let env = env.map(|(name, value)| ((*name).to_owned(), value.clone()));
        let broken = check(entrypoint, &env.collect());
        let fields = broken.iter().flat_map(Error::fields);
        fields.map(|field| field.field()).collect()
    }

    #[test]
    fn variables_that_configure_execd_are_named() {
        let one = || Some("1".to_owned());
        let env = [
            ("A", one()),
            ("JUPYTER_TOKEN", one()),
            ("EXECD_ENVS", None),
            // Passed over in every sandbox.
            ("EXECD_ACCESS_TOKEN", one()),
            ("EXECD_RUNTIME_INIT", one()),
            ("OPENSANDBOX_ID", one()),
        ];
        assert_eq!(fields(&[], &env), ["env.EXECD_ENVS", "env.JUPYTER_TOKEN"]);
        for name in CONFIGURATION_VARIABLES {
            let is_refused = !fields(&[], &[(name, one())]).is_empty();
            assert_ne!(is_refused, SERVER_VARIABLES.contains(&name), "{name}");
        }
    }

    #[test]
    fn what_does_not_fit_into_one_request_is_refused() {
        let long = |bytes: usize| "x".repeat(bytes);
        let names: Vec<_> = (0..9).map(|n| format!("V{n}")).collect();
        let env = |count: usize| -> Vec<_> {
            let names = names.iter().take(count);
            names
                .map(|name| (name.as_str(), Some(long(120 << 10))))
                .collect()
        };
        assert!(fields(&[], &env(8)).is_empty());
        assert_eq!(fields(&[], &env(9)), ["env"]);
        assert_eq!(fields(&[long(100 << 10)], &env(8)), ["env"]);
        let words: Vec<_> = (0..9).map(|_| long(120 << 10)).collect();
        assert_eq!(fields(&words, &[]), ["entrypoint"]);
        let line = ["a ".repeat(60 << 10)];
        assert!(fields(&line, &env(4)).is_empty());
        assert_eq!(fields(&line, &env(8)), ["env"]);
    }
}

//! The acts on a template as code. The TypeScript SDK has none of them.

use serde_json::{Value, json};

use super::language::{
    Language, Target, curl, python_literal, python_manager, script_request, shell_word,
};

/// A call about one template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateCall {
    /// Reads it.
    Show,
    /// Deletes it.
    Delete,
}

impl TemplateCall {
    pub(crate) const ALL: [Self; 2] = [Self::Show, Self::Delete];

    /// What it does.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Show => "Show",
            Self::Delete => "Delete",
        }
    }

    /// The call in a language.
    pub(crate) fn code(self, language: Language, target: &Target, id: &str) -> String {
        let (method, command) = match self {
            Self::Show => ("GET", "get"),
            Self::Delete => ("DELETE", "delete"),
        };
        let path = format!("/templates/{id}");
        match language {
            Language::Curl => curl(target, method, &path, None),
            Language::Osb => format!("{} template {command} {}", target.osb(), shell_word(id)),
            Language::Python => {
                let id = python_literal(&json!(id));
                let call = match self {
                    Self::Show => format!("print(await manager.get_template({id}))"),
                    Self::Delete => format!("await manager.delete_template({id})"),
                };
                python_manager(target, &call)
            }
            Language::TypeScript => {
                let request = script_request(target, method, &path, None);
                match self {
                    Self::Show => format!("{request}\nconsole.log(await answer.json());"),
                    Self::Delete => request,
                }
            }
        }
    }

    /// The request for the log of its build, which only the API has.
    pub(crate) fn log(target: &Target, id: &str) -> String {
        curl(target, "GET", &format!("/templates/{id}/log"), None)
    }
}

/// The request that makes a template.
pub(crate) fn add_template(target: &Target, body: &Value) -> String {
    curl(target, "POST", "/templates", Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target {
            origin: "https://box.example:8443".to_owned(),
        }
    }

    #[test]
    fn each_call_is_said_in_each_language() {
        for (call, parts) in [
            (
                TemplateCall::Show,
                [
                    "curl -X GET https://box.example:8443/v1/templates/tpl-1 ",
                    " template get tpl-1",
                    "manager.get_template(\"tpl-1\")",
                    "fetch(\"https://box.example:8443/v1/templates/tpl-1\"",
                ],
            ),
            (
                TemplateCall::Delete,
                [
                    "curl -X DELETE https://box.example:8443/v1/templates/tpl-1 ",
                    " template delete tpl-1",
                    "manager.delete_template(\"tpl-1\")",
                    "method: \"DELETE\"",
                ],
            ),
        ] {
            for (language, part) in Language::ALL.into_iter().zip(parts) {
                let code = call.code(language, &target(), "tpl-1");
                assert!(code.contains(part), "{part} in {code}");
            }
        }
        let code = TemplateCall::log(&target(), "tpl-1");
        assert!(code.contains("/v1/templates/tpl-1/log "), "{code}");
        let code = add_template(&target(), &json!({ "image": "a", "publish": "local" }));
        assert!(code.contains("\"publish\": \"local\""), "{code}");
    }
}

//! JSON as a tree that can be folded, also without script.

use leptos::prelude::*;
use serde_json::Value;

/// A value with everything in it. The first level is open.
#[component]
pub(super) fn JsonTree(value: Value) -> impl IntoView {
    view! { <ul class="json-tree">{members(value, 0)}</ul> }.into_any()
}

/// The members of an object, or the items of a list.
fn members(value: Value, depth: usize) -> AnyView {
    let member = |(name, value): (String, Value)| entry(name, value, depth);
    match value {
        Value::Object(members) => members.into_iter().map(member).collect_view().into_any(),
        Value::Array(items) => {
            let items = items.into_iter().enumerate();
            items
                .map(|(at, item)| member((at.to_string(), item)))
                .collect_view()
                .into_any()
        }
        plain => member((String::new(), plain)).into_any(),
    }
}

fn entry(name: String, value: Value, depth: usize) -> AnyView {
    match size(&value) {
        Some((count, brackets)) if count > 0 => view! {
            <li>
                <details open=depth == 0>
                    <summary>
                        <span class="json-name">{name}</span>
                        " "
                        <span class="json-size">{brackets_of(count, brackets)}</span>
                    </summary>
                    <ul>{members(value, depth + 1)}</ul>
                </details>
            </li>
        }
        .into_any(),
        _ => view! {
            <li>
                <span class="json-name">{name}</span>
                ": "
                <span class="json-value" data-kind=kind(&value)>
                    {value.to_string()}
                </span>
            </li>
        }
        .into_any(),
    }
}

/// Number of members, and the brackets around them.
fn size(value: &Value) -> Option<(usize, [char; 2])> {
    match value {
        Value::Object(members) => Some((members.len(), ['{', '}'])),
        Value::Array(items) => Some((items.len(), ['[', ']'])),
        _ => None,
    }
}

fn brackets_of(count: usize, [open, close]: [char; 2]) -> String {
    format!("{open} {count} {close}")
}

/// Kind of a plain value, for its colour.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "text",
        Value::Number(_) => "number",
        Value::Bool(_) => "truth",
        _ => "none",
    }
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tree_has_every_value_as_text_and_folds_below_the_first_level() {
        let value = json!({
            "a<b": {"list": [1, "<i>", null], "none": []},
            "plain": true,
        });
        let html = Owner::new().with(|| view! { <JsonTree value /> }.into_any().to_html());
        for part in [
            "a&lt;b",
            "&lt;i&gt;",
            "null",
            "true",
            "{ 2 }",
            "[ 3 ]",
            "[]",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert_eq!(html.matches("<details").count(), 2, "{html}");
        assert_eq!(html.matches("<details open").count(), 1, "{html}");
    }
}

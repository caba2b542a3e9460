//! What the page does, as calls of the API.

use leptos::prelude::*;
use serde_json::{Map, Value, json};

use crate::{
    calls::{self, Call, LanguageTabs},
    view::{SandboxDetail, ServerInfo},
};

/// The page's actions as code in each language, one of them open.
#[component]
pub(super) fn Calls(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let is_offered = |call: &Call| call.feature().is_none_or(|it| features.contains(it));
    let offered = Call::ALL.into_iter().filter(is_offered);
    let one = move |call: Call| {
        let id = id.clone();
        view! {
            <Foldable title=call.title()>
                <LanguageTabs
                    name=["call-", call.title()].concat()
                    code=move |(language, target)| call.code(language, &target, &id)
                />
            </Foldable>
        }
    };
    view! {
        <details class="card">
            <summary><h2>"As API calls"</h2></summary>
            <div class="call-list">
                {offered.map(one).collect_view()}
                <Foldable title="Clone">
                    <p class="help">
                        "A create request with what is known of this sandbox. Values of variables stay on the server."
                    </p>
                    <LanguageTabs
                        name="call-clone"
                        code=move |(language, target)| {
                            calls::create(language, &target, &request(&current.read()))
                        }
                    />
                </Foldable>
            </div>
        </details>
    }
    .into_any()
}

#[component]
fn Foldable(title: &'static str, children: Children) -> impl IntoView {
    view! {
        <details class="call" name="call">
            <summary>{title}</summary>
            {children()}
        </details>
    }
    .into_any()
}

/// The create request of a copy.
fn request(detail: &SandboxDetail) -> Value {
    let sandbox = &detail.sandbox;
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    match (&detail.template, &sandbox.image, &sandbox.snapshot_id) {
        (Some(template), ..) => set("templateId", json!(template)),
        (None, Some(image), _) => set("image", json!({ "uri": image.uri })),
        (None, None, Some(snapshot)) => set("snapshotId", json!(snapshot)),
        (None, None, None) => None,
    };
    // A template has both.
    if detail.template.is_none() {
        set("entrypoint", json!(sandbox.entrypoint));
        set("resourceLimits", json!(detail.resources));
    }
    let life = sandbox.expires_at.map(|at| {
        let milliseconds = at.unix_ms() - sandbox.created_at.unix_ms();
        (milliseconds / 1_000).max(60)
    });
    if let Some(seconds) = life {
        set("timeout", json!(seconds));
    }
    if !sandbox.metadata.is_empty() {
        set("metadata", json!(sandbox.metadata));
    }
    if let Some(platform) = &sandbox.platform {
        set("platform", json!(platform));
    }
    if !sandbox.extensions.is_empty() {
        set("extensions", json!(sandbox.extensions));
    }
    Value::Object(body)
}

#[cfg(test)]
mod tests {
    use osb_protocol::{WireTime, lifecycle::Platform};

    use super::*;
    use crate::ui::sample;

    #[test]
    fn a_copy_asks_for_what_is_known() {
        let mut detail = SandboxDetail {
            sandbox: sample::row("a", "Running").sandbox,
            stages: Vec::new(),
            resources: [("cpu".to_owned(), "1".to_owned())].into(),
            template: None,
            log_tail: Vec::new(),
            ended: None,
        };
        let created = detail.sandbox.created_at.unix_ms();
        detail.sandbox.expires_at = WireTime::from_unix_ms(created + 900_000);
        let body = request(&detail);
        assert_eq!(body["timeout"], json!(900), "{body}");
        assert_eq!(body["resourceLimits"], json!({ "cpu": "1" }));
        assert_eq!(body["entrypoint"], json!(detail.sandbox.entrypoint));
        for member in ["platform", "extensions"] {
            assert_eq!(body.get(member), None, "{member}");
        }
        detail.sandbox.expires_at = None;
        detail.sandbox.platform = Some(Platform {
            os: "linux".to_owned(),
            arch: "arm64".to_owned(),
        });
        let extension = ("opensandbox.extensions.a".to_owned(), "b".to_owned());
        detail.sandbox.extensions = [extension].into();
        let body = request(&detail);
        assert_eq!(body.get("timeout"), None);
        let platform = json!({ "os": "linux", "arch": "arm64" });
        assert_eq!(body["platform"], platform);
        assert_eq!(
            body["extensions"],
            json!({ "opensandbox.extensions.a": "b" })
        );
        detail.template = Some("tpl-1".to_owned());
        let body = request(&detail);
        assert_eq!(body["templateId"], json!("tpl-1"));
        for member in ["image", "entrypoint", "resourceLimits"] {
            assert_eq!(body.get(member), None, "{member}");
        }
    }
}

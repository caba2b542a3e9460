//! The pages about templates, and their forms.

use std::sync::Arc;

use axum::http::StatusCode;
use osb_protocol::{
    audit::AuditOutcome,
    identity::Role,
    lifecycle::{Template, TemplatePhase},
};
use osb_runtime::sim::{Faults, Options, SimRuntime};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::timeout};

use super::{Console, FORM as CREATE, PATIENCE, accounts::PASSWORD, pools::nested};
use crate::sandbox::{Limits, TemplateLimits};

const PAGE: &str = "/console/templates";
/// A form without mistakes.
const FORM: &str = "name=base&image=debian%3A12&entrypoint=sleep+9&cpu=2&memory=256Mi\
                    &env=TOKEN%3Dsecret&dockerfile=";
const BUILD: &str = "name=&image=&entrypoint=&cpu=&memory=&env=\
                     &dockerfile=FROM+debian%3A12%0D%0ARUN+echo+%3Cb%3E";

fn with_templates() -> SimRuntime {
    SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    })
}

impl Console {
    /// A console where images may be built.
    async fn with_builds(runtime: impl Into<Arc<SimRuntime>>) -> Self {
        let templates = TemplateLimits {
            allow_builds: true,
            ..TemplateLimits::default()
        };
        let limits = Limits {
            templates,
            ..Limits::default()
        };
        let mut console = Self::start_with(runtime, limits).await;
        console.cookie = console.log_in().await;
        console
    }

    /// Makes a template with the form of the list; its id.
    async fn template_of(&self, form: &str) -> String {
        let answer = self.post(PAGE, form).await;
        let id = answer.location().strip_prefix("/console/templates/");
        let id = id.unwrap_or_else(|| panic!("{}", answer.body));
        id.to_owned()
    }

    /// Waits until a template is in a phase.
    async fn template_in(&self, id: &str, phase: TemplatePhase) -> Template {
        let look = async {
            loop {
                let template = self.service.template_by_id(id).await.unwrap();
                if template.status.phase == phase {
                    return template;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, look).await.expect("the phase in time")
    }
}

/// What a page says is wrong with a field.
fn problem<'a>(page: &'a str, field: &str) -> &'a str {
    let (_, problem) = page.split_once(&format!("id=\"{field}-problem\"")).unwrap();
    problem.split("</p>").next().unwrap()
}

#[tokio::test]
async fn a_template_is_made_listed_used_and_deleted_without_script() {
    let console = Console::open_over(with_templates()).await;
    let empty = console.get(PAGE).await.body;
    assert_eq!(empty.matches("<h1>").count(), 1, "{empty}");
    for part in [
        "No templates yet",
        "templateId",
        "/v1/templates",
        "aria-current=\"page\"",
        "allow_builds",
    ] {
        assert!(empty.contains(part), "{part} in {empty}");
    }
    assert!(!empty.contains("name=\"dockerfile\""), "{empty}");
    let id = console.template_of(FORM).await;
    let page = format!("{PAGE}/{id}");
    let news = console.news_at(&page).await;
    assert!(news.contains("The template is being made"), "{news}");
    console.template_in(&id, TemplatePhase::Succeeded).await;

    let list = console.get(PAGE).await.body;
    assert_eq!(list.matches("<h1>").count(), 1, "{list}");
    let link = format!("href=\"{page}\"");
    for part in [
        &link,
        "base",
        "debian:12",
        "Succeeded",
        "that of its image",
        "none",
        "1 in total",
        "Create a sandbox from base",
    ] {
        assert!(list.contains(part), "{part} in {list}");
    }
    let far = console.get(&format!("{PAGE}?page=9")).await.body;
    assert!(far.contains("There is no page 9."), "{far}");

    // The form of a new sandbox begins with it.
    let form = console.get(&format!("/console/create?template={id}")).await;
    let chosen = format!("<option value=\"{id}\" selected");
    assert!(form.body.contains(&chosen), "{}", form.body);
    let sent = format!("{CREATE}&source=template&template={id}&name=user");
    let made = console.post("/console/create", &sent).await;
    let user = made.location().to_owned();
    assert!(user.starts_with("/console/sandboxes/"), "{}", made.body);
    let user_page = console.get(&user).await.body;
    assert!(user_page.contains(&link), "{user_page}");

    let detail = console.get(&page).await.body;
    for part in [
        "1 sandbox was created from it",
        "user",
        "sleep 9",
        "256Mi",
        "TOKEN",
        "sim-templates:",
        "Create from this template",
        "As API calls",
    ] {
        assert!(detail.contains(part), "{part} in {detail}");
    }
    assert!(!detail.contains("secret"), "{detail}");
    assert!(!detail.contains("Log of the build"), "{detail}");

    // One that is used is not deleted, and says by what.
    let delete = format!("{page}/delete");
    let question = console.get(&delete).await.body;
    for part in ["Delete the template base?", "exist: user."] {
        assert!(question.contains(part), "{part} in {question}");
    }
    assert_eq!(console.post(&delete, "").await.location(), page);
    let news = console.news_at(&page).await;
    for part in ["is in use", "Created from it: user."] {
        assert!(news.contains(part), "{part} in {news}");
    }
    let detail = console.get(&page).await.body;
    assert!(
        detail.contains("once the sandboxes that were created"),
        "{detail}"
    );

    console.post(&format!("{user}/delete"), "").await;
    let gone = async {
        while console.post(&delete, "").await.location() != PAGE {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone).await.expect("the end of its user");
    let missing = console.get(&page).await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert!(
        missing.body.contains("No such template"),
        "{}",
        missing.body
    );
    assert_eq!(console.get(&delete).await.location(), page);
}

#[tokio::test]
async fn a_copy_of_a_sandbox_from_a_template_is_made_from_the_template() {
    let console = Console::open_over(with_templates()).await;
    let id = console.template_of(FORM).await;
    console.template_in(&id, TemplatePhase::Succeeded).await;
    let sent = format!("{CREATE}&source=template&template={id}");
    let made = console.post("/console/create", &sent).await;
    let original = made.location().rsplit('/').next().unwrap().to_owned();
    let form = console
        .get(&format!("/console/create?from={original}"))
        .await;
    let chosen = format!("<option value=\"{id}\" selected");
    assert!(form.body.contains(&chosen), "{}", form.body);
    assert!(!form.body.contains("TOKEN"), "{}", form.body);
    let copy = format!("{sent}&from={original}&kept=");
    let copied = console.post("/console/create", &copy).await;
    let page = copied.location().to_owned();
    assert!(page.starts_with("/console/sandboxes/"), "{}", copied.body);
    let page = console.get(&page).await.body;
    assert!(page.contains(&format!("href=\"{PAGE}/{id}\"")), "{page}");
    // Variables come with the template.
    let with_env = format!("{sent}&from={original}&kept=TOKEN");
    let refused = console.post("/console/create", &with_env).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let shown = problem(&refused.body, "env");
    assert!(
        shown.contains("must not be given with templateId"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_refused_form_comes_back_with_each_problem_at_its_field() {
    let console = Console::open_over(with_templates()).await;
    let form = "name=a+b&image=%3Cb%3E&entrypoint=%27&cpu=many&memory=1Gi&env=A&dockerfile=";
    let refused = console.post(PAGE, form).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    for (field, text) in [
        ("template-name", "is not a valid label value"),
        ("template-image", "must be an image reference"),
        ("template-entrypoint", "has a quote that is not closed."),
        ("template-cpu", "This must be "),
        ("template-env", "Line 1 is not NAME=value."),
    ] {
        let shown = problem(&refused.body, field);
        assert!(shown.contains(text), "{field}: {shown}");
    }
    // What was typed is still there.
    assert!(refused.body.contains("value=\"a b\""), "{}", refused.body);
    assert!(!refused.body.contains("<b>"), "{}", refused.body);
    let nothing = console.post(PAGE, "name=&image=").await;
    let shown = problem(&nothing.body, "template-image");
    assert!(shown.contains("Name an image"), "{shown}");
    // Builds are off.
    let build = console.post(PAGE, BUILD).await;
    assert_eq!(build.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(build.body.contains("allow_builds"), "{}", build.body);
    let list = console.json_of("templates/list", "page=1").await;
    assert_eq!(list["total"], 0, "{list}");
}

#[tokio::test]
async fn a_build_shows_its_log_while_it_runs_and_why_it_failed() {
    let runtime = Arc::new(with_templates());
    let gate = Arc::new(Notify::new());
    let console = Console::with_builds(Arc::clone(&runtime)).await;
    let list = console.get(PAGE).await.body;
    assert!(list.contains("name=\"dockerfile\""), "{list}");
    runtime.set_faults(Faults {
        template_gate: Some(Arc::clone(&gate)),
        build_fails: Some("step 2 <failed>".to_owned()),
        ..Faults::default()
    });
    let id = console.template_of(BUILD).await;
    let held = async {
        while runtime.held_templates() == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, held).await.expect("a build that waits");
    let page = format!("{PAGE}/{id}");
    let building = console.get(&page).await.body;
    for part in [
        "Building",
        "Log of the build",
        "Step 1/1 : simulated",
        "RUN echo &lt;b&gt;",
        "http-equiv=\"refresh\"",
        "It is still being made.",
    ] {
        assert!(building.contains(part), "{part} in {building}");
    }
    gate.notify_waiters();
    console.template_in(&id, TemplatePhase::Failed).await;
    for path in [PAGE, page.as_str()] {
        let shown = console.get(path).await.body;
        for part in ["Failed", "step 2 &lt;failed&gt;"] {
            assert!(shown.contains(part), "{part} in {path}: {shown}");
        }
    }
    let failed = console.get(&page).await.body;
    assert!(failed.contains("Step 1/1 : simulated"), "{failed}");
    assert!(!failed.contains("http-equiv=\"refresh\""), "{failed}");
}

#[tokio::test]
async fn a_template_that_is_being_made_is_deleted_after_a_question() {
    let runtime = Arc::new(with_templates());
    let console = Console::with_builds(Arc::clone(&runtime)).await;
    runtime.set_faults(Faults {
        template_gate: Some(Arc::new(Notify::new())),
        ..Faults::default()
    });
    for is_hydrated in [false, true] {
        let id = console.template_of(BUILD).await;
        console.template_in(&id, TemplatePhase::Building).await;
        let page = format!("{PAGE}/{id}");
        let detail = console.get(&page).await.body;
        let (_, button) = detail.split_once("data-act-button=\"delete\"").unwrap();
        let button = button.split("</button>").next().unwrap();
        assert!(!button.contains("aria-disabled=\"true\""), "{button}");
        let delete = format!("{page}/delete");
        let question = console.get(&delete).await.body;
        assert!(
            question.contains("its build or its pull ends at once"),
            "{question}"
        );
        match is_hydrated {
            true => {
                let form = format!("id={id}");
                let deleted = console.json_of("templates/delete", &form).await;
                assert!(deleted.get("done").is_some(), "{deleted}");
            }
            false => assert_eq!(console.post(&delete, "").await.location(), PAGE),
        }
        let gone = async {
            while console.service.template_entry(&id).await.unwrap().is_some() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, gone).await.expect("its end");
    }
    assert_eq!(runtime.stored_templates(), [""; 0]);
}

#[tokio::test]
async fn hydrated_pages_get_answers_and_no_errors_for_what_is_refused() {
    let console = Console::with_builds(with_templates()).await;
    let added = console.json_of("templates/create", &nested(FORM)).await;
    let id = added["done"].as_str().unwrap().to_owned();
    console.template_in(&id, TemplatePhase::Succeeded).await;
    let wrong = console
        .json_of("templates/create", &nested("image=a+b"))
        .await;
    let place = &wrong["invalid"][0]["loc"];
    assert_eq!(*place, json!(["body", "image"]), "{wrong}");
    let list = console.json_of("templates/list", "page=1").await;
    assert_eq!(list["rows"][0]["origin"], json!({ "image": "debian:12" }));
    assert!(!list.to_string().contains("secret"), "{list}");
    let detail = console.json_of("templates/get", &format!("id={id}")).await;
    assert_eq!(detail["variables"], json!(["TOKEN"]), "{detail}");
    assert!(!detail.to_string().contains("secret"), "{detail}");
    let none = console.json_of("templates/get", "id=none").await;
    assert_eq!(none, Value::Null);
    let offered = console.json_of("templates/offered", "").await;
    assert_eq!(offered["templates"][0]["id"], json!(id), "{offered}");
    let refused = console.json_of("templates/delete", "id=none").await;
    let why = refused["refused"].as_str().unwrap();
    assert!(why.contains("not found"), "{why}");
    let built = console.json_of("templates/create", &nested(BUILD)).await;
    let built = built["done"].as_str().unwrap().to_owned();
    console.template_in(&built, TemplatePhase::Succeeded).await;
    let list = console.json_of("templates/list", "page=1").await;
    let row = &list["rows"][0];
    assert_eq!(row["origin"], "dockerfile", "{row}");
    assert_eq!(row["size_bytes"], 1_000, "{row}");
    for id in [id, built] {
        let deleted = console
            .json_of("templates/delete", &format!("id={id}"))
            .await;
        assert!(deleted.get("done").is_some(), "{deleted}");
    }
}

#[tokio::test]
async fn a_tenant_is_offered_no_build_that_would_be_refused() {
    let mut console = Console::with_builds(with_templates()).await;
    console.add_user(Role::Operator, Some("red")).await;
    console.sign_in("operator", PASSWORD).await;
    let list = console.get(PAGE).await.body;
    assert!(list.contains("name=\"image\""), "{list}");
    assert!(list.contains("allow_tenant_builds"), "{list}");
    assert!(!list.contains("name=\"dockerfile\""), "{list}");
    let build = console.post(PAGE, BUILD).await;
    assert_eq!(build.status(), StatusCode::UNPROCESSABLE_ENTITY);
    console.template_of(FORM).await;
}

#[tokio::test]
async fn acts_leave_the_entries_that_the_api_leaves() {
    let console = Console::open_over(with_templates()).await;
    let added = console.entry_of(console.post(PAGE, FORM)).await;
    assert_eq!(
        (added.action.as_str(), added.outcome),
        ("template.create", AuditOutcome::Succeeded)
    );
    assert_eq!(added.changes["image"], "debian:12", "{added:?}");
    assert!(!format!("{added:?}").contains("secret"), "{added:?}");
    let id = added.object.id;
    let wrong = console.entry_of(console.post(PAGE, "image=a&env=A")).await;
    assert_eq!(
        (wrong.outcome, wrong.status),
        (AuditOutcome::Failed, Some(422))
    );
    console.template_in(&id, TemplatePhase::Succeeded).await;
    let delete = format!("{PAGE}/{id}/delete");
    let deleted = console.entry_of(console.post(&delete, "")).await;
    assert_eq!(
        (deleted.action.as_str(), deleted.object.id.as_str()),
        ("template.delete", id.as_str())
    );
    assert_eq!(deleted.outcome, AuditOutcome::Succeeded);
}

#[tokio::test]
async fn a_viewer_sees_templates_and_why_nothing_can_be_changed() {
    let mut console = Console::open_over(with_templates()).await;
    let id = console.template_of(FORM).await;
    console.template_in(&id, TemplatePhase::Succeeded).await;
    console.add_user(Role::ReadOnly, None).await;
    console.sign_in("read_only", PASSWORD).await;
    let list = console.get(PAGE).await.body;
    let page = format!("{PAGE}/{id}");
    assert!(list.contains(&format!("href=\"{page}\"")), "{list}");
    assert!(!list.contains("action=\"/console/templates\""), "{list}");
    assert!(!list.contains("/console/create?template="), "{list}");
    let detail = console.get(&page).await.body;
    for (page, button) in [(&list, "add-template"), (&detail, "delete")] {
        let marker = format!("data-act-button=\"{button}\"");
        let (_, shown) = page.split_once(&marker).unwrap();
        let shown = shown.split("</button>").next().unwrap();
        assert!(shown.contains("aria-disabled=\"true\""), "{shown}");
        assert!(shown.contains("Your role may look"), "{shown}");
    }
    assert!(
        !detail.contains("href=\"/console/create?template="),
        "{detail}"
    );
    let refused = console.post(PAGE, FORM).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_runtime_without_templates_says_so_and_offers_none() {
    let console = Console::open().await;
    let page = console.get(PAGE).await;
    assert_eq!(page.status(), StatusCode::OK);
    assert!(page.body.contains("has no templates"), "{}", page.body);
    let link = "href=\"/console/templates\"";
    assert!(!page.body.contains(link), "{}", page.body);
    let refused = console.json_of("templates/create", &nested(FORM)).await;
    let why = refused["refused"].as_str().unwrap();
    assert!(why.contains("has no templates"), "{why}");
}

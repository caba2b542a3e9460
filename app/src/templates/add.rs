//! The form that makes a template.

use leptos::{ev, prelude::*, task::spawn_local};
use leptos_router::hooks::use_navigate;

use super::{
    api,
    form::{FORM, TemplateDraft, TemplateForm},
};
use crate::{
    browser,
    form::{self, Progress, TextField},
    frame::Toasts,
    sandbox::ActButton,
    template::address,
    ui::Icon,
    view::{LOOKS_ONLY, ServerInfo, TemplateBuilds, offers_changes},
    workload::{AreaField, WorkloadFields},
};

/// A button with the form behind it; open if the form was refused.
#[component]
pub(super) fn AddForm(draft: Option<TemplateDraft>) -> impl IntoView {
    if !offers_changes() {
        let why = Signal::derive(|| Some(LOOKS_ONLY));
        return view! {
            <div>
                <ActButton id="add-template" icon="plus" text="Make a template" why busy=false />
            </div>
        }
        .into_any();
    }
    let is_open = draft.is_some();
    let (first, problems, refusal) = match draft {
        Some(draft) => (draft.form, draft.problems, draft.refusal),
        None => (TemplateForm::default(), Vec::new(), None),
    };
    let progress = Progress::with(problems);
    let (navigate, toasts) = (use_navigate(), Toasts::current());
    let submit = move |event: ev::SubmitEvent| {
        let Some(sent) = form::read::<TemplateForm>(&event) else {
            return;
        };
        if !progress.begin() {
            return;
        }
        let navigate = navigate.clone();
        spawn_local(async move {
            match progress.answer(api::create(sent), toasts).await {
                Some(id) => {
                    toasts.good("The template is being made");
                    navigate(&address(&id), Default::default());
                }
                None => request_animation_frame(|| {
                    browser::focus_first_visible(&[".template-add [aria-invalid]"]);
                }),
            }
        });
    };
    let workload = [first.entrypoint, first.cpu, first.memory, first.env];
    view! {
        <details class="add card template-add" open=is_open>
            <summary class="button" data-command="Make a template">
                <Icon name="plus" />
                "Make a template"
            </summary>
            <form method="post" action="/console/templates" class="add-form" on:submit=submit>
                <p class="problem add-foot" role="alert">
                    {refusal} {move || progress.problem(FORM)}
                </p>
                <TextField
                    id="template-name".to_owned()
                    label="Name"
                    name="name"
                    progress
                    value=first.name
                    help="The label that is its title in lists. May be empty."
                />
                <TextField
                    id="template-image".to_owned()
                    label="Image"
                    name="image"
                    progress
                    value=first.image
                    help="Such as python:3.12. Pulled unless the engine has it."
                />
                <WorkloadFields
                    id="template"
                    progress
                    first=workload
                    entrypoint_help="What its sandboxes run. Empty: tail -f /dev/null."
                    limit_helps=["Cores: 0.5 or 500m. Empty: 1.", "512Mi, 2Gi … Empty: 512Mi."]
                    env_help="One per line: NAME=value. All of its sandboxes have them."
                />
                <Build progress first=first.dockerfile />
                <p class="add-foot">
                    <button
                        type="submit"
                        class="button primary"
                        aria-disabled=move || progress.busy.get().then_some("true")
                    >
                        "Make the template"
                    </button>
                </p>
            </form>
        </details>
    }
    .into_any()
}

/// The Dockerfile, or why there is no field for one.
#[component]
fn Build(progress: Progress, first: String) -> impl IntoView {
    let info = use_context::<ServerInfo>().unwrap_or_default();
    let refusal = match info.builds {
        TemplateBuilds::Allowed => None,
        TemplateBuilds::Off => Some((
            "Building from a Dockerfile is off: its steps run on the engine, outside of all that keeps a sandbox apart. An operator for whom that is acceptable sets ",
            "allow_builds",
        )),
        TemplateBuilds::OffForTenants => Some((
            "Building from a Dockerfile is off for tenants: it can start from any image on the host, also from other tenants' snapshots. An operator for whom that is acceptable sets ",
            "allow_tenant_builds",
        )),
    };
    if let Some((why, setting)) = refusal {
        return view! {
            <p class="help add-foot" id="template-no-builds">
                {why} <code>{setting}</code> " in " <code>"[templates]"</code> "."
            </p>
        }
        .into_any();
    }
    view! {
        <div class="add-foot">
            <AreaField
                id="template-dockerfile".to_owned()
                label="Dockerfile"
                name="dockerfile"
                progress
                first
                rows=6
                help="In place of an image. It copies no files; the API takes an archive with files."
            />
        </div>
    }
    .into_any()
}

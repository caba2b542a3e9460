//! What is asked before sandboxes, snapshots and pools are deleted: the words, and the page that asks browsers
//! without script. The others ask in a dialog.

use osb_protocol::{SandboxId, lifecycle::TemplatePhase};

/// What the delete of a sandbox does.
pub const OF_ONE: &str =
    "Stops every process and deletes the sandbox with all its files. This cannot be undone.";
/// What the delete of several sandboxes does.
pub const OF_SEVERAL: &str =
    "Stops every process in them and deletes them with all their files. This cannot be undone.";

/// The question before several sandboxes are deleted.
#[must_use]
pub fn question(count: usize) -> String {
    match count {
        1 => "Delete 1 sandbox?".to_owned(),
        count => format!("Delete {count} sandboxes?"),
    }
}

/// The question before a snapshot with this title is deleted.
#[must_use]
pub fn snapshot_question(title: &str) -> String {
    format!("Delete the snapshot {title}?")
}

/// What the delete of a snapshot does. `users` are the sandboxes that were created from it, by their
/// titles.
#[must_use]
pub fn of_snapshot(users: &str) -> String {
    const DOES: &str = "Deletes the files that it keeps. This cannot be undone.";
    match users {
        "" => DOES.to_owned(),
        users => format!(
            "{DOES} Sandboxes that were created from it still need them: {users}. It is refused while they exist: no other sandbox can be created from it then, and it is deleted once they are gone."
        ),
    }
}

/// The question before a template with this title is deleted.
#[must_use]
pub fn template_question(title: &str) -> String {
    format!("Delete the template {title}?")
}

/// What the delete of a template in this phase does. `users` are the sandboxes that were created from it,
/// by their titles.
#[must_use]
pub fn of_template(phase: TemplatePhase, users: &str) -> String {
    const DOES: &str = "Removes the name that its image has. This cannot be undone.";
    if matches!(phase, TemplatePhase::Pending | TemplatePhase::Building) {
        return "It is still being made: its build or its pull ends at once. This cannot be undone."
            .to_owned();
    }
    match users {
        "" => DOES.to_owned(),
        users => format!(
            "{DOES} Sandboxes that were created from it exist: {users}. It is refused if they still need the image: no other sandbox can be created from it then, and it is deleted once they are gone."
        ),
    }
}

/// The question before the pool of this name is deleted.
#[must_use]
pub fn pool_question(name: &str) -> String {
    format!("Delete the pool {name}?")
}

/// What the delete of a pool does. So many of its sandboxes are claimed.
#[must_use]
pub fn of_pool(claimed: u32) -> String {
    const DOES: &str = "The sandboxes that wait in it are removed.";
    let stays = match claimed {
        0 => "None of its sandboxes is claimed.".to_owned(),
        1 => "The one that is claimed goes on until it is deleted or expires.".to_owned(),
        count => format!("The {count} that are claimed go on until they are deleted or expire."),
    };
    format!("{DOES} {stays} Creates that name the pool are refused from then on.")
}

/// What the page asks about. The server provides it as context.
#[derive(Clone, Debug)]
pub enum Deletion {
    /// One sandbox, with its title.
    One(SandboxId, String),
    /// Several sandboxes, with their titles.
    Several(Vec<(SandboxId, String)>),
    /// A snapshot.
    Snapshot {
        /// Its id.
        id: String,
        /// Its title.
        title: String,
        /// The sandboxes that were created from it, by their titles.
        users: String,
    },
    /// A template.
    Template {
        /// Its id.
        id: String,
        /// Its title.
        title: String,
        /// Its phase.
        phase: TemplatePhase,
        /// The sandboxes that were created from it, by their titles.
        users: String,
    },
    /// A pool.
    Pool {
        /// Its name.
        name: String,
        /// How many of its sandboxes are claimed.
        claimed: u32,
    },
}

#[cfg(feature = "ssr")]
mod page {
    use leptos::prelude::*;

    use super::{
        Deletion, OF_ONE, OF_SEVERAL, SandboxId, of_pool, of_snapshot, of_template, pool_question,
        question, snapshot_question, template_question,
    };
    use crate::{
        tab::Tab,
        ui::{Icon, PageTitle},
    };

    /// Asks whether something is to be deleted.
    #[component]
    pub(crate) fn DeletionPage(deletion: Deletion) -> impl IntoView {
        let (title, text, action, back, yes) = match &deletion {
            Deletion::One(id, name) => {
                let page = Tab::Overview.address(id);
                let title = format!("Delete {name}?");
                (
                    title,
                    OF_ONE.to_owned(),
                    format!("{page}/delete"),
                    page,
                    "Delete sandbox",
                )
            }
            Deletion::Several(all) => {
                let list = "/console/sandboxes".to_owned();
                let action = format!("{list}/bulk/delete");
                (
                    question(all.len()),
                    OF_SEVERAL.to_owned(),
                    action,
                    list,
                    "Delete selected",
                )
            }
            Deletion::Snapshot { id, title, users } => {
                let page = format!("/console/snapshots/{id}");
                (
                    snapshot_question(title),
                    of_snapshot(users),
                    format!("{page}/delete"),
                    page,
                    "Delete snapshot",
                )
            }
            Deletion::Template {
                id,
                title,
                phase,
                users,
            } => {
                let page = format!("/console/templates/{id}");
                (
                    template_question(title),
                    of_template(*phase, users),
                    format!("{page}/delete"),
                    page,
                    "Delete template",
                )
            }
            Deletion::Pool { name, claimed } => {
                let page = format!("/console/pools/{name}");
                (
                    pool_question(name),
                    of_pool(*claimed),
                    format!("{page}/delete"),
                    page,
                    "Delete pool",
                )
            }
        };
        let several = match deletion {
            Deletion::Several(all) => all,
            Deletion::One(..)
            | Deletion::Snapshot { .. }
            | Deletion::Template { .. }
            | Deletion::Pool { .. } => Vec::new(),
        };
        let line = |(id, name): &(SandboxId, String)| {
            let short = (id.short() != name).then(|| id.short().to_owned());
            view! {
                <li>
                    {name.clone()} " " <span class="row-id mono">{short}</span>
                    <input type="hidden" name="id" value=id.to_string() />
                </li>
            }
        };
        let lines = several.iter().map(line).collect_view();
        let list = (!several.is_empty()).then(|| view! { <ul class="deletion-list">{lines}</ul> });
        view! {
            <PageTitle text=title.clone() />
            <main class="login">
                <form method="post" action=action class="card login-card">
                    <h1>{title}</h1>
                    <p>{text}</p>
                    {list}
                    <div class="dialog-actions">
                        <a class="button" href=back>"Cancel"</a>
                        <button type="submit" class="button danger">
                            <Icon name="trash-2" />
                            {yes}
                        </button>
                    </div>
                </form>
            </main>
        }
        .into_any()
    }
}

#[cfg(feature = "ssr")]
pub(crate) use page::DeletionPage;

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use std::sync::Arc;

    use leptos::prelude::*;

    use super::*;
    use crate::ui::AssetRoot;

    fn page(deletion: Deletion) -> String {
        Owner::new().with(|| {
            provide_context(AssetRoot(Arc::from("/assets")));
            leptos_meta::provide_meta_context();
            view! { <DeletionPage deletion /> }.into_any().to_html()
        })
    }

    #[test]
    fn one_sandbox_is_deleted_by_its_own_form() {
        let html = page(Deletion::One("0b6c1f2e-aaaa".into(), "<b>a</b>".to_owned()));
        assert!(html.contains("Delete &lt;b&gt;a&lt;/b&gt;?"), "{html}");
        let action = r#"action="/console/sandboxes/0b6c1f2e-aaaa/delete""#;
        assert!(html.contains(action), "{html}");
        assert!(!html.contains(r#"type="hidden""#), "{html}");
    }

    #[test]
    fn a_snapshot_in_use_says_by_what() {
        let deletion = |users: &str| Deletion::Snapshot {
            id: "0b6c1f2e-aaaa".to_owned(),
            title: "<b>a</b>".to_owned(),
            users: users.to_owned(),
        };
        let html = page(deletion(""));
        assert!(
            html.contains("Delete the snapshot &lt;b&gt;a&lt;/b&gt;?"),
            "{html}"
        );
        let action = r#"action="/console/snapshots/0b6c1f2e-aaaa/delete""#;
        assert!(html.contains(action), "{html}");
        assert!(!html.contains("still need them"), "{html}");
        let html = page(deletion("web, api"));
        assert!(html.contains("still need them: web, api."), "{html}");
    }

    #[test]
    fn a_template_in_use_says_by_what() {
        let deletion = |users: &str| Deletion::Template {
            id: "tpl-0b6c1f2e".to_owned(),
            title: "<b>a</b>".to_owned(),
            phase: TemplatePhase::Succeeded,
            users: users.to_owned(),
        };
        let html = page(deletion(""));
        assert!(
            html.contains("Delete the template &lt;b&gt;a&lt;/b&gt;?"),
            "{html}"
        );
        let action = r#"action="/console/templates/tpl-0b6c1f2e/delete""#;
        assert!(html.contains(action), "{html}");
        assert!(!html.contains("exist:"), "{html}");
        let html = page(deletion("web, api"));
        assert!(html.contains("exist: web, api."), "{html}");
    }

    #[test]
    fn a_template_in_the_making_says_that_this_ends() {
        for phase in TemplatePhase::ALL {
            let is_made = !matches!(phase, TemplatePhase::Pending | TemplatePhase::Building);
            let text = of_template(phase, "");
            assert_eq!(!text.contains("ends at once"), is_made, "{phase}: {text}");
        }
    }

    #[test]
    fn a_pool_says_what_becomes_of_its_claimed_sandboxes() {
        let html = |claimed| {
            page(Deletion::Pool {
                name: "python".to_owned(),
                claimed,
            })
        };
        for (claimed, part) in [
            (0, "None of its sandboxes is claimed."),
            (1, "The one that is claimed goes on"),
            (2, "The 2 that are claimed go on"),
        ] {
            let html = html(claimed);
            assert!(html.contains(part), "{html}");
            let action = r#"action="/console/pools/python/delete""#;
            assert!(html.contains(action), "{html}");
        }
    }

    #[test]
    fn several_sandboxes_are_named_and_sent() {
        let all = ["a-1", "b-2"].map(|id| (SandboxId::from(id), "search".to_owned()));
        let html = page(Deletion::Several(all.into()));
        assert!(html.contains("Delete 2 sandboxes?"), "{html}");
        assert!(
            html.contains(r#"action="/console/sandboxes/bulk/delete""#),
            "{html}"
        );
        assert_eq!(html.matches(r#"type="hidden""#).count(), 2, "{html}");
        assert!(html.contains(r#"value="b-2""#), "{html}");
    }
}

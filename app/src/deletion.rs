//! What is asked before sandboxes are deleted: the words, and the page that asks browsers without
//! script. The others ask in a dialog.

use osb_protocol::SandboxId;

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

/// What the page asks about. The server provides it as context.
#[derive(Clone, Debug)]
pub enum Deletion {
    /// One sandbox, with its title.
    One(SandboxId, String),
    /// Several sandboxes, with their titles.
    Several(Vec<(SandboxId, String)>),
}

#[cfg(feature = "ssr")]
mod page {
    use leptos::prelude::*;
    use leptos_meta::Title;

    use super::{Deletion, OF_ONE, OF_SEVERAL, SandboxId, question};
    use crate::{tab::Tab, ui::Icon};

    /// Asks whether sandboxes are to be deleted.
    #[component]
    pub(crate) fn DeletionPage(deletion: Deletion) -> impl IntoView {
        let (title, text, action, back, yes) = match &deletion {
            Deletion::One(id, name) => {
                let page = Tab::Overview.address(id);
                let title = format!("Delete {name}?");
                (
                    title,
                    OF_ONE,
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
                    OF_SEVERAL,
                    action,
                    list,
                    "Delete selected",
                )
            }
        };
        let several = match deletion {
            Deletion::One(..) => Vec::new(),
            Deletion::Several(all) => all,
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
            <Title text=title.clone() />
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

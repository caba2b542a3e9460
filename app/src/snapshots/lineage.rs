//! Where a snapshot comes from, and what came from it.

use leptos::prelude::*;

use crate::{
    kin,
    snapshot::{address, short, title},
    ui::Icon,
    view::{Ancestor, SnapshotDetail},
};

/// The lineage, the oldest first: snapshots and sandboxes by turns, up to this snapshot, then the
/// sandboxes that were created from it.
#[component]
pub(super) fn Lineage(current: RwSignal<SnapshotDetail>) -> impl IntoView {
    let before = move || {
        let detail = current.read();
        let origin = match (detail.is_cut, detail.ancestors.last()) {
            (true, _) => Some("Older snapshots"),
            // The oldest one is of a sandbox that was created from an image.
            (false, Some(Ancestor { known: None, .. })) => None,
            (false, _) => Some("An image"),
        };
        let origin = origin.map(|text| {
            view! {
                <li>
                    <Icon name="box" />
                    <span class="lineage-soft">{text}</span>
                </li>
            }
        });
        let ancestors = detail.ancestors.iter().rev();
        view! {
            {origin}
            {ancestors.map(ancestor).collect_view()}
            {kin::line(&detail.row.source)}
        }
    };
    let this = move || title(&current.read().row.snapshot).to_owned();
    let after = move || {
        let detail = current.read();
        kin::users(&detail.row.users, detail.row.user_count)
    };
    view! {
        <ol class="lineage">
            {before}
            <li aria-current="true">
                <Icon name="camera" />
                <strong>{this}</strong>
                <span class="lineage-soft">"this snapshot"</span>
            </li>
        </ol>
        {after}
    }
    .into_any()
}

/// A snapshot that this one goes back to, after the sandbox that it was taken of.
fn ancestor(of: &Ancestor) -> AnyView {
    let Some((snapshot, source)) = &of.known else {
        let short = short(&of.id).to_owned();
        return view! {
            <li>
                <Icon name="camera" />
                <span class="mono" title=of.id.clone()>{short}</span>
                <span class="lineage-soft">"deleted"</span>
            </li>
        }
        .into_any();
    };
    let name = title(snapshot).to_owned();
    view! {
        {kin::line(source)}
        <li>
            <Icon name="camera" />
            <a href=address(&snapshot.id) title=snapshot.id.clone()>{name}</a>
        </li>
    }
    .into_any()
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use osb_protocol::lifecycle::{SandboxState, SnapshotState};

    use super::*;
    use crate::{
        snapshot::sample,
        view::{Kin, SnapshotRow},
    };

    fn html(detail: SnapshotDetail) -> String {
        Owner::new().with(|| {
            let current = RwSignal::new(detail);
            view! { <Lineage current /> }.into_any().to_html()
        })
    }

    fn detail() -> SnapshotDetail {
        SnapshotDetail {
            row: SnapshotRow {
                snapshot: sample::snapshot("s0", SnapshotState::Ready),
                source: Kin::gone(&"b0".into()),
                users: Vec::new(),
                user_count: 0,
            },
            ancestors: Vec::new(),
            is_cut: false,
        }
    }

    /// Places of texts in a page, which ascend if the texts are in this order.
    fn places(html: &str, texts: &[&str]) -> Vec<usize> {
        let place = |text: &&str| {
            html.find(*text)
                .unwrap_or_else(|| panic!("{text} in {html}"))
        };
        texts.iter().map(place).collect()
    }

    #[test]
    fn the_oldest_comes_first() {
        let mut detail = detail();
        let older = |id: &str, source: &str| Ancestor {
            id: id.to_owned(),
            known: Some((
                sample::snapshot(id, SnapshotState::Ready),
                Kin::gone(&source.into()),
            )),
        };
        detail.ancestors = vec![older("s1", "b1"), older("s2", "b2")];
        let page = html(detail.clone());
        let order = places(
            &page,
            &[
                "An image",
                "/b2\"",
                "/s2\"",
                "/b1\"",
                "/s1\"",
                "/b0\"",
                "this snapshot",
            ],
        );
        assert!(order.is_sorted(), "{order:?} {page}");
        detail.is_cut = true;
        assert!(html(detail).contains("Older snapshots"));
    }

    #[test]
    fn what_is_not_known_any_more_is_said_to_be_deleted() {
        let mut detail = detail();
        detail.ancestors = vec![Ancestor {
            id: "s1".to_owned(),
            known: None,
        }];
        let page = html(detail);
        assert!(page.contains("deleted"), "{page}");
        assert!(!page.contains("An image"), "{page}");
    }

    #[test]
    fn sandboxes_that_were_created_from_it_are_counted_and_named() {
        let page = html(detail());
        assert!(page.contains("No sandbox that exists"), "{page}");
        let mut detail = detail();
        detail.row.users = vec![Kin {
            id: "u1".into(),
            title: "<i>web</i>".to_owned(),
            state: Some(SandboxState::Running),
        }];
        detail.row.user_count = 3;
        let page = html(detail);
        for part in [
            "3 sandboxes were created from it",
            "&lt;i&gt;web&lt;/i&gt;",
            "and 2 more",
            "Running",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
}

//! The folders as a tree beside the content, on wide pages: read one level at a time.

use std::collections::BTreeMap;

use leptos::{attr::custom::custom_attribute, ev, html, prelude::*, task::spawn_local};
use leptos_router::hooks::use_navigate;
use osb_protocol::{SandboxId, execd::file::FileKind};

use super::{
    Folder, Opened, api,
    path::{self, join},
};
use crate::{frame::Toasts, ui::Icon};

/// Pages that have room for it (style/files.css).
const WIDE: &str = "(min-width: 1000px)";

/// Folders by their paths.
type Branches = BTreeMap<String, Branch>;

/// A folder whose content is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Branch {
    is_open: bool,
    /// Names of the folders in it, in their order.
    inside: Vec<String>,
}

/// A folder that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    path: String,
    level: usize,
}

/// The folders in a folder.
fn folders(folder: &Folder) -> Vec<String> {
    let entries = folder.entries.iter();
    let folders = entries.filter(|entry| entry.kind == FileKind::Directory && !entry.lossy);
    folders.map(|entry| entry.name.clone()).collect()
}

/// The open folders and what is in them, from the root down.
fn items(branches: &Branches) -> Vec<Item> {
    let mut items = Vec::new();
    let mut next = vec![Item {
        path: "/".to_owned(),
        level: 1,
    }];
    while let Some(item) = next.pop() {
        if let Some(branch) = branches.get(&item.path).filter(|branch| branch.is_open) {
            next.extend(branch.inside.iter().rev().map(|name| Item {
                path: join(&item.path, name),
                level: item.level + 1,
            }));
        }
        items.push(item);
    }
    items
}

/// The folder that Tab reaches: the wanted one, or the root while that is not shown, so that there is
/// always one.
fn stop(items: &[Item], wanted: &str) -> String {
    match items.iter().any(|item| item.path == wanted) {
        true => wanted.to_owned(),
        false => "/".to_owned(),
    }
}

/// Where the page is.
#[derive(Clone, Copy)]
pub(super) struct TreePlace {
    /// Path of the folder that is shown, or that the shown file is in.
    current: RwSignal<String>,
    /// Folders in the folder that is shown.
    inside: RwSignal<Option<(String, Vec<String>)>>,
}

impl TreePlace {
    pub(super) fn new() -> Self {
        Self {
            current: RwSignal::new("/".to_owned()),
            inside: RwSignal::new(None),
        }
    }

    /// The page shows this.
    pub(super) fn follow(self, path: &str, opened: &Opened) {
        let current = match opened {
            Opened::Folder(folder) => {
                if folder.from == 0 {
                    let inside = (folder.path.clone(), folders(folder));
                    self.inside.set(Some(inside));
                }
                path
            }
            Opened::File(_) => path::parent(path).unwrap_or("/"),
        };
        let current = match current.trim_end_matches('/') {
            "" => "/",
            current => current,
        };
        if *self.current.read_untracked() != current {
            self.current.set(current.to_owned());
        }
    }
}

/// What a key does.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    To(String),
    Open,
    Close,
    Show,
}

/// What a key does on a folder, as trees do it (WAI-ARIA Authoring Practices).
fn step(key: &str, at: &str, branches: &Branches) -> Option<Step> {
    let items = items(branches);
    let place = items.iter().position(|item| item.path == at)?;
    let is_open = branches.get(at).is_some_and(|branch| branch.is_open);
    let to = |item: Option<&Item>| item.map(|item| Step::To(item.path.clone()));
    match key {
        "ArrowDown" => to(items.get(place + 1)),
        "ArrowUp" => to(place.checked_sub(1).and_then(|place| items.get(place))),
        "Home" => to(items.first()),
        "End" => to(items.last()),
        "ArrowRight" if is_open => {
            let inside = items.get(place + 1);
            to(inside.filter(|item| item.level > items[place].level))
        }
        "ArrowRight" => Some(Step::Open),
        "ArrowLeft" if is_open => Some(Step::Close),
        "ArrowLeft" => path::parent(at).map(|up| Step::To(up.to_owned())),
        "Enter" | " " => Some(Step::Show),
        _ => None,
    }
}

/// What the folders of the tree share.
#[derive(Clone, Copy)]
struct Trunk {
    id: StoredValue<SandboxId>,
    branches: RwSignal<Branches>,
    /// The folder that Tab reaches, once it is shown.
    reached: RwSignal<String>,
    /// The folder that is to take the focus.
    focused: RwSignal<Option<String>>,
    toasts: Toasts,
}

impl Trunk {
    /// Reads what is in a folder, and opens it.
    async fn open(self, at: String) {
        let id = self.id.get_value();
        match api::open(id, at.clone(), 0, false).await {
            Ok(Ok(Opened::Folder(folder))) => self.learn(&at, folders(&folder), true),
            Ok(Ok(Opened::File(_))) => {}
            Ok(Err(why)) => self.toasts.bad(why),
            // The page itself says that the server is away.
            Err(_) => {}
        }
    }

    fn learn(self, at: &str, inside: Vec<String>, opens: bool) {
        self.branches.try_update(|branches| {
            let branch = branches.entry(at.to_owned()).or_default();
            branch.inside = inside;
            branch.is_open |= opens;
        });
    }

    fn toggle(self, at: String) {
        let known = self.branches.try_update(|branches| {
            let branch = branches.get_mut(&at)?;
            branch.is_open = !branch.is_open;
            Some(())
        });
        if known.flatten().is_none() {
            spawn_local(self.open(at));
        }
    }
}

/// The tree.
#[component]
pub(super) fn Tree(id: SandboxId, place: TreePlace) -> impl IntoView {
    let current = place.current;
    let is_wide = RwSignal::new(false);
    Effect::new(move |_| {
        let query = window().match_media(WIDE).ok().flatten();
        is_wide.set(query.is_some_and(|query| query.matches()));
    });
    let trunk = Trunk {
        id: StoredValue::new(id),
        branches: RwSignal::new(Branches::new()),
        reached: RwSignal::new("/".to_owned()),
        focused: RwSignal::new(None),
        toasts: Toasts::current(),
    };
    Effect::new(move |_| {
        if let Some((path, inside)) = place.inside.get() {
            trunk.learn(&path, inside, false);
        }
    });
    // The way to the folder that is shown is open.
    Effect::new(move |_| {
        let current = current.get();
        if !is_wide.get() {
            return;
        }
        trunk.reached.set(current.clone());
        spawn_local(async move {
            let mut way = path::steps(&current);
            way.pop();
            for (_, at) in way {
                let is_known = trunk.branches.try_update(|branches| {
                    let branch = branches.get_mut(&at)?;
                    branch.is_open = true;
                    Some(())
                });
                match is_known {
                    Some(Some(())) => {}
                    Some(None) => trunk.open(at).await,
                    None => return,
                }
            }
        });
    });
    let items = Memo::new(move |_| trunk.branches.with(items));
    // A folder is known before those above it are read, and one of them may be closed.
    let stop = Memo::new(move |_| {
        let items = items.read();
        trunk.reached.with(|reached| stop(&items, reached))
    });
    let tree = move || {
        is_wide.get().then(|| {
            view! {
                <div class="tree" role="tree" aria-label="Folder tree">
                    <For each=move || items.get() key=|item| item.path.clone() let:item>
                        <Row trunk item current stop />
                    </For>
                </div>
            }
        })
    };
    view! { <div class="tree-side needs-script">{tree}</div> }.into_any()
}

#[component]
fn Row(
    trunk: Trunk,
    item: Item,
    current: RwSignal<String>,
    /// The folder that Tab reaches.
    stop: Memo<String>,
) -> impl IntoView {
    let Item { path: at, level } = item;
    let name = path::name(&at).to_owned();
    let row = NodeRef::<html::Div>::new();
    let at = StoredValue::new(at);
    let is_at = move |path: &str| at.with_value(|at| at == path);
    let navigate = use_navigate();
    let show = move || {
        let to = trunk
            .id
            .with_value(|id| at.with_value(|at| path::address(id, at, "")));
        navigate(&to, Default::default());
    };
    let on_click = {
        let show = show.clone();
        move |_| show()
    };
    let on_key = move |event: ev::KeyboardEvent| {
        if event.ctrl_key() || event.alt_key() || event.meta_key() {
            return;
        }
        let step = trunk
            .branches
            .with_untracked(|branches| at.with_value(|at| step(&event.key(), at, branches)));
        let Some(step) = step else {
            return;
        };
        event.prevent_default();
        event.stop_propagation();
        match step {
            Step::To(path) => {
                trunk.reached.set(path.clone());
                trunk.focused.set(Some(path));
            }
            Step::Open | Step::Close => trunk.toggle(at.get_value()),
            Step::Show => show(),
        }
    };
    let toggle = move |event: ev::MouseEvent| {
        event.stop_propagation();
        trunk.toggle(at.get_value());
    };
    Effect::new(move |_| {
        let is_focused = trunk.focused.with(|it| it.as_deref().is_some_and(is_at));
        if let (true, Some(row)) = (is_focused, row.get()) {
            let _ = row.focus();
        }
    });
    // `None` if it has no folders.
    let expanded = move || {
        trunk.branches.with(
            |branches| match at.with_value(|at| branches.get(at).cloned()) {
                None => Some("false"),
                Some(branch) if branch.inside.is_empty() => None,
                Some(branch) => Some(if branch.is_open { "true" } else { "false" }),
            },
        )
    };
    view! {
        <div
            node_ref=row
            class="tree-row"
            role="treeitem"
            // Elements have no method for it.
            {..custom_attribute("aria-level", level)}
            aria-expanded=expanded
            aria-current=move || current.with(|path| is_at(path)).then_some("page")
            data-level=level.min(12)
            tabindex=move || if stop.with(|path| is_at(path)) { "0" } else { "-1" }
            on:click=on_click
            on:keydown=on_key
        >
            <span class="tree-toggle" aria-hidden="true" on:click=toggle>
                <Icon name="chevron-right" />
            </span>
            <Icon name="folder" />
            <span class="tree-name">{name}</span>
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branches() -> Branches {
        let branch = |is_open, inside: &[&str]| Branch {
            is_open,
            inside: inside.iter().map(|name| (*name).to_owned()).collect(),
        };
        let known = [
            ("/", branch(true, &["a", "b"])),
            ("/a", branch(true, &["c"])),
            ("/a/c", branch(false, &["d"])),
        ];
        known.map(|(path, it)| (path.to_owned(), it)).into()
    }

    #[test]
    fn open_folders_show_what_is_in_them() {
        let shown = items(&branches()).into_iter();
        let shown: Vec<_> = shown.map(|item| (item.path, item.level)).collect();
        let expected = [("/", 1), ("/a", 2), ("/a/c", 3), ("/b", 2)];
        assert_eq!(
            shown,
            expected.map(|(path, level)| (path.to_owned(), level))
        );
    }

    #[test]
    fn tab_reaches_the_root_while_the_wanted_folder_is_not_shown() {
        let items = items(&branches());
        assert_eq!(stop(&items, "/a/c"), "/a/c");
        for hidden in ["/a/c/d", "/gone", ""] {
            assert_eq!(stop(&items, hidden), "/", "{hidden}");
        }
    }

    #[test]
    fn keys_walk_the_tree() {
        let to = |path: &str| Some(Step::To(path.to_owned()));
        for (key, at, expected) in [
            ("ArrowDown", "/a", to("/a/c")),
            ("ArrowDown", "/b", None),
            ("ArrowUp", "/b", to("/a/c")),
            ("ArrowUp", "/", None),
            ("ArrowRight", "/a", to("/a/c")),
            ("ArrowRight", "/a/c", Some(Step::Open)),
            ("ArrowRight", "/b", Some(Step::Open)),
            ("ArrowLeft", "/a", Some(Step::Close)),
            ("ArrowLeft", "/a/c", to("/a")),
            ("ArrowLeft", "/b", to("/")),
            ("Home", "/b", to("/")),
            ("End", "/", to("/b")),
            ("Enter", "/b", Some(Step::Show)),
            ("x", "/b", None),
            ("End", "/gone", None),
        ] {
            assert_eq!(step(key, at, &branches()), expected, "{key} at {at}");
        }
    }
}

//! The entries of a folder.

use std::sync::Arc;

use leptos::{ev, prelude::*};
use osb_protocol::execd::file::FileKind;

use super::{
    Asked, Entry, FOLDER_ROWS, Folder, api,
    changes::{act, mode_text, size_text},
    edit::EditDialog,
    find::FindForm,
    here::Here,
    path::{self, join, why_no_name},
    tools::Tools,
    upload::Uploads,
};
use crate::{
    frame::Toasts,
    ui::{AtMinute, ColumnTitle, Confirm, Dialog, Icon, Question, TableHead},
};

/// Titles of the columns of a folder.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Name").class("f-name"),
    ColumnTitle::new("Size").class("f-size"),
    ColumnTitle::new("Mode").class("f-mode"),
    ColumnTitle::new("Owner").class("f-owner"),
    ColumnTitle::new("Changed").class("f-time"),
    ColumnTitle::new("Actions").class("f-actions").hidden(),
];

/// A table of the entries, with what can be done to them.
#[component]
pub(super) fn FolderView(here: Here, folder: Folder) -> impl IntoView {
    let edited = RwSignal::new(None::<Entry>);
    let tools = Tools {
        here: here.clone(),
        folder: folder.path.clone(),
        edited,
    };
    let up = path::parent(&folder.path).map(|up| {
        let href = path::address(&here.id, up, "");
        view! {
            <tr>
                <td class="f-name" colspan="6">
                    <a href=href>
                        <Icon name="corner-left-up" />
                        ".."
                        <span class="visually-hidden">" (the folder above)"</span>
                    </a>
                </td>
            </tr>
        }
    });
    let is_empty = folder.total == 0;
    let has_lossy = folder.entries.iter().any(|entry| entry.lossy);
    let rows = folder.entries.iter().cloned();
    let rows = rows.map(|entry| match entry.lossy {
        true => view! { <LossyRow entry /> }.into_any(),
        false => view! { <EntryRow tools=tools.clone() entry /> }.into_any(),
    });
    let pages = view! { <FolderPages here=here.clone() folder=folder.clone() /> };
    view! {
        <FolderBar here=here.clone() folder=folder.path.clone() />
        <Uploads here=here.clone() folder=folder.path.clone() />
        <FindForm here=here.clone() folder=folder.path.clone() asked=Asked::default() />
        <table class="list file-list">
            <caption class="visually-hidden">"Entries of " {folder.path.clone()}</caption>
            <TableHead of=TITLES />
            <tbody>{up} {rows.collect_view()}</tbody>
        </table>
        {is_empty.then(|| view! { <p class="help">"This folder is empty."</p> })}
        {has_lossy
            .then(|| {
                view! {
                    <p class="help">
                        "Names with � are not UTF-8. The console cannot open, change or download what has such a name. In a terminal, "
                        <code>"ls -b"</code>
                        " shows the bytes of names, and "
                        <code>"mv"</code>
                        " changes them."
                    </p>
                }
            })}
        {pages}
        <EditDialog tools />
    }
    .into_any()
}

#[component]
fn EntryRow(tools: Tools, entry: Entry) -> impl IntoView {
    let at = join(&tools.folder, &entry.name);
    let id = &tools.here.id;
    let is_folder = entry.kind == FileKind::Directory;
    let (icon, kind) = icon_and_kind(entry.kind);
    let download = matches!(entry.kind, FileKind::File | FileKind::Directory).then(|| {
        let what = if is_folder { " as tar" } else { "" };
        let label = format!("Download {}{what}", entry.name);
        view! {
            <a
                class="icon-button"
                rel="external"
                download
                href=path::route(id, "download", &at)
                aria-label=label.clone()
                title=label
            >
                <Icon name="download" />
            </a>
        }
    });
    let change = format!("Rename or move {}, or change its mode", entry.name);
    let edited = tools.edited;
    let to_edit = entry.clone();
    let remove = format!("Delete {}", entry.name);
    let remover = remover(&tools, at.clone(), &entry.name, is_folder);
    view! {
        <tr>
            <td class="f-name">
                <a href=path::address(id, &at, "") data-row-link=at.clone() title=kind>
                    <Icon name=icon />
                    <span>{entry.name.clone()}</span>
                </a>
                {target(&entry)}
            </td>
            {facts(&entry)}
            <td class="f-actions">
                <span class="row-actions">
                    {download}
                    <button
                        type="button"
                        class="icon-button needs-script"
                        aria-label=change.clone()
                        title=change
                        on:click=move |_| edited.set(Some(to_edit.clone()))
                    >
                        <Icon name="pencil" />
                    </button>
                    <button
                        type="button"
                        class="icon-button needs-script"
                        data-act="delete-entry"
                        aria-label=remove.clone()
                        title=remove
                        on:click=move |_| remover()
                    >
                        <Icon name="trash-2" />
                    </button>
                </span>
            </td>
        </tr>
    }
    .into_any()
}

/// An entry that no path leads to.
#[component]
fn LossyRow(entry: Entry) -> impl IntoView {
    let (icon, kind) = icon_and_kind(entry.kind);
    view! {
        <tr>
            <td class="f-name">
                <span class="f-lossy" title=format!("{kind}: the name is not UTF-8")>
                    <Icon name=icon />
                    <span>{entry.name.clone()}</span>
                    <span class="fine">"(not UTF-8)"</span>
                </span>
                {target(&entry)}
            </td>
            {facts(&entry)}
            <td class="f-actions"></td>
        </tr>
    }
    .into_any()
}

fn icon_and_kind(kind: FileKind) -> (&'static str, &'static str) {
    match kind {
        FileKind::Directory => ("folder", "Folder"),
        FileKind::File => ("file", "File"),
        FileKind::Symlink => ("file-symlink", "Link"),
        FileKind::Other => ("file-question-mark", "Device, pipe or socket"),
    }
}

/// Where a link leads.
fn target(entry: &Entry) -> Option<AnyView> {
    let target = entry.target.as_ref()?;
    let text = format!("→ {target}");
    Some(view! { <span class="f-target">{text}</span> }.into_any())
}

/// What a row says of an entry beside its name.
fn facts(entry: &Entry) -> AnyView {
    let size = (entry.kind == FileKind::File).then(|| {
        let exact = format!("{} bytes", entry.size);
        view! { <span title=exact>{size_text(entry.size)}</span> }
    });
    view! {
        <td class="f-size num">{size}</td>
        <td class="f-mode mono" title=format!("{:03}", entry.mode)>
            {mode_text(entry.mode)}
        </td>
        <td class="f-owner">{entry.owner.clone()}</td>
        <td class="f-time">
            <AtMinute at=entry.modified_at />
        </td>
    }
    .into_any()
}

/// Asks, then removes an entry.
fn remover(tools: &Tools, at: String, name: &str, is_folder: bool) -> impl Fn() + 'static {
    let (here, name) = (tools.here.clone(), name.to_owned());
    let (confirm, toasts) = (Confirm::current(), Toasts::current());
    move || {
        let (here, at, deleted) = (here.clone(), at.clone(), format!("Deleted {name}"));
        confirm.ask(Question {
            title: format!("Delete {name}?"),
            text: match is_folder {
                true => format!("Deletes {at} with everything in it. This cannot be undone."),
                false => format!("Deletes {at}. This cannot be undone."),
            },
            yes: "Delete",
            act: Arc::new(move || {
                let doing = api::remove(here.id.clone(), at.clone());
                act(
                    deleted.clone(),
                    toasts,
                    RwSignal::new(false),
                    doing,
                    here.again,
                );
            }),
        });
    }
}

/// What is made in a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Making {
    File,
    Folder,
}

impl Making {
    fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "folder",
        }
    }
}

/// Buttons for the whole folder.
#[component]
fn FolderBar(here: Here, folder: String) -> impl IntoView {
    let making = RwSignal::new(Making::File);
    let open = RwSignal::new(false);
    let name = RwSignal::new(String::new());
    let busy = RwSignal::new(false);
    let toasts = Toasts::current();
    let begin = move |what| {
        making.set(what);
        name.set(String::new());
        open.set(true);
    };
    let why = Memo::new(move |_| why_no_name(&name.read()).filter(|_| !name.read().is_empty()));
    let download = path::route(&here.id, "download", &folder);
    let again = here.again;
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let name = name.get_untracked();
        if why_no_name(&name).is_some() || busy.get_untracked() {
            return;
        }
        let (what, at) = (making.get_untracked(), join(&folder, &name));
        let doing = api::make(here.id.clone(), at, what == Making::Folder);
        let then = Callback::new(move |()| {
            open.set(false);
            again.run(());
        });
        act(format!("Made {name}"), toasts, busy, doing, then);
    };
    let title = Signal::derive(move || format!("New {}", making.get().word()));
    view! {
        <div class="choices file-bar">
            <button type="button" class="button needs-script" on:click=move |_| begin(Making::File)>
                <Icon name="file-plus" />
                "New file"
            </button>
            <button type="button" class="button needs-script" on:click=move |_| begin(Making::Folder)>
                <Icon name="folder-plus" />
                "New folder"
            </button>
            <a class="button" rel="external" download href=download>
                <Icon name="download" />
                "Download as tar"
            </a>
            <button type="button" class="button needs-script" on:click=move |_| again.run(())>
                <Icon name="refresh-cw" />
                "Read again"
            </button>
        </div>
        <Dialog open id="new-entry" title>
            <form class="dialog-form" on:submit=submit>
                <label for="new-name">"Name"</label>
                <input
                    id="new-name"
                    class="mono"
                    autocomplete="off"
                    spellcheck="false"
                    autofocus=true
                    required
                    aria-describedby="new-name-why"
                    prop:value=move || name.get()
                    on:input=move |event| name.set(event_target_value(&event))
                />
                <p id="new-name-why" class="problem" role="status">{move || why.get()}</p>
                <div class="dialog-actions">
                    <button type="submit" class="button primary" disabled=move || busy.get()>
                        "Make it"
                    </button>
                </div>
            </form>
        </Dialog>
    }
    .into_any()
}

/// Links to further entries of a large folder.
#[component]
fn FolderPages(here: Here, folder: Folder) -> impl IntoView {
    if folder.total <= FOLDER_ROWS {
        return ().into_any();
    }
    let link = |from: usize, text: &'static str| {
        let href = path::address(&here.id, &folder.path, &format!("from={from}"));
        view! { <a class="button" href=href>{text}</a> }
    };
    let end = folder.from + folder.entries.len();
    let before =
        (folder.from > 0).then(|| link(folder.from.saturating_sub(FOLDER_ROWS), "Previous"));
    let after = (end < folder.total).then(|| link(end, "Next"));
    view! {
        <nav class="pager" aria-label="Pages">
            <p class="fine num">{format!("{} to {end} of {}", folder.from + 1, folder.total)}</p>
            {before}
            {after}
        </nav>
    }
    .into_any()
}

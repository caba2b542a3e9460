//! The view of the files tab: what is at the path of the address.

use leptos::prelude::*;
use osb_protocol::{SandboxId, execd::file::Found};
use serde::{Deserialize, Serialize};

use super::{
    Asked, Opened, api,
    find::{FindForm, Results},
    folder::FolderView,
    here::Here,
    nothing::Nothing,
    path,
    tree::{Tree, TreePlace},
    upload::UploadState,
    viewer::{FileViewer, How},
};
use crate::{
    query_string::use_query,
    tab::Current,
    ui::{Icon, LoadError},
    view::offers_changes,
};

/// What the address asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    path: String,
    /// Number of the first entry or byte.
    from: u64,
    as_bytes: bool,
    how: How,
    asked: Asked,
}

/// What the server answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Answered {
    Opened(Opened),
    Found(Found),
}

/// A folder or a file of the sandbox.
#[component]
pub fn FilesTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    if !offers_changes() {
        return view! {
            <section class="empty">
                <Icon name="folder" />
                <p>"Your role may look at sandboxes, and not at their files."</p>
            </section>
        }
        .into_any();
    }
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let params = use_query();
    let place = Memo::new(move |_| {
        let params = params.read();
        let path = params.get("path").filter(|path| path.starts_with('/'));
        Place {
            path: path.unwrap_or_else(|| "/".to_owned()),
            from: params
                .get("from")
                .and_then(|from| from.parse().ok())
                .unwrap_or(0),
            as_bytes: params.get("as").as_deref() == Some("bytes"),
            how: How {
                line: params.get("line").and_then(|line| line.parse().ok()),
                as_text: params.get("as").as_deref() == Some("text"),
            },
            asked: Asked {
                name: params.get("name").unwrap_or_default(),
                text: params.get("text").unwrap_or_default(),
                case: params.get("case").is_some(),
            },
        }
    });
    let reached = id.clone();
    let opened = Resource::new_blocking(
        move || place.get(),
        move |place| answer(reached.clone(), place),
    );
    // The fields follow the address, and keep what is typed while a folder is read again.
    let asked = Memo::new(move |_| place.read().asked.clone());
    let typed = RwSignal::new(asked.get_untracked());
    Effect::new(move |_| typed.set(asked.get()));
    let here = Here {
        id: id.clone(),
        typed,
        again: Callback::new(move |()| opened.refetch()),
        saved: StoredValue::new(false),
    };
    let tree = TreePlace::new();
    let shows_folder = StoredValue::new(false);
    Effect::new(move |_| {
        let answered = opened.get();
        let is_folder = matches!(answered, Some(Ok(Ok(Answered::Opened(Opened::Folder(_))))));
        shows_folder.set_value(is_folder);
        if let Some(Ok(Ok(Answered::Opened(opened)))) = answered {
            tree.follow(&place.get_untracked().path, &opened);
        }
    });
    // A file may be edited: that stays.
    let uploaded = Callback::new(move |()| {
        if shows_folder.get_value() {
            opened.refetch();
        }
    });
    let (tree_id, upload_id) = (id.clone(), id.clone());
    view! {
        <div class="files-page">
        <Tree id=tree_id place=tree />
        <div class="files">
            <Steps id place />
            <UploadState id=upload_id again=uploaded />
            <Transition fallback=|| view! { <div class="skeleton" aria-busy="true"><div class="skeleton-row"></div></div> }>
                {move || {
                    let here = here.clone();
                    Suspend::new(async move {
                        let answered = opened.await;
                        let Place { path, how, asked, .. } = place.get_untracked();
                        match answered {
                            Ok(Ok(Answered::Opened(Opened::Folder(folder)))) => {
                                view! { <FolderView here folder /> }.into_any()
                            }
                            Ok(Ok(Answered::Opened(Opened::File(file)))) => {
                                view! { <FileViewer here file=*file how /> }.into_any()
                            }
                            Ok(Ok(Answered::Found(found))) => {
                                view! {
                                    <FindForm here=here.clone() folder=path.clone() asked=asked.clone() />
                                    <Results here folder=path asked found />
                                }
                                    .into_any()
                            }
                            Ok(Err(why)) => {
                                let form = (!asked.is_empty()).then(|| {
                                    let folder = path.clone();
                                    view! { <FindForm here=here.clone() folder asked /> }
                                });
                                view! {
                                    {form}
                                    <Nothing here path why />
                                }
                                    .into_any()
                            }
                            Err(error) => {
                                view! { <LoadError error again=move |()| opened.refetch() /> }.into_any()
                            }
                        }
                    })
                }}
            </Transition>
        </div>
        </div>
    }
    .into_any()
}

/// What is at a place, or what is found there.
async fn answer(
    id: SandboxId,
    place: Place,
) -> Result<Result<Answered, String>, crate::error::ConsoleError> {
    let Place { path, asked, .. } = place;
    if asked.is_empty() {
        let opened = api::open(id, path, place.from, place.as_bytes).await?;
        return Ok(opened.map(Answered::Opened));
    }
    let found = api::find(id, path, asked.name, asked.text, asked.case).await?;
    Ok(found.map(Answered::Found))
}

/// Links to the folders on the way.
#[component]
fn Steps(id: SandboxId, place: Memo<Place>) -> impl IntoView {
    let steps = move || {
        let steps = place.with(|place| path::steps(&place.path));
        let last = steps.len() - 1;
        let step = |(at, (name, to)): (usize, (String, String))| {
            let href = path::address(&id, &to, "");
            let name = match at == last {
                true => view! { <a href=href aria-current="page">{name}</a> }.into_any(),
                false => view! { <a href=href>{name}</a> }.into_any(),
            };
            view! { <li>{name}</li> }
        };
        steps.into_iter().enumerate().map(step).collect_view()
    };
    view! {
        <nav class="steps mono" aria-label="Folders">
            <ol>{steps}</ol>
        </nav>
    }
    .into_any()
}

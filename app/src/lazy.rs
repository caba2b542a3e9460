//! Parts of the console whose code the browser loads when they are first shown.
//!
//! The build splits the wasm at every [`part!`]: what only the part uses goes into a file of its
//! own, and the module that each page starts with gets smaller. [`Lazy`] shows a part. The server
//! renders it like everything else, and [`load_rendered`] loads its code before the page is
//! hydrated; in a page that is already live, the part appears once its code is there.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use leptos::{prelude::*, task::spawn_local, wasm_split::SplitLoaderError};

use crate::{
    live::{Link, Live},
    ui::{AssetRoot, Icon},
};

/// Why a part cannot be shown: its file was not loaded. The browser's console has the details.
pub(crate) type LoadError = SplitLoaderError;

type Loading<T> = Pin<Box<dyn Future<Output = Result<T, LoadError>>>>;

/// A part of the console with a file of its own; [`part!`] makes one.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// Names its file, `pkg/split_<name>.wasm`.
    pub(crate) name: &'static str,
    /// Loads its code, unless that is loaded. May be called again after a failure.
    pub(crate) load: fn() -> Loading<()>,
    /// Its view; ready at once when its code is loaded.
    pub(crate) view: fn() -> Loading<AnyView>,
}

impl Part {
    /// The view of a part whose code is loaded.
    fn loaded_view(self) -> AnyView {
        match poll_once((self.view)().as_mut()) {
            Poll::Ready(Ok(view)) => view,
            Poll::Ready(Err(_)) | Poll::Pending => ().into_any(),
        }
    }
}

/// A [`Part`] with this name, which is an identifier, and this component.
// rustfmt indents the attribute further each time.
#[rustfmt::skip]
macro_rules! part {
    ($name:ident, $component:ident) => {{
        #[leptos::wasm_split::wasm_split(
            $name,
            wasm_split_path = leptos::wasm_split,
            fallible,
            preload(load)
        )]
        fn view() -> Result<leptos::prelude::AnyView, $crate::lazy::LoadError> {
            use leptos::prelude::IntoAny;
            Ok(leptos::view! { <$component /> }.into_any())
        }
        $crate::lazy::Part {
            name: stringify!($name),
            load: || Box::pin(load()),
            view: || Box::pin(view()),
        }
    }};
}
pub(crate) use part;

/// How far the code of a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Loading,
    Loaded,
    Failed,
}

/// Pauses before a part is loaded again that was not loaded although the server can be reached.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(90),
    Duration::from_secs(270),
];

/// Shows a part. While its code is loaded there is a placeholder, and a message with a way to try
/// again when that fails. It is also tried again when the live connection is back.
#[component]
pub(crate) fn Lazy(part: Part) -> impl IntoView {
    let mut loading = (part.load)();
    if let Poll::Ready(Ok(())) = poll_once(loading.as_mut()) {
        return view! {
            <Marker name=part.name />
            {part.loaded_view()}
        }
        .into_any();
    }
    let progress = RwSignal::new(Progress::Loading);
    follow(part, loading, progress);
    let retry = move || {
        progress.set(Progress::Loading);
        follow(part, (part.load)(), progress);
    };
    let content = move || match progress.get() {
        Progress::Loading => view! { <Placeholder /> }.into_any(),
        Progress::Loaded => part.loaded_view(),
        Progress::Failed => {
            load_later(part, progress);
            view! { <NotLoaded retry /> }.into_any()
        }
    };
    content.into_any()
}

/// Updates `progress` when `loading` ends, or another attempt after it.
fn follow(part: Part, loading: Loading<()>, progress: RwSignal<Progress>) {
    spawn_local(async move {
        let end = match loading.await.is_ok() || loaded_again(part).await {
            true => Progress::Loaded,
            false => Progress::Failed,
        };
        // The signal is gone when the user went elsewhere.
        let _ = progress.try_set(end);
    });
}

/// Loads a part again that was not loaded: once each time the live connection is back, whose attempts
/// show when the server is, and a few times while it stands. Called where the message is rendered,
/// and ends with it, so the message stays until the part is there.
fn load_later(part: Part, progress: RwSignal<Progress>) {
    let Some(live) = use_context::<Live>() else {
        return;
    };
    let failures = RwSignal::new(0_usize);
    let try_again = move || {
        spawn_local(async move {
            if (part.load)().await.is_err() {
                let _ = failures.try_update(|failures| *failures += 1);
            } else if progress.try_get_untracked() == Some(Progress::Failed) {
                progress.set(Progress::Loaded);
            }
        });
    };
    // The value of an effect is what it returned before: whether the connection was away.
    Effect::new(move |was_away: Option<bool>| {
        let failures = failures.get();
        if live.link.get() != Link::Live {
            return true;
        }
        let pause = match was_away {
            Some(true) => Some(Duration::ZERO),
            _ => PAUSES.get(failures).copied(),
        };
        let timer = pause.and_then(|pause| set_timeout_with_handle(try_again, pause).ok());
        if let Some(timer) = timer {
            on_cleanup(move || timer.clear());
        }
        false
    });
}

/// Names the part that the server rendered here, and makes the browser load its file at once.
#[component]
fn Marker(name: &'static str) -> impl IntoView {
    // In a live page the file is loaded, and the browser would complain about an unused preload.
    let preload = cfg!(feature = "ssr").then(|| {
        let AssetRoot(root) = AssetRoot::current();
        format!("{root}/pkg/split_{name}.wasm")
    });
    view! {
        <link
            data-part=name
            rel=preload.is_some().then_some("preload")
            href=preload
            r#as="fetch"
            r#type="application/wasm"
            crossorigin="anonymous"
        />
    }
}

#[component]
fn Placeholder() -> impl IntoView {
    view! {
        <div class="skeleton" role="status" aria-busy="true" aria-label="Loading">
            <div class="skeleton-row"></div>
            <div class="skeleton-row"></div>
        </div>
    }
}

#[component]
fn NotLoaded(retry: impl Fn() + 'static) -> impl IntoView {
    view! {
        <section class="empty">
            <Icon name="triangle-alert" />
            <p role="alert">
                "This part of the console could not be loaded. It appears here when the server can be reached again. If the server was updated, reload the page."
            </p>
            <p class="choices">
                <button type="button" class="button" on:click=move |_| retry()>
                    "Try again"
                </button>
                <a class="button" href="" rel="external">
                    "Reload the page"
                </a>
            </p>
        </section>
    }
}

/// Loads those of `parts` that the server rendered into this page. Returns whether all are loaded;
/// otherwise the page cannot be hydrated.
#[cfg(feature = "hydrate")]
pub(crate) async fn load_rendered(parts: &[Part]) -> bool {
    for name in crate::browser::data_of_all("part") {
        let Some(part) = parts.iter().find(|part| part.name == name) else {
            leptos::logging::error!("{name:?} is not in the list of parts");
            return false;
        };
        if (part.load)().await.is_err() && !loaded_again(*part).await {
            return false;
        }
    }
    true
}

/// Tries again to load a part whose loading broke off, as it does when the machine changes its network.
#[cfg(feature = "hydrate")]
async fn loaded_again(part: Part) -> bool {
    /// Further attempts, and the pause before each.
    const ATTEMPTS: usize = 2;
    const PAUSE_MS: i32 = 500;
    for _ in 0..ATTEMPTS {
        crate::browser::pause(PAUSE_MS).await;
        if (part.load)().await.is_ok() {
            return true;
        }
    }
    false
}

/// Only browsers load parts.
#[cfg(not(feature = "hydrate"))]
async fn loaded_again(_: Part) -> bool {
    false
}

/// Polls a future without being woken by it.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;

    #[component]
    fn Sample() -> impl IntoView {
        view! { <p>"content"</p> }
    }

    #[test]
    fn the_server_renders_a_part_and_names_its_file() {
        let html = Owner::new().with(|| {
            provide_context(AssetRoot("/console/assets/1f".into()));
            let part = part!(sample, Sample);
            view! { <Lazy part /> }.into_any().to_html()
        });
        assert!(html.contains("<p>content"), "{html}");
        assert!(html.contains(r#"data-part="sample""#), "{html}");
        assert!(
            html.contains(r#"href="/console/assets/1f/pkg/split_sample.wasm""#),
            "{html}"
        );
    }
}

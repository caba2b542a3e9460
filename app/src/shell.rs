//! The HTML document around the pages.

use leptos::{nonce::use_nonce, prelude::*};
use leptos_meta::{MetaTags, provide_meta_context};

#[cfg(feature = "ssr")]
use crate::deletion::{Deletion, DeletionPage};
use crate::{app::App, frame::NotFound, ui::AssetRoot};

/// Applies the chosen theme and the chosen width of the rail before the first paint, so that a page
/// never flashes or moves. `frame/theme.rs` and `frame/rail.rs` store the choices.
const LOOK: &str = r#"{const d=document.documentElement.dataset;try{for(const n of["theme","rail"]){const v=localStorage.getItem("osb."+n);if(v)d[n]=v}}catch{}d.script="on"}"#;

/// Loads the page's wasm and takes over what the server rendered. A request that breaks off, as when
/// the machine changes its network, is repeated. If it cannot be loaded, the page works as without
/// script.
fn start(root: &str) -> String {
    format!(
        r#"try{{const{{default:init,hydrate}}=await import("{root}/pkg/osb.js");const get=async n=>{{try{{return await fetch("{root}/pkg/osb_bg.wasm")}}catch(e){{if(!n)throw e;await new Promise(r=>setTimeout(r,500));return get(n-1)}}}};await init({{module_or_path:get(2)}});hydrate()}}catch(e){{console.error(e);document.documentElement.dataset.script="failed"}}"#
    )
}

/// Modules that every page loads: the bindings of the wasm, and the modules that these name.
const MODULES: [&str; 3] = ["pkg/osb.js", "pkg/osb_parts.js", "import.mjs"];

/// The document of every page. Without `hydrates`, when this build has no wasm, it stays as
/// rendered.
pub fn shell(hydrates: bool) -> impl IntoView {
    document(hydrates, || view! { <App /> }.into_any())
}

/// The document that asks before a delete, for browsers without script.
#[cfg(feature = "ssr")]
pub fn deletion(deletion: Deletion) -> impl IntoView {
    document(false, || {
        provide_meta_context();
        view! { <DeletionPage deletion /> }.into_any()
    })
}

/// The document for an address that is no page. It does not read the address, so no spelling of an
/// address makes it show another page.
pub fn not_found() -> impl IntoView {
    document(false, || {
        provide_meta_context();
        view! { <NotFound /> }.into_any()
    })
}

fn document(hydrates: bool, body: impl FnOnce() -> AnyView) -> impl IntoView {
    let AssetRoot(root) = AssetRoot::current();
    view! {
        <!DOCTYPE html>
        <html lang="en" data-assets=root.to_string()>
            <head>
                <meta charset="utf-8" />
                <meta name="viewport" content="width=device-width, initial-scale=1" />
                <meta name="color-scheme" content="light dark" />
                <link rel="icon" href=format!("{root}/favicon.svg") type="image/svg+xml" />
                <link
                    rel="preload"
                    href=format!("{root}/vendor/geist.woff2")
                    r#as="font"
                    r#type="font/woff2"
                    crossorigin="anonymous"
                />
                <link rel="stylesheet" href=format!("{root}/console.css") />
                <script nonce=use_nonce()>{LOOK}</script>
                {hydrates.then(|| scripts(&root))}
                <MetaTags />
            </head>
            <body>
                {body()}
                {hydrates.then(|| view! { <NotLive /> })}
            </body>
        </html>
    }
}

/// Shown when the page's wasm could not be loaded.
#[component]
fn NotLive() -> impl IntoView {
    view! {
        <p class="banner not-live" data-tone="bad" role="alert">
            "The script of this page could not be loaded, so the page does not update. "
            <a href="">"Reload the page"</a>
        </p>
    }
}

fn scripts(root: &str) -> impl IntoView + use<> {
    let preloads = MODULES.map(|file| {
        view! { <link rel="modulepreload" href=format!("{root}/{file}") nonce=use_nonce() /> }
    });
    view! {
        <link
            rel="preload"
            href=format!("{root}/pkg/osb_bg.wasm")
            r#as="fetch"
            r#type="application/wasm"
            crossorigin="anonymous"
        />
        {preloads}
        <script type="module" nonce=use_nonce()>
            {start(root)}
        </script>
    }
}

//! The frame of every page: rail, top bar, toasts, keys. It stays mounted while pages change, with
//! the tab's live connection, clock and upload.

mod dock;
mod keys;
mod palette;
mod rail;
mod row_focus;
mod theme;
mod toast;
mod topbar;
mod uploading;

use std::time::Duration;

use leptos::{ev, prelude::*};
use leptos_router::{components::Outlet, hooks::use_location};

pub(crate) use dock::{Dock, DockContent, Panel, Shows};
pub(crate) use palette::{PaletteContent, PaletteOpen, TypedEarly};
pub use toast::Toasts;
pub(crate) use topbar::Titled;
pub(crate) use uploading::{UploadPlace, UploadProgress, Uploading};

use crate::{
    browser,
    live::{Link, Live},
    ui::{Clock, Confirm, ConfirmDialog, Icon, LocalTimes, PageTitle, SignInLink},
    view::{Notice, ServerInfo},
};

/// The frame with the current page in it.
#[component]
pub fn Frame() -> impl IntoView {
    let info = SharedValue::new(ServerInfo::of_request).into_inner();
    let notice = SharedValue::new(use_context::<Notice>).into_inner();
    // Both sides start with the server's clock, so that hydration finds the same text.
    let clock = Clock(RwSignal::new(
        SharedValue::new(browser::now_ms).into_inner(),
    ));
    let live = Live::new();
    let toasts = Toasts::new(notice);
    provide_context(info.clone());
    let local = LocalTimes(RwSignal::new(false));
    provide_context(clock);
    provide_context(local);
    provide_context(live);
    provide_context(toasts);
    provide_context(Titled(RwSignal::new(None)));
    let confirm = Confirm::new();
    provide_context(confirm);
    let uploading = Uploading::new();
    provide_context(uploading);
    uploading.guard();
    Effect::new(move |_| {
        live.start();
        clock.0.set(browser::now_ms());
        local.0.set(true);
        let tick = set_interval_with_handle(
            move || {
                let now = browser::now_ms();
                clock.0.set(now);
                live.check(now);
            },
            Duration::from_secs(1),
        );
        if let Ok(tick) = tick {
            on_cleanup(move || tick.clear());
        }
        let online = window_event_listener(ev::online, move |_| live.connect_now());
        on_cleanup(move || online.remove());
    });
    // What opened another page may be gone with the page before.
    let here = use_location().pathname;
    Effect::new(move |before: Option<String>| {
        let path = here.get();
        if before.is_some_and(|before| before != path) {
            browser::focus_if_lost(browser::MAIN);
        }
        path
    });
    row_focus::return_to_row(here);
    let help_open = RwSignal::new(false);
    let palette = PaletteOpen(RwSignal::new(false));
    provide_context(palette);
    let dock = Dock::new();
    provide_context(dock);
    keys::listen(help_open, palette, dock);
    view! {
        <a class="skip" href="#main">
            "Skip to content"
        </a>
        <div class="frame">
            <rail::Rail version=info.version.clone() />
            <topbar::TopBar info help_open />
            <main id=browser::MAIN class="page" tabindex="-1">
                <SignedOut live />
                <Outlet />
            </main>
            <dock::DockPlace dock />
        </div>
        <toast::ToastRegion />
        <keys::Help open=help_open />
        <palette::Palette />
        <ConfirmDialog confirm />
    }
    .into_any()
}

/// A banner for a page whose session ended: what it shows is no longer updated.
#[component]
fn SignedOut(live: Live) -> impl IntoView {
    let notice = || {
        view! {
            <div class="banner" data-tone="bad">
                <Icon name="key-round" />
                <p>"You are signed out. The last known state is shown below."</p>
                <SignInLink />
            </div>
        }
    };
    let is_out = move || live.link.get() == Link::SignedOut;
    // Present from the start: screen readers announce changes within an alert, not a new one.
    view! { <div role="alert" class="signed-out">{move || is_out().then(notice)}</div> }.into_any()
}

/// The page for unknown addresses.
#[component]
pub fn NotFound() -> impl IntoView {
    view! {
        <PageTitle text="Not found" />
        <main class="login">
            <div class="card login-card">
                <h1>"No such page"</h1>
                <p>"The console has no page at this address."</p>
                <a class="button primary" href="/console/sandboxes">
                    "All sandboxes"
                </a>
            </div>
        </main>
    }
    .into_any()
}

//! The top bar: breadcrumb, runtime, connection state, theme, log-out.

use leptos::prelude::*;
use leptos_router::hooks::use_location;
use osb_protocol::{
    SandboxId,
    identity::{Identity, PrincipalKind, Role},
};

use super::{palette::PaletteButton, theme::ThemeSwitch};
use crate::{
    live::{Link, Live},
    tab::Tab,
    ui::{Clock, Icon, duration},
    view::{ServerInfo, template_short},
};

/// Silence, in seconds, after which a live connection shows its age.
const FRESH_SECONDS: i64 = 20;

/// The sandbox, snapshot or template of the page and its title, once the page has read it. Provided as context by
/// the frame.
#[derive(Clone, Copy)]
pub(crate) struct Titled(pub(crate) RwSignal<Option<(SandboxId, String)>>);

/// The top bar.
#[component]
pub(super) fn TopBar(
    /// The server's description of itself.
    info: ServerInfo,
    /// Opens the help.
    help_open: RwSignal<bool>,
) -> impl IntoView {
    let user = info.identity.and_then(|identity| user_of(&identity));
    view! {
        <header class="topbar">
            <Breadcrumb />
            <PaletteButton />
            <span class="chip" title="Where sandboxes run">
                <Icon name="plug" />
                <span class="visually-hidden">"Runtime: "</span>
                {info.runtime}
            </span>
            <LinkState />
            <button
                type="button"
                class="icon-button needs-script"
                aria-label="Keyboard shortcuts"
                data-command="Keyboard shortcuts"
                title="Keyboard shortcuts (?)"
                on:click=move |_| help_open.set(true)
            >
                <Icon name="keyboard" />
            </button>
            <ThemeSwitch />
            {user.map(|user| view! { <span class="chip optional">{user}</span> })}
            <form method="post" action="/console/logout">
                <button
                    type="submit"
                    class="icon-button"
                    aria-label="Log out"
                    title="Log out"
                    data-command="Log out"
                >
                    <Icon name="log-out" />
                </button>
            </form>
        </header>
    }
    .into_any()
}

/// Who is signed in, unless it is the one configured key, with what limits the session.
fn user_of(identity: &Identity) -> Option<String> {
    let is_one = matches!(
        identity.kind,
        PrincipalKind::Anonymous | PrincipalKind::ConfiguredKey
    );
    let tenant = identity.tenant.as_ref().filter(|it| **it != identity.name);
    let tenant = tenant
        .map(|tenant| format!(" · {tenant}"))
        .unwrap_or_default();
    let role = match identity.role {
        Role::ReadOnly => " · read only",
        Role::Operator | Role::ServiceAdmin => "",
    };
    (!is_one).then(|| format!("{}{tenant}{role}", identity.name))
}

/// Names of the steps to this page, each with its address but the last.
fn steps(path: &str) -> Vec<(String, String)> {
    let mut steps = Vec::new();
    let mut address = String::from("/console");
    let parts = path.strip_prefix("/console").unwrap_or(path).split('/');
    for (depth, part) in parts.filter(|part| !part.is_empty()).enumerate() {
        address = format!("{address}/{part}");
        let name = match (depth, part) {
            (0, "sandboxes") => "Sandboxes".to_owned(),
            (0, "create") => "Create".to_owned(),
            (0, "snapshots") => "Snapshots".to_owned(),
            (0, "pools") => "Pools".to_owned(),
            (0, "templates") => "Templates".to_owned(),
            (0, "design") => "Design".to_owned(),
            (0, "access") => "Access".to_owned(),
            (0, "events") => "Events & audit".to_owned(),
            (0, "settings") => "Settings & health".to_owned(),
            // Pools have names.
            (1, name) if address.starts_with("/console/pools/") => name.to_owned(),
            (1, id) if address.starts_with("/console/templates/") => template_short(id).to_owned(),
            (1, id) => SandboxId::from(id).short().to_owned(),
            (_, part) => {
                Tab::of_segment(part).map_or_else(|| part.to_owned(), |tab| tab.title().to_owned())
            }
        };
        steps.push((name, address.clone()));
    }
    if steps.is_empty() {
        steps.push(("Overview".to_owned(), address));
    }
    steps
}

/// Puts the title of a sandbox, a snapshot or a template in the place of its id, if the steps lead to it.
fn name_step(steps: &mut [(String, String)], titled: Option<(SandboxId, String)>) -> bool {
    let Some((id, title)) = titled else {
        return false;
    };
    let is_page = steps
        .get_mut(1)
        .filter(|(name, address)| address.ends_with(id.as_str()) && *name != title);
    is_page.map(|(name, _)| *name = title).is_some()
}

#[component]
fn Breadcrumb() -> impl IntoView {
    let path = use_location().pathname;
    let Titled(titled) = expect_context();
    let crumbs = move || {
        let mut steps = path.with(|path| steps(path));
        let is_named = name_step(&mut steps, titled.get());
        let last = steps.len().saturating_sub(1);
        let crumb = move |(at, (name, address)): (usize, (String, String))| {
            let mono = (at == 1 && !is_named).then_some("mono");
            let content = if at == last {
                view! { <span class=mono aria-current="page">{name}</span> }.into_any()
            } else {
                view! { <a class=mono href=address>{name}</a> }.into_any()
            };
            view! { <li>{content}</li> }
        };
        steps.into_iter().enumerate().map(crumb).collect_view()
    };
    view! {
        <nav class="breadcrumb" aria-label="Breadcrumb">
            <ol>{crumbs}</ol>
        </nav>
    }
    .into_any()
}

/// State of the live connection. A click pauses or resumes it, or connects again at once.
#[component]
fn LinkState() -> impl IntoView {
    let live = expect_context::<Live>();
    let Clock(now) = Clock::current();
    let quiet = Memo::new(move |_| (now.get() - live.heard.get()) / 1_000);
    let state = move || match (live.paused.get(), live.link.get()) {
        (_, Link::SignedOut) => "out",
        (_, Link::Lost) => "lost",
        (true, _) => "paused",
        (_, Link::Starting) => "static",
        (_, Link::Live) => "live",
    };
    let text = move || match (live.paused.get(), live.link.get()) {
        (_, Link::SignedOut) => "signed out".to_owned(),
        (_, Link::Lost) => "Offline".to_owned(),
        (true, _) => "paused".to_owned(),
        (_, Link::Starting) => "as rendered".to_owned(),
        (_, Link::Live) if quiet.get() <= FRESH_SECONDS => "live".to_owned(),
        (_, Link::Live) => format!("updated {} ago", duration(quiet.get())),
    };
    let is_lost = move || live.link.get() == Link::Lost;
    // Narrow screens leave out the age.
    let age = move || is_lost().then(|| format!(" · last update {} ago", duration(quiet.get())));
    let title = move || match (live.paused.get(), live.link.get()) {
        (_, Link::SignedOut) => "Live updates need a new sign-in",
        (_, Link::Lost) => "The server cannot be reached. Connect again at once",
        (true, _) => "Resume live updates",
        (false, _) => "Pause live updates",
    };
    let on_click = move |_| match is_lost() {
        true => live.connect_now(),
        false => live.toggle_pause(),
    };
    view! {
        <button
            type="button"
            class="link-state num"
            data-command="Pause or resume live updates"
            data-state=state
            title=title
            disabled=move || live.link.get() == Link::SignedOut
            on:click=on_click
        >
            <span class="dot" aria-hidden="true"></span>
            <span>{text} <span class="optional">{age}</span> {move || is_lost().then_some(" · Retry")}</span>
        </button>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_further_principal_is_named() {
        let identity = |kind, role, tenant: Option<&str>| Identity {
            kind,
            id: "1".into(),
            name: "zoe".into(),
            role,
            tenant: tenant.map(str::to_owned),
        };
        let one = identity(PrincipalKind::ConfiguredKey, Role::ServiceAdmin, None);
        assert_eq!(user_of(&one), None);
        let user = identity(PrincipalKind::User, Role::ReadOnly, Some("a"));
        assert_eq!(user_of(&user).as_deref(), Some("zoe · a · read only"));
        let tenant = identity(PrincipalKind::TenantKey, Role::Operator, Some("zoe"));
        assert_eq!(user_of(&tenant).as_deref(), Some("zoe"));
    }

    #[test]
    fn the_breadcrumb_follows_the_path() {
        let names = |path| {
            steps(path)
                .into_iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("/console"), ["Overview"]);
        assert_eq!(names("/console/sandboxes"), ["Sandboxes"]);
        assert_eq!(
            names("/console/snapshots/0b6c1f2e-aaaa"),
            ["Snapshots", "0b6c1f2e"]
        );
        assert_eq!(
            names("/console/templates/tpl-0b6c1f2e-aaaa"),
            ["Templates", "tpl-0b6c1f2e"]
        );
        assert_eq!(
            names("/console/pools/python-3-12"),
            ["Pools", "python-3-12"]
        );
        assert_eq!(
            names("/console/sandboxes/0b6c1f2e-aaaa/terminal"),
            ["Sandboxes", "0b6c1f2e", "Terminal"]
        );
        assert_eq!(steps("/console/sandboxes/x")[0].1, "/console/sandboxes");
        let mut named = steps("/console/sandboxes/0b6c1f2e-aaaa/terminal");
        let other = (SandboxId::from("1b6c1f2e-aaaa"), "api".to_owned());
        assert!(!name_step(&mut named, Some(other)));
        let title = (SandboxId::from("0b6c1f2e-aaaa"), "web".to_owned());
        assert!(name_step(&mut named, Some(title)));
        assert_eq!(named[1].0, "web");
        assert_eq!(named[1].1, "/console/sandboxes/0b6c1f2e-aaaa");
    }
}

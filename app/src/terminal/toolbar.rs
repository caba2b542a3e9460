//! The tools beside the state of a terminal.

use leptos::{ev, prelude::*, task::spawn_local};
use osb_protocol::SandboxId;

use super::{Settings, TerminalAction, Ui, asked::Asked, new_shell::PROGRAM};
use crate::{
    browser,
    frame::{Panel, Shows},
    tab::{Current, Tab},
    ui::Icon,
    view::title,
};

/// Id of the search field of a shell.
fn field(ui: Ui) -> String {
    format!("terminal-search-{}-{}", ui.shell, ui.docked)
}

/// Buttons for the terminal, which need script.
#[component]
pub(super) fn Toolbar(id: SandboxId, ui: Ui) -> impl IntoView {
    let search = move |_| {
        ui.searching.update(|on| *on = !*on);
        match ui.searching.get_untracked() {
            true => {
                ui.starting.set(false);
                browser::focus_when_shown(field(ui));
            }
            false => ui.action.set(Some(TerminalAction::EndFind)),
        }
    };
    let start = Callback::new(move |_| {
        ui.starting.update(|on| *on = !*on);
        match ui.starting.get_untracked() {
            true => {
                ui.searching.set(false);
                browser::focus_when_shown(PROGRAM);
            }
            false => ui.action.set(Some(TerminalAction::EndFind)),
        }
    });
    let address = Tab::Terminal.address(&id);
    let share = Callback::new(move |_| share(ui, &address));
    let size = ui.settings.font_size;
    let resize = move |by: i32| {
        let next = size.get_untracked().saturating_add_signed(by);
        if Settings::FONT_SIZES.contains(&next) {
            size.set(next);
        }
    };
    let full = Signal::derive(move || match ui.full.get() {
        true => "minimize-2",
        false => "maximize-2",
    });
    let panel = use_context::<Current>().map(|Current(current)| Panel {
        sandbox: id.clone(),
        shows: Shows::Shell(ui.shell),
        name: current.with_untracked(|detail| title(&detail.sandbox).to_owned()),
    });
    let to_dock = ui
        .dock
        .filter(|_| !ui.docked)
        .zip(panel)
        .map(|(dock, panel)| {
            view! {
                <button
                    type="button"
                    class="icon-button"
                    aria-label="Keep in the dock"
                    title="Keep in the dock, beside other pages"
                    data-command="Keep the terminal in the dock"
                    on:click=move |_| dock.open(panel.clone())
                >
                    <Icon name="panel-bottom" />
                </button>
            }
        });
    view! {
        <div class="terminal-tools needs-script" role="group" aria-label="Terminal tools">
            {move || {
                (!ui.docked && ui.alive.get())
                    .then(|| view! { <Tool label="New shell" icon="plus" on=ui.starting press=start /> })
            }}
            {move || {
                ui.alive
                    .get()
                    .then(|| view! { <Tool label="Copy a link to watch this shell" icon="eye" press=share /> })
            }}
            <Tool label="Search the output" icon="search" on=ui.searching press=search />
            <Tool
                label="Copy the selection (Ctrl+Shift+C)"
                icon="copy"
                press=move |_| ui.action.set(Some(TerminalAction::Copy))
            />
            <Tool label="Smaller text" icon="a-arrow-down" press=move |_| resize(-1) />
            <Tool label="Larger text" icon="a-arrow-up" press=move |_| resize(1) />
            <Tool
                label="Screen reader mode"
                icon="ear"
                on=ui.settings.screen_reader
                press=move |_| ui.settings.screen_reader.update(|on| *on = !*on)
            />
            {to_dock}
            {(!ui.docked)
                .then(|| {
                    view! {
                        <Tool
                            label="Full height"
                            icon=full
                            on=ui.full
                            press=move |_| ui.full.update(|on| *on = !*on)
                        />
                    }
                })}
        </div>
    }
    .into_any()
}

/// Copies the address at which other operators watch the shell.
fn share(ui: Ui, terminal: &str) {
    let Some(shell) = ui.pty.get_untracked() else {
        return ui.toasts.bad("There is no shell yet.");
    };
    let link = browser::url_of(&format!("{terminal}{}", Asked::watch_query(&shell)));
    spawn_local(async move {
        match browser::copy(link.clone()).await {
            true => ui.toasts.good(
                "The link is copied. It shows this shell to signed-in operators, without typing.",
            ),
            false => ui
                .toasts
                .bad(format!("The browser refused to copy this link: {link}")),
        }
    });
}

/// A button, which with `on` is pressed or not.
#[component]
fn Tool(
    label: &'static str,
    #[prop(into)] icon: Signal<&'static str>,
    #[prop(optional)] on: Option<RwSignal<bool>>,
    #[prop(into)] press: Callback<ev::MouseEvent>,
) -> impl IntoView {
    view! {
        <button
            type="button"
            class="icon-button"
            aria-label=label
            title=label
            aria-pressed=on.map(|on| move || on.get().to_string())
            on:click=move |event| press.run(event)
        >
            <Icon name=icon />
        </button>
    }
    .into_any()
}

/// The search, while it is open.
#[component]
pub(super) fn SearchBar(ui: Ui) -> impl IntoView {
    let find = move |back| ui.action.set(Some(TerminalAction::Find { back }));
    let close = move || {
        ui.searching.set(false);
        ui.found.set(None);
        ui.action.set(Some(TerminalAction::EndFind));
    };
    let on_key = move |event: ev::KeyboardEvent| match event.key().as_str() {
        "Escape" => {
            event.prevent_default();
            close();
        }
        "Enter" => {
            event.prevent_default();
            find(event.shift_key());
        }
        _ => {}
    };
    view! {
        <Show when=move || ui.searching.get()>
            <div class="terminal-search" role="search" aria-label="Output of the terminal">
                <input
                    id=field(ui)
                    type="search"
                    aria-label="Text to find"
                    placeholder="Find in the output"
                    autocomplete="off"
                    spellcheck="false"
                    prop:value=move || ui.search.get()
                    on:input=move |event| {
                        ui.found.set(None);
                        ui.search.set(event_target_value(&event));
                    }
                    on:keydown=on_key
                />
                <button type="button" class="button" on:click=move |_| find(true)>
                    "Previous"
                </button>
                <button type="button" class="button" on:click=move |_| find(false)>
                    "Next"
                </button>
                <span role="status">
                    {move || (ui.found.get() == Some(false)).then_some("Not found")}
                </span>
            </div>
        </Show>
    }
    .into_any()
}

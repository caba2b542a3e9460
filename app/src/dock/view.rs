//! The dock: its bar, its height, its panels.

use leptos::{ev, prelude::*};
use wasm_bindgen::JsCast;

use super::panel::PanelBody;
use crate::{
    browser,
    frame::{Dock, Panel, Shows},
    tab::Tab,
    ui::Icon,
    view::offers_changes,
};

/// Step of the height with a key, in CSS pixels.
const STEP: i64 = 24;

/// The dock below the page.
#[component]
pub fn DockView() -> impl IntoView {
    let dock = expect_context::<Dock>();
    let folded = Memo::new(move |_| dock.0.with(|it| it.folded));
    let beside = Memo::new(move |_| dock.0.with(|it| it.side_by_side));
    let panels = move || dock.0.with(|it| it.panels.clone());
    let key = |panel: &Panel| (panel.sandbox.clone(), panel.shows);
    let height = move || dock.0.with(|it| format!("{}px", it.height));
    view! {
        <section class="dock" aria-label="Dock" data-folded=move || folded.get().then_some("on")>
            <Show when=move || !folded.get()>
                <Edge dock />
            </Show>
            <div class="dock-bar">
                <ul class="dock-names" aria-label="Shells and logs in the dock">
                    <For each=panels key let(panel)>
                        <Name dock panel />
                    </For>
                </ul>
                <Tools dock />
            </div>
            <div
                class="dock-panels"
                hidden=move || folded.get()
                data-beside=move || beside.get().then_some("on")
                style:height=height
            >
                <For each=panels key let(panel)>
                    <Place dock panel />
                </For>
            </div>
        </section>
    }
    .into_any()
}

/// The place of a panel. Panels behind others stay: a shell keeps its output, a log its lines.
#[component]
fn Place(dock: Dock, panel: Panel) -> impl IntoView {
    let shown = panel.clone();
    let is_behind = move || !dock.0.with(|it| it.side_by_side) && !is_front(dock, &panel);
    view! {
        <div class="dock-panel" hidden=is_behind>
            <PanelBody panel=shown />
        </div>
    }
    .into_any()
}

fn is_front(dock: Dock, panel: &Panel) -> bool {
    dock.0.with(|it| {
        let front = it.panels.get(it.front);
        front.is_some_and(|front| front.is(&panel.sandbox, panel.shows))
    })
}

/// What a panel is called.
fn title(panel: &Panel) -> String {
    match panel.shows {
        Shows::Log => format!("{} · log", panel.name),
        Shows::Shell(0) => panel.name.clone(),
        Shows::Shell(number) => format!("{} · {}", panel.name, number + 1),
    }
}

/// The name of a panel, which brings it to the front, and the button that closes it.
#[component]
fn Name(dock: Dock, panel: Panel) -> impl IntoView {
    let title = title(&panel);
    let (icon, close) = match panel.shows {
        Shows::Log => ("scroll-text", format!("Close the log {title}")),
        Shows::Shell(0) => (
            "terminal",
            format!("Close {title}; the shell goes on in the sandbox's terminal"),
        ),
        Shows::Shell(_) => ("terminal", format!("End the shell {title}")),
    };
    let (front, chosen, closed) = (panel.clone(), panel.clone(), panel);
    let choose = move |_| dock.open(chosen.clone());
    let on_close = move |_| dock.close(&closed.sandbox, closed.shows);
    view! {
        <li data-front=move || is_front(dock, &front).then_some("on")>
            <button type="button" class="dock-name" title=title.clone() on:click=choose>
                <Icon name=icon />
                <span>{title.clone()}</span>
            </button>
            <button
                type="button"
                class="icon-button"
                aria-label=close.clone()
                title=close
                on:click=on_close
            >
                <Icon name="x" />
            </button>
        </li>
    }
    .into_any()
}

#[component]
fn Tools(dock: Dock) -> impl IntoView {
    let folded = Memo::new(move |_| dock.0.with(|it| it.folded));
    let beside = Memo::new(move |_| dock.0.with(|it| it.side_by_side));
    let count = Memo::new(move |_| dock.0.with(|it| it.panels.len()));
    let fold_words = move || match folded.get() {
        true => "Unfold the dock (d)",
        false => "Fold the dock (d)",
    };
    let fold_icon = Signal::derive(move || match folded.get() {
        true => "chevron-up",
        false => "chevron-down",
    });
    let front = move || dock.0.with(|it| it.panels.get(it.front).cloned());
    // A shell that its page shows is no longer in the dock.
    let to_page = move || {
        let panel = front()?;
        let (tab, words) = match panel.shows {
            Shows::Log => (Tab::Logs, "Show this log on its page"),
            Shows::Shell(0) => (Tab::Terminal, "Show this shell on its page"),
            Shows::Shell(_) => return None,
        };
        let href = tab.address(&panel.sandbox);
        let close = move |_| dock.close(&panel.sandbox, panel.shows);
        Some(view! {
            <a class="icon-button" href=href aria-label=words title=words on:click=close>
                <Icon name="maximize-2" />
            </a>
        })
    };
    let may_open = offers_changes();
    let open_words = match may_open {
        true => "Further shell in this sandbox",
        false => "Your role may look at sandboxes, and not open shells in them.",
    };
    view! {
        <div class="dock-tools" role="group" aria-label="Dock tools">
            <button
                type="button"
                class="icon-button"
                disabled=!may_open
                aria-label="Further shell in this sandbox"
                title=open_words
                data-command="Further shell in the dock"
                on:click=move |_| dock.open_further_shell()
            >
                <Icon name="plus" />
            </button>
            <Show when=move || { count.get() > 1 }>
                <button
                    type="button"
                    class="icon-button"
                    aria-label="Side by side"
                    title="Side by side"
                    aria-pressed=move || beside.get().to_string()
                    on:click=move |_| dock.0.update(|it| it.side_by_side = !it.side_by_side)
                >
                    <Icon name="columns-2" />
                </button>
            </Show>
            {to_page}
            <button
                type="button"
                class="icon-button"
                aria-label=fold_words
                title=fold_words
                aria-expanded=move || (!folded.get()).to_string()
                data-command="Fold or unfold the dock"
                on:click=move |_| dock.toggle()
            >
                <Icon name=fold_icon />
            </button>
        </div>
    }
    .into_any()
}

/// The upper edge, which is moved to change the height.
#[component]
fn Edge(dock: Dock) -> impl IntoView {
    let height = Memo::new(move |_| dock.0.with(|it| it.height));
    // Where the pointer took the edge, and the height then.
    let taken = StoredValue::new(None::<(i32, u32)>);
    let on_down = move |event: ev::PointerEvent| {
        let target = event
            .current_target()
            .and_then(|it| it.dyn_into::<web_sys::Element>().ok());
        if let Some(target) = target {
            // Fails only for a pointer that is gone.
            let _ = target.set_pointer_capture(event.pointer_id());
            taken.set_value(Some((event.client_y(), height.get_untracked())));
        }
    };
    let on_move = move |event: ev::PointerEvent| {
        if let Some((from, before)) = taken.get_value() {
            let up = i64::from(from) - i64::from(event.client_y());
            dock.resize(i64::from(before) + up, browser::window_height());
        }
    };
    let on_key = move |event: ev::KeyboardEvent| {
        let now = i64::from(height.get_untracked());
        let next = match event.key().as_str() {
            "ArrowUp" => now + STEP,
            "ArrowDown" => now - STEP,
            "Home" => i64::MAX,
            "End" => 0,
            _ => return,
        };
        event.prevent_default();
        dock.resize(next, browser::window_height());
    };
    view! {
        <div
            class="dock-edge"
            role="separator"
            tabindex="0"
            aria-orientation="horizontal"
            aria-label="Height of the dock"
            aria-valuemin="120"
            aria-valuenow=move || height.get().to_string()
            on:pointerdown=on_down
            on:pointermove=on_move
            on:pointerup=move |_| taken.set_value(None)
            on:pointercancel=move |_| taken.set_value(None)
            on:keydown=on_key
        ></div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_have_names_of_their_own() {
        let panel = |shows| Panel {
            sandbox: "a".into(),
            shows,
            name: "web".to_owned(),
        };
        assert_eq!(title(&panel(Shows::Shell(0))), "web");
        assert_eq!(title(&panel(Shows::Shell(1))), "web · 2");
        assert_eq!(title(&panel(Shows::Log)), "web · log");
    }
}

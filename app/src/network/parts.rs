//! Parts that the sections of the tab share.

use leptos::{ev, prelude::*};
use osb_protocol::network_policy::Action;

use super::{PolicyChange, live::State};
use crate::{browser, ui::Icon, view::LOOKS_ONLY};

/// A button that makes one change of the policy. Without script it posts its form.
pub(super) struct ChangeButton {
    /// Last segment of the form's address.
    pub(super) path: &'static str,
    /// Fields of the form.
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) change: PolicyChange,
    /// What was done, in words.
    pub(super) done: String,
    /// Its text, or its label if it shows an icon only.
    pub(super) label: String,
    pub(super) icon: &'static str,
    /// Its text beside the icon.
    pub(super) text: Option<&'static str>,
    /// Why it does nothing, if it cannot.
    pub(super) why: Option<&'static str>,
    /// Its id in the page, if others focus it.
    pub(super) id: Option<String>,
    /// Id of what gets the focus afterwards.
    pub(super) next: Option<String>,
}

impl ChangeButton {
    pub(super) fn view(self, state: State) -> AnyView {
        let Self {
            path,
            fields,
            change,
            done,
            label,
            icon,
            text,
            why,
            id,
            next,
        } = self;
        let class = if text.is_some() {
            "button"
        } else {
            "icon-button"
        };
        let why = match state.may_change {
            true => why,
            false => Some(LOOKS_ONLY),
        };
        if let Some(why) = why {
            return view! {
                <button
                    type="button"
                    id=id
                    class=class
                    aria-disabled="true"
                    aria-label=label
                    title=why
                >
                    <Icon name=icon />
                    {text}
                </button>
            }
            .into_any();
        }
        let submit = move |event: ev::SubmitEvent| {
            event.prevent_default();
            let next = next.clone();
            state.change(change.clone(), done.clone(), move || {
                if let Some(next) = next {
                    browser::focus_when_shown(next);
                }
            });
        };
        let hidden = fields
            .into_iter()
            .map(|(name, value)| view! { <input type="hidden" name=name value=value /> });
        view! {
            <form method="post" action=form_address(state, path) on:submit=submit>
                {hidden.collect_view()}
                <button
                    type="submit"
                    id=id
                    class=class
                    aria-label=label.clone()
                    title=label
                    aria-disabled=move || state.busy.get().then_some("true")
                >
                    <Icon name=icon />
                    {text}
                </button>
            </form>
        }
        .into_any()
    }
}

/// Address of a form of the tab.
pub(super) fn form_address(state: State, path: &str) -> String {
    format!("/console/sandboxes/{}/network/{path}", state.id())
}

/// What happens, with an icon: never as colour alone.
pub(super) fn verdict(action: Action) -> AnyView {
    let (icon, word) = match action {
        Action::Allow => ("circle-check", "Allowed"),
        Action::Deny => ("circle-x", "Refused"),
    };
    view! {
        <span class="verdict" data-verdict=action.word()>
            <Icon name=icon />
            {word}
        </span>
    }
    .into_any()
}

/// What was done last, with a way back.
#[component]
pub(super) fn LastChange(state: State) -> impl IntoView {
    let text = Memo::new(move |_| {
        let undo = state.undo.read();
        undo.as_ref().map(|undo| undo.text.clone())
    });
    let content = move || {
        text.get().map(|text| {
            view! {
                <div class="banner" data-tone="good">
                    <Icon name="circle-check" />
                    <p>{text}</p>
                    <button
                        type="button"
                        class="button"
                        aria-disabled=move || state.busy.get().then_some("true")
                        on:click=move |_| state.take_back()
                    >
                        "Undo"
                    </button>
                </div>
            }
        })
    };
    view! { <div role="status" class="last-change">{content}</div> }.into_any()
}

//! The form that was not sent yet. The browser's tab keeps it, so that it survives navigation and a
//! reload; without the values of variables and without passwords, which are asked for again.

use std::time::Duration;

use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use super::{CreateForm, more, presets::Preset, state::State};
use crate::{
    browser::{self, Memory},
    ui::Icon,
    view::ServerInfo,
};

/// Name in the tab's memory; for a copy, the id of its original follows, for a form that begins with a
/// snapshot or a template that of it.
const NAME: &str = "osb.create";

/// A form as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unsent {
    /// Who filled it in: another user of the tab does not get it.
    owner: String,
    /// The preset in the address of the page.
    preset: Option<String>,
    form: CreateForm,
    /// Names of the variables whose values were left out.
    without_value: Vec<String>,
    /// What else was left out, in words.
    left_out: Vec<String>,
}

impl Unsent {
    /// What is kept of a form. `awaited` are variables whose values were left out before.
    fn of(form: &CreateForm, awaited: &[String]) -> Self {
        let mut form = form.clone();
        let mut left_out = Vec::new();
        if !form.auth_password.is_empty() {
            left_out.push("the password of the registry".to_owned());
        }
        let more = std::mem::take(&mut form.more);
        form.forget_password();
        form.more = without_secrets(&more);
        if form.more != more {
            left_out.push("parts of the further members".to_owned());
        }
        // Comments and lines that cannot be read may have secrets as well.
        let pairs = form.env.lines().filter_map(|line| line.split_once('='));
        let pairs = pairs.map(|(name, value)| (name.trim(), value.trim()));
        let is_named = |(name, _): &(&str, &str)| !name.is_empty() && !name.starts_with('#');
        let pairs: Vec<_> = pairs.filter(is_named).collect();
        let lacks = |(name, value): &&(&str, &str)| {
            !value.is_empty() || awaited.iter().any(|awaited| awaited == name)
        };
        let without_value = pairs.iter().filter(lacks);
        let without_value = without_value.map(|(name, _)| (*name).to_owned()).collect();
        let lines: Vec<_> = pairs.iter().map(|(name, _)| format!("{name}=")).collect();
        form.env = lines.join("\n");
        Self {
            owner: String::new(),
            preset: None,
            form,
            without_value,
            left_out,
        }
    }

    /// What the user has to type again, in words.
    fn missing(&self) -> Option<String> {
        let names = self.without_value.join(", ");
        let values = (!names.is_empty()).then(|| format!("the values of {names}"));
        let all: Vec<_> = values.into_iter().chain(self.left_out.clone()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Further members without passwords and without variables. What cannot be read may be anything.
fn without_secrets(more: &str) -> String {
    let Ok(mut members) = more::object(more) else {
        return String::new();
    };
    let kept = more::without_password(more.to_owned());
    if members.remove("env").is_none() {
        return kept;
    }
    match more::object(&kept) {
        Ok(mut members) => {
            members.remove("env");
            serde_json::to_string_pretty(&members).unwrap_or_default()
        }
        Err(_) => String::new(),
    }
}

/// The tab's place for the form of a page. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct Keeper {
    /// Its name in the tab's memory.
    name: StoredValue<String>,
    /// Who uses the page.
    owner: StoredValue<String>,
    /// The form that the page begins with.
    first: StoredValue<CreateForm>,
}

impl Keeper {
    /// That of a page that begins with this form.
    pub(super) fn of(first: CreateForm) -> Self {
        // A link that names a source does not lead to a form about something else.
        let (snapshot, template) = (first.snapshot.as_str(), first.template.as_str());
        let name = match (first.from.as_str(), snapshot, template) {
            ("", "", "") => NAME.to_owned(),
            ("", "", template) => [NAME, ".template.", template].concat(),
            ("", snapshot, _) => [NAME, ".snapshot.", snapshot].concat(),
            (from, ..) => [NAME, ".", from].concat(),
        };
        let info = use_context::<ServerInfo>().unwrap_or_default();
        let owner = info.identity.map(|it| format!("{:?} {}", it.kind, it.id));
        Self {
            name: StoredValue::new(name),
            owner: StoredValue::new(owner.unwrap_or_default()),
            first: StoredValue::new(first),
        }
    }

    /// Its name in the tab's memory, for [`forget`].
    pub(super) fn place(self) -> String {
        self.name.get_value()
    }

    fn read(self) -> Option<Unsent> {
        let text = self.name.with_value(|name| Memory::Tab.get(name))?;
        // One that another version of the page has written may be unreadable.
        let kept: Unsent = serde_json::from_str(&text).ok()?;
        self.owner
            .with_value(|owner| kept.owner == *owner)
            .then_some(kept)
    }

    fn write(self, form: &CreateForm, preset: Option<String>, awaited: &[String]) {
        let kept = Unsent {
            owner: self.owner.get_value(),
            preset,
            ..Unsent::of(form, awaited)
        };
        if let Ok(text) = serde_json::to_string(&kept) {
            self.name
                .with_value(|name| Memory::Tab.set(name, Some(&text)));
        }
    }
}

/// Forgets the form of a place: it was sent, or has nothing that the page does not begin with.
pub(super) fn forget(place: &str) {
    Memory::Tab.set(place, None);
}

/// Keeps the form, shows the one that was kept, and says so.
#[component]
pub(super) fn UnsentNote(
    state: State,
    keeper: Keeper,
    /// The preset in the address of the page.
    preset: Memo<Option<String>>,
    /// Whether the page shows a form that was refused.
    is_refused: bool,
) -> impl IntoView {
    let shown = RwSignal::new(None::<Unsent>);
    let is_ready = RwSignal::new(false);
    let show = move || {
        if is_ready.try_get_untracked().is_none() {
            return;
        }
        if let Some(kept) = keeper.read().filter(|_| !is_refused) {
            let mut form = kept.form.clone();
            let chosen = preset.get_untracked();
            let other = chosen.as_deref().filter(|_| chosen != kept.preset);
            // As if it were chosen on the page.
            if let Some(other) = other.and_then(Preset::named) {
                other.fill(&mut form);
            }
            let is_new = keeper.first.with_value(|first| *first != form);
            if is_new {
                state.restore(form, kept.without_value.clone());
                shown.set(Some(kept));
            }
        }
        is_ready.set(true);
    };
    // After the fields have taken over what was typed before the page was live.
    Effect::new(move |_| set_timeout(show, Duration::ZERO));
    Effect::new(move |_| {
        let form = state.form.get();
        if !is_ready.get() {
            return;
        }
        match keeper.first.with_value(|first| *first == form) {
            true => forget(&keeper.place()),
            // The address of the next page has none: that changes nothing here.
            false => keeper.write(&form, preset.get_untracked(), &state.awaited.read()),
        }
    });
    let discard = move |_| {
        shown.set(None);
        state.start_over(keeper.first.get_value());
        browser::focus("name");
    };
    let missing = move || {
        let missing = shown.read().as_ref().and_then(Unsent::missing);
        missing.map(|missing| format!(" Type again what is not kept: {missing}."))
    };
    view! {
        <div class="unsent-place" role="status">
            <Show when=move || shown.read().is_some()>
                <div class="banner unsent" data-tone="quiet">
                    <Icon name="info" />
                    <p>"A draft of this browser tab that was not sent yet." {missing}</p>
                    <button type="button" class="button" on:click=discard>
                        "Discard draft"
                    </button>
                </div>
            </Show>
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form() -> CreateForm {
        CreateForm {
            name: "web".to_owned(),
            env: "TOKEN=hunter2\n# OLD=hunter3\nEMPTY=\nhunter4\n =hunter5".to_owned(),
            auth_user: "zoe".to_owned(),
            auth_password: "hunter6".to_owned(),
            metadata: "team=a".to_owned(),
            more: json!({
                "env": {"A": "hunter7"},
                "image": {"auth": {"password": "hunter8"}},
                "platform": {"os": "linux"},
            })
            .to_string(),
            ..CreateForm::default()
        }
    }

    #[test]
    fn no_value_of_a_variable_and_no_password_is_kept() {
        let kept = Unsent::of(&form(), &[]);
        let text = serde_json::to_string(&kept).unwrap();
        assert!(!text.contains("hunter"), "{text}");
        assert_eq!(kept.form.env, "TOKEN=\nEMPTY=");
        assert_eq!(kept.without_value, ["TOKEN"]);
        assert_eq!((&*kept.form.name, &*kept.form.auth_user), ("web", "zoe"));
        assert_eq!(kept.form.metadata, "team=a");
        assert!(kept.form.more.contains("platform"), "{}", kept.form.more);
        let missing = kept.missing().unwrap();
        for part in ["the values of TOKEN;", "registry", "further members"] {
            assert!(missing.contains(part), "{missing}");
        }
        let torn = CreateForm {
            more: "{\"env\": {\"A\": \"hunter9\"".to_owned(),
            ..CreateForm::default()
        };
        assert_eq!(Unsent::of(&torn, &[]).form.more, "");
    }

    #[test]
    fn a_form_without_secrets_is_kept_as_it_is() {
        let plain = CreateForm {
            name: "web".to_owned(),
            entrypoint: "sh -c 'a\nb'".to_owned(),
            more: json!({"platform": {"os": "linux"}}).to_string(),
            from: "0b6c".to_owned(),
            kept: "TOKEN".to_owned(),
            ..CreateForm::default()
        };
        let kept = Unsent::of(&plain, &[]);
        assert_eq!(kept.form, plain);
        assert_eq!(kept.missing(), None);
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<Unsent>(&text).unwrap(), kept);
    }

    #[test]
    fn a_value_that_was_left_out_is_awaited_until_it_is_typed() {
        let once = Unsent::of(&form(), &[]);
        let twice = Unsent::of(&once.form, &once.without_value);
        assert_eq!(twice.without_value, ["TOKEN"]);
        let state = |env: &str| {
            let form = CreateForm {
                env: env.to_owned(),
                ..twice.form.clone()
            };
            let state = State::new(form, None);
            state.awaited.set(twice.without_value.clone());
            state
        };
        Owner::new().with(|| {
            let lost = state(&twice.form.env).lost_values();
            assert_eq!(lost.len(), 1, "{lost:?}");
            assert_eq!(lost[0].field(), "env.TOKEN");
            assert_eq!(state("TOKEN=x\nEMPTY=").lost_values(), []);
            assert_eq!(state("EMPTY=").lost_values(), [], "it was deleted");
        });
    }
}

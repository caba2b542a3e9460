//! What a new sandbox can start from.

use super::{
    CreateForm,
    defaults::{BASE_IMAGE, IDLE, PUBLIC_IMAGE},
    source,
};

/// A preset: an image with what goes with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preset {
    /// Its name in the address of the page.
    pub(super) id: &'static str,
    /// Its name.
    pub(super) title: &'static str,
    /// Its icon.
    pub(super) icon: &'static str,
    /// What the image has.
    pub(super) about: &'static str,
    pub(super) image: &'static str,
    entrypoint: &'static str,
    cpu: &'static str,
    memory: &'static str,
}

const INTERPRETER_IMAGE: &str = "opensandbox/code-interpreter:latest";

/// All presets, in the order of the page.
pub(super) const PRESETS: [Preset; 6] = [
    Preset {
        id: "shell",
        title: "Shell",
        icon: "terminal",
        about: "Debian with bash, curl and Python",
        image: BASE_IMAGE,
        entrypoint: IDLE,
        cpu: "1",
        memory: "512Mi",
    },
    Preset {
        id: "debian",
        title: "Debian",
        icon: "box",
        about: "A small public image",
        image: PUBLIC_IMAGE,
        entrypoint: IDLE,
        cpu: "1",
        memory: "512Mi",
    },
    Preset {
        id: "code-interpreter",
        title: "Code interpreter",
        icon: "square-code",
        about: "Python, Java, Go and TypeScript",
        image: INTERPRETER_IMAGE,
        entrypoint: "/opt/code-interpreter/code-interpreter.sh",
        cpu: "2",
        memory: "2Gi",
    },
    Preset {
        id: "coding-agent",
        title: "Coding agent",
        icon: "bot",
        about: "The same languages, for an agent's own commands",
        image: INTERPRETER_IMAGE,
        entrypoint: IDLE,
        cpu: "2",
        memory: "4Gi",
    },
    Preset {
        id: "browser",
        title: "Browser",
        icon: "globe",
        about: "Chromium with DevTools and VNC",
        image: "opensandbox/chrome:latest",
        entrypoint: "/entrypoint",
        cpu: "2",
        memory: "2Gi",
    },
    Preset {
        id: "desktop",
        title: "Desktop",
        icon: "monitor",
        about: "A Linux desktop with VNC",
        image: "opensandbox/desktop:latest",
        entrypoint: IDLE,
        cpu: "2",
        memory: "4Gi",
    },
];

impl Preset {
    /// The preset with this name.
    pub(super) fn named(id: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.id == id)
    }

    /// Fills a form in. What belongs to no image, such as labels, stays.
    pub(super) fn fill(&self, form: &mut CreateForm) {
        source::IMAGE.clone_into(&mut form.source);
        for (field, text) in [
            (&mut form.image, self.image),
            (&mut form.entrypoint, self.entrypoint),
            (&mut form.cpu, self.cpu),
            (&mut form.memory, self.memory),
        ] {
            text.clone_into(field);
        }
    }

    /// Whether a form still has the image and the command of this preset.
    pub(super) fn is_in(&self, form: &CreateForm) -> bool {
        form.source == source::IMAGE
            && form.image.trim() == self.image
            && form.entrypoint.trim() == self.entrypoint
    }
}

/// The images of all presets.
#[cfg(feature = "ssr")]
pub fn preset_images() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_found_by_name_and_recognised_in_the_form() {
        for preset in &PRESETS {
            let mut form = CreateForm {
                metadata: "team=a".to_owned(),
                ..CreateForm::default()
            };
            Preset::named(preset.id).unwrap().fill(&mut form);
            let found: Vec<_> = PRESETS.iter().filter(|it| it.is_in(&form)).collect();
            assert_eq!(found.len(), 1, "{}", preset.id);
            assert_eq!(found[0].id, preset.id);
            assert_eq!(form.metadata, "team=a");
            assert_eq!(form.request().problems, []);
        }
        assert!(Preset::named("nope").is_none());
    }
}

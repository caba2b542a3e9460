//! Templates in words.

use leptos::prelude::use_context;
use osb_protocol::{Feature, lifecycle::TemplatePhase};

use crate::{
    snapshot,
    view::{ServerInfo, TemplateRow},
};

/// Whether the runtime has templates.
pub(crate) fn offers_templates() -> bool {
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    features.contains(Feature::Templates)
}

/// The address of a template's page. The server makes the ids: `tpl-` and a UUID.
pub(crate) fn address(id: &str) -> String {
    ["/console/templates/", id].concat()
}

/// Whether a template in this phase changes without anything else being done.
pub(crate) fn is_under_way(phase: TemplatePhase) -> bool {
    match phase {
        TemplatePhase::Pending | TemplatePhase::Building | TemplatePhase::Deleting => true,
        TemplatePhase::Succeeded | TemplatePhase::Failed => false,
    }
}

/// Why no sandbox can be created from a template in this phase.
pub(crate) fn hindrance(phase: TemplatePhase) -> Option<&'static str> {
    match phase {
        TemplatePhase::Succeeded => None,
        TemplatePhase::Pending | TemplatePhase::Building => Some("It is still being made."),
        TemplatePhase::Failed => Some("It could not be made."),
        TemplatePhase::Deleting => Some("It is being deleted."),
    }
}

/// Why a template cannot be used; nothing about one that can, or is being made.
pub(crate) fn reason(row: &TemplateRow) -> Option<String> {
    match row.phase {
        TemplatePhase::Pending | TemplatePhase::Building | TemplatePhase::Succeeded => None,
        TemplatePhase::Failed => {
            let message = row.message.clone();
            let message = message.filter(|text| !text.trim().is_empty());
            Some(message.unwrap_or_else(|| "It could not be made.".to_owned()))
        }
        TemplatePhase::Deleting => Some(match row.user_count {
            0 => "It is being deleted.".to_owned(),
            _ => "It is deleted once the sandboxes that were created from it are gone.".to_owned(),
        }),
    }
}

/// Bytes of the image. One that was not built takes no more than the image that it is.
pub(crate) fn size(row: &TemplateRow) -> String {
    match (row.origin.is_build(), row.size_bytes) {
        (false, None) => "that of its image".to_owned(),
        (_, bytes) => snapshot::size(bytes),
    }
}

#[cfg(test)]
pub(crate) mod sample {
    use osb_protocol::WireTime;

    use super::*;
    use crate::view::TemplateOrigin;

    /// A template of an image.
    pub(crate) fn row(id: &str, phase: TemplatePhase) -> TemplateRow {
        TemplateRow {
            id: id.to_owned(),
            name: None,
            origin: TemplateOrigin::Image("debian:12".to_owned()),
            phase,
            message: None,
            size_bytes: None,
            created_at: WireTime::from_unix_ms(0).unwrap(),
            users: Vec::new(),
            user_count: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{sample::row, *};
    use crate::view::TemplateOrigin;

    #[test]
    fn only_what_is_made_becomes_a_sandbox() {
        for phase in TemplatePhase::ALL {
            let is_made = phase == TemplatePhase::Succeeded;
            assert_eq!(hindrance(phase).is_none(), is_made, "{phase}");
            let is_settled = is_made || phase == TemplatePhase::Failed;
            assert_eq!(is_under_way(phase), !is_settled, "{phase}");
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        assert_eq!(reason(&row("a", TemplatePhase::Building)), None);
        let mut failed = row("a", TemplatePhase::Failed);
        assert_eq!(reason(&failed).as_deref(), Some("It could not be made."));
        failed.message = Some("no such image".to_owned());
        assert_eq!(reason(&failed).as_deref(), Some("no such image"));
        failed.phase = TemplatePhase::Deleting;
        failed.user_count = 1;
        assert!(reason(&failed).unwrap().contains("are gone"));
    }

    #[test]
    fn only_an_image_that_was_built_has_a_size() {
        let mut made = row("a", TemplatePhase::Succeeded);
        assert_eq!(size(&made), "that of its image");
        made.origin = TemplateOrigin::Dockerfile;
        assert_eq!(size(&made), "unknown");
        made.size_bytes = Some(3 << 20);
        assert_eq!(size(&made), "3.0 MiB");
    }
}

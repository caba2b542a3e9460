//! Data of the pages about templates.

use std::collections::BTreeMap;

use osb_protocol::{WireTime, lifecycle::TemplatePhase};
use serde::{Deserialize, Serialize};

use super::Kin;

/// Templates of a page of the list.
pub const TEMPLATE_PAGE: usize = 50;

/// Whether images of templates may be built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateBuilds {
    /// They may.
    Allowed,
    /// Not on this server.
    #[default]
    Off,
    /// Not for tenants.
    OffForTenants,
}

/// One page of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateList {
    /// The rows of this page, newest first.
    pub rows: Vec<TemplateRow>,
    /// Templates on all pages.
    pub total: usize,
    /// The page that is shown, from 1: the last one if the requested page does not exist.
    pub page: usize,
}

impl TemplateList {
    /// The row of a template.
    #[must_use]
    pub fn row(&self, id: &str) -> Option<&TemplateRow> {
        self.rows.iter().find(|row| row.id == id)
    }

    /// The number of the last page; 1 if there is none.
    #[must_use]
    pub fn last_page(&self) -> usize {
        self.total.div_ceil(TEMPLATE_PAGE).max(1)
    }
}

/// A template in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRow {
    /// Its id.
    pub id: String,
    /// Its label `name`, unless that is blank.
    pub name: Option<String>,
    /// What its image is made from.
    pub origin: TemplateOrigin,
    /// Its phase.
    pub phase: TemplatePhase,
    /// Why it failed.
    pub message: Option<String>,
    /// Bytes of its image, if it was built.
    pub size_bytes: Option<u64>,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Sandboxes that exist and were created from it, newest first, at most
    /// [`USERS_NAMED`](super::USERS_NAMED).
    #[serde(default)]
    pub users: Vec<Kin>,
    /// How many there are of these.
    #[serde(default)]
    pub user_count: usize,
}

impl TemplateRow {
    /// What it is called: its name, else its short id.
    #[must_use]
    pub fn title(&self) -> &str {
        let name = self.name.as_deref();
        name.unwrap_or_else(|| template_short(&self.id))
    }
}

/// What the image of a template is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateOrigin {
    /// An image, by its reference.
    Image(String),
    /// A Dockerfile.
    Dockerfile,
    /// An archive with a Dockerfile, of so many bytes.
    Archive(u64),
}

impl TemplateOrigin {
    /// Whether the image is built.
    #[must_use]
    pub fn is_build(&self) -> bool {
        !matches!(self, Self::Image(_))
    }

    /// The origin in words.
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::Image(image) => image,
            Self::Dockerfile => "Dockerfile",
            Self::Archive(_) => "archive with a Dockerfile",
        }
    }
}

/// Everything that the page of one template shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateDetail {
    /// What the list shows of it.
    pub row: TemplateRow,
    /// What its sandboxes run, if it says so.
    pub entrypoint: Option<Vec<String>>,
    /// Resource limits of its sandboxes, as far as it has some.
    pub resources: BTreeMap<String, String>,
    /// Names of the variables of its sandboxes.
    pub variables: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Where its image is published, for runtimes that publish it.
    pub publish: String,
    /// What the runtime calls its image.
    pub manifest: Option<String>,
    /// The Dockerfile, if it was built from one alone.
    pub dockerfile: Option<String>,
    /// Since when it is in its phase.
    pub changed_at: WireTime,
    /// The end of what its build wrote.
    #[serde(default)]
    pub log: String,
}

/// Templates that a sandbox can be created from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedTemplates {
    /// The newest ones that are made.
    pub templates: Vec<TemplateRow>,
    /// Whether there may be more than these.
    pub is_cut: bool,
}

/// The beginning of an id, `tpl-` included: enough to distinguish templates in a list.
#[must_use]
pub fn template_short(id: &str) -> &str {
    let end = id.char_indices().nth(12);
    end.and_then(|(end, _)| id.get(..end)).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_its_name_or_its_short_id() {
        let mut row = TemplateRow {
            id: "tpl-0b6c1f2e-aaaa".to_owned(),
            name: None,
            origin: TemplateOrigin::Image("debian:12".to_owned()),
            phase: TemplatePhase::Succeeded,
            message: None,
            size_bytes: None,
            created_at: WireTime::from_unix_ms(0).unwrap(),
            users: Vec::new(),
            user_count: 0,
        };
        assert_eq!(row.title(), "tpl-0b6c1f2e");
        row.name = Some("base".to_owned());
        assert_eq!(row.title(), "base");
        assert_eq!(row.origin.words(), "debian:12");
        assert!(!row.origin.is_build() && TemplateOrigin::Dockerfile.is_build());
        assert_eq!(template_short("ä"), "ä");
    }

    #[test]
    fn a_list_has_at_least_one_page() {
        let pages = |total| {
            let list = TemplateList {
                total,
                ..TemplateList::default()
            };
            list.last_page()
        };
        let totals = [0, 1, TEMPLATE_PAGE, TEMPLATE_PAGE + 1];
        assert_eq!(totals.map(pages), [1, 1, 1, 2]);
    }
}

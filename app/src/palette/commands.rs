//! What the palette offers.

use osb_protocol::SandboxId;

use crate::{
    tab::Tab,
    ui::duration,
    view::{SandboxRow, title},
};

/// Pages of the console: address, title, icon, and whether the address is of another application.
const PAGES: [(&str, &str, &str, bool); 10] = [
    ("/console", "Overview", "layout-dashboard", false),
    ("/console/sandboxes", "Sandboxes", "box", false),
    (CREATE, "Create a sandbox", "plus", false),
    (SNAPSHOTS, "Snapshots", "camera", false),
    (POOLS, "Pools", "layers", false),
    (TEMPLATES, "Templates", "package", false),
    ("/console/events", "Events & audit", "scroll-text", false),
    ("/console/access", "Access", "key-round", false),
    ("/console/settings", "Settings & health", "settings", false),
    ("/docs", "API docs", "book-open", true),
];
const CREATE: &str = "/console/create";
const SNAPSHOTS: &str = "/console/snapshots";
const POOLS: &str = "/console/pools";
const TEMPLATES: &str = "/console/templates";
/// Attribute of elements that the palette offers to click; its value is what that does.
pub(super) const COMMAND: &str = "command";

/// Something that the palette offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// Heading of its group.
    pub(super) group: &'static str,
    pub(super) icon: &'static str,
    pub(super) title: String,
    /// What distinguishes it from similar ones.
    pub(super) detail: String,
    pub(super) act: Act,
}

/// What choosing an offer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Opens a page of the console.
    Open(String),
    /// Leaves the console for this address.
    Leave(&'static str),
    /// Clicks the element with this value of [`COMMAND`].
    Click(String),
}

/// What decides which pages there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    /// Whether the role of the user allows changes.
    pub(super) may_change: bool,
    /// Whether the runtime has snapshots.
    pub(super) has_snapshots: bool,
    /// Whether it has pools.
    pub(super) has_pools: bool,
    /// Whether it has templates.
    pub(super) has_templates: bool,
}

/// Tabs of the sandbox at this path, pages, and the `commands` of the page's elements.
pub(super) fn of_page(
    path: &str,
    Offered {
        may_change,
        has_snapshots,
        has_pools,
        has_templates,
    }: Offered,
    is_offered: impl Fn(Tab) -> bool,
    commands: Vec<String>,
) -> Vec<Offer> {
    let here = sandbox_of(path);
    let tabs = Tab::ALL.into_iter().filter(|tab| is_offered(*tab));
    let tabs = here.into_iter().flat_map(|id| {
        let tabs = tabs.clone();
        tabs.map(move |tab| Offer {
            group: "This sandbox",
            icon: tab.icon(),
            title: tab.title().to_owned(),
            detail: id.short().to_owned(),
            act: Act::Open(tab.address(&id)),
        })
    });
    let pages = PAGES.into_iter().filter(|(address, ..)| match *address {
        CREATE => may_change,
        SNAPSHOTS => has_snapshots,
        POOLS => has_pools,
        TEMPLATES => has_templates,
        _ => true,
    });
    let pages = pages.map(|(address, title, icon, leaves)| Offer {
        group: "Pages",
        icon,
        title: title.to_owned(),
        detail: String::new(),
        act: match leaves {
            true => Act::Leave(address),
            false => Act::Open(address.to_owned()),
        },
    });
    let commands = commands.into_iter().map(|name| Offer {
        group: "Actions",
        icon: "chevron-right",
        title: name.clone(),
        detail: String::new(),
        act: Act::Click(name),
    });
    tabs.chain(pages).chain(commands).collect()
}

/// The sandbox whose page is at this path.
fn sandbox_of(path: &str) -> Option<SandboxId> {
    let rest = path.strip_prefix("/console/sandboxes/")?;
    let id = rest.split('/').next().filter(|id| !id.is_empty())?;
    Some(SandboxId::from(id))
}

/// A sandbox as an offer to open it.
pub(super) fn of_row(row: &SandboxRow, now_ms: i64) -> Offer {
    let age = (now_ms - row.sandbox.created_at.unix_ms()).max(0) / 1_000;
    let name = title(&row.sandbox);
    let id = match name == row.id().short() {
        true => String::new(),
        false => format!("{} · ", row.id().short()),
    };
    Offer {
        group: "Sandboxes",
        icon: "box",
        title: name.to_owned(),
        detail: format!(
            "{id}{} · {} · {}",
            row.state_word(),
            row.origin(),
            duration(age)
        ),
        act: Act::Open(Tab::Overview.address(row.id())),
    }
}

/// Those of `offers` whose title has each word of `text`; those that begin with it come first.
pub(super) fn matching(offers: &[Offer], text: &str) -> Vec<Offer> {
    let text = text.trim().to_lowercase();
    let has_all = |offer: &&Offer| {
        let title = offer.title.to_lowercase();
        text.split_whitespace().all(|word| title.contains(word))
    };
    let mut found: Vec<Offer> = offers.iter().filter(has_all).cloned().collect();
    found.sort_by_key(|offer| !offer.title.to_lowercase().starts_with(&text));
    // Groups stay together, in the order of their best.
    let order: Vec<&str> = found.iter().map(|offer| offer.group).collect();
    found.sort_by_key(|offer| order.iter().position(|group| *group == offer.group));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Offered = Offered {
        may_change: true,
        has_snapshots: true,
        has_pools: true,
        has_templates: true,
    };

    fn titles(offers: &[Offer]) -> Vec<&str> {
        offers.iter().map(|offer| offer.title.as_str()).collect()
    }

    #[test]
    fn a_sandboxs_page_offers_its_tabs() {
        let offers = of_page(
            "/console/sandboxes/ab-1/logs",
            ALL,
            |tab| tab != Tab::Metrics,
            vec![],
        );
        let terminal = offers.iter().find(|offer| offer.title == "Terminal");
        assert_eq!(
            terminal.unwrap().act,
            Act::Open("/console/sandboxes/ab-1/terminal".to_owned())
        );
        assert!(!titles(&offers).contains(&"Metrics"));
        let elsewhere = of_page("/console/sandboxes", ALL, |_| true, vec![]);
        assert!(!titles(&elsewhere).contains(&"Terminal"));
    }

    #[test]
    fn what_a_user_or_a_runtime_cannot_is_not_offered() {
        let offers = |offered, title| {
            titles(&of_page("/console", offered, |_| true, vec![])).contains(&title)
        };
        for (offered, title) in [
            (
                Offered {
                    may_change: false,
                    ..ALL
                },
                "Create a sandbox",
            ),
            (
                Offered {
                    has_snapshots: false,
                    ..ALL
                },
                "Snapshots",
            ),
            (
                Offered {
                    has_pools: false,
                    ..ALL
                },
                "Pools",
            ),
            (
                Offered {
                    has_templates: false,
                    ..ALL
                },
                "Templates",
            ),
        ] {
            assert!(offers(ALL, title), "{title}");
            assert!(!offers(offered, title), "{title}");
        }
    }

    #[test]
    fn each_word_must_be_there_and_the_best_group_comes_first() {
        let commands = vec!["Log out".to_owned()];
        let offers = of_page("/console/sandboxes/ab-1", ALL, |_| true, commands);
        assert_eq!(titles(&matching(&offers, "out")), ["Log out"]);
        assert_eq!(matching(&offers, "").len(), offers.len());
        assert_eq!(
            titles(&matching(&offers, " SANDB cr ")),
            ["Create a sandbox"]
        );
        assert_eq!(titles(&matching(&offers, "over")), ["Overview", "Overview"]);
        assert_eq!(titles(&matching(&offers, "s"))[0], "Sandboxes");
        assert!(matching(&offers, "nothing").is_empty());
    }

    #[test]
    fn a_sandbox_has_its_name_first() {
        let mut row = crate::ui::sample::row("0b6c1f2e-aaaa", "Running");
        let now = row.sandbox.created_at.unix_ms() + 90_000;
        assert_eq!(of_row(&row, now).title, "0b6c1f2e");
        row.sandbox.metadata.insert("name".into(), "needle".into());
        let offer = of_row(&row, now);
        assert_eq!(offer.title, "needle");
        assert!(
            offer.detail.starts_with("0b6c1f2e · Running · "),
            "{}",
            offer.detail
        );
    }
}

//! Saved views: filter, order and columns under a name, kept in this browser.

use leptos::{ev, html::Input, prelude::*};

use super::ListQuery;
use crate::{
    browser::{self, Memory},
    frame::Toasts,
    ui::Icon,
};

/// Name in the memory of the browser.
const MEMORY: &str = "osb.views";
/// Most views that are kept.
const VIEWS: usize = 30;
/// Longest name, in characters.
const NAME: usize = 40;
/// The page that a view is of.
const LIST: &str = "/console/sandboxes";

/// A name, and the address of the list as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    name: String,
    url: String,
}

/// Reads views, one a line. What is no view of the list is left out.
fn read(text: &str) -> Vec<View> {
    let views = text.lines().filter_map(|line| {
        let (name, url) = line.split_once('\t')?;
        let query = url.strip_prefix(LIST)?;
        let is_list = query.is_empty() || query.starts_with('?');
        (is_list && !name.is_empty()).then(|| View {
            name: name.to_owned(),
            url: url.to_owned(),
        })
    });
    views.take(VIEWS).collect()
}

fn write(views: &[View]) -> String {
    let lines = views
        .iter()
        .map(|view| [&view.name, "\t", &view.url, "\n"].concat());
    lines.collect()
}

/// The views with another one, which replaces one of its name.
fn with(mut views: Vec<View>, name: &str, url: String) -> Result<Vec<View>, &'static str> {
    let name: String = name.split_whitespace().collect::<Vec<_>>().join(" ");
    if name.is_empty() {
        return Err("Give the view a name.");
    }
    let name: String = name.chars().take(NAME).collect();
    match views.iter().position(|view| view.name == name) {
        Some(place) => views[place].url = url,
        None if views.len() >= VIEWS => return Err("There are too many views. Delete one first."),
        None => views.push(View { name, url }),
    }
    Ok(views)
}

/// Views of this browser, with a field to keep what is shown.
#[component]
pub(super) fn Views(query: Memo<ListQuery>) -> impl IntoView {
    let views = RwSignal::new(Vec::<View>::new());
    let load = move || views.set(read(&Memory::Browser.get(MEMORY).unwrap_or_default()));
    Effect::new(move |_| load());
    let toasts = Toasts::current();
    // Another tab may have changed them meanwhile, or the browser may keep nothing.
    let keep = move |changed: Vec<View>| {
        Memory::Browser.set(MEMORY, Some(&write(&changed)));
        load();
        if *views.read_untracked() != changed {
            toasts.bad("This browser does not keep views.".to_owned());
        }
    };
    let here = move || query.read().on_page(1).url();
    let field = NodeRef::<Input>::new();
    let save = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let Some(field) = field.get_untracked() else {
            return;
        };
        load();
        match with(views.get_untracked(), &field.value(), untrack(here)) {
            Ok(changed) => {
                keep(changed);
                field.set_value("");
            }
            Err(why) => toasts.bad(why.to_owned()),
        }
    };
    let delete = move |name: &str| {
        load();
        let mut rest = views.get_untracked();
        rest.retain(|view| view.name != name);
        keep(rest);
        browser::focus("view-name");
    };
    let line = move |View { name, url }: View| {
        let label = ["Delete the view ", &name].concat();
        let (is_here, shown) = (url.clone(), name.clone());
        view! {
            <li>
                <a
                    href=url
                    aria-current=move || (here() == is_here).then_some("true")
                    on:click=|_| {
                        browser::close_popovers(None);
                    }
                >
                    {shown}
                </a>
                <button
                    type="button"
                    class="icon-button"
                    aria-label=label
                    title="Delete this view"
                    on:click=move |_| delete(&name)
                >
                    <Icon name="x" />
                </button>
            </li>
        }
    };
    let lines = move || views.get().into_iter().map(line).collect_view();
    let is_empty = move || views.read().is_empty();
    view! {
        <details class="confirm choose needs-script" name="confirm">
            <summary class="button" title="Saved views of the list">
                <Icon name="bookmark" />
                "Views"
            </summary>
            <div class="card confirm-card">
                <ul class="choices" aria-label="Views">{lines}</ul>
                <p class="help" hidden=move || !is_empty()>
                    "A view keeps filter, state, order and columns under a name, in this browser."
                </p>
                <form class="inline-form" on:submit=save>
                    <label>
                        <span class="visually-hidden">"Name of the view"</span>
                        <input
                            id="view-name"
                            node_ref=field
                            type="text"
                            maxlength=NAME
                            placeholder="Name"
                            autocomplete="off"
                        />
                    </label>
                    <button type="submit" class="button">
                        "Save this view"
                    </button>
                </form>
            </div>
        </details>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_read_as_they_were_written() {
        let list = |query: &str| [LIST, query].concat();
        let views = with(Vec::new(), "  Team \t a ", list("?q=team%3Da")).unwrap();
        let views = with(views, "All", list("")).unwrap();
        assert_eq!(views[0].name, "Team a");
        assert_eq!(read(&write(&views)), views);
        let replaced = with(views.clone(), "All", list("?state=Failed")).unwrap();
        assert_eq!(replaced.len(), 2);
        assert_eq!(replaced[1].url, list("?state=Failed"));
        assert!(with(views, " \t", list("")).is_err());
    }

    #[test]
    fn only_addresses_of_the_list_are_read() {
        let text = "a\tjavascript:alert(1)\nb\t/console/sandboxes/x\nc\n\t/console/sandboxes\nd\t/console/sandboxes?q=1";
        let names: Vec<_> = read(text).into_iter().map(|view| view.name).collect();
        assert_eq!(names, ["d"]);
    }

    #[test]
    fn the_number_of_views_is_bounded() {
        let mut views = Vec::new();
        for number in 0..VIEWS {
            views = with(views, &number.to_string(), LIST.to_owned()).unwrap();
        }
        assert!(with(views.clone(), "one more", LIST.to_owned()).is_err());
        assert!(with(views, "3", LIST.to_owned()).is_ok());
        assert_eq!(read(&"a\t/console/sandboxes\n".repeat(99)).len(), VIEWS);
    }
}

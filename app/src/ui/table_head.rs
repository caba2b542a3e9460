//! The head of a table whose columns are always the same.

use leptos::prelude::*;

/// The title of a column.
#[derive(Clone, Copy, Debug)]
pub struct ColumnTitle {
    text: &'static str,
    class: Option<&'static str>,
    is_hidden: bool,
}

impl ColumnTitle {
    /// A title with this text.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        Self {
            text,
            class: None,
            is_hidden: false,
        }
    }

    /// The same with a class for the style sheet.
    #[must_use]
    pub const fn class(self, class: &'static str) -> Self {
        Self {
            class: Some(class),
            ..self
        }
    }

    /// The same for screen readers only: the column shows what it has without a title.
    #[must_use]
    pub const fn hidden(self) -> Self {
        Self {
            is_hidden: true,
            ..self
        }
    }
}

/// The head of a table.
#[component]
pub fn TableHead(
    /// A title for each column.
    of: &'static [ColumnTitle],
) -> impl IntoView {
    let title = |title: &ColumnTitle| {
        let text = match title.is_hidden {
            true => view! { <span class="visually-hidden">{title.text}</span> }.into_any(),
            false => title.text.into_any(),
        };
        match title.class {
            Some(class) => view! { <th scope="col" class=class>{text}</th> }.into_any(),
            None => view! { <th scope="col">{text}</th> }.into_any(),
        }
    };
    let titles = of.iter().map(title).collect_view();
    view! {
        <thead>
            <tr>{titles}</tr>
        </thead>
    }
    .into_any()
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;

    const TITLES: &[ColumnTitle] = &[
        ColumnTitle::new("Name"),
        ColumnTitle::new("Size").class("f-size"),
        ColumnTitle::new("Actions").class("f-actions").hidden(),
    ];

    #[test]
    fn a_head_has_a_cell_for_each_column() {
        let html = Owner::new().with(|| view! { <TableHead of=TITLES /> }.into_any().to_html());
        assert_eq!(html.matches(r#"scope="col""#).count(), 3, "{html}");
        assert_eq!(html.matches("class=").count(), 3, "{html}");
        for part in [
            r#"<th scope="col">Name"#,
            r#"class="f-size">Size"#,
            r#"<span class="visually-hidden">Actions"#,
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
    }
}

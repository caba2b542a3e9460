//! Views that wait for nothing.

use leptos::prelude::*;

/// Marks a view in which nothing waits for data: no resource, no `Transition`.
///
/// Before the server renders a page, it goes twice through everything that waits: once to find the
/// resources in it, once to await them. Each time it calls the closures in the view, and so makes
/// their views. This view is left out of both, and its closures are called once, for the page. In the
/// browser it is the view itself.
pub(crate) fn settled(view: AnyView) -> AnyView {
    #[cfg(feature = "ssr")]
    {
        server::Settled(view).into_any()
    }
    #[cfg(not(feature = "ssr"))]
    {
        view
    }
}

#[cfg(feature = "ssr")]
mod server {
    use leptos::{
        attr::{Attribute, any_attribute::AnyAttribute},
        prelude::*,
        tachys::{
            hydration::Cursor,
            view::{Position, PositionState, add_attr::AddAnyAttr},
        },
    };

    /// A view that is rendered without a search for what it waits for.
    pub(super) struct Settled(pub(super) AnyView);

    impl Render for Settled {
        type State = <AnyView as Render>::State;

        fn build(self) -> Self::State {
            self.0.build()
        }

        fn rebuild(self, state: &mut Self::State) {
            self.0.rebuild(state);
        }
    }

    impl AddAnyAttr for Settled {
        type Output<SomeNewAttr: Attribute> = <AnyView as AddAnyAttr>::Output<SomeNewAttr>;

        fn add_any_attr<NewAttr: Attribute>(self, attr: NewAttr) -> Self::Output<NewAttr>
        where
            Self::Output<NewAttr>: RenderHtml,
        {
            self.0.add_any_attr(attr)
        }
    }

    impl RenderHtml for Settled {
        type AsyncOutput = Self;
        type Owned = Self;

        const MIN_LENGTH: usize = <AnyView as RenderHtml>::MIN_LENGTH;

        fn dry_resolve(&mut self) {}

        async fn resolve(self) -> Self::AsyncOutput {
            self
        }

        fn html_len(&self) -> usize {
            self.0.html_len()
        }

        fn to_html_with_buf(
            self,
            buf: &mut String,
            position: &mut Position,
            escape: bool,
            mark_branches: bool,
            extra_attrs: Vec<AnyAttribute>,
        ) {
            self.0
                .to_html_with_buf(buf, position, escape, mark_branches, extra_attrs);
        }

        fn hydrate<const FROM_SERVER: bool>(
            self,
            cursor: &Cursor,
            position: &PositionState,
        ) -> Self::State {
            self.0.hydrate::<FROM_SERVER>(cursor, position)
        }

        fn into_owned(self) -> Self::Owned {
            self
        }
    }
}

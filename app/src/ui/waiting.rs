//! Views that wait for data.

use leptos::prelude::*;

/// What a page shows once its data are there, within a `Transition`.
///
/// The browser makes it again whenever a resource in it was read again. The server makes it once: it
/// calls a closure both to find further resources and for the page, and would do all work twice. Only
/// for views in which nothing else waits: the browser does not take over a `Transition` inside of one.
pub(crate) fn waiting<F>(view: impl Fn() -> F + Send + 'static) -> impl IntoView
where
    F: Future<Output = AnyView> + Send + 'static,
{
    #[cfg(feature = "ssr")]
    {
        Suspend::new(view())
    }
    #[cfg(not(feature = "ssr"))]
    {
        move || Suspend::new(view())
    }
}

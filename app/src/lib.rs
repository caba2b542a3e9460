//! The console: pages and components, rendered by the server and hydrated in the browser.

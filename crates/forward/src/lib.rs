//! A streaming HTTP and upgrade reverse proxy.

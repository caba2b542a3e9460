//! Resolver for the host names of collectors.

/// Makes this program resolve names with `/etc/hosts` and DNS only, whatever the image's
/// `nsswitch.conf` says. For a program that is linked with a C library of its own, which supports both
/// by itself: for other sources it would load plugins of the image's C library, which differs and may
/// crash. Any other program resolves names as its host is configured to.
#[cfg(target_env = "gnu")]
#[expect(
    unsafe_code,
    reason = "a function of the C library that no crate wraps"
)]
pub fn resolve_without_plugins() {
    use std::ffi::{c_char, c_int};

    unsafe extern "C" {
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }

    let (database, services) = (c"hosts", c"files dns");
    // SAFETY: both strings are static and end with a NUL.
    let set = unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
    debug_assert_eq!(set, 0, "it knows the database and the services");
}

/// Does nothing: only the GNU C library has plugins.
#[cfg(not(target_env = "gnu"))]
pub fn resolve_without_plugins() {}

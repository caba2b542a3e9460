//! What the pages about pools share with those of sandboxes.

/// The address of a pool's page. Names have lower-case letters, digits and `-` only.
pub(crate) fn address(name: &str) -> String {
    ["/console/pools/", name].concat()
}

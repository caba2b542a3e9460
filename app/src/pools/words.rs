//! Pools in words.

use leptos::prelude::use_context;
use osb_protocol::Feature;

use crate::view::ServerInfo;

/// Whether the runtime has pools.
pub(super) fn offers_pools() -> bool {
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    features.contains(Feature::Pools)
}

/// Fewest and most sandboxes.
pub(super) fn range(least: u32, most: u32) -> String {
    match least == most {
        true => most.to_string(),
        false => format!("{least}–{most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_one_number_is_that_number() {
        assert_eq!(range(2, 2), "2");
        assert_eq!(range(0, 10), "0–10");
    }
}

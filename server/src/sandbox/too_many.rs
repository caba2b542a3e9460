//! A limit on the number of objects of a tenant.

/// There are as many of a kind as one tenant may have.
#[derive(Debug, thiserror::Error)]
#[error("there are {count} {kind}, and {setting} allows {most} of one tenant; delete some of them")]
pub struct TooMany {
    /// What there is too much of, in the plural.
    pub kind: &'static str,
    /// How many there are.
    pub count: u64,
    /// The limit.
    pub most: u64,
    /// The setting with the limit.
    pub setting: &'static str,
}

impl TooMany {
    /// Checks that there is room for one more.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn check(
        kind: &'static str,
        count: u64,
        most: u64,
        setting: &'static str,
    ) -> Result<(), Self> {
        match count < most {
            true => Ok(()),
            false => Err(Self {
                kind,
                count,
                most,
                setting,
            }),
        }
    }
}

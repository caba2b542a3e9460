//! Why a volume of a create cannot be provided.

/// Kind of failure of a volume (contract: lifecycle §13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeFailure {
    /// The path of the host leads outside of the allowed directories.
    HostPathNotAllowed,
    /// The path of the host cannot be read or created.
    HostPathCreate,
    /// The directory below the volume's root leads elsewhere, or cannot be used.
    SubPath,
    /// The mount path leads to a directory of the platform.
    MountPath,
    /// A volume of that name must not be used.
    ClaimName,
    /// There is no volume of that name, and none was to be made.
    ClaimMissing,
    /// The engine cannot show or make the volume.
    ClaimInspect,
    /// The volume has no directory on the host, so a directory below it cannot be mounted.
    SubPathDriver,
    /// The bucket is in use with another key, address or options.
    OssfsCredentials,
    /// The directory for buckets cannot be used.
    OssfsRoot,
    /// The bucket cannot be mounted.
    OssfsMount,
}

impl VolumeFailure {
    /// Whether the same request may succeed later without a change by the client or the operator.
    #[must_use]
    pub fn retryable(self) -> bool {
        matches!(self, Self::ClaimInspect | Self::OssfsMount)
    }
}

//! Status and code of errors about one kind of object (contract: lifecycle §13).

use http::StatusCode;
use osb_protocol::error::code;
use osb_runtime::VolumeFailure;

use crate::sandbox::{PoolError, SnapshotError, TemplateError, VolumeFault};

/// What an error about a snapshot gets (contract: lifecycle §9, §13).
pub(super) fn snapshot(error: &SnapshotError) -> (StatusCode, &'static str) {
    use StatusCode as S;
    match error {
        SnapshotError::NotFound(_) | SnapshotError::NoSource(_) => {
            (S::NOT_FOUND, code::SNAPSHOT_NOT_FOUND)
        }
        SnapshotError::SourceState { .. } => (S::CONFLICT, code::SNAPSHOT_INVALID_SOURCE_STATE),
        SnapshotError::SourceBusy { .. } => (S::CONFLICT, code::SNAPSHOT_RUNTIME_CREATE_CONFLICT),
        SnapshotError::DiskFull(_) | SnapshotError::TooMany(_) => {
            (S::FORBIDDEN, code::QUOTA_EXCEEDED)
        }
        SnapshotError::BeingTaken(_) | SnapshotError::Contended(_) => {
            (S::CONFLICT, code::SNAPSHOT_INVALID_STATE)
        }
        SnapshotError::InUse { .. } => (S::CONFLICT, code::SNAPSHOT_DELETE_CONFLICT),
        SnapshotError::NotReady { .. } => (S::CONFLICT, code::SNAPSHOT_NOT_READY),
        SnapshotError::NoImage(_) => (S::CONFLICT, code::SNAPSHOT_INVALID_RESTORE_CONFIG),
    }
}

/// What an error about a pool gets (contract: lifecycle §10, §13).
pub(super) fn pool(error: &PoolError) -> (StatusCode, &'static str) {
    use StatusCode as S;
    match error {
        PoolError::NotFound(_) | PoolError::NoSource(_) => (S::NOT_FOUND, code::POOL_NOT_FOUND),
        PoolError::Exists(_) => (S::CONFLICT, code::POOL_ALREADY_EXISTS),
        PoolError::TooMany(_) => (S::FORBIDDEN, code::QUOTA_EXCEEDED),
        PoolError::Exhausted(_) => (S::TOO_MANY_REQUESTS, code::POOL_EXHAUSTED),
    }
}

/// What an error about a template gets (contract: lifecycle §A3, §13).
pub(super) fn template(error: &TemplateError) -> (StatusCode, &'static str) {
    use StatusCode as S;
    match error {
        TemplateError::NotFound(_) | TemplateError::NoSource(_) | TemplateError::NotMade { .. } => {
            (S::NOT_FOUND, code::TEMPLATE_NOT_FOUND)
        }
        TemplateError::Busy(_) | TemplateError::TenantBusy(_) => {
            (S::TOO_MANY_REQUESTS, code::TEMPLATE_API_ERROR)
        }
        TemplateError::DiskFull(_) | TemplateError::TooMany(_) => {
            (S::FORBIDDEN, code::QUOTA_EXCEEDED)
        }
        TemplateError::InUse { .. } => (S::CONFLICT, code::TEMPLATE_CONFLICT),
    }
}

/// The code of a rule about volumes.
pub(super) fn volume(fault: VolumeFault) -> &'static str {
    match fault {
        VolumeFault::DuplicateName => code::DUPLICATE_VOLUME_NAME,
        VolumeFault::MountPath => code::INVALID_MOUNT_PATH,
        VolumeFault::SubPath => code::INVALID_SUB_PATH,
        VolumeFault::HostPath => code::INVALID_HOST_PATH,
        VolumeFault::HostPathNotAllowed => code::HOST_PATH_NOT_ALLOWED,
        VolumeFault::OssfsBucket => code::INVALID_OSSFS_BUCKET,
        VolumeFault::OssfsEndpoint => code::INVALID_OSSFS_ENDPOINT,
        VolumeFault::OssfsOption => code::INVALID_OSSFS_OPTION,
        VolumeFault::OssfsParameter => code::INVALID_PARAMETER,
        VolumeFault::OssfsCredentials => code::INVALID_OSSFS_CREDENTIALS,
    }
}

/// What a volume that cannot be provided gets.
pub(super) fn volume_failure(failure: VolumeFailure) -> (StatusCode, &'static str) {
    use StatusCode as S;
    match failure {
        VolumeFailure::HostPathNotAllowed => (S::BAD_REQUEST, code::HOST_PATH_NOT_ALLOWED),
        VolumeFailure::MountPath => (S::BAD_REQUEST, code::INVALID_MOUNT_PATH),
        VolumeFailure::SubPath => (S::BAD_REQUEST, code::INVALID_SUB_PATH),
        VolumeFailure::ClaimName => (S::BAD_REQUEST, code::INVALID_PVC_NAME),
        VolumeFailure::ClaimMissing => (S::BAD_REQUEST, code::PVC_NOT_FOUND),
        VolumeFailure::SubPathDriver => (S::BAD_REQUEST, code::PVC_SUBPATH_UNSUPPORTED_DRIVER),
        VolumeFailure::OssfsCredentials => (S::BAD_REQUEST, code::INVALID_OSSFS_CREDENTIALS),
        VolumeFailure::HostPathCreate => (S::INTERNAL_SERVER_ERROR, code::HOST_PATH_CREATE_FAILED),
        VolumeFailure::ClaimInspect => (S::INTERNAL_SERVER_ERROR, code::PVC_INSPECT_FAILED),
        VolumeFailure::OssfsRoot => (S::INTERNAL_SERVER_ERROR, code::INVALID_OSSFS_MOUNT_ROOT),
        VolumeFailure::OssfsMount => (S::INTERNAL_SERVER_ERROR, code::OSSFS_MOUNT_FAILED),
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::lifecycle::TemplatePhase;

    use super::*;
    use crate::sandbox::DiskFull;

    #[test]
    fn every_error_about_a_template_has_its_status_and_code() {
        let id = || "tpl-1".to_owned();
        let full = DiskFull {
            whose: id(),
            limit: 1,
            used: 1,
        };
        let phase = TemplatePhase::Building;
        for (error, status, code, is_retryable) in [
            (
                TemplateError::NotFound(id()),
                404,
                "FSB::TEMPLATE_NOT_FOUND",
                false,
            ),
            (
                TemplateError::NoSource(id()),
                404,
                "FSB::TEMPLATE_NOT_FOUND",
                false,
            ),
            (
                TemplateError::NotMade { id: id(), phase },
                404,
                "FSB::TEMPLATE_NOT_FOUND",
                true,
            ),
            (TemplateError::Busy(8), 429, "FSB::API_ERROR", true),
            (TemplateError::TenantBusy(4), 429, "FSB::API_ERROR", true),
            (
                TemplateError::DiskFull(full),
                403,
                "SANDBOX::QUOTA_EXCEEDED",
                false,
            ),
            (
                TemplateError::InUse {
                    id: id(),
                    reason: id(),
                },
                409,
                "FSB::TEMPLATE_CONFLICT",
                true,
            ),
        ] {
            let (seen, seen_code) = template(&error);
            assert_eq!((seen.as_u16(), seen_code), (status, code), "{error}");
            assert_eq!(error.retryable(), is_retryable, "{error}");
        }
    }
}

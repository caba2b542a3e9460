//! Pools of sandboxes that are started before they are needed (contract: lifecycle §10).

use serde::{Deserialize, Serialize};

use crate::WireTime;

/// How many sandboxes a pool keeps. All numbers count sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolCapacity {
    /// Most that wait for a claim.
    pub buffer_max: u32,
    /// Fewest that wait for a claim: below it, more are started until `bufferMax` wait.
    pub buffer_min: u32,
    /// Most of the pool in all, claimed ones included.
    pub pool_max: u32,
    /// Fewest of the pool in all, claimed ones included.
    pub pool_min: u32,
}

impl PoolCapacity {
    /// How many are to be started, with so many that wait or are being started, and so many that are
    /// claimed.
    #[must_use]
    pub fn missing(&self, unclaimed: u32, claimed: u32) -> u32 {
        let total = unclaimed.saturating_add(claimed);
        let room = self.pool_max.saturating_sub(total);
        let for_buffer = match unclaimed < self.buffer_min {
            true => self
                .buffer_max
                .max(self.buffer_min)
                .saturating_sub(unclaimed),
            false => 0,
        };
        let for_pool = self.pool_min.saturating_sub(total);
        for_buffer.max(for_pool).min(room)
    }

    /// How many of those that wait are to be removed.
    #[must_use]
    pub fn surplus(&self, unclaimed: u32, claimed: u32) -> u32 {
        let total = unclaimed.saturating_add(claimed);
        let over_max = total.saturating_sub(self.pool_max);
        let wanted = self
            .buffer_max
            .max(self.buffer_min)
            .max(self.pool_min.saturating_sub(claimed));
        let over_buffer = unclaimed.saturating_sub(wanted);
        over_max.max(over_buffer).min(unclaimed)
    }
}

/// Body of `POST /pools`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreatePoolRequest {
    /// Name of lower-case letters, digits and `-`, at most 253 characters.
    #[cfg_attr(
        feature = "openapi",
        schema(max_length = 253, pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// What its sandboxes are made from, as a `PodTemplateSpec`. On a container engine one container
    /// with `image`, `command`, `args`, `env` and `resources` is understood.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub template: serde_json::Value,
    /// How many sandboxes it keeps.
    pub capacity_spec: PoolCapacity,
}

/// Body of `PUT /pools/{name}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct UpdatePoolRequest {
    /// How many sandboxes it keeps from now on.
    pub capacity_spec: PoolCapacity,
    /// Another template. Sandboxes of the former one that wait are replaced. An addition to the
    /// contract; absent keeps the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub template: Option<serde_json::Value>,
}

/// The sandboxes of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// All: being started, waiting and claimed.
    pub total: u32,
    /// Claimed ones that exist.
    pub allocated: u32,
    /// Those that wait for a claim.
    pub available: u32,
    /// Names the template.
    pub revision: String,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolResponse {
    /// Its name.
    pub name: String,
    /// How many sandboxes it keeps.
    pub capacity_spec: PoolCapacity,
    /// Its sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PoolStatus>,
    /// When it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<WireTime>,
}

/// Answer of `GET /pools`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListPoolsResponse {
    /// By name.
    pub items: Vec<PoolResponse>,
}

/// How a sandbox came from a pool (contract: Kubernetes K3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// Always `pool`.
    pub mode: String,
    /// Name of the pool.
    pub pool_ref: String,
    /// Always `allocated`.
    pub state: String,
}

impl Allocation {
    /// That of a sandbox which was claimed from this pool.
    #[must_use]
    pub fn of_pool(name: &str) -> Self {
        Self {
            mode: "pool".to_owned(),
            pool_ref: name.to_owned(),
            state: "allocated".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(buffer_min: u32, buffer_max: u32, pool_min: u32, pool_max: u32) -> PoolCapacity {
        PoolCapacity {
            buffer_max,
            buffer_min,
            pool_max,
            pool_min,
        }
    }

    #[test]
    fn a_pool_is_filled_up_when_its_buffer_is_low_and_never_above_its_most() {
        let pool = capacity(2, 4, 0, 6);
        assert_eq!(pool.missing(0, 0), 4);
        assert_eq!(pool.missing(2, 0), 0, "the buffer is not low");
        assert_eq!(pool.missing(1, 4), 1, "six in all");
        assert_eq!(pool.missing(0, 6), 0);
        assert_eq!(pool.missing(0, 9), 0, "the most was lowered");
        let least = capacity(0, 1, 3, 6);
        assert_eq!((least.missing(0, 0), least.missing(1, 2)), (3, 0));
        assert_eq!(
            capacity(3, 1, 0, 9).missing(0, 0),
            3,
            "the contract has no order"
        );
    }

    #[test]
    fn what_waits_beyond_the_capacity_goes() {
        let pool = capacity(2, 4, 0, 6);
        assert_eq!(pool.surplus(4, 2), 0);
        assert_eq!(pool.surplus(5, 0), 1);
        assert_eq!(pool.surplus(4, 4), 2, "eight in all");
        assert_eq!(pool.surplus(1, 9), 1, "claimed ones stay");
        assert_eq!(capacity(0, 0, 3, 6).surplus(3, 0), 0, "the least counts");
        assert_eq!(capacity(0, 0, 3, 6).surplus(3, 1), 1);
    }
}

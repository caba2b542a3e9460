//! The policy in force, and the only way to change it (contract: egress §5.7).
//!
//! ```text
//!  write the new policy beside the file ─▶ change the packet filter ─▶ rename the file ─▶ DNS, API
//! ```
//!
//! A failure of any step leaves everything as it was. Writes happen one at a time.

use std::{
    io,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Mutex;

use crate::{
    config::Mode,
    firewall::{Firewall, FirewallError},
    policy::{Effective, Policy, overlay::Overlay},
    policy_file::PolicyFile,
};

/// Reason why a policy is not in force.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// It cannot be kept.
    #[error("cannot keep the policy in its file")]
    Keep(#[source] io::Error),
    /// The packet filter refuses it.
    #[error("cannot enforce the policy")]
    Firewall(#[source] FirewallError),
}

/// A sandbox has this sidecar already.
#[derive(Debug, thiserror::Error)]
#[error("the sidecar is claimed already")]
pub struct Claimed;

/// The policy in force.
#[derive(Debug)]
pub struct Enforcer {
    in_force: RwLock<InForce>,
    /// The operator's rules. Held while a write is under way.
    overlay: Mutex<Overlay>,
    file: PolicyFile,
    firewall: Option<Firewall>,
    /// Whether it waits for its sandbox. Changed while `overlay` is held.
    is_unclaimed: AtomicBool,
}

#[derive(Clone, Debug)]
struct InForce {
    user: Arc<Policy>,
    effective: Arc<Effective>,
}

impl Enforcer {
    /// The first policy. The packet filter already enforces it.
    #[must_use]
    pub fn new(
        user: Policy,
        overlay: Overlay,
        effective: Arc<Effective>,
        file: PolicyFile,
        firewall: Option<Firewall>,
    ) -> Self {
        let user = Arc::new(user);
        Self {
            in_force: RwLock::new(InForce { user, effective }),
            overlay: Mutex::new(overlay),
            file,
            firewall,
            is_unclaimed: AtomicBool::new(false),
        }
    }

    /// The same, waiting for its sandbox: only [`Self::claim`] changes the policy.
    #[must_use]
    pub fn unclaimed(mut self) -> Self {
        self.is_unclaimed = AtomicBool::new(true);
        self
    }

    /// Whether it waits for its sandbox.
    #[must_use]
    pub fn is_unclaimed(&self) -> bool {
        self.is_unclaimed.load(Ordering::Acquire)
    }

    /// The user's policy.
    #[must_use]
    pub fn user(&self) -> Arc<Policy> {
        self.in_force().user
    }

    /// The policy with the operator's rules.
    #[must_use]
    pub fn effective(&self) -> Arc<Effective> {
        let in_force = self.in_force.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&in_force.effective)
    }

    /// What is enforced.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.firewall {
            Some(_) => Mode::DnsNft,
            None => Mode::Dns,
        }
    }

    /// The packet filter; `None` in mode `dns`.
    #[must_use]
    pub fn firewall(&self) -> Option<&Firewall> {
        self.firewall.as_ref()
    }

    /// Changes the user's policy. `change` gets the current one; if it returns `Err`, that is the
    /// result and nothing changes.
    ///
    /// # Errors
    /// See [`EnforceError`], inside of the result.
    pub async fn change<E>(
        &self,
        change: impl FnOnce(&Policy) -> Result<Policy, E>,
    ) -> Result<Result<Arc<Policy>, EnforceError>, E> {
        let overlay = self.overlay.lock().await;
        let user = change(&self.user())?;
        Ok(self.enforce(user, &overlay, true).await)
    }

    /// Gives the sidecar to its sandbox, with the sandbox's first policy. A claim that fails leaves it
    /// as it was, refusing everything.
    ///
    /// # Errors
    /// [`Claimed`], unless it waits for its sandbox; see [`EnforceError`], inside of the result.
    pub async fn claim(&self, user: Policy) -> Result<Result<Arc<Policy>, EnforceError>, Claimed> {
        let overlay = self.overlay.lock().await;
        if !self.is_unclaimed() {
            return Err(Claimed);
        }
        let enforced = self.enforce(user, &overlay, true).await;
        if enforced.is_ok() {
            self.is_unclaimed.store(false, Ordering::Release);
        }
        Ok(enforced)
    }

    /// Changes the operator's rules.
    ///
    /// # Errors
    /// See [`EnforceError`]. The old rules stay.
    pub async fn set_overlay(&self, new: Overlay) -> Result<(), EnforceError> {
        let mut overlay = self.overlay.lock().await;
        let user = Policy::clone(&self.user());
        self.enforce(user, &new, false).await?;
        *overlay = new;
        Ok(())
    }

    async fn enforce(
        &self,
        user: Policy,
        overlay: &Overlay,
        is_kept: bool,
    ) -> Result<Arc<Policy>, EnforceError> {
        let staged = match is_kept {
            true => Some(self.file.stage(&user).map_err(EnforceError::Keep)?),
            false => None,
        };
        let effective = Arc::new(Effective::new(&user, overlay));
        if let Some(firewall) = &self.firewall {
            let applied = firewall.apply(Arc::clone(&effective)).await;
            applied.map_err(EnforceError::Firewall)?;
        }
        if let Some(Err(error)) = staged.map(crate::policy_file::Staged::commit) {
            self.roll_back().await;
            return Err(EnforceError::Keep(error));
        }
        let user = Arc::new(user);
        let new = InForce {
            user: Arc::clone(&user),
            effective,
        };
        *self
            .in_force
            .write()
            .unwrap_or_else(PoisonError::into_inner) = new;
        Ok(user)
    }

    /// Puts the packet filter back to the policy in force.
    async fn roll_back(&self) {
        let Some(firewall) = &self.firewall else {
            return;
        };
        if let Err(error) = firewall.apply(self.effective()).await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(
                error,
                "the packet filter enforces a policy that was refused"
            );
        }
    }

    fn in_force(&self) -> InForce {
        self.in_force
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

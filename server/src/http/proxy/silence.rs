//! What an exchange with a sandbox holds, and when the sandbox's silence counts.

use osb_forward::{CountSilence, Silence};
use tokio::time::Instant;

use super::super::gate::Permit;
use crate::sandbox::{Service, endpoint::Answering};

/// Room for an exchange with a sandbox, until it is over.
pub(super) struct Held<T = ()> {
    permit: Permit,
    service: Service,
    /// What else is held.
    _also: T,
}

impl Held {
    pub(super) fn new(permit: Permit, service: Service) -> Self {
        Self::with(permit, service, ())
    }
}

impl<T> Held<T> {
    pub(super) fn with(permit: Permit, service: Service, also: T) -> Self {
        Self {
            permit,
            service,
            _also: also,
        }
    }
}

impl<T: Send + Sync> CountSilence for Held<T> {
    fn silence(&self) -> Silence {
        let sandbox = self.permit.sandbox();
        match sandbox.map_or(Answering::Gone, |id| self.service.answering(id)) {
            Answering::Frozen => Silence::Excused,
            Answering::For(time) => {
                // The clock of this process may be younger than the sandbox.
                let from = Instant::now().checked_sub(time);
                from.map_or(Silence::Counts, Silence::CountsFrom)
            }
            Answering::Gone => Silence::Counts,
        }
    }
}

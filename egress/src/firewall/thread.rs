//! The thread that owns the packet filter.

use std::{
    mem,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use osb_service::heap;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, warn};

use super::{
    Answer, FirewallError, LearnError, Request, Shared,
    elements::{Change, Elements},
    learned::{Difference, Lead, Learned},
    listing::Listing,
    program::nft,
    ruleset::{self, Edition, Surroundings, sets},
    transition,
};
use crate::{
    limits,
    policy::{Effective, Touched},
};

/// Answers whose addresses one transaction adds.
const BATCH: usize = 128;
/// Addresses from which on a transaction takes no further answers.
const ENOUGH: usize = 1024;
/// Addresses that are always removed one by one.
const FEW: usize = 1024;

/// Answer whose addresses are not let through yet, and the channel to the query that waits for it.
type Waiting = (Answer, oneshot::Sender<Result<(), LearnError>>);

/// State of the thread.
pub(super) struct Thread {
    around: Surroundings,
    policy: Arc<Effective>,
    /// Whether the kernel has exactly this policy and what is known here of addresses: the last change
    /// did not fail.
    is_certain: bool,
    elements: Elements,
    shared: Arc<Shared>,
}

impl Thread {
    /// Applies all rules of a policy. The caller blocks.
    ///
    /// # Errors
    /// See [`FirewallError`].
    pub(super) fn start(
        around: Surroundings,
        policy: Arc<Effective>,
        shared: Arc<Shared>,
    ) -> Result<Self, FirewallError> {
        let mut thread = Self {
            around,
            policy,
            is_certain: true,
            elements: Elements::open()?,
            shared,
        };
        thread.apply_all()?;
        Ok(thread)
    }

    /// Applies all rules at the start.
    ///
    /// If an earlier process of this sandbox enforced the same policy, its connections go on, and the
    /// addresses that it learned stay until their end. Under another policy both end: the names of
    /// these addresses are unknown here.
    fn apply_all(&mut self) -> Result<(), FirewallError> {
        let _one = self.shared.program();
        let new = Edition::new(&self.policy, &self.around);
        let now = Instant::now();
        // Without the table there is no earlier process.
        let earlier = Listing::read().ok();
        let same = earlier.filter(|listing| {
            let edition = listing.edition();
            edition.is_some_and(|it| it.fingerprint == new.fingerprint)
        });
        let edition = same.as_ref().and_then(Listing::edition).unwrap_or(new);
        apply(&ruleset::tables())?;
        let is_new = same.is_none();
        apply(&ruleset::rules(&self.policy, &self.around, edition, is_new))?;
        if let Some(listing) = same {
            let mut learned = self.shared.learned_mut();
            learned.inherit(&listing.learned(), &listing.kept(), now);
        }
        Ok(())
    }

    /// Serves requests until the last handle is gone. The rules stay: the sandbox may still run.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        let mut next = queue.blocking_recv();
        while let Some(request) = next.take() {
            let forgotten = match request {
                Request::Apply(policy, done) => {
                    let before = self.shared.learned().len();
                    self.change_or_restore(policy, done);
                    before.saturating_sub(self.shared.learned().len())
                }
                Request::Learn(answer, done) => {
                    let mut count = answer.addresses.len();
                    let mut batch = vec![(answer, done)];
                    while batch.len() < BATCH
                        && count < ENOUGH
                        && let Ok(request) = queue.try_recv()
                    {
                        match request {
                            Request::Learn(answer, done) => {
                                count += answer.addresses.len();
                                batch.push((answer, done));
                            }
                            apply @ Request::Apply(..) => {
                                next = Some(apply);
                                break;
                            }
                        }
                    }
                    self.learn(batch)
                }
            };
            if forgotten >= limits::FORGOTTEN {
                heap::give_back_now();
            }
            if next.is_none() {
                next = queue.blocking_recv();
            }
        }
    }

    /// Adds the addresses of several answers in one transaction. Returns how many addresses were
    /// forgotten for them.
    fn learn(&mut self, batch: Vec<Waiting>) -> usize {
        let now = Instant::now();
        let mut missing: Vec<(IpAddr, Option<Duration>)> = Vec::new();
        let mut waiting = Vec::new();
        let has_room = self.shared.learned_mut().has_room(now);
        for (answer, done) in batch {
            let lead = Lead {
                name: Arc::clone(&answer.name),
                aliases: Arc::clone(&answer.aliases),
            };
            // The policy may have changed since the answer was asked for.
            let mut addresses = answer.addresses.iter();
            if !addresses.all(|address| lead.is_allowed(&self.policy, *address)) {
                let error = match lead.has_allowed_names(&self.policy) {
                    true => LearnError::Filtered,
                    false => LearnError::Refused,
                };
                let _gone = done.send(Err(error));
                continue;
            }
            if !has_room {
                let _gone = done.send(Err(LearnError::Full));
                continue;
            }
            let life = Learned::life(answer.ttl);
            let learned = self.shared.learned();
            for address in &answer.addresses {
                // Another answer may need it for longer.
                let life = life.max(learned.left(*address, now));
                match missing.iter_mut().find(|(known, _)| known == address) {
                    Some((_, known)) => *known = (*known).max(Some(life)),
                    None => missing.push((*address, Some(life))),
                }
            }
            drop(learned);
            waiting.push((answer, lead, done));
        }
        let result = self
            .elements
            .apply(&Change::adding(sets::LEARNED, &missing));
        if let Err(error) = &result {
            // Addresses that may be open are not known here.
            self.is_certain &= error.is_without_effect();
        }
        let result = result.map_err(|error| Arc::new(FirewallError::from(error)));
        let mut forgotten = 0;
        if result.is_ok() {
            let mut learned = self.shared.learned_mut();
            for (answer, lead, _) in &waiting {
                let until = now + Learned::life(answer.ttl);
                for address in &answer.addresses {
                    learned.note(lead, *address, until);
                }
            }
            forgotten = learned.trim(now);
        }
        for (_, _, done) in waiting {
            let _gone = done.send(result.clone().map_err(LearnError::Firewall));
        }
        forgotten
    }

    /// Enforces another policy, unless its caller no longer waits: it has said then that the old one is
    /// in force. The old policy is enforced again after a change that the caller did not wait for, or
    /// whose outcome is unknown.
    fn change_or_restore(
        &mut self,
        policy: Arc<Effective>,
        done: oneshot::Sender<Result<(), FirewallError>>,
    ) {
        if done.is_closed() {
            return;
        }
        let before = Arc::clone(&self.policy);
        let changed = self.change(policy);
        let is_unknown = changed.as_ref().is_err_and(FirewallError::is_unknown);
        let restored = match done.send(changed) {
            Err(Ok(())) => self.change(before),
            _ if is_unknown => {
                let edition = Edition::new(&before, &self.around);
                let written = self.write_all(&before, edition);
                self.is_certain = written.is_ok();
                written
            }
            _ => Ok(()),
        };
        if let Err(error) = restored {
            let error = &error as &dyn std::error::Error;
            error!(
                error,
                "the packet filter may enforce a policy that was refused"
            );
        }
    }

    /// Enforces another policy. Connections and addresses that it still allows go on.
    fn change(&mut self, policy: Arc<Effective>) -> Result<(), FirewallError> {
        let now = Instant::now();
        let touched = Touched::between(&self.policy, &policy);
        let difference = self.shared.learned().under(&policy, &touched, now);
        // Before the kernel closes them: a query that leads to them waits for this change then. If it
        // fails, they are opened again when they are resolved.
        self.shared.learned_mut().forget(&difference);
        let edition = Edition::new(&policy, &self.around);
        // A change that failed halfway, such as by a time limit, may have taken effect. Everything is
        // written the next time then.
        let written = match mem::replace(&mut self.is_certain, false) {
            true => match self.write_difference(&policy, edition, &difference) {
                // Another program has changed the sets: they are not as they are known here.
                Err(FirewallError::Elements(error)) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(
                        error,
                        "the packet filter is not as it was left, all of it is written"
                    );
                    self.write_all(&policy, edition)
                }
                written => written,
            },
            false => self.write_all(&policy, edition),
        };
        written?;
        self.is_certain = true;
        self.policy = policy;
        Ok(())
    }

    /// Changes what differs from the policy in force. Rules are only written if they differ.
    fn write_difference(
        &mut self,
        policy: &Effective,
        edition: Edition,
        difference: &Difference,
    ) -> Result<(), FirewallError> {
        let has_same_rules = policy.networks() == self.policy.networks()
            && policy.default_action() == self.policy.default_action();
        let now = Instant::now();
        let with_elements = has_same_rules.then_some(edition);
        let standing = {
            let learned = self.shared.learned();
            // To remove most of many elements would cost more than to write the others.
            let is_most = difference.closed.len() > learned.len().max(FEW);
            is_most.then(|| learned.standing(now))
        };
        match standing {
            Some(standing) => {
                let changes = transition::from_nothing(&standing, with_elements);
                self.elements.apply(&changes)?;
                self.shared.learned_mut().stood();
            }
            None => {
                let changes = transition::from_difference(difference, with_elements);
                self.elements.apply(&changes)?;
                self.shared.learned_mut().made(difference);
            }
        }
        if has_same_rules {
            return Ok(());
        }
        // The sets have what both policies allow. Until the rules are replaced, in a transaction of
        // their own, the old policy is in force, with fewer addresses; connections go on under both.
        let _one = self.shared.program();
        apply(&ruleset::rules(policy, &self.around, edition, false))
    }

    /// Writes everything, whatever the kernel has: the last change may have failed halfway, and the
    /// table may be gone.
    fn write_all(&mut self, policy: &Effective, edition: Edition) -> Result<(), FirewallError> {
        let _one = self.shared.program();
        apply(&ruleset::tables())?;
        let now = Instant::now();
        let standing = self.shared.learned().standing(now);
        let written = self
            .elements
            .apply(&transition::from_nothing(&standing, None));
        let mut learned = self.shared.learned_mut();
        match written {
            Ok(()) => learned.stood(),
            Err(error) => {
                learned.doubt(now);
                return Err(error.into());
            }
        }
        drop(learned);
        apply(&ruleset::rules(policy, &self.around, edition, false))
    }
}

/// Applies a document of commands with the program `nft`.
pub(super) fn apply(document: &str) -> Result<(), FirewallError> {
    nft(document)?;
    Ok(())
}

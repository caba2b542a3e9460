//! What the service has said, and the questions that wait for its answer.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::{
    super::super::{Denied, Principal},
    provider::{Answer, ProviderFailure},
};

/// Most keys of tenants that are remembered.
const KNOWN_MAX: usize = 10_000;
/// Most other keys that are remembered.
pub(super) const REFUSED_MAX: usize = 10_000;
/// Most questions that wait for their answer.
const QUESTIONS_MAX: usize = 1_000;
/// How long an unknown key is refused without another question: a new key works after this at the
/// latest.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);
/// How long no question is asked after a failure.
const BACK_OFF: Duration = Duration::from_secs(5);

/// Least time between two lines of the log about failures of the service.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// SHA-256 digest of a key.
pub(super) type Digest = [u8; 32];
/// Whose key it is.
pub(super) type Verdict = Result<Arc<Principal>, Denied>;

/// Answers by the digest of the key.
#[derive(Debug, Default)]
pub(super) struct Cache {
    known: HashMap<Digest, Known>,
    refused: HashMap<Digest, Refused>,
    questions: HashMap<Digest, Question>,
    /// Until when the service is taken to be away.
    away_until: Option<Instant>,
    /// When a failure was last worth a line of the log, and how many were not since.
    reported: Option<Instant>,
    unreported: u64,
}

/// A key of a tenant.
#[derive(Debug)]
struct Known {
    principal: Arc<Principal>,
    fresh_until: Instant,
    stale_until: Instant,
}

/// A key that opens nothing for now.
#[derive(Debug)]
struct Refused {
    denied: Denied,
    until: Instant,
}

/// A question that waits for its answer. Every request with the key waits for the same one.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) began: Instant,
    pub(super) verdict: watch::Receiver<Option<Verdict>>,
}

/// What is known of a key.
#[derive(Debug)]
pub(super) enum Lookup {
    /// Enough.
    Settled(Verdict),
    /// The service is being asked. Meanwhile this expired answer may serve.
    Asked(Question, Option<Arc<Principal>>),
    /// The service has to be asked. Meanwhile this expired answer may serve.
    Unknown(Option<Arc<Principal>>),
}

impl Cache {
    pub(super) fn look_up(&self, digest: &Digest, now: Instant) -> Lookup {
        let known = self.known.get(digest);
        if let Some(known) = known
            && known.fresh_until > now
        {
            return Lookup::Settled(Ok(Arc::clone(&known.principal)));
        }
        let stale = self.stale(digest, now);
        if let Some(question) = self.questions.get(digest) {
            return Lookup::Asked(question.clone(), stale);
        }
        let refused = self.refused.get(digest).filter(|it| it.until > now);
        let is_away = self.is_away(now);
        let denied = match refused {
            Some(refused) => refused.denied,
            None if is_away => Denied::Unavailable,
            None => return Lookup::Unknown(stale),
        };
        Lookup::Settled(stale.ok_or(denied))
    }

    /// Whether the service is left alone for now.
    pub(super) fn is_away(&self, now: Instant) -> bool {
        self.away_until.is_some_and(|until| until > now)
    }

    /// Counts a failure. Returns how many there were since the last line of the log when another is due.
    pub(super) fn count_failure(&mut self, now: Instant) -> Option<u64> {
        self.unreported += 1;
        let is_due = self
            .reported
            .is_none_or(|reported| now.duration_since(reported) >= REPORT_EVERY);
        if !is_due {
            return None;
        }
        self.reported = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }

    /// An expired answer that still serves while there is no newer one.
    fn stale(&self, digest: &Digest, now: Instant) -> Option<Arc<Principal>> {
        let known = self.known.get(digest)?;
        (known.stale_until > now).then(|| Arc::clone(&known.principal))
    }

    /// Notes that the service is being asked; `false` when too many questions wait already.
    pub(super) fn begin(&mut self, digest: Digest, question: Question) -> bool {
        if self.questions.len() >= QUESTIONS_MAX {
            return false;
        }
        self.questions.insert(digest, question);
        true
    }

    /// Notes that no answer is awaited any more.
    pub(super) fn end(&mut self, digest: &Digest) {
        self.questions.remove(digest);
    }

    /// Takes over what the service said, or did not say.
    pub(super) fn settle(
        &mut self,
        digest: Digest,
        answer: &Result<Answer, ProviderFailure>,
        max_stale: Duration,
        now: Instant,
    ) -> Verdict {
        match answer {
            Ok(Answer::Tenant { name, ttl }) => {
                self.away_until = None;
                self.refused.remove(&digest);
                let principal = self.principal(&digest, name);
                let known = Known {
                    principal: Arc::clone(&principal),
                    fresh_until: now + *ttl,
                    stale_until: now + *ttl + max_stale,
                };
                make_room(&mut self.known, KNOWN_MAX, now, |known| known.stale_until);
                self.known.insert(digest, known);
                Ok(principal)
            }
            Ok(Answer::Unknown) => {
                self.away_until = None;
                if let Some(known) = self.known.remove(&digest) {
                    known.principal.validity.end();
                }
                self.refuse(digest, Denied::Wrong, now + UNKNOWN_FOR, now);
                Err(Denied::Wrong)
            }
            Err(failure) => {
                match failure {
                    // Questions from before that fail later do not make it longer.
                    ProviderFailure::Away(_) if self.is_away(now) => {}
                    ProviderFailure::Away(_) => self.away_until = Some(now + BACK_OFF),
                    ProviderFailure::BadAnswer(_) => {
                        self.refuse(digest, Denied::Unavailable, now + BACK_OFF, now);
                    }
                }
                self.stale(&digest, now).ok_or(Denied::Unavailable)
            }
        }
    }

    /// The principal of a key: the present one while the key stays its tenant's.
    fn principal(&self, digest: &Digest, name: &str) -> Arc<Principal> {
        let principal = Principal::tenant(name);
        match self.known.get(digest) {
            Some(known) if *known.principal == principal => Arc::clone(&known.principal),
            Some(known) => {
                known.principal.validity.end();
                Arc::new(principal)
            }
            None => Arc::new(principal),
        }
    }

    fn refuse(&mut self, digest: Digest, denied: Denied, until: Instant, now: Instant) {
        make_room(&mut self.refused, REFUSED_MAX, now, |refused| refused.until);
        self.refused.insert(digest, Refused { denied, until });
    }

    /// How many questions wait for their answer.
    #[cfg(test)]
    pub(super) fn questions(&self) -> usize {
        self.questions.len()
    }

    /// How many keys are remembered that open nothing.
    #[cfg(test)]
    pub(super) fn refused(&self) -> usize {
        self.refused.len()
    }
}

/// Forgets what no longer serves and, if that is not enough, what expires first.
fn make_room<T>(
    entries: &mut HashMap<Digest, T>,
    most: usize,
    now: Instant,
    until: impl Fn(&T) -> Instant,
) {
    if entries.len() < most {
        return;
    }
    entries.retain(|_, entry| until(entry) > now);
    while entries.len() >= most {
        let first = entries.iter().min_by_key(|(_, entry)| until(entry));
        let Some(digest) = first.map(|(digest, _)| *digest) else {
            return;
        };
        entries.remove(&digest);
    }
}

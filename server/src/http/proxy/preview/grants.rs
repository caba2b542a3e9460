//! Who may see which preview. A ticket leads a browser from the console to a preview's origin, once;
//! a pass, in a cookie of that origin, admits it from then on.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use rand::RngExt;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{identity::Principal, preview_origin::Site};

/// Time to follow a ticket.
const TICKET: Duration = Duration::from_secs(60);
/// How long a pass admits.
pub(super) const PASS: Duration = Duration::from_secs(3600);
/// Most tickets and most passes at once; the oldest make room.
const MOST: usize = 4096;

/// What a ticket or a pass is for.
#[derive(Debug)]
pub(super) struct Grant {
    site: Site,
    /// Whose it is.
    pub(super) principal: Arc<Principal>,
    /// Public id of the console's session that it came from.
    session: String,
    until: Instant,
    /// Cancelled when the session or what the principal may do ends. An exchange may last longer than the
    /// pass that admitted it.
    pub(super) ended: CancellationToken,
}

impl Grant {
    fn holds(&self, now: Instant) -> bool {
        self.until > now && !self.ended.is_cancelled()
    }
}

type Secrets = HashMap<[u8; 32], Arc<Grant>>;

/// All tickets and passes. They end with the process.
#[derive(Debug, Default)]
pub(super) struct Grants {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    tickets: Secrets,
    passes: Secrets,
    /// All live grants, including those that only open exchanges hold.
    held: Vec<Weak<Grant>>,
}

impl Kept {
    fn hold(&mut self, grant: Grant) -> Arc<Grant> {
        self.held.retain(|grant| grant.strong_count() > 0);
        let grant = Arc::new(grant);
        self.held.push(Arc::downgrade(&grant));
        grant
    }
}

impl Grants {
    /// A ticket for a site.
    pub(super) fn ticket(&self, site: Site, principal: Arc<Principal>, session: &str) -> String {
        let grant = Grant {
            site,
            ended: principal.validity.ended().child_token(),
            principal,
            session: session.to_owned(),
            until: Instant::now() + TICKET,
        };
        let mut kept = self.kept();
        let grant = kept.hold(grant);
        add(&mut kept.tickets, grant)
    }

    /// Exchanges a ticket for a pass, once and only at its site.
    pub(super) fn redeem(&self, ticket: &str, site: &Site) -> Option<String> {
        let mut kept = self.kept();
        let grant = kept.tickets.remove(&digest(ticket))?;
        let now = Instant::now();
        if grant.site != *site || !grant.holds(now) {
            return None;
        }
        let pass = kept.hold(Grant {
            site: grant.site.clone(),
            principal: Arc::clone(&grant.principal),
            session: grant.session.clone(),
            until: now + PASS,
            ended: grant.ended.clone(),
        });
        Some(add(&mut kept.passes, pass))
    }

    /// What a pass for a site grants. An exchange holds it for as long as it lasts.
    pub(super) fn admit(&self, pass: &str, site: &Site) -> Option<Arc<Grant>> {
        let kept = self.kept();
        let grant = kept.passes.get(&digest(pass))?;
        (grant.site == *site && grant.holds(Instant::now())).then(|| Arc::clone(grant))
    }

    /// Whether there is anything to end.
    pub(super) fn is_empty(&self) -> bool {
        let kept = self.kept();
        kept.held.iter().all(|grant| grant.strong_count() == 0)
    }

    /// Ends what came from other sessions than these, and the exchanges that it admitted.
    pub(super) fn retain(&self, sessions: &HashSet<String>) {
        let mut kept = self.kept();
        for grant in kept.held.iter().filter_map(Weak::upgrade) {
            if !sessions.contains(&grant.session) {
                grant.ended.cancel();
            }
        }
        let is_open = |grant: &Grant| !grant.ended.is_cancelled();
        kept.tickets.retain(|_, grant| is_open(grant));
        kept.passes.retain(|_, grant| is_open(grant));
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a grant under a new secret.
fn add(secrets: &mut Secrets, grant: Arc<Grant>) -> String {
    let now = Instant::now();
    secrets.retain(|_, grant| grant.holds(now));
    if secrets.len() >= MOST {
        let oldest = secrets.iter().min_by_key(|(_, grant)| grant.until);
        if let Some(oldest) = oldest.map(|(key, _)| *key) {
            secrets.remove(&oldest);
        }
    }
    let random: [u8; 32] = rand::rng().random();
    let mut secret = String::with_capacity(2 * random.len());
    for byte in random {
        let _ = write!(secret, "{byte:02x}");
    }
    secrets.insert(digest(&secret), grant);
    secret
}

/// What a secret is found by, so that no comparison depends on its bytes.
fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

//! Tenants of a TOML file, which is read again when it changes.

use std::{
    collections::HashMap,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use osb_service::Supervisor;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use super::super::{Principal, index::end_unless, rules, secret};

/// How often the file is looked at.
const FOLLOW: Duration = Duration::from_secs(2);
/// Largest file, in bytes.
const FILE_MAX: u64 = 16 << 20;

/// Why a file of tenants is refused. Names neither keys nor their parts.
#[derive(Debug, thiserror::Error)]
pub enum TenantFileError {
    /// It cannot be read.
    #[error("{}: cannot be read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not TOML of the expected form.
    #[error("{}{}: {rule}", .path.display(), .line.map(|line| format!(":{line}")).unwrap_or_default())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line from 1.
        line: Option<usize>,
        /// What is expected.
        rule: &'static str,
    },
    /// A tenant breaks a rule.
    #[error("{}: tenants[{index}].{field}: {rule}", .path.display())]
    Rule {
        /// The file.
        path: PathBuf,
        /// Position of the tenant from 0.
        index: usize,
        /// Which member.
        field: &'static str,
        /// The rule.
        rule: String,
    },
}

type Table = HashMap<[u8; 32], Arc<Principal>>;

/// Tenants of a file. Clones share them.
#[derive(Clone, Debug)]
pub struct FileTenants(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Tenants by the digest of each of their keys.
    table: RwLock<Arc<Table>>,
}

/// What distinguishes one content of the file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    /// `None` without a file.
    fn of(path: &Path) -> io::Result<Option<Self>> {
        match path.metadata() {
            Ok(file) => Ok(Some(Self {
                inode: file.ino(),
                size: file.size(),
                modified: (file.mtime(), file.mtime_nsec()),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[derive(Deserialize)]
struct Document {
    tenants: Vec<Tenant>,
}

#[derive(Deserialize)]
struct Tenant {
    name: String,
    namespace: String,
    api_keys: Vec<SecretString>,
}

impl FileTenants {
    /// Reads the file and follows it.
    pub(super) fn start(path: PathBuf, tasks: &Supervisor) -> Result<Self, TenantFileError> {
        let stamp = Stamp::of(&path).ok().flatten();
        let table = read(&path)?;
        let tenants = Self(Arc::new(Inner {
            path,
            table: RwLock::new(Arc::new(table)),
        }));
        let followed = tenants.clone();
        tasks.spawn_abortable("tenants", async move {
            let mut follow = interval(FOLLOW);
            follow.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut seen = stamp;
            loop {
                follow.tick().await;
                seen = followed.follow(seen);
            }
        });
        Ok(tenants)
    }

    /// The tenant of a key.
    pub(super) fn find(&self, key: &[u8]) -> Option<Arc<Principal>> {
        self.find_by_digest(&secret::digest(key))
    }

    /// The same by the digest of the key.
    pub(super) fn find_by_digest(&self, digest: &[u8; 32]) -> Option<Arc<Principal>> {
        let table = self.0.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(digest).map(Arc::clone)
    }

    /// Ends principals whose key is no longer in the file, or is another tenant's.
    fn end_missing(&self, before: &Table) {
        for (digest, principal) in before {
            end_unless(principal, self.find_by_digest(digest).as_ref());
        }
    }

    /// Takes over a changed file; returns what was seen. A wrong file changes nothing; without a file
    /// no key works.
    fn follow(&self, seen: Option<Stamp>) -> Option<Stamp> {
        let Inner { path, table } = &*self.0;
        let Ok(stamp) = Stamp::of(path) else {
            return seen;
        };
        if stamp == seen {
            return seen;
        }
        let read = match stamp {
            Some(_) => read(path),
            None => {
                warn!(path = %path.display(), "the file of tenants is gone: their keys do not work");
                Ok(Table::new())
            }
        };
        match read {
            Ok(fresh) => {
                info!(path = %path.display(), keys = fresh.len(), "tenants were read again");
                let before = {
                    let mut table = table.write().unwrap_or_else(PoisonError::into_inner);
                    let fresh = fresh.into_iter().map(|(digest, principal)| {
                        let known = table.get(&digest);
                        let is_same = known.is_some_and(|known| **known == *principal);
                        let kept = known.filter(|_| is_same).map(Arc::clone);
                        (digest, kept.unwrap_or(principal))
                    });
                    let fresh = Arc::new(fresh.collect());
                    std::mem::replace(&mut *table, fresh)
                };
                self.end_missing(&before);
            }
            Err(error) => warn!(%error, "the tenants stay as they were"),
        }
        stamp
    }
}

fn read(path: &Path) -> Result<Table, TenantFileError> {
    let failed = |source| TenantFileError::Read {
        path: path.to_owned(),
        source,
    };
    if path.metadata().map_err(failed)?.size() > FILE_MAX {
        return Err(failed(io::Error::other("it is larger than 16 MiB")));
    }
    parse(path, &std::fs::read_to_string(path).map_err(failed)?)
}

fn parse(path: &Path, text: &str) -> Result<Table, TenantFileError> {
    // The parser's own words would repeat the line, which may hold a key.
    let document: Document = toml::from_str(text).map_err(|error| TenantFileError::Syntax {
        path: path.to_owned(),
        line: error
            .span()
            .map(|span| 1 + text[..span.start].matches('\n').count()),
        rule: "must have [[tenants]] with name, namespace and api_keys",
    })?;
    let mut table = Table::new();
    let mut names = Vec::new();
    for (index, tenant) in document.tenants.into_iter().enumerate() {
        let wrong = |field, rule: String| TenantFileError::Rule {
            path: path.to_owned(),
            index,
            field,
            rule,
        };
        let name = rules::tenant_name(&tenant.name).map_err(|error| wrong("name", error.msg))?;
        if names.contains(&name) {
            return Err(wrong("name", "must be unique".to_owned()));
        }
        if tenant.namespace.trim().is_empty() {
            return Err(wrong("namespace", "must not be empty".to_owned()));
        }
        if tenant.api_keys.is_empty() {
            return Err(wrong("api_keys", "must not be empty".to_owned()));
        }
        for key in &tenant.api_keys {
            // Each key has its own, so that it ends alone.
            let principal = Arc::new(Principal::tenant(&name));
            let key = key.expose_secret();
            if key.trim().is_empty() {
                return Err(wrong("api_keys", "must not have a blank key".to_owned()));
            }
            let known = table.insert(secret::digest(key.as_bytes()), principal);
            if known.is_some() {
                let rule = "has a key that is listed twice in this file";
                return Err(wrong("api_keys", rule.to_owned()));
            }
        }
        names.push(name);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAMS: &str = "[[tenants]]\nname = 'team-a'\nnamespace = 'ns'\napi_keys = ['k-1', 'k-2']\n\
        [[tenants]]\nname = 'team-b'\nnamespace = 'ns'\napi_keys = ['k-3']\n";

    fn refused(text: &str) -> String {
        let error = parse(Path::new("t.toml"), text).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        error
    }

    #[test]
    fn every_key_leads_to_its_tenant() {
        let table = parse(Path::new("t.toml"), TEAMS).unwrap();
        let tenant = |key: &str| {
            let found = table.get(&secret::digest(key.as_bytes()));
            found.and_then(|found| found.scope.tenant())
        };
        assert_eq!(
            (tenant("k-1"), tenant("k-2")),
            (Some("team-a"), Some("team-a"))
        );
        assert_eq!((tenant("k-3"), tenant("k-4")), (Some("team-b"), None));
    }

    #[test]
    fn wrong_files_are_refused_without_their_keys() {
        let tenant = |name: &str, keys: &str| {
            format!("[[tenants]]\nname = '{name}'\nnamespace = 'n'\napi_keys = {keys}\n")
        };
        assert!(refused("").contains("[[tenants]]"));
        assert!(refused("[[tenants]]\nname = 'a'\napi_keys = ['hunter2']").contains("t.toml:1"));
        assert!(refused("x = 'hunter2\n").contains("t.toml:1"));
        assert!(refused(&tenant(" ", "['hunter2']")).contains("tenants[0].name"));
        assert!(refused(&tenant("a", "[]")).contains("tenants[0].api_keys"));
        assert!(refused(&tenant("a", "['hunter2', ' ']")).contains("blank"));
        let twice = tenant("a", "['hunter2']") + &tenant("b", "['hunter2']");
        assert!(refused(&twice).contains("tenants[1].api_keys"));
        let same = tenant("a", "['hunter2']") + &tenant("a", "['k']");
        assert!(refused(&same).contains("tenants[1].name"));
    }

    #[tokio::test]
    async fn a_changed_file_counts_a_wrong_one_does_not_and_without_one_no_key_works() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenants.toml");
        let tasks = Supervisor::new();
        let missing = FileTenants::start(path.clone(), &tasks);
        assert!(matches!(missing, Err(TenantFileError::Read { .. })));
        std::fs::write(&path, TEAMS).unwrap();
        let tenants = FileTenants::start(path.clone(), &tasks).unwrap();
        let works = |key: &str| tenants.find(key.as_bytes()).is_some();
        assert!(works("k-1") && !works("k-9"));
        let mut seen = tenants.follow(None);
        let [removed, other] = ["k-1", "k-2"].map(|key| tenants.find(key.as_bytes()).unwrap());
        std::fs::write(&path, TEAMS.replace("k-1", "k-9000")).unwrap();
        seen = tenants.follow(seen);
        assert!(removed.validity.ended().is_cancelled());
        assert!(
            !other.validity.ended().is_cancelled(),
            "another key of the tenant"
        );
        assert!(works("k-9000") && !works("k-1") && works("k-3"));
        std::fs::write(&path, "tenants = 1").unwrap();
        seen = tenants.follow(seen);
        assert!(works("k-9000"), "a wrong file changes nothing");
        std::fs::remove_file(&path).unwrap();
        seen = tenants.follow(seen);
        assert!(!works("k-9000") && !works("k-3"));
        std::fs::write(&path, TEAMS).unwrap();
        tenants.follow(seen);
        assert!(works("k-1"));
        tasks.stop();
    }
}

//! Passwords: argon2id, a bounded number at once. Each hash takes 19 MiB and some hundredths of a
//! second of a processor.

use std::sync::{Arc, OnceLock};

use argon2::{Argon2, PasswordHasher, PasswordVerifier, password_hash::phc};
use osb_store::PasswordHash;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

/// Hashes at once.
const AT_ONCE: usize = 2;

/// Hashes and checks passwords. Clones share the bound.
#[derive(Clone, Debug)]
pub(super) struct Passwords(Arc<Semaphore>);

/// A password could not be hashed.
#[derive(Debug, thiserror::Error)]
#[error("cannot hash a password: {0}")]
pub struct HashError(String);

impl Default for Passwords {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Passwords {
    /// Hashes a new password.
    pub(super) async fn hash(&self, password: SecretString) -> Result<PasswordHash, HashError> {
        self.run(move || hash(&password)).await
    }

    /// Whether a password is the one of a hash. Takes as long without a hash, so that an answer does
    /// not show which users exist.
    pub(super) async fn verify(
        &self,
        password: SecretString,
        hash: Option<PasswordHash>,
    ) -> Result<bool, HashError> {
        self.run(move || match hash {
            Some(hash) => Ok(verify(&password, &hash.0)),
            None => {
                verify(&password, of_no_user()?);
                Ok(false)
            }
        })
        .await
    }

    /// Runs work on a thread where it may take its time.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, HashError> + Send + 'static,
    ) -> Result<T, HashError> {
        let failed = |error: &dyn std::fmt::Display| HashError(error.to_string());
        let permit = Arc::clone(&self.0).acquire_owned().await;
        let permit = permit.map_err(|error| failed(&error))?;
        let done = tokio::task::spawn_blocking(move || {
            // Held by the thread: a client that disconnects does not end the work.
            let _permit = permit;
            work()
        });
        done.await.map_err(|error| failed(&error))?
    }
}

fn hash(password: &SecretString) -> Result<PasswordHash, HashError> {
    let hashed = Argon2::default().hash_password(password.expose_secret().as_bytes());
    match hashed {
        Ok(hashed) => Ok(PasswordHash(hashed.to_string())),
        Err(error) => Err(HashError(error.to_string())),
    }
}

/// A stored hash that cannot be read is that of no password.
fn verify(password: &SecretString, hash: &str) -> bool {
    let password = password.expose_secret().as_bytes();
    phc::PasswordHash::new(hash)
        .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

/// The hash that is checked for a user who does not exist.
fn of_no_user() -> Result<&'static str, HashError> {
    static HASH: OnceLock<String> = OnceLock::new();
    if let Some(hash) = HASH.get() {
        return Ok(hash);
    }
    let hash = hash(&SecretString::from("no user has this password"))?;
    Ok(HASH.get_or_init(|| hash.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_password_itself_is_verified() {
        let passwords = Passwords::default();
        let text = |text: &str| SecretString::from(text);
        let one = passwords.hash(text("correct horse")).await.unwrap();
        let same = passwords.hash(text("correct horse")).await.unwrap();
        assert!(
            one.0.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{}",
            one.0
        );
        assert_ne!(one.0, same.0, "the salts differ");
        let verify = async |password, hash| passwords.verify(text(password), hash).await.unwrap();
        assert!(verify("correct horse", Some(one.clone())).await);
        assert!(verify("correct horse", Some(same)).await);
        assert!(!verify("correct horse ", Some(one.clone())).await);
        assert!(!verify("", Some(one)).await);
        assert!(!verify("no user has this password", None).await);
        assert!(!verify("", Some(PasswordHash("damaged".into()))).await);
    }
}

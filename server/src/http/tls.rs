//! TLS of the listener. Certificate and key come from files, which are read again when they change,
//! or on SIGHUP; open connections go on.
//!
//! Changes are looked for rather than watched: certificates are replaced by renames, links and mounts
//! (a Kubernetes secret is a link to a link), of which a watch on a file sees nothing.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use osb_service::{ErrorChain, Supervisor};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::{info, warn};

/// How often the files are looked at.
const CHECK: Duration = Duration::from_secs(10);
/// Longest time of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// Largest file of certificates or of a key, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Versions of HTTP, best first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Where certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of this server, and those that lead from it to an authority, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file has not what it should have.
    #[error("{path}: has no {what} in PEM form")]
    Missing {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        what: &'static str,
    },
    /// Certificate and key do not belong together, or are of a kind that is not supported.
    #[error("{certificate} and {key} cannot be used")]
    Unusable {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

/// TLS with the newest certificate that is valid. Clones share it.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<Current>,
    files: TlsFiles,
}

/// The certificate that new connections get.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // It is replaced as a whole, so a panic elsewhere does not spoil it.
        Some(Arc::clone(
            &self.0.read().unwrap_or_else(PoisonError::into_inner),
        ))
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub async fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let current = Arc::new(Current(RwLock::new(Arc::new(read(&files).await?))));
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for every version");
        let mut config = builder
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as _);
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).into();
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            current,
            files,
        })
    }

    /// Takes over new files until the supervisor stops. Files that cannot be used cause a warning;
    /// the certificate in use stays.
    ///
    /// # Errors
    /// When the handler of SIGHUP cannot be installed.
    pub fn follow(&self, tasks: &Supervisor) -> io::Result<()> {
        let mut hangup = osb_service::signal::hangup()?;
        let tls = self.clone();
        tasks.spawn_abortable("certificate", async move {
            let mut seen = Stamp::of(&tls.files).await;
            loop {
                let asked = tokio::select! {
                    _ = hangup.recv() => true,
                    () = tokio::time::sleep(CHECK) => false,
                };
                tls.renew(&mut seen, asked).await;
            }
        });
        Ok(())
    }

    /// Reads the files again if they are others than those that were `seen`, or if that is asked for.
    async fn renew(&self, seen: &mut Stamp, asked: bool) {
        // Before they are read: a change while they are read is found by the next look.
        let stamp = Stamp::of(&self.files).await;
        if stamp == *seen && !asked {
            return;
        }
        *seen = stamp;
        let certificate = self.files.certificate.display();
        match read(&self.files).await {
            Ok(key) => {
                *self
                    .current
                    .0
                    .write()
                    .unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
                info!(%certificate, "new connections get the certificate that was read again");
            }
            // Halfway through a replacement, certificate and key do not match.
            Err(error) => {
                warn!(error = %ErrorChain(&error), "the certificate in use stays");
            }
        }
    }

    /// Begins TLS on a connection.
    pub(super) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match timeout(HANDSHAKE, self.acceptor.accept(stream)).await {
            Ok(done) => done,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

async fn read(files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
    let missing = |path: &Path, what| TlsError::Missing {
        path: path.to_owned(),
        what,
    };
    let text = contents(&files.certificate).await?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or_else(|| missing(&files.certificate, "certificate"))?;
    let text = contents(&files.key).await?;
    let key = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| missing(&files.key, "unencrypted private key"))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|source| {
        TlsError::Unusable {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        }
    })
}

async fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read {
        path: path.to_owned(),
        source,
    };
    let length = tokio::fs::metadata(path).await.map_err(failed)?.len();
    if length > FILE_MAX {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    tokio::fs::read(path).await.map_err(failed)
}

/// Which files were read, and in which state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp([Option<FileState>; 2]);

#[derive(Clone, Debug, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    async fn of(files: &TlsFiles) -> Self {
        let state = async |path: &Path| {
            let file = tokio::fs::metadata(path).await.ok()?;
            Some(FileState {
                device: file.dev(),
                inode: file.ino(),
                size: file.len(),
                modified: (file.mtime(), file.mtime_nsec()),
                changed: (file.ctime(), file.ctime_nsec()),
            })
        };
        Self([state(&files.certificate).await, state(&files.key).await])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::SystemTime;

    use rcgen::{CertifiedKey as Generated, generate_simple_self_signed};
    use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio_rustls::{TlsConnector, client};

    use super::*;

    /// A folder with files that are replaced by certificates for `localhost`.
    pub(in crate::http) struct Authority {
        folder: tempfile::TempDir,
        /// Distinguishes files that are written within one tick of the file system's clock.
        written: u64,
        pub(in crate::http) newest: CertificateDer<'static>,
    }

    impl Authority {
        pub(in crate::http) fn new() -> Self {
            let mut authority = Self {
                folder: tempfile::tempdir().unwrap(),
                written: 0,
                newest: Vec::new().into(),
            };
            authority.issue();
            authority
        }

        pub(in crate::http) fn files(&self) -> TlsFiles {
            TlsFiles {
                certificate: self.folder.path().join("tls.crt"),
                key: self.folder.path().join("tls.key"),
            }
        }

        fn generate(&mut self) -> (String, String) {
            let Generated { cert, signing_key } =
                generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            self.newest = cert.der().clone();
            (cert.pem(), signing_key.serialize_pem())
        }

        fn write(&mut self, path: &Path, text: &str) {
            std::fs::write(path, text).unwrap();
            self.written += 1;
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(self.written);
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(time).unwrap();
        }

        pub(in crate::http) fn issue(&mut self) {
            let (certificate, key) = self.generate();
            let files = self.files();
            self.write(&files.certificate, &certificate);
            self.write(&files.key, &key);
        }

        /// A client that trusts the newest certificate only.
        pub(in crate::http) fn connector(&self) -> TlsConnector {
            let mut roots = RootCertStore::empty();
            roots.add(self.newest.clone()).unwrap();
            let provider = Arc::new(ring::default_provider());
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.alpn_protocols = ALPN.map(<[u8]>::to_vec).into();
            TlsConnector::from(Arc::new(config))
        }
    }

    type Pair = (client::TlsStream<DuplexStream>, TlsStream<DuplexStream>);

    async fn connect(tls: &Tls, authority: &Authority) -> io::Result<Pair> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let name = ServerName::try_from("localhost").unwrap();
        let connector = authority.connector();
        let (client, server) = tokio::join!(connector.connect(name, theirs), tls.accept(ours));
        Ok((client?, server?))
    }

    async fn message(from: &mut (impl AsyncWrite + Unpin), to: &mut (impl AsyncRead + Unpin)) {
        from.write_all(b"hello").await.unwrap();
        from.flush().await.unwrap();
        let mut read = [0; 5];
        to.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
    }

    #[tokio::test]
    async fn a_new_certificate_serves_new_connections_and_old_ones_go_on() {
        let mut authority = Authority::new();
        let tls = Tls::load(authority.files()).await.unwrap();
        let (mut client, mut server) = connect(&tls, &authority).await.unwrap();
        let alpn = client.get_ref().1.alpn_protocol();
        assert_eq!(alpn, Some(&b"h2"[..]));
        let mut seen = Stamp::of(&tls.files).await;
        authority.issue();
        assert!(connect(&tls, &authority).await.is_err(), "not read yet");
        tls.renew(&mut seen, false).await;
        let (mut newer, mut newer_server) = connect(&tls, &authority).await.unwrap();
        message(&mut newer, &mut newer_server).await;
        message(&mut client, &mut server).await;
        message(&mut server, &mut client).await;
    }

    #[tokio::test]
    async fn files_that_cannot_be_used_do_not_replace_those_that_can() {
        let mut authority = Authority::new();
        let tls = Tls::load(authority.files()).await.unwrap();
        let mut seen = Stamp::of(&tls.files).await;
        let old = authority.newest.clone();
        // The certificate is replaced before its key.
        let (certificate, key) = authority.generate();
        let newest = std::mem::replace(&mut authority.newest, old);
        let files = authority.files();
        authority.write(&files.certificate, &certificate);
        tls.renew(&mut seen, false).await;
        connect(&tls, &authority).await.expect("the old one stays");
        std::fs::remove_file(authority.files().key).unwrap();
        tls.renew(&mut seen, true).await;
        connect(&tls, &authority).await.expect("the old one stays");
        authority.write(&files.key, &key);
        tls.renew(&mut seen, false).await;
        authority.newest = newest;
        connect(&tls, &authority).await.expect("both are there");
    }

    #[tokio::test]
    async fn errors_name_the_file_and_what_it_lacks() {
        let authority = Authority::new();
        let files = authority.files();
        let error = async || Tls::load(files.clone()).await.unwrap_err().to_string();
        let key = std::fs::read(&files.key).unwrap();
        let swap = std::fs::read(&files.certificate).unwrap();
        std::fs::write(
            &files.key,
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n",
        )
        .unwrap();
        assert!(
            error()
                .await
                .ends_with("tls.key: has no unencrypted private key in PEM form")
        );
        std::fs::write(&files.certificate, &key).unwrap();
        assert!(
            error()
                .await
                .ends_with("tls.crt: has no certificate in PEM form")
        );
        std::fs::write(&files.certificate, swap).unwrap();
        std::fs::write(&files.key, Authority::new().generate().1).unwrap();
        assert!(error().await.ends_with("tls.key cannot be used"));
        std::fs::remove_file(&files.key).unwrap();
        assert!(error().await.ends_with("tls.key: cannot be read"));
    }
}

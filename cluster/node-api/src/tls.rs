//! The node's certificate and the CA of client certificates, read from files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{Error as RustlsError, RootCertStore, ServerConfig};
use winddown_host::{FileStamp, OneThread, regular};
use winddown_shared::error_chain;

/// The most bytes of a file. A bundle of all public CAs is a fifth of this.
const MAX_PEM_FILE_BYTES: u64 = 1 << 20;

/// HTTP/2 in the negotiation of protocols (ALPN, RFC 7301).
pub(crate) const HTTP2: &[u8] = b"h2";

/// The files that TLS is configured from. They may be replaced at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The node's certificate and its intermediates, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM; may be the same file.
    pub key: PathBuf,
    /// The CAs of client certificates, PEM. If `None`, no client can authenticate with a certificate.
    pub client_authority: Option<PathBuf>,
}

/// Why TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has no whole {what} in it: put one there, as PEM", .path.display())]
    Pem { path: PathBuf, what: &'static str },
    #[error("{} is not a certificate authority: put the clients' CA there, as PEM", .path.display())]
    Authority { path: PathBuf },
    #[error("{} cannot be used with the key {}: renew both together", .path.display(), .key.display())]
    Identity { path: PathBuf, key: PathBuf },
}

/// The TLS configuration, which follows its files.
pub(crate) struct Tls {
    files: Arc<TlsFiles>,
    current: OneThread<Current>,
}

#[derive(Default)]
struct Current {
    stamps: Vec<Option<FileStamp>>,
    config: Option<TlsConfig>,
    /// Why newer files cannot be used, once that was reported.
    problem: Option<String>,
}

/// What was read from the files.
#[derive(Clone, Debug)]
struct TlsConfig {
    server: Arc<ServerConfig>,
    /// Verifies the certificates of clients; `None` if none is accepted.
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl Tls {
    pub(crate) fn new(files: TlsFiles) -> Self {
        Self { files: Arc::new(files), current: OneThread::default() }
    }

    /// Returns the acceptor for the next connection, and reads changed files. If they are invalid, the previous
    /// configuration stays in use, with one warning: anybody may connect, and as often as they like.
    pub(crate) async fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        Ok(TlsAcceptor::from(self.config().await?.server))
    }

    /// Whether a client's certificate is valid now. Since its connection was made it may have expired, or its authority
    /// may have been taken out of the file.
    pub(crate) async fn trusts(&self, chain: &[CertificateDer<'static>]) -> bool {
        let Some((own, intermediates)) = chain.split_first() else { return false };
        let clients = self.config().await.ok().and_then(|config| config.clients);
        let verify = |clients: Arc<dyn ClientCertVerifier>| {
            clients.verify_client_cert(own, intermediates, UnixTime::now()).is_ok()
        };
        clients.is_some_and(verify)
    }

    async fn config(&self) -> Result<TlsConfig, TlsError> {
        let files = Arc::clone(&self.files);
        match self.current.run(move |current| current.read(&files)).await {
            Ok(Ok((config, problem))) => {
                if let Some(error) = problem {
                    tracing::warn!(error, "the node API keeps its previous certificates");
                }
                Ok(config)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let path = self.files.certificate.clone();
                Err(TlsError::Read { path, source: io::ErrorKind::Interrupted.into() })
            }
        }
    }
}

impl Current {
    /// Reads changed files. Returns the configuration to use, and why it is not theirs unless that was reported before.
    fn read(&mut self, files: &TlsFiles) -> Result<(TlsConfig, Option<String>), TlsError> {
        let stamps = stamps(files);
        if let Some(config) = self.config.clone().filter(|_| self.stamps == stamps) {
            return Ok((config, None));
        }
        match (read(files), &self.config) {
            (Ok(config), _) => {
                *self = Self { stamps, config: Some(config.clone()), problem: None };
                Ok((config, None))
            }
            // The stamps stay those of before, so that the files are read again.
            (Err(error), Some(config)) => {
                let problem = error_chain(&error);
                let is_news = self.problem.as_ref() != Some(&problem);
                self.problem = Some(problem.clone());
                Ok((config.clone(), is_news.then_some(problem)))
            }
            (Err(error), None) => Err(error),
        }
    }
}

fn stamps(files: &TlsFiles) -> Vec<Option<FileStamp>> {
    let TlsFiles { certificate, key, client_authority } = files;
    let all = [Some(certificate), Some(key), client_authority.as_ref()];
    all.into_iter().flatten().map(|path| FileStamp::at(path)).collect()
}

fn read(files: &TlsFiles) -> Result<TlsConfig, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&contents(&files.key)?)
        .map_err(|_| TlsError::Pem { path: files.key.clone(), what: "private key" })?;
    let provider = Arc::new(default_provider());
    let identity = |_: RustlsError| TlsError::Identity {
        path: files.certificate.clone(),
        key: files.key.clone(),
    };
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(identity)?;
    let (config, clients) = match &files.client_authority {
        None => (config.with_no_client_auth(), None),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(path)?);
            // A client without a certificate may have a token.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|_| TlsError::Authority { path: path.clone() })?;
            (config.with_client_cert_verifier(Arc::clone(&verifier)), Some(verifier))
        }
    };
    let mut config = config.with_single_cert(chain, key).map_err(identity)?;
    // A resumed session could carry a client certificate that has expired since.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // Requests for an upgrade come over HTTP/1.1: HTTP/2 has none.
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(TlsConfig { server: Arc::new(config), clients })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = contents(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read).collect();
    let all = all.ok().filter(|all| !all.is_empty());
    all.ok_or_else(|| TlsError::Pem { path: path.to_owned(), what: "certificate" })
}

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = regular::read(path, MAX_PEM_FILE_BYTES);
    read.map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_name_and_without_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (name, text) in [
            ("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n"),
            ("odd.pem", "-----BEGIN CERTIFICATE\nAAAA\n-----END CERTIFICATE-----\n"),
            ("text.pem", "-----BEGIN CERTIFICATE-----\n%%%%\n-----END CERTIFICATE-----\n"),
            ("empty.pem", ""),
        ] {
            std::fs::write(at(name), text).unwrap();
            let files = TlsFiles { certificate: at(name), key: at(name), client_authority: None };
            let said = error_chain(&read(&files).unwrap_err());
            let wanted = "has no whole certificate in it: put one there, as PEM";
            assert_eq!(said, format!("{} {wanted}", at(name).display()));
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_reported_once_and_not_to_each_client() {
        let dir = tempfile::tempdir().unwrap();
        let certificate = dir.path().join("node.pem");
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let good = issued.cert.pem() + &issued.signing_key.serialize_pem();
        let files = TlsFiles {
            certificate: certificate.clone(),
            key: certificate.clone(),
            client_authority: None,
        };
        let mut current = Current::default();
        let mut problems = |text: &str| {
            std::fs::write(&certificate, text).unwrap();
            (0..3).filter(|_| current.read(&files).unwrap().1.is_some()).count()
        };
        assert_eq!(problems(&good), 0);
        assert_eq!(problems("no certificate"), 1);
        assert_eq!(problems(&issued.cert.pem()), 1, "it lacks something else");
        assert_eq!(problems(&good), 0);
        assert_eq!(problems("no certificate"), 1, "that was mended meanwhile");
    }

    #[test]
    fn clients_that_wait_for_a_disk_that_hangs_take_one_thread() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().max_blocking_threads(2).build().unwrap().block_on(async {
            let certificate = tempfile::tempdir().unwrap().path().join("node.pem");
            let key = certificate.clone();
            let tls = Tls::new(TlsFiles { certificate, key, client_authority: None });
            let (disk, answer) = std::sync::mpsc::channel::<()>();
            let hung = tls.current.run(move |_| answer.recv());
            let clients = async { tokio::join!(hung, tls.acceptor(), tls.acceptor()) };
            let others = async {
                let free = tokio::task::spawn_blocking(|| ());
                let free = tokio::time::timeout(Duration::from_secs(5), free).await;
                drop(disk);
                free
            };
            let ((_, first, _), free) = tokio::join!(clients, others);
            assert!(free.is_ok(), "a thread is left for others");
            assert!(first.is_err());
        });
    }
}

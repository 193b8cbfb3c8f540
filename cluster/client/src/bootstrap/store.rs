//! Keeps a signed certificate on disk.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use rcgen::KeyPair;
use winddown_host::{Durability, regular};

use crate::CredentialsError;
use crate::kubeconfig::load;

/// The kubeconfig that refers to the certificate and the API server.
pub(super) const KUBECONFIG: &str = "kubeconfig";

/// The folder. Methods run on blocking threads and replace files atomically.
pub(super) struct Store {
    folder: PathBuf,
    /// `client` or `server`, the prefix of its files' names.
    role: &'static str,
}

impl Store {
    pub(super) fn new(folder: &Path, role: &'static str) -> Self {
        Self { folder: folder.to_path_buf(), role }
    }

    /// The file with both the certificate and its key, so that the two always match.
    pub(super) fn identity(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.role))
    }

    /// The key for which a certificate has been requested.
    fn pending(&self) -> PathBuf {
        self.folder.join(format!("{}-key.pending.pem", self.role))
    }

    /// Returns the key for which a certificate has been requested, or a new one, which is already on disk.
    pub(super) async fn pending_key(&self) -> Result<KeyPair, CredentialsError> {
        let path = self.pending();
        aside(move || {
            let kept = regular::read_to_string(&path, regular::MAX_CONFIGURATION_BYTES).ok();
            if let Some(key) = kept.and_then(|text| KeyPair::from_pem(&text).ok()) {
                return Ok(key);
            }
            let key = KeyPair::generate().map_err(|source| {
                let place = path.display().to_string();
                CredentialsError::because(place, "cannot generate a key", source)
            })?;
            replace(&path, "key of the certificate", key.serialize_pem().as_bytes())?;
            Ok(key)
        })
        .await
    }

    /// Deletes that key. It need not exist.
    pub(super) async fn forget_pending(&self) -> Result<(), CredentialsError> {
        let path = self.pending();
        aside(move || match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(CredentialsError::Write { what: "key of the certificate", path, source })
            }
            _ => Ok(()),
        })
        .await
    }

    /// Stores a kubeconfig for the certificate with this server.
    pub(super) async fn keep_kubeconfig(&self, cluster: Cluster) -> Result<(), CredentialsError> {
        let (identity, path) = (self.identity(), self.folder.join(KUBECONFIG));
        let text = kubeconfig(cluster, &identity);
        aside(move || replace(&path, "kubeconfig", text.as_bytes())).await
    }

    /// Stores a signed certificate. `note` precedes it, where PEM readers skip it.
    pub(super) async fn keep_identity(
        &self,
        chain: &[u8],
        key: &KeyPair,
        note: &str,
    ) -> Result<(), CredentialsError> {
        let chain = chain.trim_ascii_end();
        let identity = [note.as_bytes(), chain, b"\n", key.serialize_pem().as_bytes()].concat();
        let path = self.identity();
        aside(move || replace(&path, "certificate", &identity)).await
    }
}

/// Returns the kubeconfig as JSON, which is valid YAML.
fn kubeconfig(cluster: Cluster, identity: &Path) -> String {
    let identity = Some(identity.display().to_string());
    let (name, user) = ("cluster".to_owned(), "node".to_owned());
    let auth_info = AuthInfo {
        client_certificate: identity.clone(),
        client_key: identity,
        ..Default::default()
    };
    let context = Context { cluster: name.clone(), user: Some(user.clone()), ..Default::default() };
    let config = Kubeconfig {
        api_version: Some("v1".into()),
        kind: Some("Config".into()),
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(cluster),
            ..Default::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: user,
            auth_info: Some(auth_info),
            ..Default::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(context),
            ..Default::default()
        }],
        current_context: Some(name),
        ..Default::default()
    };
    serde_json::to_string_pretty(&config).unwrap_or_default() + "\n"
}

/// The cluster that the bootstrap kubeconfig's current context names.
pub(super) async fn cluster_of(bootstrap: &Path) -> Result<Cluster, CredentialsError> {
    let bootstrap = bootstrap.to_path_buf();
    aside(move || current_cluster(&bootstrap)).await
}

fn current_cluster(bootstrap: &Path) -> Result<Cluster, CredentialsError> {
    let config = load(bootstrap)?;
    let current = config.current_context.unwrap_or_default();
    let context = config.contexts.into_iter().find(|named| named.name == current);
    let name = context.and_then(|named| named.context).unwrap_or_default().cluster;
    let cluster = config.clusters.into_iter().find(|named| named.name == name);
    cluster.and_then(|named| named.cluster).ok_or_else(|| {
        let problem = format!("the cluster of its current context, {name:?}, does not exist");
        CredentialsError::contents(bootstrap.display().to_string(), problem)
    })
}

/// Replaces a file so that a crash leaves either the old or the new one. Only its owner can read it.
fn replace(path: &Path, what: &'static str, contents: &[u8]) -> Result<(), CredentialsError> {
    let write = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        winddown_host::replace_private(path, Durability::PowerCut, contents)
    };
    write().map_err(|source| CredentialsError::Write { what, path: path.to_path_buf(), source })
}

async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CredentialsError> + Send + 'static,
) -> Result<T, CredentialsError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(CredentialsError::Ending))
}

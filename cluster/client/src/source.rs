//! Where credentials come from.

use std::path::PathBuf;

use super::draft::CredentialsDraft;
use super::error::CredentialsError;
use super::in_cluster::{self, ServiceAccount};
use super::kubeconfig;

/// Where the API server's address and the credentials for it are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CredentialsSource {
    Kubeconfig {
        path: PathBuf,
        context: Option<String>,
    },
    InCluster(ServiceAccount),
    /// No place at all.
    Unknown {
        why: String,
    },
}

impl CredentialsSource {
    /// Reads all files again.
    pub(super) async fn draft(&self) -> Result<CredentialsDraft, CredentialsError> {
        let source = self.clone();
        let read = tokio::task::spawn_blocking(move || match &source {
            Self::Kubeconfig { path, context } => kubeconfig::read(path, context.as_deref()),
            Self::InCluster(account) => in_cluster::read(account),
            Self::Unknown { why } => Err(CredentialsError::Unknown { why: why.clone() }),
        });
        read.await.unwrap_or(Err(CredentialsError::Ending))
    }

    /// The files that it reads, as far as they can be known now. Blocks.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Kubeconfig { path, context } => kubeconfig::files(path, context.as_deref()),
            Self::InCluster(account) => in_cluster::files(account),
            Self::Unknown { .. } => Vec::new(),
        }
    }
}

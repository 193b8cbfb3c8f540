//! Credentials that Kubernetes puts into each pod.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::draft::CredentialsDraft;
use super::error::CredentialsError;
use super::files::Files;
use super::material::{Assembly, FoundText};

#[cfg(test)]
mod tests;

/// The folder of the service account and the address of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// The folder with `token`, `ca.crt` and `namespace`.
    pub folder: PathBuf,
    /// The API server's host name or address.
    pub host: String,
    /// The API server's port.
    pub port: u16,
}

impl ServiceAccount {
    /// Where Kubernetes mounts the service account in each container.
    pub const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

    /// Reads the address from the environment of this process, through `variable`.
    ///
    /// # Errors
    /// [`CredentialsError::Environment`] if a variable is missing or invalid, as outside of a pod.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, CredentialsError> {
        let wanted = |name: &'static str| {
            variable(name)
                .filter(|value| !value.is_empty())
                .ok_or_else(|| CredentialsError::Environment { name, problem: "not set".into() })
        };
        let host = wanted("KUBERNETES_SERVICE_HOST")?;
        let port = wanted("KUBERNETES_SERVICE_PORT")?;
        let port = port.parse().map_err(|_| CredentialsError::Environment {
            name: "KUBERNETES_SERVICE_PORT",
            problem: format!("{port:?}, which is not a port"),
        })?;
        Ok(Self { folder: Self::FOLDER.into(), host, port })
    }

    fn server(&self) -> String {
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("https://[{address}]:{}", self.port),
            _ => format!("https://{}:{}", self.host, self.port),
        }
    }
}

pub(super) fn files(account: &ServiceAccount) -> Vec<PathBuf> {
    ["ca.crt", "token", "namespace"].map(|name| account.folder.join(name)).into()
}

/// Reads the service account's files. Blocks.
pub(super) fn read(account: &ServiceAccount) -> Result<CredentialsDraft, CredentialsError> {
    let mut files = Files::default();
    let mut assembly = Assembly::new("KUBERNETES_SERVICE_HOST", &account.server())?;
    let mut file = |what: &'static str, name: &str| {
        let path: &Path = &account.folder.join(name);
        let bytes = files.read(what, path)?;
        Ok::<_, CredentialsError>(FoundText { place: format!("{what} {}", path.display()), bytes })
    };
    assembly.authority(&file("certificate authority", "ca.crt")?)?;
    assembly.token(&file("token file", "token")?)?;
    let namespace = file("namespace file", "namespace")?;
    assembly.namespace(Some(String::from_utf8_lossy(namespace.bytes.trim_ascii()).into_owned()));
    Ok(CredentialsDraft { assembly, files, plugin: None })
}

//! The connection to the API server as configured.

use std::path::PathBuf;

use winddown_api_client::{
    Bootstrap, ClusterConfig, Connection, Credentials, CredentialsError, ServiceAccount,
};
use winddown_config::{ClusterSettings, Config};
use winddown_shared::WallClock;

/// Opens the connection to the API server for the node of that name. Sends no request.
///
/// # Errors
/// The configured credentials cannot be read.
pub async fn connect(
    config: &Config,
    node_name: &str,
    wall: &WallClock,
) -> Result<Connection, CredentialsError> {
    let credentials = credentials(config, node_name);
    Connection::open(ClusterConfig::new(credentials), wall.clone()).await
}

/// Does the same for an agent. Credentials that cannot be read yet are awaited: the agent protects the node without
/// them.
///
/// # Errors
/// See [`Connection::open_early`].
pub async fn connect_early(
    config: &Config,
    node_name: &str,
    wall: &WallClock,
) -> Result<Connection, CredentialsError> {
    let credentials = credentials(config, node_name);
    Connection::open_early(ClusterConfig::new(credentials), wall.clone()).await
}

/// The directory of the certificates that are requested for this node.
pub fn certificate_folder(config: &Config) -> PathBuf {
    config.access.state_directory.join("cluster").join("certificate")
}

fn credentials(config: &Config, node_name: &str) -> Credentials {
    let ClusterSettings { kubeconfig, bootstrap_kubeconfig, .. } = &config.cluster;
    match (kubeconfig, bootstrap_kubeconfig) {
        (Some(path), _) => Credentials::Kubeconfig { path: path.clone(), context: None },
        (None, Some(path)) => Credentials::Bootstrap(Bootstrap {
            kubeconfig: path.clone(),
            folder: certificate_folder(config),
            node_name: node_name.to_owned(),
        }),
        (None, None) => match ServiceAccount::from_environment(|name| std::env::var(name).ok()) {
            Ok(account) => Credentials::InCluster(account),
            Err(error) => Credentials::Unknown {
                why: format!("neither kubeconfig nor bootstrapKubeconfig is set, and {error}"),
            },
        },
    }
}

//! What the API server asks of this node, as the configuration has it.

use std::sync::Arc;

use tokio::sync::watch;
use winddown_api_client::{ApiReviews, ServingCertificate};
use winddown_config::Config;
use winddown_node::Identity;
use winddown_node::cluster::Cluster;
use winddown_node_api::{NodeApi, TlsFiles};
use winddown_shared::{WallClock, critical};

/// The node API, where there is to be one. Begins to ask for its certificate, if none is configured. Must be called
/// inside a tokio runtime.
pub(super) fn plugin(
    config: &Config,
    identity: &Identity,
    cluster: &Cluster,
    wall: WallClock,
) -> Option<NodeApi> {
    let settings = &config.cluster;
    let address = settings.node_api_address?;
    let client = cluster.connection.client();
    let (told, waits_for) = watch::channel(String::new());
    let certificate = settings.tls_cert_file.clone().unwrap_or_else(|| {
        let serving = ServingCertificate {
            folder: config.state_directory.join("cluster").join("certificate"),
            node_name: identity.name.clone(),
            names: cluster.facts.addresses.iter().map(|one| one.address.clone()).collect(),
        };
        let file = serving.file();
        critical::spawn("serving certificate", serving.run(client.clone(), wall, told));
        file
    });
    // A key that belongs to no certificate is none.
    let key = settings.tls_private_key_file.clone().filter(|_| settings.tls_cert_file.is_some());
    let key = key.unwrap_or_else(|| certificate.clone());
    Some(NodeApi {
        address,
        node_name: identity.name.clone(),
        log_dir: config.pod_logs_dir.clone(),
        tls: TlsFiles { certificate, key, client_authority: settings.client_ca_file.clone() },
        waits_for,
        reviews: Arc::new(ApiReviews::new(client)),
        streams: None,
    })
}

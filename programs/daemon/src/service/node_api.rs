//! The node API as configured, and the measurements that it reports.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use winddown_api_client::{ApiReviews, ServingCertificate};
use winddown_host::{NodeUsage, UsagePaths, machine::boot_clock};
use winddown_node::cluster::{Cluster, certificate_folder};
use winddown_node_api::{NodeApi, NodeUsageStats, PodStreams, StatsProvider, TlsFiles};
use winddown_shared::{Runtime, RuntimeError, WallClock, critical};

use super::Service;
use super::host;

/// How old a measurement of pods' disk usage may be before their files are walked again.
const DISK_AGE: Duration = Duration::from_secs(60);

/// Measures the machine and the pods of its runtime.
struct Measuring<R> {
    places: UsagePaths,
    runtime: Arc<R>,
    wall: WallClock,
}

/// The node API, or `None` if no address is configured. Starts requesting a serving certificate from the API server
/// unless one is configured. Must be called inside a tokio runtime.
pub(super) fn plugin<R: Runtime + PodStreams>(
    service: &Service,
    cluster: &Cluster,
    runtime: &Arc<R>,
) -> Option<NodeApi> {
    let Service { identity, wall, configured, .. } = service;
    let config = configured.configuration().config;
    let settings = &config.cluster;
    let address = settings.node_api_address?;
    let client = cluster.connection.client();
    let (told, waits_for) = watch::channel(String::new());
    let certificate = settings.tls_cert_file.clone().unwrap_or_else(|| {
        let serving = ServingCertificate {
            folder: certificate_folder(&config),
            node_name: identity.name.clone(),
            names: cluster.names.subscribe(),
        };
        let file = serving.file();
        critical::spawn("serving certificate", serving.run(client.clone(), wall.clone(), told));
        file
    });
    // A configured key without a certificate is ignored.
    let key = settings.tls_private_key_file.clone().filter(|_| settings.tls_cert_file.is_some());
    let key = key.unwrap_or_else(|| certificate.clone());
    Some(NodeApi {
        address,
        node_name: identity.name.clone(),
        log_dir: config.access.pod_logs_dir.clone(),
        log_max_bytes: config.access.container_log_max_size,
        tls: TlsFiles { certificate, key, client_authority: settings.client_ca_file.clone() },
        waits_for,
        reviews: Arc::new(ApiReviews::new(client)),
        figures: Arc::new(Measuring {
            places: host::usage_places(&config),
            runtime: Arc::clone(runtime),
            wall: wall.clone(),
        }),
        streams: Some(Arc::clone(runtime) as _),
    })
}

impl<R: Runtime> StatsProvider for Measuring<R> {
    fn measure(&self, disks: bool) -> BoxFuture<'_, Result<NodeUsageStats, RuntimeError>> {
        async move {
            let pods = self.runtime.pod_stats(disks.then_some(DISK_AGE)).await?;
            let mut places = self.places.clone();
            if disks && let Ok(images) = self.runtime.places().await {
                (places.imagefs, places.containerfs) = (images.images, images.containers);
            }
            let mut usage = NodeUsage::new(&places);
            let reading = if disks { usage.read().await } else { usage.read_kernel() };
            Ok(NodeUsageStats {
                node: reading.stats,
                cpu_time: NodeUsage::cpu_time(&places),
                booted_at: self.wall.now().checked_sub(boot_clock().now()).ok(),
                pods: pods.unwrap_or_default(),
            })
        }
        .boxed()
    }
}

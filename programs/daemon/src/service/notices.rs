//! The sources of notices that the configuration names.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use winddown_notices::{CloudSettings, Endpoint, FileSource, NoticeAggregator, watch_cloud};
use winddown_shared::{BootClock, WallClock, critical};

use winddown_config::Config;
use winddown_host::machine;
use winddown_node::policy_of;

/// A notice takes effect this long before its deadline at the earliest: pods keep running while a maintenance
/// window is hours away.
const NOTICE_LEAD_TIME: Duration = Duration::from_secs(600);

/// Added to the time that the plan wants; the sum is used where it is longer than [`NOTICE_LEAD_TIME`].
const PLAN_SLACK: Duration = Duration::from_secs(60);

/// How long before its deadline a notice takes effect, for a plan that wants this much time.
pub(super) fn lead(wanted: Duration) -> Duration {
    NOTICE_LEAD_TIME.max(wanted + PLAN_SLACK)
}

/// Creates an aggregator and follows the configured sources until `stop` is cancelled.
pub(super) fn listen(
    config: &Config,
    wall: &WallClock,
    boot: &BootClock,
    boot_id: &str,
    stop: &CancellationToken,
) -> NoticeAggregator {
    let aggregator = NoticeAggregator::new();
    let policy = policy_of(&config.shutdown);
    if config.shutdown.notices.is_enabled() && !policy.is_enabled() {
        tracing::warn!(
            "shutdownNotices: graceful shutdown is switched off, so no notice terminates a pod"
        );
    }
    let lead = lead(policy.delay_wanted());
    if let Some(file) = &config.shutdown.notices.file {
        tracing::info!(file = %file.display(), "listening for notices in a file");
        let source = FileSource::new(file, wall.clone(), boot.clone());
        let publisher = aggregator.publisher("file", Some(lead));
        follow(source.watch(publisher), stop);
    }
    if let Some(cloud) = config.shutdown.notices.cloud
        && let Some(endpoint) = endpoint(config)
    {
        tracing::info!(%cloud, "listening for notices of the cloud's metadata service");
        let settings = CloudSettings {
            endpoint,
            poll: config.shutdown.notices.poll,
            lead,
            wall: wall.clone(),
            uptime: machine::uptime,
            boot_id: boot_id.to_owned(),
            directory: config.access.state_directory.clone(),
        };
        follow(watch_cloud(&aggregator, cloud, settings), stop);
    }
    aggregator
}

/// The address of the metadata service. The configuration was validated when it was read; an address that is
/// invalid all the same is logged, and no metadata service is polled.
fn endpoint(config: &Config) -> Option<Endpoint> {
    let Some(text) = &config.shutdown.notices.endpoint else { return Some(Endpoint::link_local()) };
    let endpoint = text.parse();
    endpoint.inspect_err(|error| tracing::error!("metadataEndpoint: {error}")).ok()
}

fn follow(source: impl Future<Output = ()> + Send + 'static, stop: &CancellationToken) {
    critical::spawn_until("source of notices", stop.clone(), source);
}

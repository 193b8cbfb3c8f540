//! The metadata services of the large clouds.
//!
//! | cloud | events that end the node | how they are polled |
//! |---|---|---|
//! | AWS | spot `instance-action`; scheduled stop, retirement and reboot | every poll interval, with an IMDSv2 token |
//! | Azure | scheduled events `Preempt`, `Terminate`, `Reboot`, `Redeploy` of this machine | every poll interval |
//! | Google | `preempted`, `maintenance-event` | long polling: the server answers when something changes |
//!
//! Events of an earlier boot that a service still lists are ignored, see `seen`.
//!
//! Events that only pause or move a machine (Azure's `Freeze`, Google's live migration, AWS network
//! maintenance) do not end it and are not notices.

mod aws;
mod azure;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod gcp;
mod http;
mod poll;
mod seen;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use winddown_shared::WallClock;

use self::poll::Clocks;
use self::seen::SeenEvents;
use crate::{NoticeAggregator, Uptime};

pub use http::{Endpoint, EndpointError};

/// A cloud whose metadata service announces when a machine goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cloud {
    /// Amazon EC2.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// Google Compute Engine.
    Gcp,
}

/// How to poll a metadata service.
#[derive(Clone, Debug)]
pub struct CloudSettings {
    /// The service's address; [`Endpoint::link_local`] on every cloud.
    pub endpoint: Endpoint,
    /// The interval between polls, at least one second. Not used for Google, which supports long polling.
    pub poll: Duration,
    /// How long before its deadline a notice takes effect.
    pub lead: Duration,
    /// The clock that the service's dates are compared with.
    pub wall: WallClock,
    /// How long the machine has been up: events that were due before that are not due again.
    pub uptime: Uptime,
    /// The id of this boot; empty if it is unknown.
    pub boot_id: String,
    /// The directory that records which events have been seen. It must outlive the boot.
    pub directory: PathBuf,
}

/// Polls the metadata service and publishes its notices on `aggregator`, which knows of the source when this returns, though
/// nothing is polled yet. The future never resolves.
///
/// If the service does not answer, it is retried with exponential backoff of at most 10 s (or the poll
/// interval, if that is longer), and its last notice stays in force.
pub fn watch_cloud(
    aggregator: &NoticeAggregator,
    cloud: Cloud,
    settings: CloudSettings,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let CloudSettings { endpoint, poll, lead, wall, uptime, boot_id, directory } = settings;
    let publisher = aggregator.publisher(cloud.as_str(), Some(lead));
    let every = poll.max(poll::MIN_POLL_INTERVAL);
    let clocks = Clocks { wall, uptime };
    let seen = async move |of: &str| {
        SeenEvents::open(directory.join(format!("notices-{of}.json")), &boot_id).await
    };
    match cloud {
        Cloud::Aws => Box::pin(async move {
            let seen = seen("aws").await;
            let service = aws::Aws::new(endpoint, clocks.wall.clone());
            poll::follow(service, &publisher, every, &clocks, seen).await;
        }),
        Cloud::Azure => Box::pin(async move {
            let seen = seen("azure").await;
            poll::follow(azure::Azure::new(endpoint), &publisher, every, &clocks, seen).await;
        }),
        Cloud::Gcp => {
            // Two values, each with a request of its own that waits for the value to change.
            // Maintenance has no time: a lead would count from each agent's start, and could end after the stop.
            let maintenance = aggregator.publisher(cloud.as_str(), None);
            Box::pin(async move {
                let of = |value| gcp::Gcp::new(endpoint.clone(), value);
                let (preempted, upkeep) =
                    (of(gcp::MetadataValue::Preempted), of(gcp::MetadataValue::Maintenance));
                let (seen, seen_too) = tokio::join!(seen("gcp-preempted"), seen("gcp-maintenance"));
                let every = poll::MIN_POLL_INTERVAL;
                tokio::join!(
                    poll::follow(preempted, &publisher, every, &clocks, seen),
                    poll::follow(upkeep, &maintenance, every, &clocks, seen_too),
                );
            })
        }
    }
}

impl Cloud {
    /// The cloud's name, as used in notices.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::Gcp => "gcp",
        }
    }

    /// The shortest notice that the cloud promises before it ends a machine.
    pub const fn notice(self) -> Duration {
        Duration::from_secs(match self {
            Self::Aws => 120,
            Self::Azure | Self::Gcp => 30,
        })
    }
}

impl std::fmt::Display for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

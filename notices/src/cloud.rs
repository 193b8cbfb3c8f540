//! The metadata services of the large clouds.
//!
//! | cloud | what ends the node | how it is asked |
//! |---|---|---|
//! | AWS | spot `instance-action`; scheduled stop, retirement and reboot | every poll interval, with an IMDSv2 token |
//! | Azure | scheduled events `Preempt`, `Terminate`, `Reboot`, `Redeploy` of this machine | every poll interval |
//! | Google | `preempted`, `maintenance-event` | it holds the answer until something changes |
//!
//! An event that a service still lists of an earlier boot is passed over, see `seen`.
//!
//! What only pauses or moves a machine (Azure's `Freeze`, Google's live migration, AWS' network
//! maintenance) does not end it and is no notice.

mod aws;
mod azure;
#[cfg(debug_assertions)]
pub(crate) mod fuzzing;
mod gcp;
mod http;
mod poll;
mod seen;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use winddown_shared::WallClock;

use self::poll::Clocks;
use self::seen::Seen;
use crate::{NoticeAggregator, Uptime};

pub use http::{Endpoint, EndpointError};

/// A cloud whose metadata service announces a machine's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    /// Amazon EC2.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// Google Compute Engine.
    Gcp,
}

/// How a metadata service is asked.
#[derive(Clone, Debug)]
pub struct CloudSettings {
    /// Where it is; [`Endpoint::link_local`] on every cloud.
    pub endpoint: Endpoint,
    /// The time between two questions, where it does not tell by itself.
    pub poll: Duration,
    /// How long before its deadline a notice counts at the earliest.
    pub lead: Duration,
    /// Dates are compared with it.
    pub wall: WallClock,
    /// How long the machine has been up: what was due before is not due again.
    pub uptime: Uptime,
    /// This boot; empty if it cannot be told from another.
    pub boot_id: String,
    /// The directory in which it is kept which events were seen; it outlives the boot.
    pub directory: PathBuf,
}

/// Asks the metadata service and says on `aggregator` what it announces. Never returns.
///
/// A service that does not answer is asked again with growing pauses, at most 30 s long, and what
/// it said before stays in force.
pub async fn watch_cloud(aggregator: &NoticeAggregator, cloud: Cloud, settings: CloudSettings) {
    let CloudSettings { endpoint, poll, lead, wall, uptime, boot_id, directory } = settings;
    let publisher = || aggregator.publisher(cloud.as_str(), Some(lead));
    let every = poll.max(poll::FASTEST);
    let clocks = Clocks { wall, uptime };
    let seen =
        async |of: &str| Seen::open(directory.join(format!("notices-{of}.json")), &boot_id).await;
    match cloud {
        Cloud::Aws => {
            let (publisher, seen) = (publisher(), seen("aws").await);
            poll::follow(
                aws::Aws::new(endpoint, clocks.wall.clone()),
                &publisher,
                every,
                &clocks,
                seen,
            )
            .await;
        }
        Cloud::Azure => {
            let (publisher, seen) = (publisher(), seen("azure").await);
            poll::follow(azure::Azure::new(endpoint), &publisher, every, &clocks, seen).await;
        }
        Cloud::Gcp => {
            // Two values, each with a question of its own that waits for the value to change.
            let (preempted, maintenance) = (publisher(), publisher());
            let of = |value| gcp::Gcp::new(endpoint.clone(), value);
            let (seen, seen_too) = tokio::join!(seen("gcp-preempted"), seen("gcp-maintenance"));
            let every = poll::FASTEST;
            tokio::join!(
                poll::follow(of(gcp::Value::Preempted), &preempted, every, &clocks, seen),
                poll::follow(of(gcp::Value::Maintenance), &maintenance, every, &clocks, seen_too),
            );
        }
    }
}

impl Cloud {
    /// The cloud's name, as notices have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::Gcp => "gcp",
        }
    }

    /// The least time between a notice and the machine's end, as the cloud promises it.
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

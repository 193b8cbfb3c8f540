//! Services and slices of pods, which systemd manages.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::BoxFuture;
use winddown_cri::PodSlices;
use winddown_host::service_units::{ServiceUnits as _, UnitError};
use winddown_systemd::Bus;
use winddown_systemd::units::UnitsClient;

/// Connects to systemd for the first slice: with the cgroupfs driver there is none.
#[derive(Default)]
pub(super) struct SlicesOfPods(OnceLock<UnitsClient>);

impl SlicesOfPods {
    fn units(&self) -> &UnitsClient {
        self.0.get_or_init(units_of_pods)
    }
}

impl PodSlices for SlicesOfPods {
    fn make(
        &self,
        slice: String,
        description: String,
        cpu_weight: u64,
    ) -> BoxFuture<'_, Result<(), UnitError>> {
        Box::pin(async move { self.units().make_slice(&slice, &description, cpu_weight).await })
    }

    fn weigh(&self, slice: String, cpu_weight: u64) -> BoxFuture<'_, Result<(), UnitError>> {
        Box::pin(async move { self.units().weigh_slice(&slice, cpu_weight).await })
    }

    fn stop(&self, slice: String) -> BoxFuture<'_, Result<(), UnitError>> {
        Box::pin(async move { self.units().stop(&slice).await })
    }
}

impl fmt::Debug for SlicesOfPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlicesOfPods")
    }
}

/// A client for the systemd services of pods. Must be called inside a tokio runtime.
pub fn units_of_pods() -> UnitsClient {
    // A reload of systemd takes up to this long on a slow machine.
    UnitsClient::start(Bus::System, "winddown-pod", Duration::from_secs(10))
}

//! Slices of a container runtime's pods.

use std::fmt;
use std::sync::OnceLock;

use futures_util::future::BoxFuture;
use winddown_cri::PodSlices;
use winddown_shared::service_units::{ServiceUnits as _, UnitError};
use winddown_systemd::units::UnitsClient;

use super::runtime::units_of_pods;

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

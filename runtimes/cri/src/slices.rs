//! Slices of pods, where systemd manages control groups. The program that embeds this crate provides the way to them,
//! because only that speaks to systemd.

use std::fmt::Debug;

use futures_util::future::BoxFuture;
use winddown_host::service_units::UnitError;

/// What systemd does for slices of pods. Every call resolves when systemd has accepted the request; none waits for it to
/// be carried out.
///
/// What systemd manages is set through systemd only: it writes what it knows of a slice's control group again whenever a
/// package reloads it.
pub trait PodSlices: Debug + Send + Sync {
    /// Makes a slice whose containers together have this CPU weight, 1 to 10000. An existing one gets the weight: its pod
    /// may have had another spec.
    fn make(
        &self,
        slice: String,
        description: String,
        cpu_weight: u64,
    ) -> BoxFuture<'_, Result<(), UnitError>>;

    /// Sets the CPU weight of a slice, 1 to 10000, until the next boot.
    fn weigh(&self, slice: String, cpu_weight: u64) -> BoxFuture<'_, Result<(), UnitError>>;

    /// Stops a slice with everything in it. One that does not exist counts as stopped.
    fn stop(&self, slice: String) -> BoxFuture<'_, Result<(), UnitError>>;
}

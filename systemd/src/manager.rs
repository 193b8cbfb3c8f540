//! The service manager's methods and properties that we use, written by hand.

use std::time::Duration;

use zbus::proxy::CacheProperties;
use zbus::{Connection, OwnedObjectPath};

pub(crate) const SYSTEMD1: &str = "org.freedesktop.systemd1";
pub(crate) const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
pub(crate) const MANAGER: &str = "org.freedesktop.systemd1.Manager";
pub(crate) const UNIT: &str = "org.freedesktop.systemd1.Unit";
pub(crate) const SLICE: &str = "org.freedesktop.systemd1.Slice";
pub(crate) const SERVICE: &str = "org.freedesktop.systemd1.Service";

/// One row of `ListUnitsByPatterns`: name, description, load state, active state, sub state,
/// followed unit, path, job id, job type, job path.
pub(crate) type Listed =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// One row of `ListJobs`: job ID, unit, job type, job state, path of the job, path of the unit.
pub(crate) type Job = (u32, String, String, String, OwnedObjectPath, OwnedObjectPath);

// Over the limit because it is a table: one row per method and property of systemd that is used.
#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
pub(crate) trait Manager {
    fn load_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;

    fn list_units_by_patterns(
        &self,
        states: &[&str],
        patterns: &[&str],
    ) -> zbus::Result<Vec<Listed>>;

    fn list_jobs(&self) -> zbus::Result<Vec<Job>>;

    fn kill_unit(&self, unit: &str, who: &str, signal: i32) -> zbus::Result<()>;

    #[zbus(property)]
    fn version(&self) -> zbus::Result<String>;

    #[zbus(property)]
    fn system_state(&self) -> zbus::Result<String>;

    /// Since systemd 254.
    #[zbus(property)]
    fn soft_reboots_count(&self) -> zbus::Result<u32>;

    #[zbus(property)]
    fn userspace_timestamp_monotonic(&self) -> zbus::Result<u64>;
}

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Unit",
    default_service = "org.freedesktop.systemd1"
)]
trait Unit {
    #[zbus(property, name = "JobTimeoutUSec")]
    fn job_timeout_usec(&self) -> zbus::Result<u64>;
}

/// How long a job of the unit may take, after which systemd acts as the unit says (`JobTimeoutSec=`, `JobTimeoutAction=`).
pub(crate) async fn job_timeout(
    connection: &Connection,
    unit: &OwnedObjectPath,
) -> zbus::Result<Option<Duration>> {
    let unit = UnitProxy::builder(connection).path(unit).cache_properties(CacheProperties::No);
    let micros = unit.build().await?.job_timeout_usec().await?;
    Ok((micros != u64::MAX).then(|| Duration::from_micros(micros)))
}

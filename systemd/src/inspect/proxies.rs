//! What is asked here, written by hand like the proxies that run the node.

use zbus::OwnedObjectPath;

/// One row of `ListInhibitors`: what, who, why, mode, uid, pid.
pub(super) type Inhibitor = (String, String, String, String, u32, u32);

/// One row of `ListUnitsByPatterns`: name, description, load state, active state, sub state,
/// followed unit, path, job id, job type, job path.
pub(super) type Listed =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1"
)]
pub(super) trait Login {
    fn list_inhibitors(&self) -> zbus::Result<Vec<Inhibitor>>;

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> zbus::Result<u64>;

    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> zbus::Result<bool>;
}

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
pub(super) trait Manager {
    fn load_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;

    fn list_units_by_patterns(
        &self,
        states: &[&str],
        patterns: &[&str],
    ) -> zbus::Result<Vec<Listed>>;

    #[zbus(property)]
    fn version(&self) -> zbus::Result<String>;

    #[zbus(property)]
    fn system_state(&self) -> zbus::Result<String>;
}

#[zbus::proxy(
    interface = "org.freedesktop.timedate1",
    default_service = "org.freedesktop.timedate1",
    default_path = "/org/freedesktop/timedate1"
)]
pub(super) trait TimeDate {
    #[zbus(property, name = "NTPSynchronized")]
    fn ntp_synchronized(&self) -> zbus::Result<bool>;
}

//! The methods and properties we use of logind, written by hand: it has over a hundred, and generated
//! proxies cache properties that it wrongly declares constant.

use std::collections::HashMap;

use zbus::OwnedVariant;

/// One row of `ListInhibitors`: what, who, why, mode, uid, pid.
pub(crate) type Inhibitor = (String, String, String, String, u32, u32);

#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1"
)]
// Over the limit because it is a table: one method for each method or property of logind.
pub(crate) trait Login {
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<zbus::OwnedFd>;

    fn list_inhibitors(&self) -> zbus::Result<Vec<Inhibitor>>;

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> zbus::Result<u64>;

    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> zbus::Result<bool>;

    /// Since systemd 255.
    #[zbus(property)]
    fn preparing_for_shutdown_with_metadata(&self) -> zbus::Result<HashMap<String, OwnedVariant>>;

    #[zbus(property)]
    fn scheduled_shutdown(&self) -> zbus::Result<(String, u64)>;

    #[zbus(property)]
    fn wall_message(&self) -> zbus::Result<String>;
}

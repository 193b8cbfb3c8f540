//! Read-only queries to logind and the service manager.
//!
//! For diagnosis, not for operation: each call queries again, has a timeout, and its error distinguishes "not allowed"
//! from "hangs".

mod error;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod proxies;
mod views;

use std::collections::HashMap;
use std::time::Duration;

use zbus::Connection;
use zbus::fdo::PropertiesProxy;
use zbus::names::InterfaceName;
use zbus::proxy::CacheProperties;
use zbus::{ObjectPath, OwnedVariant};

pub use error::InspectError;
pub use views::{
    LockView, LoginView, SandboxView, ScopeView, ServiceView, SliceView, SystemView,
    setting_that_shows,
};

use crate::bus::Bus;
use crate::logind::proxies::LoginProxy;
use crate::logind::read_scheduled;
use crate::manager::{ManagerProxy, SERVICE, SLICE, SYSTEMD1, UNIT, job_timeout};
use crate::system_state::{ANSWER_TIMEOUT, asked_again};
use proxies::TimeDateProxy;

/// A connection for queries. Dropping it closes the connection.
#[derive(Clone, Debug)]
pub struct Inspector {
    connection: Connection,
    timeout: Duration,
}

impl Inspector {
    /// Connects to the bus. This and every later call take at most `timeout`.
    ///
    /// Cancel-safe, as are all calls here.
    ///
    /// # Errors
    /// There is no bus, it refuses the connection, or it does not answer in time.
    pub async fn connect(bus: &Bus, timeout: Duration) -> Result<Self, InspectError> {
        let connection = within("the bus", timeout, bus.connect(timeout)).await?;
        Ok(Self { connection, timeout })
    }

    /// Connects to systemd alone, for which no bus is needed. This and every later call take at most `timeout`.
    ///
    /// # Errors
    /// Neither the bus nor systemd itself answers this user in time.
    pub async fn connect_to_systemd(bus: &Bus, timeout: Duration) -> Result<Self, InspectError> {
        let connection = within("systemd", timeout, bus.connect_to_systemd(timeout)).await?;
        Ok(Self { connection, timeout })
    }

    /// Queries logind's delay, its locks and whether a shutdown is under way. Starts logind if the bus can.
    ///
    /// # Errors
    /// It cannot be asked, or does not answer in time.
    pub async fn login(&self) -> Result<LoginView, InspectError> {
        self.within("logind", async {
            let login = LoginProxy::builder(&self.connection)
                .cache_properties(CacheProperties::No)
                .build()
                .await?;
            let locks = login.list_inhibitors().await?;
            let delay = login.inhibit_delay_max_usec().await?;
            let preparing = login.preparing_for_shutdown().await?;
            Ok(LoginView {
                delay: Duration::from_micros(delay),
                preparing,
                locks: locks.into_iter().map(LockView::from).collect(),
                scheduled: read_scheduled(&login).await,
            })
        })
        .await
    }

    /// Queries the version and state of the service manager.
    ///
    /// # Errors
    /// systemd cannot be asked, or does not answer in time.
    pub async fn system(&self) -> Result<SystemView, InspectError> {
        self.within("systemd", async {
            let manager = self.manager().await?;
            Ok(SystemView {
                version: manager.version().await?,
                state: manager.system_state().await?,
            })
        })
        .await
    }

    /// Returns when user space was last restarted under the running kernel (`systemctl soft-reboot`), by the monotonic
    /// clock; `None` if it never was, or if systemd is older than 254.
    ///
    /// Connects to systemd alone, for which no bus is needed. Asks again without an answer, for as long as `patience`: right
    /// after the restart systemd is busy. The last answer takes at most some seconds more.
    ///
    /// # Errors
    /// systemd cannot be asked, or does not answer in time.
    pub async fn soft_rebooted_at(
        bus: &Bus,
        patience: Duration,
    ) -> Result<Option<Duration>, InspectError> {
        soft_rebooted_within(bus, ANSWER_TIMEOUT, patience).await
    }

    async fn user_space_restarted(&self) -> Result<Option<Duration>, InspectError> {
        self.within("systemd", async {
            let manager = self.manager().await?;
            let count = match manager.soft_reboots_count().await {
                Err(zbus::Error::FDO(error))
                    if matches!(*error, zbus::fdo::Error::UnknownProperty(_)) =>
                {
                    0
                }
                count => count?,
            };
            if count == 0 {
                return Ok(None);
            }
            let at = manager.userspace_timestamp_monotonic().await?;
            Ok(Some(Duration::from_micros(at)))
        })
        .await
    }

    /// Queries the state of a service. A service that is not installed is no error: its load state says so.
    ///
    /// # Errors
    /// systemd cannot be asked, or does not answer in time.
    pub async fn service(&self, name: &str) -> Result<ServiceView, InspectError> {
        self.within("systemd", async {
            let path = self.manager().await?.load_unit(name).await?;
            let unit = self.properties(path.as_ref(), UNIT).await?;
            let service = self.properties(path.as_ref(), SERVICE).await?;
            Ok(views::service(&unit, &service))
        })
        .await
    }

    /// Queries the units that are stopped only after a unit; none if it is not active, as it is not stopped then.
    ///
    /// # Errors
    /// systemd cannot be asked, or does not answer in time.
    pub async fn stopped_after(&self, name: &str) -> Result<Vec<String>, InspectError> {
        self.of_unit(name, views::stopped_after).await
    }

    /// Queries the units that a unit is ordered after, whether or not it is active.
    ///
    /// # Errors
    /// systemd cannot be asked, or does not answer in time.
    pub async fn ordered_after(&self, name: &str) -> Result<Vec<String>, InspectError> {
        self.of_unit(name, views::ordered_after).await
    }

    async fn of_unit<T>(
        &self,
        name: &str,
        view: fn(&views::Properties) -> T,
    ) -> Result<T, InspectError> {
        self.within("systemd", async {
            let path = self.manager().await?.load_unit(name).await?;
            Ok(view(&self.properties(path.as_ref(), UNIT).await?))
        })
        .await
    }

    /// Queries the limits that the units of a slice share; a slice without configuration has none.
    ///
    /// # Errors
    /// systemd cannot be asked, or does not answer in time.
    pub async fn slice(&self, name: &str) -> Result<SliceView, InspectError> {
        self.within("systemd", async {
            let path = self.manager().await?.load_unit(name).await?;
            let slice = self.properties(path.as_ref(), SLICE).await?;
            Ok(views::slice(&slice))
        })
        .await
    }

    /// Returns how long systemd waits for all units together when it powers the machine off or reboots it past logind; `None`
    /// if there is no limit.
    ///
    /// # Errors
    /// systemd cannot be asked, or does not answer in time.
    pub async fn limit_past_logind(&self) -> Result<Option<Duration>, InspectError> {
        self.within("systemd", async {
            let mut least = None;
            for target in ["poweroff.target", "reboot.target"] {
                let path = self.manager().await?.load_unit(target).await?;
                let limit = job_timeout(&self.connection, &path).await?;
                least = least.into_iter().chain(limit).min();
            }
            Ok(least)
        })
        .await
    }

    /// Whether systemd stops the unit at every shutdown, as it does by default (`DefaultDependencies`).
    ///
    /// # Errors
    /// systemd cannot be asked, or does not answer in time.
    pub async fn has_default_dependencies(&self, name: &str) -> Result<bool, InspectError> {
        self.within("systemd", async {
            let path = self.manager().await?.load_unit(name).await?;
            let unit = self.properties(path.as_ref(), UNIT).await?;
            Ok(views::flag(&unit, "DefaultDependencies"))
        })
        .await
    }

    /// Queries the active scopes whose names match any of `patterns` (shell wildcards): how many there are, and the
    /// first `limit` of them with their ordering.
    ///
    /// # Errors
    /// systemd cannot be asked, or does not answer in time.
    pub async fn scopes(
        &self,
        patterns: &[&str],
        limit: usize,
    ) -> Result<(usize, Vec<ScopeView>), InspectError> {
        self.within("systemd", async {
            let all = self.manager().await?.list_units_by_patterns(&["active"], patterns).await?;
            let count = all.len();
            let mut seen = Vec::new();
            for listed in all.into_iter().take(limit) {
                // Skip a scope that has stopped since it was listed.
                if let Ok(unit) = self.properties(listed.6.as_ref(), UNIT).await {
                    seen.push(ScopeView {
                        name: listed.0,
                        before: views::strings(&unit, "Before"),
                    });
                }
            }
            Ok((count, seen))
        })
        .await
    }

    /// Whether the system clock is synchronised (NTP). Starts systemd-timedated if the bus can; it exits by itself.
    ///
    /// # Errors
    /// It cannot be asked, or does not answer in time.
    pub async fn clock_synchronised(&self) -> Result<bool, InspectError> {
        self.within("systemd-timedated", async {
            let clock = TimeDateProxy::builder(&self.connection)
                .cache_properties(CacheProperties::No)
                .build()
                .await?;
            clock.ntp_synchronized().await
        })
        .await
    }

    async fn manager(&self) -> zbus::Result<ManagerProxy<'_>> {
        ManagerProxy::builder(&self.connection).cache_properties(CacheProperties::No).build().await
    }

    async fn properties(
        &self,
        path: ObjectPath<'_>,
        interface: &'static str,
    ) -> zbus::Result<HashMap<String, OwnedVariant>> {
        let unit = PropertiesProxy::builder(&self.connection)
            .destination(SYSTEMD1)
            .path(path)
            .cache_properties(CacheProperties::No)
            .build()
            .await?;
        Ok(unit.get_all(InterfaceName::from_static_str_unchecked(interface)).await?)
    }

    async fn within<T>(
        &self,
        whom: &'static str,
        answer: impl Future<Output = zbus::Result<T>>,
    ) -> Result<T, InspectError> {
        within(whom, self.timeout, answer).await
    }
}

/// Like [`Inspector::soft_rebooted_at`], where each attempt waits for `timeout`.
async fn soft_rebooted_within(
    bus: &Bus,
    timeout: Duration,
    patience: Duration,
) -> Result<Option<Duration>, InspectError> {
    let ask = || async {
        Inspector::connect_to_systemd(bus, timeout).await?.user_space_restarted().await
    };
    asked_again(patience, ask, InspectError::may_pass).await
}

async fn within<T>(
    whom: &'static str,
    timeout: Duration,
    answer: impl Future<Output = zbus::Result<T>>,
) -> Result<T, InspectError> {
    match tokio::time::timeout(timeout, answer).await {
        Ok(Err(zbus::Error::InputOutput(io))) if io.kind() == std::io::ErrorKind::TimedOut => {
            Err(InspectError::Silent { whom, after: timeout })
        }
        Ok(answer) => answer.map_err(|error| InspectError::of(whom, error)),
        Err(_) => Err(InspectError::Silent { whom, after: timeout }),
    }
}

#[cfg(test)]
mod tests;

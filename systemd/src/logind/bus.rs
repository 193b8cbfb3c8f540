//! The login manager behind a D-Bus connection.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub(crate) mod proxies;
mod signal_verification;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use winddown_shared::{ScheduledShutdown, ShutdownKind, WallTime};
use zbus::proxy::CacheProperties;
use zbus::{Connection, MessageStream, fdo};

use self::proxies::{Inhibitor, LoginProxy};
use self::signal_verification::{kind_in, kind_named};
use super::session::{
    AbortOnDrop, KindRead, Listed, LoginCalls, LoginManager, LogindCallError, Session,
};
use crate::bus::Bus;
use crate::inspect::LockView;
use crate::manager::ManagerProxy;
use crate::name_owner;
use crate::trouble::trouble;

/// The well-known name of logind.
pub(super) const LOGIN1: &str = "org.freedesktop.login1";
/// The capacity for events that wait for the supervisor; only the owner of the name can add events.
const QUEUE_CAPACITY: usize = 32;

/// The smallest value, in microseconds, that is taken as a wall time. For an immediate shutdown, logind reports a
/// scheduled time of 0 or, since systemd 257, the time since boot at which it stops waiting.
const FIRST_WALL_TIME: u64 = 1_000_000_000_000_000;

/// Opens connections to logind.
pub(super) struct BusLogin {
    pub(super) bus: Bus,
    pub(super) method_timeout: Duration,
    /// The number of rejected signals.
    pub(super) refused: Arc<AtomicU64>,
}

pub(super) struct BusCalls {
    login: LoginProxy<'static>,
    systemd: ManagerProxy<'static>,
    /// Our process ID as the bus (and so logind) sees it: inside a container it differs from our own.
    pid: u32,
    timeout: Duration,
    /// The task that reads the connection; aborted with the session.
    _reader: AbortOnDrop,
}

// === impl BusLogin ===

impl BusLogin {
    async fn open(&self) -> Result<Session<BusCalls>, LogindCallError> {
        let connection = self.bus.connect(self.method_timeout).await;
        let connection = connection.map_err(|error| self.translate("connect", &error))?;
        // All messages in one stream: the order of signals and owner changes decides whether a
        // signal came from the owner. It also reveals forgeries, which are logged.
        let messages = MessageStream::from(&connection);
        let (tx, heard) = mpsc::channel(QUEUE_CAPACITY);
        let (owner_tx, owner_rx) = oneshot::channel();
        let reader = AbortOnDrop(tokio::spawn(signal_verification::read_signals(
            messages,
            signal_verification::SignalVerifier::new(connection.is_bus()),
            owner_rx,
            tx,
            signal_verification::Refusals::new(connection.clone(), Arc::clone(&self.refused)),
        )));
        let (owner, pid) = if connection.is_bus() {
            self.subscribe(&connection).await?
        } else {
            (None, std::process::id())
        };
        let is_there = owner.is_some() || !connection.is_bus();
        // An error means that the connection broke; the first call will fail.
        let _ = owner_tx.send(owner);
        let calls = BusCalls::new(&connection, pid, self.method_timeout, reader)
            .await
            .map_err(|error| self.translate("connect", &error))?;
        Ok(Session { calls, heard, is_there })
    }

    /// Subscribes to the signals and to changes of the name's owner, then queries the current owner.
    async fn subscribe(
        &self,
        connection: &Connection,
    ) -> Result<(name_owner::Owner, u32), LogindCallError> {
        let driver = fdo::DBusProxy::builder(connection)
            .cache_properties(CacheProperties::No)
            .build()
            .await
            .map_err(|error| self.translate("connect", &error))?;
        for rule in signal_verification::rules() {
            let rule = rule.map_err(|error| self.translate("AddMatch", &error))?;
            driver
                .add_match_rule(rule)
                .await
                .map_err(|error| self.translate("AddMatch", &error.into()))?;
        }
        // Without one logind is not running yet; the first call starts it.
        let owner = name_owner::of(&driver, LOGIN1).await;
        let owner = owner.map_err(|error| self.translate("GetNameOwner", &error))?;
        let Some(own_name) = connection.unique_name() else {
            return Ok((owner, std::process::id()));
        };
        let pid = driver
            .get_connection_unix_process_id(own_name.as_ref().into())
            .await
            .map_err(|error| self.translate("GetConnectionUnixProcessID", &error.into()))?;
        Ok((owner, pid))
    }

    fn translate(&self, call: &'static str, error: &zbus::Error) -> LogindCallError {
        translate(call, error, self.method_timeout)
    }
}

impl LoginManager for BusLogin {
    type Calls = BusCalls;

    async fn connect(&self) -> Result<Session<BusCalls>, LogindCallError> {
        // All calls together.
        tokio::time::timeout(self.method_timeout, self.open()).await.unwrap_or(Err(
            LogindCallError::Timeout { call: "connect", after: self.method_timeout },
        ))
    }
}

// === impl BusCalls ===

impl BusCalls {
    async fn new(
        connection: &Connection,
        pid: u32,
        timeout: Duration,
        reader: AbortOnDrop,
    ) -> zbus::Result<Self> {
        let login =
            LoginProxy::builder(connection).cache_properties(CacheProperties::No).build().await?;
        let systemd =
            ManagerProxy::builder(connection).cache_properties(CacheProperties::No).build().await?;
        Ok(Self { login, systemd, pid, timeout, _reader: reader })
    }

    fn translate(&self, call: &'static str) -> impl Fn(zbus::Error) -> LogindCallError {
        let timeout = self.timeout;
        move |error| translate(call, &error, timeout)
    }
}

impl LoginCalls for BusCalls {
    async fn preparing(&self) -> Result<bool, LogindCallError> {
        let call = "PreparingForShutdown";
        self.login.preparing_for_shutdown().await.map_err(self.translate(call))
    }

    async fn delay(&self) -> Result<Duration, LogindCallError> {
        let call = "InhibitDelayMaxUSec";
        let micros = self.login.inhibit_delay_max_usec().await.map_err(self.translate(call))?;
        // The largest number is systemd's "infinity", and also our `INFINITY`.
        Ok(Duration::from_micros(micros))
    }

    async fn inhibit(&self, who: &str, why: &str) -> Result<OwnedFd, LogindCallError> {
        let lock = self.login.inhibit("shutdown", who, why, "delay").await;
        lock.map(OwnedFd::from).map_err(self.translate("Inhibit"))
    }

    async fn listed(&self, who: &str) -> Result<Listed, LogindCallError> {
        let list = match self.login.list_inhibitors().await {
            Err(zbus::Error::FDO(error)) if matches!(*error, fdo::Error::UnknownMethod(_)) => {
                return Ok(Listed::Unknown);
            }
            list => list.map_err(self.translate("ListInhibitors"))?,
        };
        Ok(find(&list, who, nix::unistd::geteuid().as_raw(), self.pid))
    }

    async fn request(&self) -> (Option<String>, KindRead) {
        let message = self.login.wall_message().await.ok().filter(|text| !text.is_empty());
        let announced = match self.login.preparing_for_shutdown_with_metadata().await {
            Ok(metadata) => Some(kind_in(&metadata)).filter(|kind| *kind != ShutdownKind::Unknown),
            Err(zbus::Error::FDO(error))
                if matches!(
                    *error,
                    fdo::Error::UnknownProperty(_) | fdo::Error::InvalidArgs(_)
                ) =>
            {
                None
            }
            Err(_) => Some(ShutdownKind::Unknown),
        };
        if let Some(kind) = announced {
            return (message, KindRead::Announced(kind));
        }
        let (kind, micros) = self.login.scheduled_shutdown().await.unwrap_or_default();
        (message, KindRead::Scheduled(kind_at_once(&kind, micros)))
    }

    async fn scheduled(&self) -> (Option<ScheduledShutdown>, ShutdownKind) {
        let (kind, micros) = self.login.scheduled_shutdown().await.unwrap_or_default();
        (scheduled(&self.login, &kind, micros).await, kind_at_once(&kind, micros))
    }

    async fn reload(&self) -> Result<(), LogindCallError> {
        let kill = self.systemd.kill_unit("systemd-logind.service", "all", nix::libc::SIGHUP);
        kill.await.map_err(self.translate("KillUnit"))
    }
}

/// The shutdown that is scheduled, unless it only warns (`shutdown -k`).
pub(crate) async fn read_scheduled(login: &LoginProxy<'_>) -> Option<ScheduledShutdown> {
    let (kind, micros) = login.scheduled_shutdown().await.ok()?;
    scheduled(login, &kind, micros).await
}

async fn scheduled(login: &LoginProxy<'_>, kind: &str, micros: u64) -> Option<ScheduledShutdown> {
    let at = scheduled_time(micros)?;
    let kind = kind_named(kind);
    if kind == ShutdownKind::Unknown {
        return None;
    }
    let message = login.wall_message().await.ok().filter(|text| !text.is_empty());
    Some(ScheduledShutdown { at, kind, message: message.map(Into::into) })
}

/// The kind in logind's `ScheduledShutdown` if that is of a shutdown at once.
fn kind_at_once(kind: &str, micros: u64) -> ShutdownKind {
    if micros < FIRST_WALL_TIME { kind_named(kind) } else { ShutdownKind::Unknown }
}

/// The wall time in logind's `ScheduledShutdown`; without a schedule it is 0, or the largest number.
fn scheduled_time(micros: u64) -> Option<WallTime> {
    let micros = i64::try_from(micros).ok().filter(|_| micros >= FIRST_WALL_TIME)?;
    WallTime::from_microsecond(micros).ok()
}

/// Looks for a lock of this name that delays a shutdown and belongs to this user. The name alone proves nothing: polkit
/// lets every user take a delay lock under any name.
fn find(list: &[Inhibitor], who: &str, uid: u32, pid: u32) -> Listed {
    let locks = list.iter().cloned().map(LockView::from);
    let mut found = Listed::No;
    for lock in locks.filter(|lock| lock.delays_shutdown() && lock.who == who && lock.uid == uid) {
        if lock.pid == pid {
            return Listed::Ours;
        }
        found = Listed::UnderAnotherPid;
    }
    found
}

/// Classifies an error by what can be done about it.
pub(super) fn translate(
    call: &'static str,
    error: &zbus::Error,
    after: Duration,
) -> LogindCallError {
    let detail = trouble(error);
    match error {
        zbus::Error::InputOutput(io) if io.kind() == std::io::ErrorKind::TimedOut => {
            LogindCallError::Timeout { call, after }
        }
        zbus::Error::InputOutput(io) | zbus::Error::Connection(io, _)
            if io.kind() == std::io::ErrorKind::NotFound =>
        {
            LogindCallError::Absent { call, detail }
        }
        zbus::Error::FDO(fdo) => match &**fdo {
            fdo::Error::ServiceUnknown(_) | fdo::Error::NameHasNoOwner(_) => {
                LogindCallError::Absent { call, detail }
            }
            fdo::Error::NoReply(_) | fdo::Error::Timeout(_) | fdo::Error::TimedOut(_) => {
                LogindCallError::Timeout { call, after }
            }
            fdo::Error::Disconnected(_) => LogindCallError::Connection { call, detail },
            fdo::Error::ZBus(inner) => translate(call, inner, after),
            _ => LogindCallError::Refused { call, detail },
        },
        // dbus-daemon passes on why systemd did not start it.
        zbus::Error::MethodError(name, ..)
            if name.as_str() == "org.freedesktop.systemd1.UnitMasked" =>
        {
            LogindCallError::Absent { call, detail }
        }
        zbus::Error::MethodError(name, ..)
            if name.as_str() == "org.freedesktop.login1.OperationInProgress" =>
        {
            LogindCallError::InProgress { call }
        }
        zbus::Error::MethodError(..) => LogindCallError::Refused { call, detail },
        zbus::Error::InputOutput(_) | zbus::Error::Connection(..) | zbus::Error::Handshake(_) => {
            LogindCallError::Connection { call, detail }
        }
        _ => LogindCallError::Malformed { call, detail },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_user_took_in_our_name_is_not_ours() {
        let lock = |who: &str, uid, pid| {
            let [what, who, why, mode] = ["sleep:shutdown", who, "", "delay"].map(str::to_owned);
            (what, who, why, mode, uid, pid)
        };
        let decoy = lock("winddown", 1000, 7);
        let find = |list: &[Inhibitor]| find(list, "winddown", 0, 612);
        assert_eq!(find(std::slice::from_ref(&decoy)), Listed::No);
        assert_eq!(find(&[lock("winddown", 1000, 612)]), Listed::No);
        assert_eq!(find(&[decoy.clone(), lock("winddown", 0, 40)]), Listed::UnderAnotherPid);
        assert_eq!(find(&[decoy, lock("winddown", 0, 612)]), Listed::Ours);
        assert_eq!(find(&[lock("other", 0, 612)]), Listed::No);
    }
}

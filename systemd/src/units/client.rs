//! Calls to systemd, on a connection that is reopened when it breaks.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use winddown_host::service_units::{
    KillWhom, NewUnit, ServiceUnits, UnitChange, UnitError, UnitView,
};
use winddown_shared::{Backoff, critical};
use zbus::fdo::DBusProxy;
use zbus::proxy::CacheProperties;
use zbus::{Connection, Message, MessageStream, OwnedObjectPath, OwnedVariant, Variant};

use super::error::sorted;
use super::properties::{Properties, properties};
use super::signals::{PROPERTIES, TrustedSender, UnitSignals, rules};
use crate::bus::Bus;
use crate::manager::{Listed, MANAGER, MANAGER_PATH, SERVICE, SYSTEMD1, UNIT};
use crate::name_owner::{self, Owner};
use crate::trouble::trouble;

/// How many changes a subscriber may lag behind before it must list all services.
const CHANGES_CAPACITY: usize = 4096;
/// Between two attempts to connect.
const RECONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// A client of systemd for services whose names begin with a prefix. Clones share the connection, which is closed with
/// the last clone.
#[derive(Clone, Debug)]
pub struct UnitsClient(Arc<ClientShared>);

#[derive(Debug)]
struct ClientShared {
    signals: Arc<UnitSignals>,
    connection: watch::Receiver<Option<Connection>>,
    timeout: Duration,
    keeper: JoinHandle<()>,
    socket: Option<PathBuf>,
}

// === impl UnitsClient ===

impl UnitsClient {
    /// Starts connecting in the background. Every call waits for the connection and for the reply, at most `timeout`
    /// each. Must be called inside a tokio runtime.
    pub fn start(bus: Bus, prefix: &str, timeout: Duration) -> Self {
        let signals = Arc::new(UnitSignals::new(prefix, CHANGES_CAPACITY));
        let (published, connection) = watch::channel(None);
        let socket = bus.socket();
        let keeper = critical::spawn(
            "units of systemd",
            keep(bus, timeout, Arc::clone(&signals), published),
        );
        Self(Arc::new(ClientShared { signals, connection, timeout, keeper, socket }))
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.0.connection.borrow().is_some()
    }

    /// Starts a unit of the machine. Resolves when its start job is queued.
    ///
    /// # Errors
    /// systemd refuses, or does not answer in time.
    pub async fn start_unit(&self, unit: &str) -> Result<(), UnitError> {
        self.call("StartUnit", unit, &(unit, "replace")).await.map(drop)
    }

    async fn state_at(
        &self,
        unit: &str,
        path: &OwnedObjectPath,
    ) -> Result<Option<UnitView>, UnitError> {
        let mut properties = Vec::with_capacity(2);
        for interface in [SERVICE, UNIT] {
            let place = (path.as_str(), PROPERTIES);
            let answer = match self.call_at(place, "GetAll", unit, &(interface,)).await {
                Err(UnitError::Absent { .. }) => return Ok(None),
                answer => answer?,
            };
            let all = answer.body().deserialize::<HashMap<String, OwnedVariant>>();
            properties.push(all.map_err(|e| sorted("GetAll", unit, &e))?);
        }
        // If the unit was unloaded between the calls, systemd answers with a made-up one.
        let load_state = properties.iter().find_map(|all| all.get("LoadState"));
        if let Some(Variant::Str(state)) = load_state.map(|state| &**state)
            && state.as_str() == "not-found"
        {
            return Ok(None);
        }
        Ok(Some(self.0.signals.learn(unit, &properties)))
    }

    async fn call<B>(
        &self,
        method: &'static str,
        unit: &str,
        body: &B,
    ) -> Result<Message, UnitError>
    where
        B: serde::Serialize + zbus::wire::DynamicType,
    {
        self.call_at((MANAGER_PATH, MANAGER), method, unit, body).await
    }

    async fn call_at<B>(
        &self,
        (path, interface): (&str, &str),
        method: &'static str,
        unit: &str,
        body: &B,
    ) -> Result<Message, UnitError>
    where
        B: serde::Serialize + zbus::wire::DynamicType,
    {
        let connection = self.connection(method).await?;
        let to = connection.is_bus().then_some(SYSTEMD1);
        let answer = connection.call_method(to, path, Some(interface), method, body).await;
        answer.map_err(|error| sorted(method, unit, &error))
    }

    async fn connection(&self, call: &'static str) -> Result<Connection, UnitError> {
        let mut published = self.0.connection.clone();
        let waits = tokio::time::timeout(self.0.timeout, published.wait_for(Option::is_some));
        let connection = waits.await.ok().and_then(Result::ok).and_then(|found| found.clone());
        let why =
            || "there is no connection to it; `systemctl start dbus` starts the bus".to_owned();
        connection.ok_or_else(|| UnitError::Silent { call, why: why() })
    }
}

impl ServiceUnits for UnitsClient {
    async fn start(&self, unit: NewUnit) -> Result<(), UnitError> {
        let name = unit.name.clone();
        let auxiliary: Vec<(String, Properties)> = Vec::new();
        let body = (&*name, "fail", properties(unit), auxiliary);
        self.call("StartTransientUnit", &name, &body).await.map(drop)
    }

    async fn make_slice(
        &self,
        slice: &str,
        description: &str,
        cpu_weight: u64,
    ) -> Result<(), UnitError> {
        let auxiliary: Vec<(String, Properties)> = Vec::new();
        let properties: Properties =
            vec![("Description", description.to_owned().into()), ("CPUWeight", cpu_weight.into())];
        let body = (slice, "fail", properties, auxiliary);
        match self.call("StartTransientUnit", slice, &body).await {
            Err(UnitError::Exists { .. }) => self.weigh_slice(slice, cpu_weight).await,
            answer => answer.map(drop),
        }
    }

    async fn weigh_slice(&self, slice: &str, cpu_weight: u64) -> Result<(), UnitError> {
        let properties: Properties = vec![("CPUWeight", cpu_weight.into())];
        // Until the next boot. Written to the control group directly it would last until the next reload only.
        let body = (slice, true, properties);
        self.call("SetUnitProperties", slice, &body).await.map(drop)
    }

    async fn signal(&self, unit: &str, whom: KillWhom, signal: i32) -> Result<(), UnitError> {
        let whom = if whom == KillWhom::All { "all" } else { "main" };
        match self.call("KillUnit", unit, &(unit, whom, signal)).await.map(drop) {
            Err(UnitError::Absent { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    async fn stop(&self, unit: &str) -> Result<(), UnitError> {
        present(self.call("StopUnit", unit, &(unit, "replace")).await)
    }

    async fn forget_failure(&self, unit: &str) -> Result<(), UnitError> {
        present(self.call("ResetFailedUnit", unit, &(unit,)).await)
    }

    async fn look(&self, unit: &str) -> Result<Option<UnitView>, UnitError> {
        let call = "GetUnit";
        let path = match self.call(call, unit, &(unit,)).await {
            Err(UnitError::Absent { .. }) => return Ok(None),
            answer => answer?,
        };
        let path = path.body().deserialize::<OwnedObjectPath>();
        let path = path.map_err(|e| sorted(call, unit, &e))?;
        self.state_at(unit, &path).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, UnitView)>, UnitError> {
        let call = "ListUnitsByPatterns";
        let states: [&str; 0] = [];
        // Backslashes are part of escaped names; in a pattern they would escape the next character.
        let pattern = format!("{}*.service", prefix.replace('\\', "\\\\"));
        let patterns = [pattern.as_str()];
        let body = (states.as_slice(), patterns.as_slice());
        let answer = self.call(call, prefix, &body).await?;
        let all: Vec<Listed> = answer.body().deserialize().map_err(|e| sorted(call, prefix, &e))?;
        let mut found = Vec::with_capacity(all.len());
        for listed in all {
            if let Some(view) = self.state_at(&listed.0, &listed.6).await? {
                found.push((listed.0, view));
            }
        }
        Ok(found)
    }

    fn socket(&self) -> Option<PathBuf> {
        self.0.socket.clone()
    }

    fn changes(&self) -> broadcast::Receiver<UnitChange> {
        self.0.signals.listen()
    }
}

impl Drop for ClientShared {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

fn present(answer: Result<Message, UnitError>) -> Result<(), UnitError> {
    match answer {
        Ok(_) | Err(UnitError::Absent { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Connects, and reconnects whenever the connection closes.
async fn keep(
    bus: Bus,
    timeout: Duration,
    signals: Arc<UnitSignals>,
    published: watch::Sender<Option<Connection>>,
) {
    let mut backoff = RECONNECT_BACKOFF;
    loop {
        match tokio::time::timeout(timeout, connect(&bus, timeout, &signals)).await {
            Ok(Ok((connection, ended))) => {
                backoff.reset();
                published.send_replace(Some(connection));
                signals.missed();
                // Resolves when the reader stops: the connection is closed, or systemd does not report on it.
                let _ = ended.await;
                published.send_replace(None);
                tracing::warn!("the connection to systemd was lost; reconnecting");
            }
            Ok(Err(error)) => {
                tracing::debug!(error = trouble(&error), "cannot connect to systemd");
            }
            Err(_) => tracing::debug!(patience = ?timeout, "systemd or the bus does not answer"),
        }
        sleep(backoff.next_delay()).await;
    }
}

async fn connect(
    bus: &Bus,
    timeout: Duration,
    signals: &Arc<UnitSignals>,
) -> zbus::Result<(Connection, oneshot::Receiver<()>)> {
    let connection = bus.connect_to_systemd(timeout).await?;
    // Read from the start: an unread stream would hold up the replies.
    let messages = MessageStream::from(&connection);
    let (end, ended) = oneshot::channel();
    let (send_owner, owner) = oneshot::channel();
    tokio::spawn(read(connection.clone(), messages, Arc::clone(signals), owner, end));
    let trusted = match connection.is_bus() {
        true => TrustedSender::Owner(subscribe_to_bus(&connection).await?),
        false => TrustedSender::Peer,
    };
    let _ = send_owner.send(trusted);
    subscribe(&connection).await?;
    Ok((connection, ended))
}

async fn subscribe_to_bus(connection: &Connection) -> zbus::Result<Owner> {
    let driver = DBusProxy::builder(connection).cache_properties(CacheProperties::No);
    let driver = driver.build().await?;
    for rule in rules() {
        driver.add_match_rule(rule?).await?;
    }
    name_owner::of(&driver, SYSTEMD1).await
}

/// Calls `Subscribe`, before which systemd sends no signals.
async fn subscribe(connection: &Connection) -> zbus::Result<()> {
    let to = connection.is_bus().then_some(SYSTEMD1);
    let asked = connection.call_method(to, MANAGER_PATH, Some(MANAGER), "Subscribe", &()).await;
    match asked {
        Err(zbus::Error::MethodError(name, ..)) if name.ends_with("AlreadySubscribed") => Ok(()),
        asked => asked.map(drop),
    }
}

/// Reads signals until the connection is closed, or systemd was re-executed and refuses to send any.
async fn read(
    connection: Connection,
    mut messages: MessageStream,
    signals: Arc<UnitSignals>,
    mut owner: oneshot::Receiver<TrustedSender>,
    mut end: oneshot::Sender<()>,
) {
    let mut trusted = TrustedSender::Owner(None);
    let mut asked = true;
    // In tasks of their own: the reader must continue for the replies to arrive.
    let mut subscribing = JoinSet::<zbus::Result<()>>::new();
    loop {
        let message = tokio::select! {
            biased;
            known = &mut owner, if asked => {
                asked = false;
                let Ok(known) = known else { return };
                // A change received in the meantime is at least as new.
                if trusted == TrustedSender::Owner(None) {
                    trusted = known;
                }
                continue;
            }
            Some(subscribed) = subscribing.join_next() => {
                if let Ok(Err(error)) = subscribed {
                    tracing::warn!(
                        error = trouble(&error),
                        "systemd was re-executed and does not report its units"
                    );
                    // The next connection tries again.
                    return;
                }
                signals.missed();
                continue;
            }
            message = messages.next() => message,
            // Nothing uses the connection any more.
            () = end.closed() => return,
        };
        let Some(Ok(message)) = message else { return };
        if signals.take(&message, &mut trusted) {
            let connection = connection.clone();
            subscribing.spawn(async move { subscribe(&connection).await });
        }
    }
}

#[cfg(test)]
mod tests;

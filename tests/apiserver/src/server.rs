//! The handle for tests.

mod builder;
mod credentials;
mod gate;
mod in_memory;
mod listener;
mod objects;
mod waiting;

use std::net::SocketAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub use self::builder::{Builder, StartError};
pub use self::in_memory::Service;
use self::listener::{Door, Hall};
pub use self::objects::{Objects, Refused, strategic_merge};
pub use self::waiting::Waited;
use crate::core::Shared;
use crate::fault::Fault;
use crate::pki::{Identity, base64};
use crate::request::{Request, Right};

/// A running API server. It stops when this is dropped.
pub struct ApiServer {
    pub(crate) shared: Arc<Shared>,
    hall: Hall,
    address: SocketAddr,
    /// The name or address in URLs and kubeconfigs.
    host: String,
    names: Vec<String>,
    protocols: Vec<&'static str>,
    identity: Identity,
    door: tokio::sync::Mutex<Option<Door>>,
    /// Reserves the port while the server is cut off.
    reserved: std::sync::Mutex<Option<tokio::net::TcpSocket>>,
}

/// An active fault; it stays active when this is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

impl ApiServer {
    /// Starts on a free port of the loopback address, with the namespaces that every cluster has.
    ///
    /// # Errors
    /// No port could be bound, or no certificates could be created.
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    /// Starts without a port: only [`service`](Self::service) reaches it. Its clock is tokio's, which a test can pause.
    ///
    /// # Errors
    /// No certificates could be created.
    pub fn in_memory() -> Result<Self, StartError> {
        Self::builder().finish(crate::clock::Clock::of_tokio(), None)
    }

    /// A builder for other settings: address, names, users.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    // --- how to reach it ---

    /// `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.address.port())
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its clock.
    pub fn clock(&self) -> impl Fn() -> Timestamp + Send + Sync + 'static {
        let clock = self.shared.with(|core| core.clock.clone());
        move || clock.now()
    }

    /// The certificate of the authority that signed the server's certificate, in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        self.shared.with(|core| core.authority.pem())
    }

    /// The administrator's client certificate with its key, in PEM.
    #[must_use]
    pub fn client_identity_pem(&self) -> String {
        self.identity.pem()
    }

    /// A kubeconfig with the administrator's client certificate.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_of(&self.identity)
    }

    /// A kubeconfig with this client certificate.
    #[must_use]
    pub fn kubeconfig_of(&self, identity: &Identity) -> String {
        let user = json!({
            "client-certificate-data": base64::encode(identity.certificate_pem.as_bytes()),
            "client-key-data": base64::encode(identity.key_pem.as_bytes()),
        });
        self.kubeconfig_with(&user)
    }

    /// A kubeconfig with this bearer token.
    #[must_use]
    pub fn kubeconfig_with_token(&self, token: &str) -> String {
        self.kubeconfig_with(&json!({"token": token}))
    }

    /// A kubeconfig with any `user`, such as `{"tokenFile": "/x"}` or `{"client-certificate": "/x", …}`. It is JSON,
    /// which is YAML too.
    #[must_use]
    pub fn kubeconfig_with(&self, user: &Value) -> String {
        let cluster = json!({
            "server": self.url(),
            "certificate-authority-data": base64::encode(self.ca_pem().as_bytes()),
        });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        format!("{config:#}")
    }

    // --- what was asked of it ---

    /// The requests since the start, or since [`forget_requests`](Self::forget_requests).
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.with(|core| core.journal().iter().cloned().collect())
    }

    /// The number of requests with this verb and resource (`pods/status`; `*` matches any).
    #[must_use]
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        self.shared.with(|core| core.journal().iter().filter(|r| r.is(verb, resource)).count())
    }

    /// Empties the journal.
    pub fn forget_requests(&self) {
        self.shared.with(crate::core::Core::forget_requests);
    }

    /// The rights that were used, without names and namespaces, sorted and without duplicates.
    #[must_use]
    pub fn rights(&self) -> Vec<Right> {
        let mut rights: Vec<Right> = self.shared.with(|core| {
            core.journal().iter().map(|request| request.right.of_any_object()).collect()
        });
        rights.sort();
        rights.dedup();
        rights
    }

    /// The number of open watches of a resource (`pods`; `*` matches any).
    #[must_use]
    pub fn open_watches(&self, resource: &str) -> usize {
        self.shared.with(|core| core.watches.count(resource))
    }

    /// The number of connections since the start.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.with(|core| core.connections)
    }

    // --- what goes wrong ---

    /// Activates a fault for the requests that it matches.
    pub fn fault(&self, fault: Fault) -> FaultId {
        FaultId(self.shared.with(|core| core.faults.set(fault)))
    }

    /// Lifts a fault. Requests that already hang stay hung.
    pub fn lift(&self, fault: FaultId) {
        self.shared.with(|core| core.faults.lift(Some(fault.0)));
    }

    /// Lifts all faults.
    pub fn lift_all(&self) {
        self.shared.with(|core| core.faults.lift(None));
    }

    /// Ends the open watches of a resource (`*` for all), as a server does when their time is up.
    pub fn drop_watches(&self, resource: &str) {
        self.shared.with(|core| core.watches.cut(resource, None));
    }

    /// Sends an `ERROR` event with this HTTP status and reason to the open watches of a resource,
    /// and ends them.
    pub fn fail_watches(&self, resource: &str, code: u16, reason: &str) {
        let refusal =
            crate::refusal::Refusal::new(code, reason, format!("scripted failure {code}"));
        self.shared.with(|core| core.watches.cut(resource, Some(refusal.status())));
    }

    /// Forgets all past changes: a watch that starts at an earlier version gets 410 in an `ERROR` event. Open watches
    /// continue; end them with [`drop_watches`](Self::drop_watches).
    pub fn compact(&self) {
        self.shared.with(|core| core.store.compact());
    }

    /// Goes back to an earlier version, as a server does whose data is restored from a backup: the versions after it are
    /// issued again, for other objects. Does nothing if the version is no longer kept.
    pub fn restore(&self, version: u64) {
        self.shared.with(|core| core.store.restore(version));
    }

    /// Pauses the events of all watches, or resumes them with those that were held back.
    pub fn pause_watches(&self, paused: bool) {
        self.shared.with(|core| core.watches.paused = paused);
    }

    /// Sends a bookmark to every open watch that allows them.
    pub fn bookmark(&self) {
        self.shared.with(|core| core.watches.bookmarks += 1);
    }

    /// Sets the skew of the server's clock, which determines the `Date` header, the timestamps that the server writes,
    /// and when tokens and client certificates expire.
    pub fn set_clock_skew(&self, skew: SignedDuration) {
        self.shared.with(|core| core.clock.set_skew(skew));
    }

    /// Makes the network swallow all packets: no connection transfers anything, and none ends. New connections are
    /// accepted by the system but get no further.
    pub fn set_silent(&self, silent: bool) {
        self.hall.gate.set_shut(silent);
    }

    /// Closes all connections; new ones are accepted.
    pub fn drop_connections(&self) {
        self.shared.with(crate::core::Core::close_connections);
    }

    /// Closes all connections and refuses new ones until [`come_back`](Self::come_back). The port stays reserved.
    ///
    /// # Errors
    /// The port could not be reserved.
    pub async fn cut_off(&self) -> Result<(), StartError> {
        let mut door = self.door.lock().await;
        self.shared.with(|core| {
            core.is_cut_off = true;
            core.close_connections();
        });
        if let Some(open) = door.take() {
            let socket = listener::reserve(self.address).map_err(StartError::Listen)?;
            *self.reserved.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(socket);
            open.shut().await;
        }
        Ok(())
    }

    /// Listens again after [`cut_off`](Self::cut_off), with the same port, objects and faults.
    ///
    /// # Errors
    /// The port could not be listened on.
    pub async fn come_back(&self) -> Result<(), StartError> {
        let mut door = self.door.lock().await;
        self.shared.with(|core| core.is_cut_off = false);
        let held = self.reserved.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(socket) = held {
            let listener = listener::listen(socket).map_err(StartError::Listen)?;
            *door = Some(Door::open(listener, self.hall.clone()));
        }
        Ok(())
    }

    /// Closes all connections and serves again with all objects.
    ///
    /// # Errors
    /// As for [`cut_off`](Self::cut_off) and [`come_back`](Self::come_back).
    pub async fn restart(&self) -> Result<(), StartError> {
        self.cut_off().await?;
        self.come_back().await
    }
}

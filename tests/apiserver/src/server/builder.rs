//! The builder of a server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;

use super::ApiServer;
use super::listener::{Door, Hall, listen, reserve};
use crate::access::User;
use crate::clock::Clock;
use crate::core::Shared;
use crate::kinds;
use crate::pki::{Authority, PkiError};
use crate::target::Target;

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address could not be bound.
    #[error("cannot listen")]
    Listen(#[source] io::Error),
    /// The certificates could not be created.
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Builder {
    bind: SocketAddr,
    names: Vec<String>,
    user: String,
    groups: Vec<String>,
    anonymous: bool,
    protocols: Vec<&'static str>,
    bookmark_every: Duration,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            names: Vec::new(),
            user: "test-admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
            anonymous: false,
            protocols: vec!["h2", "http/1.1"],
            bookmark_every: Duration::from_secs(60),
        }
    }

    /// Sets address and port; port 0 picks a free one. The default is 127.0.0.1:0.
    #[must_use]
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.bind = address;
        self
    }

    /// Adds a name or address to the server's certificate. The first one is used in [`ApiServer::url`]; without any,
    /// the bound address is used.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.names.push(name.to_owned());
        self
    }

    /// Sets the user of the certificate in [`ApiServer::kubeconfig`].
    #[must_use]
    pub fn user(mut self, name: &str, groups: &[&str]) -> Self {
        name.clone_into(&mut self.user);
        self.groups = groups.iter().map(|&group| group.to_owned()).collect();
        self
    }

    /// Allows requests without credentials.
    #[must_use]
    pub fn allow_anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// Speaks HTTP/1.1 only.
    #[must_use]
    pub fn http1_only(mut self) -> Self {
        self.protocols = vec!["http/1.1"];
        self
    }

    /// Sets the interval between the bookmarks of a watch. The default is one minute, as in the real server.
    #[must_use]
    pub fn bookmark_every(mut self, time: Duration) -> Self {
        self.bookmark_every = time;
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// The address cannot be bound, or the certificates cannot be created.
    pub async fn start(self) -> Result<ApiServer, StartError> {
        let listener = listen(reserve(self.bind).map_err(StartError::Listen)?);
        self.finish(Clock::default(), Some(listener.map_err(StartError::Listen)?))
    }

    pub(super) fn finish(
        self,
        clock: Clock,
        listener: Option<TcpListener>,
    ) -> Result<ApiServer, StartError> {
        let now = clock.now();
        let address = listener.as_ref().map_or(Ok(self.bind), TcpListener::local_addr);
        let address = address.map_err(StartError::Listen)?;
        let host = self.names.first().cloned().unwrap_or_else(|| match address.ip() {
            ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
            ip => ip.to_string(),
        });
        let mut names = self.names;
        names.extend([address.ip().to_string(), "localhost".to_owned(), "127.0.0.1".to_owned()]);
        names.push("kubernetes.default.svc".to_owned());
        names.dedup();
        let authority = Authority::new(now)?;
        let tls = authority.server(&names, &clock, &self.protocols)?;
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        let user = User::new(&self.user, &groups);
        let identity = authority.lasting_client(&user, now)?;
        let shared = Shared::new(authority, clock);
        shared.with(|core| {
            core.access.know_certificate(identity.der.clone(), user);
            core.access.anonymous_allowed = self.anonymous;
            core.watches.bookmark_every = Some(self.bookmark_every);
            for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
                if let Some(kind) = kinds::called("namespaces") {
                    let object = json!({"metadata": {"name": name}, "status": {"phase": "Active"}});
                    let target = Target { kind, namespace: None, name: None, subresource: None };
                    // A new name cannot be refused.
                    let _ = core.writer().place(&target, object);
                }
            }
        });
        let hall = Hall::new(std::sync::Arc::clone(&shared), tls);
        let door = listener.map(|listener| Door::open(listener, hall.clone()));
        Ok(ApiServer {
            shared,
            hall,
            address,
            host,
            names,
            protocols: self.protocols,
            identity,
            door: tokio::sync::Mutex::new(door),
            reserved: std::sync::Mutex::new(None),
        })
    }
}

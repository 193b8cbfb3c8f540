//! The addresses of the API server's name.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::time::timeout;
use tower_service::Service;
use winddown_host::{HostNames, addresses_of_host};
use winddown_shared::Mutex;

/// One thread for the name in use, and one for the name that replaces it.
static NAMES: HostNames = HostNames::new(2);

/// What the last lookup of each name found. No name leaves it: they come from the node's own files.
static LAST: Mutex<BTreeMap<String, Vec<SocketAddr>>> = Mutex::new(BTreeMap::new());

/// How long a connection waits for a lookup if the name has had addresses before.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);

/// Looks up the API server's name for each connection. A name server that does not answer, or fails, keeps no connection
/// from being made: the last addresses are used.
#[derive(Clone, Debug)]
pub(super) struct ServerAddresses;

// === impl ServerAddresses ===

impl Service<Name> for ServerAddresses {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(async move { Ok(addresses(name.as_str(), addresses_of_host).await?.into_iter()) })
    }
}

async fn addresses(
    name: &str,
    look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    let found = NAMES.addresses(name, name, |name| {
        let found = look_up(name)?;
        LAST.lock().insert(name.to_owned(), found.clone());
        Ok(found)
    });
    let last = LAST.lock().get(name).cloned();
    let Some(last) = last else { return found.await };
    Ok(timeout(LOOKUP_TIMEOUT, found).await.ok().and_then(Result::ok).unwrap_or(last))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 0).into()
    }

    #[tokio::test]
    async fn the_last_addresses_stay_in_use_until_a_name_server_tells_others() {
        let name = "api.test";
        let fails = |_: &str| Err(io::ErrorKind::NotFound.into());
        addresses(name, fails).await.unwrap_err();
        let first = addresses(name, |_| Ok(vec![address(1)])).await;
        assert_eq!(first.unwrap(), [address(1)]);
        assert_eq!(addresses(name, fails).await.unwrap(), [address(1)]);
        let (go, gate) = mpsc::channel::<()>();
        let late = move |_: &str| {
            let _ = gate.recv();
            Ok(vec![address(2)])
        };
        assert_eq!(addresses(name, late).await.unwrap(), [address(1)]);
        drop(go);
        // What came too late for that connection is known to the next.
        while LAST.lock().get(name) != Some(&vec![address(2)]) {
            tokio::task::yield_now().await;
        }
        assert_eq!(addresses(name, fails).await.unwrap(), [address(2)]);
    }
}

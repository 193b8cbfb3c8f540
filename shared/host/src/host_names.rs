//! Addresses of host names.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;
use winddown_shared::Mutex;

/// How long a lookup waits for a thread: less than the shortest time limit of a probe.
const TURN_TIMEOUT: Duration = Duration::from_millis(500);

/// Looks up names on a few threads of its own: a name server that does not answer holds a thread for tens of seconds, and
/// no asker can take a lookup back. Simultaneous lookups of a name are one.
#[derive(Debug)]
pub struct HostNames {
    turns: Semaphore,
    running: Mutex<Vec<(String, Lookup)>>,
}

type Lookup = watch::Receiver<Option<Arc<io::Result<Vec<SocketAddr>>>>>;

// === impl HostNames ===

impl HostNames {
    /// Looks up at most `threads` names at the same time.
    pub const fn new(threads: usize) -> Self {
        Self { turns: Semaphore::const_new(threads), running: Mutex::new(Vec::new()) }
    }

    /// Returns the addresses of `name`, with port 0: what `look_up` finds, usually [`addresses_of_host`], or what a lookup
    /// finds that runs already. Cancel-safe: a lookup that has begun continues.
    ///
    /// # Errors
    /// The name has no addresses. Or all threads are taken, and stay so for half a second (`WouldBlock`).
    pub async fn addresses(
        &'static self,
        name: &str,
        look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        let mut lookup = match self.running(name) {
            Some(lookup) => lookup,
            None => {
                let turn = timeout(TURN_TIMEOUT, self.turns.acquire()).await;
                let turn = turn.ok().and_then(Result::ok).ok_or_else(|| {
                    let text = "too many names of hosts are being looked up";
                    io::Error::new(io::ErrorKind::WouldBlock, text)
                })?;
                self.begin(name, turn, look_up)?
            }
        };
        let found = lookup.wait_for(Option::is_some).await.map_err(io::Error::other)?;
        match found.as_deref() {
            Some(Ok(addresses)) => Ok(addresses.clone()),
            Some(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(Vec::new()),
        }
    }

    /// Connects to `host`, an address or a name, at `port`. Cancel-safe.
    ///
    /// # Errors
    /// Nothing listens there, or the name has no addresses. Or all threads are taken, so that nothing was asked
    /// (`WouldBlock`).
    pub async fn connect(&'static self, host: &str, port: u16) -> io::Result<TcpStream> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return TcpStream::connect((ip, port)).await;
        }
        let mut addresses = self.addresses(host, addresses_of_host).await?;
        addresses.iter_mut().for_each(|address| address.set_port(port));
        TcpStream::connect(&*addresses).await
    }

    fn running(&self, name: &str) -> Option<Lookup> {
        let mut running = self.running.lock();
        running.retain(|(_, lookup)| is_running(lookup));
        running.iter().find(|(own, _)| own == name).map(|(_, lookup)| lookup.clone())
    }

    fn begin(
        &'static self,
        name: &str,
        turn: SemaphorePermit<'static>,
        look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Lookup> {
        let (found, lookup) = watch::channel(None);
        let mut running = self.running.lock();
        let same = running.iter().find(|(own, it)| own == name && is_running(it));
        if let Some((_, same)) = same {
            return Ok(same.clone());
        }
        let own = name.to_owned();
        thread::Builder::new().name("host-name".to_owned()).spawn(move || {
            let answer = look_up(&own);
            drop(turn);
            found.send_replace(Some(Arc::new(answer)));
        })?;
        running.push((name.to_owned(), lookup.clone()));
        Ok(lookup)
    }
}

/// Whether it has no answer yet, and its thread has not panicked. One with an answer may be older than the question.
fn is_running(lookup: &Lookup) -> bool {
    lookup.borrow().is_none() && lookup.has_changed().is_ok()
}

/// Returns the addresses that the system knows for `name`. Blocking, for as long as the name server takes.
///
/// # Errors
/// It has none, or the name server does not say.
pub fn addresses_of_host(name: &str) -> io::Result<Vec<SocketAddr>> {
    (name, 0).to_socket_addrs().map(Iterator::collect)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    fn names(threads: usize) -> &'static HostNames {
        Box::leak(Box::new(HostNames::new(threads)))
    }

    #[tokio::test]
    async fn lookups_of_one_name_are_one_and_a_later_one_asks_again() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let names = names(4);
        let (go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        let ask = || {
            let gate = Arc::clone(&gate);
            names.addresses("a.test", move |name| {
                assert_eq!(name, "a.test");
                ASKED.fetch_add(1, Ordering::Relaxed);
                let _ = gate.lock().unwrap().recv();
                Ok(vec![([127, 0, 0, 1], 0).into()])
            })
        };
        let three = async { tokio::join!(ask(), ask(), ask()) };
        let release = async {
            tokio::task::yield_now().await;
            go.send(()).unwrap();
        };
        let ((a, b, c), ()) = tokio::join!(three, release);
        assert_eq!([a.unwrap(), b.unwrap(), c.unwrap()].map(|found| found.len()), [1, 1, 1]);
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
        drop(go);
        ask().await.unwrap();
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_host_is_reached_by_its_name_and_by_its_address() {
        let names = names(1);
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            let (reached, asked) = tokio::join!(names.connect(host, port), server.accept());
            assert_eq!(reached.unwrap().local_addr().unwrap(), asked.unwrap().1, "{host}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_gets_no_thread_in_time_is_an_error_and_is_not_looked_up_later() {
        let names = names(1);
        let (go, gate) = mpsc::channel::<()>();
        let slow = names.addresses("slow.test", move |_| {
            let _ = gate.recv();
            Err(io::ErrorKind::NotFound.into())
        });
        let mut slow = Box::pin(slow);
        assert!(timeout(Duration::ZERO, &mut slow).await.is_err());
        for count in 0..100 {
            let name = format!("{count}.test");
            let other = names.addresses(&name, |_| unreachable!("it has been given up"));
            assert_eq!(other.await.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        drop(go);
        assert_eq!(slow.await.unwrap_err().kind(), io::ErrorKind::NotFound);
        let found = names.addresses("localhost", addresses_of_host).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
    }
}

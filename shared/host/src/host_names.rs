//! Addresses of host names.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;
use winddown_shared::Mutex;

/// How long a lookup waits for a thread: less than the shortest time limit of a probe.
const TURN_TIMEOUT: Duration = Duration::from_millis(500);

/// Looks up names on a few threads of its own: a name server that does not answer holds a thread for tens of seconds, and
/// no asker can take a lookup back. Simultaneous lookups of a name are one. An asker has half of the threads at a time: no
/// pod takes all of them with names that such servers are asked for.
#[derive(Debug)]
pub struct HostNames {
    turns: Semaphore,
    /// How many lookups of one asker run at the same time.
    of_one: usize,
    running: Mutex<Vec<Lookup>>,
}

#[derive(Debug)]
struct Lookup {
    asker: String,
    name: String,
    found: Found,
}

type Found = watch::Receiver<Option<Arc<io::Result<Vec<SocketAddr>>>>>;

// === impl HostNames ===

impl HostNames {
    /// Looks up at most `threads` names at the same time.
    pub const fn new(threads: usize) -> Self {
        let of_one = threads.div_ceil(2);
        Self { turns: Semaphore::const_new(threads), of_one, running: Mutex::new(Vec::new()) }
    }

    /// Returns the addresses of `name`, with port 0: what `look_up` finds, usually [`addresses_of_host`], or what a lookup
    /// finds that runs already. An address and `localhost` need no lookup. Cancel-safe: a lookup that has begun continues.
    ///
    /// # Errors
    /// The name has no addresses. Or all threads, or the asker's half, are taken, and stay so for half a second (`WouldBlock`).
    pub async fn addresses(
        &'static self,
        asker: &str,
        name: &str,
        look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Some(known) = known(name) {
            return Ok(known);
        }
        let lookup = timeout(TURN_TIMEOUT, self.lookup(asker, name, look_up)).await;
        let mut lookup = lookup.unwrap_or_else(|_| {
            let text = "too many host names are being looked up";
            Err(io::Error::new(io::ErrorKind::WouldBlock, text))
        })?;
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
    /// Nothing listens there, or the name has no addresses. Or all threads, or the asker's half, are taken, so that
    /// nothing was asked (`WouldBlock`).
    pub async fn connect(
        &'static self,
        asker: &str,
        host: &str,
        port: u16,
    ) -> io::Result<TcpStream> {
        let mut addresses = self.addresses(asker, host, addresses_of_host).await?;
        addresses.iter_mut().for_each(|address| address.set_port(port));
        TcpStream::connect(&*addresses).await
    }

    /// Returns the lookup of `name` that runs, or begins one as soon as a thread is free, and not all of the asker's are taken.
    async fn lookup(
        &'static self,
        asker: &str,
        name: &str,
        look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Found> {
        loop {
            let own = {
                let running = self.running();
                if let Some(same) = running.iter().find(|one| one.name == name) {
                    return Ok(same.found.clone());
                }
                self.in_the_way(&running, asker)
            };
            if let Some(mut own) = own {
                // An error is an end too: its thread has panicked.
                let _ = own.wait_for(Option::is_some).await;
                continue;
            }
            let turn = self.turns.acquire().await.map_err(io::Error::other)?;
            let mut running = self.running();
            let has_begun = running.iter().any(|one| one.name == name);
            if !has_begun && self.in_the_way(&running, asker).is_none() {
                let found = begin(name, turn, look_up)?;
                let (asker, name) = (asker.to_owned(), name.to_owned());
                running.push(Lookup { asker, name, found: found.clone() });
                return Ok(found);
            }
        }
    }

    /// The lookups that run.
    fn running(&self) -> MutexGuard<'_, Vec<Lookup>> {
        let mut running = self.running.lock();
        running.retain(|one| is_running(&one.found));
        running
    }

    /// The asker's latest, if it has as many as it may have: those before it are likelier to hang.
    fn in_the_way(&self, running: &[Lookup], asker: &str) -> Option<Found> {
        let mut own = running.iter().filter(|one| one.asker == asker);
        let is_full = own.clone().count() >= self.of_one;
        own.next_back().filter(|_| is_full).map(|one| one.found.clone())
    }
}

/// Has a thread look up `name`.
fn begin(
    name: &str,
    turn: SemaphorePermit<'static>,
    look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<Found> {
    let (answer, found) = watch::channel(None);
    let name = name.to_owned();
    thread::Builder::new().name("host-name".to_owned()).spawn(move || {
        let addresses = look_up(&name);
        drop(turn);
        answer.send_replace(Some(Arc::new(addresses)));
    })?;
    Ok(found)
}

/// Whether it has no answer yet, and its thread has not panicked. One with an answer may be older than the question.
fn is_running(lookup: &Found) -> bool {
    lookup.borrow().is_none() && lookup.has_changed().is_ok()
}

/// The addresses of an address, and of `localhost`, which no name server is to be asked for (RFC 6761).
fn known(name: &str) -> Option<Vec<SocketAddr>> {
    if name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case("localhost") {
        return Some(vec![(Ipv6Addr::LOCALHOST, 0).into(), (Ipv4Addr::LOCALHOST, 0).into()]);
    }
    name.parse::<IpAddr>().ok().map(|ip| vec![(ip, 0).into()])
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
            names.addresses("pod", "a.test", move |name| {
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
        // The last one is looked up, and needs no name server.
        for host in ["127.0.0.1", "localhost", "LocalHost.", "127.1"] {
            let (reached, asked) = tokio::join!(names.connect("pod", host, port), server.accept());
            assert_eq!(reached.unwrap().local_addr().unwrap(), asked.unwrap().1, "{host}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_whose_names_hang_keeps_no_other_pod_from_a_thread() {
        let names = names(2);
        let (go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        let hung: Vec<_> = (0..10)
            .map(|count| {
                let gate = Arc::clone(&gate);
                tokio::spawn(async move {
                    let hangs = move |_: &str| {
                        let _ = gate.lock().unwrap().recv();
                        Err(io::ErrorKind::NotFound.into())
                    };
                    names.addresses("hostile", &format!("{count}.test"), hangs).await.unwrap_err()
                })
            })
            .collect();
        tokio::time::sleep(TURN_TIMEOUT * 2).await;
        let there = vec![SocketAddr::from(([192, 0, 2, 1], 0))];
        let answer = there.clone();
        let found = names.addresses("other", "a.test", move |_| Ok(answer)).await;
        assert_eq!(found.unwrap(), there);
        for host in ["localhost", "::1"] {
            assert!(names.addresses("hostile", host, |_| unreachable!()).await.is_ok(), "{host}");
        }
        drop(go);
        let mut kinds = Vec::new();
        for one in hung {
            kinds.push(one.await.unwrap().kind());
        }
        assert_eq!(kinds.iter().filter(|kind| **kind == io::ErrorKind::NotFound).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_gets_no_thread_in_time_is_an_error_and_is_not_looked_up_later() {
        let names = names(1);
        let (go, gate) = mpsc::channel::<()>();
        let slow = names.addresses("slow", "slow.test", move |_| {
            let _ = gate.recv();
            Err(io::ErrorKind::NotFound.into())
        });
        let mut slow = Box::pin(slow);
        assert!(timeout(Duration::ZERO, &mut slow).await.is_err());
        for count in 0..100 {
            let name = format!("{count}.test");
            let other = names.addresses("other", &name, |_| unreachable!("it has been given up"));
            assert_eq!(other.await.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        drop(go);
        assert_eq!(slow.await.unwrap_err().kind(), io::ErrorKind::NotFound);
        let found = names.addresses("other", "127.1", addresses_of_host).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
    }
}

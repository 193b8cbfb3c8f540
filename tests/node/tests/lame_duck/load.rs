//! Clients that ask again as soon as they were answered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use winddown_node_tests::Node;
use winddown_node_tests::scenario::{SOON, TestResult};

const CLIENTS: usize = 4;
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// Clients at work. They end when it is stopped or dropped.
pub(crate) struct Load {
    counted: Arc<Counted>,
    clients: JoinSet<()>,
}

#[derive(Default)]
struct Counted {
    over: AtomicBool,
    answered: AtomicUsize,
    failed: Mutex<Vec<String>>,
}

impl Load {
    /// Begins to ask.
    pub(crate) fn start(address: SocketAddr) -> Self {
        let counted = Arc::new(Counted::default());
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(ask_on_and_on(address, Arc::clone(&counted)));
        }
        Self { counted, clients }
    }

    /// Waits for `more` further requests to be answered.
    pub(crate) async fn goes_on(&self, node: &Node, more: usize) -> TestResult {
        let answered = || self.counted.answered.load(Ordering::Relaxed);
        let goal = answered() + more;
        node.wait_until("requests to be answered", SOON, async || answered() >= goal).await?;
        Ok(())
    }

    /// Lets the clients finish. Returns how many requests were answered, and what went wrong with
    /// each of the others.
    pub(crate) async fn stop(mut self) -> (usize, Vec<String>) {
        self.counted.over.store(true, Ordering::Relaxed);
        while self.clients.join_next().await.is_some() {}
        let failed = self.counted.failed.lock().unwrap_or_else(PoisonError::into_inner);
        (self.counted.answered.load(Ordering::Relaxed), failed.clone())
    }
}

async fn ask_on_and_on(address: SocketAddr, counted: Arc<Counted>) {
    while !counted.over.load(Ordering::Relaxed) {
        let failure = match ask(address).await {
            Ok(answer) if answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\ndone\n") => {
                counted.answered.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Ok(answer) => format!("answer: {answer:?}"),
            Err(error) => format!("error: {error}"),
        };
        counted.failed.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
        // A refusal comes at once; what is counted is requests, not how fast they can fail.
        tokio::time::sleep(AFTER_FAILURE).await;
    }
}

async fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: replica\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

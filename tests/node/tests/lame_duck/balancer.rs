//! A proxy that sends each connection to the next replica that is ready.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::{Dialer, Node, programs};

use super::ADDRESS;

/// How long a pod's readiness is under way to the proxy, as it is through an API server.
const UNDER_WAY: Duration = Duration::from_millis(300);
const UNAVAILABLE: &[u8] = b"HTTP/1.1 503 No replica is ready\r\nContent-Length: 0\r\n\r\n";

/// One replica as the proxy knows it.
pub(crate) struct Replica {
    dialer: Dialer,
    socket: std::path::PathBuf,
}

/// The proxy. Ends when it is dropped.
pub(crate) struct Balancer {
    address: SocketAddr,
    replicas: Arc<[Known]>,
    tasks: Vec<JoinHandle<()>>,
    _followers: Vec<Child>,
}

struct Known {
    dialer: Dialer,
    ready: AtomicBool,
    served: AtomicUsize,
}

// === impl Replica ===

impl Replica {
    /// The replica on this node, which is on.
    pub(crate) fn follow(node: &Node) -> TestResult<Self> {
        let socket = node.host_path("/run/winddown/winddown.sock");
        Ok(Self { dialer: node.dialer()?, socket })
    }
}

// === impl Balancer ===

impl Balancer {
    /// Listens on a port of its own and follows the replicas' readiness from now on.
    pub(crate) async fn start(replicas: impl IntoIterator<Item = Replica>) -> TestResult<Self> {
        let (mut known, mut followers, mut said) = (Vec::new(), Vec::new(), Vec::new());
        for replica in replicas {
            let mut follower = Command::new(programs().await?.join("winddown"))
                .args(["status", "--watch", "--output=json", "--socket"])
                .arg(&replica.socket)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()?;
            said.push(follower.stdout.take().ok_or("the follower has no output")?);
            followers.push(follower);
            let (ready, served) = (AtomicBool::new(false), AtomicUsize::new(0));
            known.push(Known { dialer: replica.dialer, ready, served });
        }
        let replicas: Arc<[Known]> = known.into();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut tasks = vec![tokio::spawn(accept(listener, Arc::clone(&replicas)))];
        for (number, lines) in said.into_iter().enumerate() {
            tasks.push(tokio::spawn(hear(lines, Arc::clone(&replicas), number)));
        }
        Ok(Self { address, replicas, tasks, _followers: followers })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many replicas are ready, as far as the proxy knows.
    pub(crate) fn ready(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.ready.load(Ordering::Relaxed)).count()
    }

    /// How many connections each replica was sent.
    pub(crate) fn served(&self) -> Vec<usize> {
        self.replicas.iter().map(|replica| replica.served.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Believes what the agent of one node says of its replica, a while after it said so.
async fn hear(said: ChildStdout, replicas: Arc<[Known]>, number: usize) {
    let mut lines = BufReader::new(said).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let status: Value = serde_json::from_str(&line).unwrap_or_default();
        let ready = status["pods"].as_array().is_some_and(|pods| {
            pods.iter().any(|pod| pod["ready"] == true && pod["state"] == "syncing")
        });
        let replicas = Arc::clone(&replicas);
        tokio::spawn(async move {
            tokio::time::sleep(UNDER_WAY).await;
            replicas[number].ready.store(ready, Ordering::Relaxed);
        });
    }
}

async fn accept(listener: TcpListener, replicas: Arc<[Known]>) {
    let mut turn = 0;
    while let Ok((client, _)) = listener.accept().await {
        turn += 1;
        let ready = (turn..turn + replicas.len())
            .map(|at| at % replicas.len())
            .find(|at| replicas[*at].ready.load(Ordering::Relaxed));
        tokio::spawn(forward(client, Arc::clone(&replicas), ready));
    }
}

async fn forward(
    mut client: TcpStream,
    replicas: Arc<[Known]>,
    chosen: Option<usize>,
) -> std::io::Result<()> {
    let Some(chosen) = chosen else { return client.write_all(UNAVAILABLE).await };
    let replica = &replicas[chosen];
    replica.served.fetch_add(1, Ordering::Relaxed);
    // Where it refuses, the client sees its connection end without an answer.
    let mut there = replica.dialer.dial(ADDRESS).await?;
    copy_bidirectional(&mut client, &mut there).await?;
    Ok(())
}

//! What one node asks of its API server: the real agent in cluster mode, an API server for tests, and
//! everything that goes between them counted.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_apiserver::ApiServer;
use winddown_node_tests::usage::{self, Used, Watch};

use super::model::{Asked, Seen};
use super::wire::Wire;
use crate::node::{BenchError, Source, TestNode};
use crate::options::Options;
use crate::{idle, shutdown};

/// What one node does in each situation.
#[derive(Debug)]
pub(crate) struct Node {
    /// From the agent's start until everything has been told.
    pub(crate) join: Seen,
    /// Nothing happens.
    pub(crate) idle: Seen,
    /// The API server went away and came back.
    pub(crate) reconnect: Seen,
    /// From the shutdown signal to the lock's release.
    pub(crate) power_off: Seen,
    /// Watches that are open while nothing happens.
    pub(crate) watches: usize,
    /// What the agent itself costs then.
    pub(crate) idle_cost: Cost,
}

/// What a process needs.
#[derive(Debug)]
pub(crate) struct Cost {
    /// In bytes.
    pub(crate) resident: u64,
    pub(crate) used: Used,
    pub(crate) span: Duration,
}

/// Nothing was asked for so long: everything has been told.
const QUIET: Duration = Duration::from_secs(4);
/// Longest wait for that.
const TOLD: Duration = Duration::from_secs(120);
/// How long after the server's return the node is watched, and how often: no two nodes come back at the
/// same moment.
const RETURN: Duration = Duration::from_secs(10);
const RETURNS: usize = 5;

/// An API server, and when the present situation began.
struct Watched<'a> {
    server: &'a ApiServer,
    wire: &'a Wire,
    begun: Instant,
    bytes: (u64, u64),
}

/// Brings a node with so many pods through every situation.
pub(crate) async fn measure(options: &Options) -> Result<Node, BenchError> {
    let failed = |error: &dyn std::error::Error| BenchError::Api(error.to_string());
    let server = ApiServer::start().await.map_err(|error| failed(&error))?;
    let wire = Wire::to(server.address()).await.map_err(|error| failed(&error))?;
    let through = format!("https://{}", wire.address());
    let kubeconfig = server.kubeconfig().replace(&server.url(), &through);

    let watched = Watched::begin(&server, &wire);
    let node = TestNode::start_with(options, Source::Api(&server, kubeconfig)).await?;
    quiet(&server, options.pods).await?;
    let join = watched.end();

    let watched = Watched::begin(&server, &wire);
    let agent = node.agent_pid()?;
    let mut watch = Watch::new(vec![agent]);
    let span = idle::watch(&mut [&mut watch], options.idle).await;
    let idle_cost = Cost { resident: usage::memory(agent).resident, used: watch.used(), span };
    let watches = server.open_watches("*");
    let idle = watched.end();

    let mut returns = Vec::with_capacity(RETURNS);
    for _ in 0..RETURNS {
        let watched = Watched::begin(&server, &wire);
        server.restart().await.map_err(|error| failed(&error))?;
        sleep(RETURN).await;
        returns.push(watched.end());
        let back = server.open_watches("*");
        if back < watches {
            return Err(BenchError::Api(format!("only {back} of {watches} watches came back")));
        }
    }
    let reconnect = Seen::together(returns).unwrap_or_else(|| idle.clone());

    let watched = Watched::begin(&server, &wire);
    shutdown::run(&node).await?;
    let power_off = watched.end();
    Ok(Node { join, idle, reconnect, power_off, watches, idle_cost })
}

/// Waits until the API server knows of every pod that it runs, and nothing more is asked of it.
async fn quiet(server: &ApiServer, pods: usize) -> Result<(), BenchError> {
    let begun = Instant::now();
    loop {
        let listed = server.list("pods");
        let running = listed.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        let last = server.requests().last().map_or(begun, |request| request.at);
        if running == pods && last.elapsed() > QUIET {
            return Ok(());
        }
        if begun.elapsed() > TOLD {
            let requests = server.requests();
            let last: Vec<String> =
                requests.iter().rev().take(5).map(ToString::to_string).collect();
            let what = format!("{running} of {pods} pods run; the last requests: {last:?}");
            return Err(BenchError::Api(what));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

// === impl Watched ===

impl<'a> Watched<'a> {
    fn begin(server: &'a ApiServer, wire: &'a Wire) -> Self {
        server.forget_requests();
        Self { server, wire, begun: Instant::now(), bytes: wire.bytes() }
    }

    fn end(self) -> Seen {
        let span = self.begun.elapsed();
        let (up, down) = self.wire.bytes();
        let asked = self.server.requests().into_iter().map(|request| Asked {
            after: request.at.saturating_duration_since(self.begun),
            what: format!("{} {}", request.right.verb, request.right.resource_and_sub()),
            body: match request.body.is_null() {
                true => 0,
                false => u64::try_from(request.body.to_string().len()).unwrap_or(u64::MAX),
            },
        });
        let asked = asked.filter(|asked| asked.after <= span).collect();
        Seen { times: 1, span, asked, bytes: (up - self.bytes.0, down - self.bytes.1) }
    }
}

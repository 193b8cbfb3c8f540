//! A client of the service, on a node that stays up: sends each request where kube-proxy would.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};
use winddown_node_tests::Dialer;

use super::now;
use super::objects::PORT;

/// Between two requests, and how many of them a long one comes after.
const PAUSE: Duration = Duration::from_millis(25);
const PER_LONG: usize = 20;
/// kube-proxy writes its rules once a second at most.
const PROXY: Duration = Duration::from_secs(1);
/// No answer takes so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ways to the pods of each node.
pub(super) type Ways = Arc<Mutex<BTreeMap<String, Dialer>>>;

/// A server, as the API server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    pod: String,
    node: String,
    address: SocketAddr,
    is_ready: bool,
    /// It is terminating and answers: used where no other is.
    is_ending: bool,
}

/// Why a request was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    Refused,
    Unreachable,
    /// After the connection was accepted.
    Cut,
    NoEndpoint,
}

#[derive(Clone, Debug)]
pub(super) struct Lost {
    /// When it was sent.
    pub(super) at: u64,
    pub(super) pod: String,
    pub(super) is_long: bool,
    pub(super) loss: Loss,
}

/// What became of the requests.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) sent: usize,
    pub(super) long: usize,
    pub(super) lost: Vec<Lost>,
    /// When the API server first showed that a server is not ready any more.
    pub(super) withdrawn: BTreeMap<String, u64>,
}

pub(super) struct Client {
    counted: Arc<Mutex<Counted>>,
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

// === impl Client ===

impl Client {
    pub(super) fn start(slices: Api<EndpointSlice>, ways: Ways) -> Self {
        let counted = Arc::default();
        let (stop, stopped) = watch::channel(false);
        let (seen, all) = mpsc::unbounded_channel();
        let (known, rules) = watch::channel(Vec::new());
        let mut tasks = JoinSet::new();
        let (see, send) = (follow(slices, seen, Arc::clone(&counted)), program(all, known));
        let mut until = stopped.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = async { tokio::join!(see, send); } => {}
                _ = until.wait_for(|stop| *stop) => {}
            }
        });
        tasks.spawn(ask_on_and_on(rules, ways, Arc::clone(&counted), stopped));
        Self { counted, tasks, stop }
    }

    /// Waits for the answers to come.
    pub(super) async fn stop(mut self) -> Counted {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        std::mem::take(&mut *self.counted.lock().unwrap())
    }

    pub(super) fn lost(&self) -> usize {
        self.counted.lock().unwrap().lost.len()
    }
}

/// Passes on what the API server shows, with the time.
async fn follow(
    slices: Api<EndpointSlice>,
    seen: mpsc::UnboundedSender<(Instant, Vec<Endpoint>)>,
    counted: Arc<Mutex<Counted>>,
) {
    let config = watcher::Config::default().labels("kubernetes.io/service-name=web");
    let mut events = pin!(watcher(slices, config));
    let (mut known, mut before) = (BTreeMap::new(), Vec::<Endpoint>::new());
    while let Some(event) = events.next().await {
        let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap();
        let is_whole = matches!(event, Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone));
        match event {
            Ok(Event::Apply(slice) | Event::InitApply(slice)) => {
                known.insert(name(&slice), endpoints(&slice));
            }
            Ok(Event::Delete(slice)) => drop(known.remove(&name(&slice))),
            Ok(Event::Init) => known.clear(),
            Ok(Event::InitDone) => {}
            Err(error) => println!("the client's watch: {error}"),
        }
        if !is_whole {
            continue;
        }
        let all: Vec<Endpoint> = known.values().flatten().cloned().collect();
        for old in before.iter().filter(|old| old.is_ready) {
            if !all.iter().any(|new| new.pod == old.pod && new.is_ready) {
                let mut counted = counted.lock().unwrap();
                counted.withdrawn.entry(old.pod.clone()).or_insert_with(now);
            }
        }
        before.clone_from(&all);
        let _ = seen.send((Instant::now(), all));
    }
}

fn endpoints(slice: &EndpointSlice) -> Vec<Endpoint> {
    let all = slice.endpoints.iter().flatten();
    let endpoint = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let is = |condition: Option<bool>| condition == Some(true);
        Some(Endpoint {
            pod: endpoint.target_ref.as_ref()?.name.clone()?,
            node: endpoint.node_name.clone()?,
            address: SocketAddr::new(endpoint.addresses.first()?.parse().ok()?, PORT),
            is_ready: is(conditions.ready),
            is_ending: is(conditions.serving) && is(conditions.terminating),
        })
    };
    all.filter_map(endpoint).collect()
}

/// Makes rules of what was seen, as late as kube-proxy at worst.
async fn program(
    mut seen: mpsc::UnboundedReceiver<(Instant, Vec<Endpoint>)>,
    rules: watch::Sender<Vec<Endpoint>>,
) {
    while let Some((at, endpoints)) = seen.recv().await {
        sleep_until(at + PROXY).await;
        let by = |is: fn(&Endpoint) -> bool| -> Vec<Endpoint> {
            endpoints.iter().filter(|endpoint| is(endpoint)).cloned().collect()
        };
        let ready = by(|endpoint| endpoint.is_ready);
        rules.send_replace(if ready.is_empty() {
            by(|endpoint| endpoint.is_ending)
        } else {
            ready
        });
    }
}

async fn ask_on_and_on(
    mut rules: watch::Receiver<Vec<Endpoint>>,
    ways: Ways,
    counted: Arc<Mutex<Counted>>,
    stopped: watch::Receiver<bool>,
) {
    let _ = rules.wait_for(|rules| !rules.is_empty()).await;
    let (mut pause, mut requests) = (interval(PAUSE), JoinSet::new());
    for turn in 0_usize.. {
        pause.tick().await;
        if *stopped.borrow() {
            break;
        }
        while requests.try_join_next().is_some() {}
        for is_long in [false, true] {
            if is_long && turn % PER_LONG != 0 {
                continue;
            }
            let chosen = {
                let rules = rules.borrow();
                rules.get((turn / PER_LONG + turn) % rules.len().max(1)).cloned()
            };
            let (ways, counted) = (Arc::clone(&ways), Arc::clone(&counted));
            requests.spawn(async move {
                let at = now();
                let loss = match &chosen {
                    Some(endpoint) => ask(endpoint, &ways, is_long).await.err(),
                    None => Some(Loss::NoEndpoint),
                };
                let pod = chosen.map(|endpoint| endpoint.pod).unwrap_or_default();
                let mut counted = counted.lock().unwrap();
                (counted.sent, counted.long) =
                    (counted.sent + 1, counted.long + usize::from(is_long));
                counted.lost.extend(loss.map(|loss| Lost { at, pod, is_long, loss }));
            });
        }
    }
    while requests.join_next().await.is_some() {}
}

async fn ask(endpoint: &Endpoint, ways: &Ways, is_long: bool) -> Result<(), Loss> {
    let way = ways.lock().unwrap().get(&endpoint.node).cloned().ok_or(Loss::Unreachable)?;
    let mut stream = way.dial(endpoint.address).await.map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => Loss::Refused,
        _ => Loss::Unreachable,
    })?;
    let asked = async {
        let path = if is_long { "/long" } else { "/" };
        let request = format!("GET {path} HTTP/1.1\r\nHost: web\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match timeout(PATIENCE, asked).await {
        Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("done\n") => {
            Ok(())
        }
        _ => Err(Loss::Cut),
    }
}

/// Waits until the client has nothing more to lose from what has just changed.
pub(super) async fn settle() {
    sleep(2 * PROXY).await;
}

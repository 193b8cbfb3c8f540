//! What the node and its pods use, measured when it is asked for and kept for a moment.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use winddown_shared::{NodeHandle, NodeStats, PodStats, PodUid, RuntimeError, WallTime};

/// Answers within this time are of one measurement: a scraper, which comes every ten seconds or less often, gets a
/// new one each time.
const KEEP: Duration = Duration::from_secs(5);

/// Measures the node and its pods.
pub trait Figures: Send + Sync + 'static {
    /// Measures now. What files use on disks takes longer, and is left out without `disks`.
    ///
    /// # Errors
    /// Nothing is known of any pod.
    fn measure(&self, disks: bool) -> BoxFuture<'_, Result<NodeFigures, RuntimeError>>;
}

/// What a node and its pods use.
#[derive(Clone, Debug, Default)]
pub struct NodeFigures {
    /// The node.
    pub node: NodeStats,
    /// Processor time of the node since its boot.
    pub cpu_time: Option<Duration>,
    /// When the node booted.
    pub booted_at: Option<WallTime>,
    /// Its pods of which something runs.
    pub pods: Vec<(PodUid, PodStats)>,
}

/// A measurement.
pub(crate) struct Taken {
    pub(crate) at: WallTime,
    measured: Instant,
    pub(crate) figures: NodeFigures,
    /// Processor time per second since the measurement before: of the node, and of each pod and its containers.
    pub(crate) node_rate: Option<Duration>,
    pub(crate) rates: HashMap<PodUid, PodRate>,
}

/// Processor time of a pod per second.
#[derive(Default)]
pub(crate) struct PodRate {
    pub(crate) pod: Option<Duration>,
    /// By name.
    pub(crate) containers: HashMap<Arc<str>, Duration>,
}

/// Gives one measurement to all who ask at about the same time.
pub(crate) struct Kept {
    figures: Arc<dyn Figures>,
    node: NodeHandle,
    /// Without disks and with them. Held while it is measured: who comes then waits for the same.
    last: [tokio::sync::Mutex<Option<Arc<Taken>>>; 2],
}

impl Kept {
    pub(crate) fn new(figures: Arc<dyn Figures>, node: NodeHandle) -> Self {
        Self { figures, node, last: Default::default() }
    }

    /// A measurement of the last few seconds.
    pub(crate) async fn get(&self, disks: bool) -> Result<Arc<Taken>, RuntimeError> {
        let mut last = self.last[usize::from(disks)].lock().await;
        if let Some(taken) = last.as_ref().filter(|taken| taken.measured.elapsed() < KEEP) {
            return Ok(Arc::clone(taken));
        }
        let figures = self.figures.measure(disks).await?;
        let (at, measured) = (self.node.now(), Instant::now());
        let mut taken = Taken { at, measured, figures, node_rate: None, rates: HashMap::new() };
        if let Some(before) = &*last {
            taken.compare(before);
        }
        let taken = Arc::new(taken);
        *last = Some(Arc::clone(&taken));
        Ok(taken)
    }
}

impl Taken {
    fn compare(&mut self, before: &Self) {
        let seconds = (self.measured - before.measured).as_secs_f64();
        // One that was started again has used less than it had before.
        let rate = |now: Option<Duration>, then: Option<Duration>| {
            Some(now?.checked_sub(then?)?.div_f64(seconds))
        };
        self.node_rate = rate(self.figures.cpu_time, before.figures.cpu_time);
        let then: HashMap<_, _> = before.figures.pods.iter().map(|(uid, pod)| (uid, pod)).collect();
        for (uid, pod) in &self.figures.pods {
            let Some(then) = then.get(uid) else { continue };
            let mut rates =
                PodRate { pod: rate(pod.cpu_time, then.cpu_time), ..PodRate::default() };
            for container in &pod.containers {
                let then = then.containers.iter().find(|one| one.name == container.name);
                let used = rate(container.cpu_time, then.and_then(|one| one.cpu_time));
                rates.containers.extend(used.map(|used| (Arc::clone(&container.name), used)));
            }
            self.rates.insert(uid.clone(), rates);
        }
    }
}

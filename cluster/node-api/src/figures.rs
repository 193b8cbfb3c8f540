//! The usage of the node and its pods, measured on request and cached for a moment.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use winddown_shared::{NodeHandle, NodeStats, PodStats, PodUid, RuntimeError, WallTime};

/// How long a measurement is reused. A scraper, which comes every ten seconds or less often, gets a new one each time.
const MEASUREMENT_MAX_AGE: Duration = Duration::from_secs(5);

/// Measures the node and its pods.
pub trait StatsProvider: Send + Sync + 'static {
    /// Measures now. Disk usage takes longer to measure, and is left out unless `disks` is set.
    ///
    /// # Errors
    /// The usage of pods cannot be measured at all.
    fn measure(&self, disks: bool) -> BoxFuture<'_, Result<NodeUsageStats, RuntimeError>>;
}

/// The usage of a node and its pods.
#[derive(Clone, Debug, Default)]
pub struct NodeUsageStats {
    /// The usage of the node.
    pub node: NodeStats,
    /// CPU time of the node since its boot.
    pub cpu_time: Option<Duration>,
    /// When the node booted.
    pub booted_at: Option<WallTime>,
    /// The usage of each pod that has something running.
    pub pods: Vec<(PodUid, PodStats)>,
}

/// A measurement, with the CPU rates since the one before.
pub(crate) struct Taken {
    pub(crate) at: WallTime,
    measured: Instant,
    pub(crate) figures: NodeUsageStats,
    /// CPU time per second since the previous measurement: of the node, and of each pod and its containers.
    pub(crate) node_rate: Option<Duration>,
    pub(crate) rates: HashMap<PodUid, PodRate>,
}

/// CPU time of a pod per second.
#[derive(Default)]
pub(crate) struct PodRate {
    pub(crate) pod: Option<Duration>,
    /// The rate of each container, by name.
    pub(crate) containers: HashMap<Arc<str>, Duration>,
}

/// Shares one measurement among all requests of about the same time.
pub(crate) struct SharedMeasurement {
    figures: Arc<dyn StatsProvider>,
    node: NodeHandle,
    /// The last measurement without disks, and the last with them. Locked while measuring, so that concurrent requests
    /// wait for the same result.
    last: [tokio::sync::Mutex<Option<Arc<Taken>>>; 2],
}

impl SharedMeasurement {
    pub(crate) fn new(figures: Arc<dyn StatsProvider>, node: NodeHandle) -> Self {
        Self { figures, node, last: Default::default() }
    }

    /// Returns a measurement that is at most [`MEASUREMENT_MAX_AGE`] old.
    pub(crate) async fn get(&self, disks: bool) -> Result<Arc<Taken>, RuntimeError> {
        let mut last = self.last[usize::from(disks)].lock().await;
        if let Some(taken) =
            last.as_ref().filter(|taken| taken.measured.elapsed() < MEASUREMENT_MAX_AGE)
        {
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
        // The counter of a restarted container begins again, so it may be lower than before.
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

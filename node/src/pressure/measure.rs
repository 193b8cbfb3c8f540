//! Measures the node and its pods.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use winddown_eviction::{MeasureError, PodFigures, Policy, Signals, WantedFigures};
use winddown_host::{NodeUsage, Reading, UsagePaths};
use winddown_shared::{
    Backoff, NodeStats, Pod, PodStats, PodUid, RuntimeError, RuntimePlaces, error_chain,
};

use super::EvictionRuntime;
use super::disks::DiskTurns;
use super::runtime::Figures;
use super::stalls::StallPlaces;

#[cfg(test)]
mod tests;

/// How old a measurement of pods' disk usage may be before their files are walked again.
const DISK_AGE: Duration = Duration::from_secs(10);

/// How long to wait for a walk. The next sample comes soon, and the walk may have finished by then.
const WALK_TIMEOUT: Duration = Duration::from_millis(400);

/// The age from which the result of a walk is not used any more.
const WALK_MAX_AGE: Duration = Duration::from_secs(60);

/// If the runtime does not report where its images are.
const ASK_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The places where the node is measured, which include the runtime's once it has reported them.
pub(super) struct MeasuredPlaces {
    base: UsagePaths,
    runtime: Arc<dyn EvictionRuntime>,
    known: Arc<OnceLock<UsagePaths>>,
}

/// Measures the node and its pods for eviction.
pub(crate) struct Measured {
    node: Mutex<NodeReader>,
    runtime: Arc<dyn EvictionRuntime>,
    /// Held while the pods' files are walked, so that there is one walk at a time.
    walks: Arc<Mutex<()>>,
    /// The last walk that finished.
    walked: watch::Sender<Option<Walk>>,
}

/// What a walk through the pods' files found.
struct Walk {
    /// When it finished.
    at: Instant,
    /// None if the runtime does not measure pods.
    figures: Option<Figures>,
}

struct NodeReader {
    usage: NodeUsage,
    disks: DiskTurns,
    /// Whether the file system of images is measured.
    has_images: bool,
    /// Whether the runtime's places are measured.
    is_whole: bool,
    known: Arc<OnceLock<UsagePaths>>,
    /// The problems that were already logged.
    told: HashSet<String>,
}

// === impl MeasuredPlaces ===

impl MeasuredPlaces {
    pub(super) fn new(base: UsagePaths, runtime: Arc<dyn EvictionRuntime>) -> Self {
        Self { base, runtime, known: Arc::default() }
    }

    pub(super) fn roots(&self) -> StallPlaces {
        let UsagePaths { proc, cgroup, node_cgroup, .. } = &self.base;
        StallPlaces { proc: proc.clone(), cgroup: cgroup.clone(), node: node_cgroup.clone() }
    }

    /// Asks the runtime for its places, with backoff, until it answers.
    pub(super) async fn find(self) {
        if let Ok(None) = self.runtime.figures(None).await {
            tracing::warn!(
                "the runtime does not measure pods: they are evicted by priority alone, and the younger first"
            );
        }
        let mut backoff = ASK_BACKOFF;
        let of_runtime = loop {
            match self.runtime.where_to_measure().await {
                Ok(places) => break places,
                Err(error) => {
                    let why = error_chain(&error);
                    tracing::debug!(why, "cannot locate images and pods; retrying");
                }
            }
            tokio::time::sleep(backoff.next_delay()).await;
        };
        let RuntimePlaces { pods_cgroup, images, containers, .. } = of_runtime;
        let places =
            UsagePaths { pods_cgroup, imagefs: images, containerfs: containers, ..self.base };
        let _ = self.known.set(places);
    }
}

// === impl Measured ===

impl Measured {
    /// How often the file systems are queried depends on how near they are to the thresholds of `policy`.
    pub(super) fn new(
        places: &MeasuredPlaces,
        runtime: Arc<dyn EvictionRuntime>,
        policy: watch::Receiver<Arc<Policy>>,
    ) -> Self {
        let reader = NodeReader::new(&places.base, Arc::clone(&places.known), policy);
        let walked = watch::Sender::new(None);
        Self { node: Mutex::new(reader), runtime, walks: Arc::default(), walked }
    }

    /// Starts a walk through the pods' files in the background, unless one is running.
    fn walk(&self) {
        let Ok(turn) = Arc::clone(&self.walks).try_lock_owned() else { return };
        let (runtime, walked) = (Arc::clone(&self.runtime), self.walked.clone());
        tokio::spawn(async move {
            if let Some(figures) = or_warn(runtime.figures(Some(DISK_AGE)).await) {
                walked.send_replace(Some(Walk { at: Instant::now(), figures }));
            }
            drop(turn);
        });
    }

    /// Has the files walked, and returns what was found, if that is recent enough to choose a pod by. The runtime is not
    /// asked again: what it then takes to report the memory of virtual machines would come on top.
    async fn walked(&self) -> Option<Option<Figures>> {
        let mut walked = self.walked.subscribe();
        self.walk();
        let asked = Instant::now();
        let is_younger =
            |walk: &Option<Walk>, age| walk.as_ref().is_some_and(|walk| asked - walk.at < age);
        let _ = timeout(WALK_TIMEOUT, walked.wait_for(|walk| is_younger(walk, DISK_AGE))).await;
        let last = self.walked.borrow();
        last.as_ref().filter(|walk| asked - walk.at < WALK_MAX_AGE).map(|walk| walk.figures.clone())
    }
}

impl Signals for Measured {
    async fn node(&self) -> Result<NodeStats, MeasureError> {
        self.node.lock().await.read().await
    }

    async fn pods(&self, pods: &[Pod], wanted: WantedFigures) -> PodFigures {
        let figures = match wanted {
            WantedFigures::Disk => self.walked().await,
            _ => or_warn(self.runtime.figures(None).await),
        };
        match figures {
            None => PodFigures::UNKNOWN,
            Some(None) => PodFigures::Never,
            Some(Some(figures)) => {
                let mut figures: HashMap<PodUid, PodStats> = figures.into_iter().collect();
                PodFigures::Measured(pods.iter().map(|pod| figures.remove(pod.uid())).collect())
            }
        }
    }
}

fn or_warn<T>(figures: Result<T, RuntimeError>) -> Option<T> {
    figures
        .inspect_err(|error| {
            tracing::warn!(
                why = error_chain(error),
                "the runtime does not report the usage of pods"
            );
        })
        .ok()
}

// === impl NodeReader ===

impl NodeReader {
    fn new(
        places: &UsagePaths,
        known: Arc<OnceLock<UsagePaths>>,
        policy: watch::Receiver<Arc<Policy>>,
    ) -> Self {
        Self {
            usage: NodeUsage::new(places),
            disks: DiskTurns::new(policy),
            has_images: places.imagefs.is_some(),
            is_whole: false,
            known,
            told: HashSet::new(),
        }
    }

    async fn read(&mut self) -> Result<NodeStats, MeasureError> {
        if !self.is_whole
            && let Some(places) = self.known.get()
        {
            self.usage = NodeUsage::new(places);
            self.disks.forget();
            self.has_images = places.imagefs.is_some();
            self.is_whole = true;
        }
        let Reading { mut stats, problems, .. } = self.measure().await;
        let is_blind = stats.memory.is_none() && stats.tasks.is_none() && stats.nodefs.is_none();
        for error in &problems {
            let why = error_chain(error);
            if self.told.insert(why.clone()) {
                tracing::warn!(why, "some eviction signals cannot be measured");
            }
        }
        // The layout is unknown before the runtime has reported where its images are.
        stats.layout = stats.layout.filter(|_| self.is_whole);
        if !is_blind {
            return Ok(stats);
        }
        let first = problems.into_iter().next();
        let source = first.map(|error| Arc::new(error) as _);
        Err(MeasureError::new("the node cannot be measured", source))
    }

    async fn measure(&mut self) -> Reading {
        let now = Instant::now();
        if !self.disks.are_due(now) {
            let mut reading = self.usage.read_kernel();
            self.disks.enter(&mut reading.stats);
            return reading;
        }
        let reading = self.usage.read().await;
        let stats = &reading.stats;
        let images_told = stats.imagefs.is_some() && stats.containerfs.is_some();
        let all_told = stats.nodefs.is_some() && stats.layout.is_some();
        let is_complete = all_told && (images_told || !self.has_images);
        self.disks.answered(now, is_complete.then_some(stats));
        reading
    }
}

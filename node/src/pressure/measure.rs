//! Measures the node and its pods.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use winddown_eviction::{MeasureError, Policy, Signals, Wanted};
use winddown_machine::{NodeUsage, Reading, UsagePlaces};
use winddown_shared::{NodeStats, Pod, PodStats, PodUid, RuntimeError, error_chain};

use super::RuntimeFigures;
use super::disks::DiskTurns;
use super::runtime::Figures;
use super::stalls::StallPlaces;

#[cfg(test)]
mod tests;

/// What pods have on disks is not walked through again before this.
const DISK_AGE: Duration = Duration::from_secs(10);

/// A walk is waited for no longer than this: it is looked again soon, and by then it may have ended.
const WALK: Duration = Duration::from_millis(400);

/// What was found by a walk that ended longer ago is not used any more.
const STALE: Duration = Duration::from_secs(60);

/// A runtime that does not say where its images are is asked again after this long, then twice as
/// long, …
const ASK_FIRST: Duration = Duration::from_secs(1);

/// … up to this.
const ASK_MOST: Duration = Duration::from_secs(30);

/// Where the node is measured, once the runtime has said what it knows of it.
pub(super) struct Places {
    base: UsagePlaces,
    runtime: Arc<dyn RuntimeFigures>,
    known: Arc<OnceLock<UsagePlaces>>,
}

/// The node and its pods.
pub(crate) struct Measured {
    node: Mutex<NodeReader>,
    runtime: Arc<dyn RuntimeFigures>,
    /// Held by the one walk through the pods' files.
    walks: Arc<Mutex<()>>,
    /// When the last one had ended.
    walked: watch::Sender<Option<Instant>>,
}

struct NodeReader {
    usage: NodeUsage,
    disks: DiskTurns,
    /// Whether images are among what is measured.
    has_images: bool,
    /// Whether the runtime's places are among those that are measured.
    is_whole: bool,
    known: Arc<OnceLock<UsagePlaces>>,
    /// What was already said to be unreadable.
    told: HashSet<String>,
}

// === impl Places ===

impl Places {
    pub(super) fn new(base: UsagePlaces, runtime: Arc<dyn RuntimeFigures>) -> Self {
        Self { base, runtime, known: Arc::default() }
    }

    pub(super) fn roots(&self) -> StallPlaces {
        let UsagePlaces { proc, cgroup, node_cgroup, .. } = &self.base;
        StallPlaces { proc: proc.clone(), cgroup: cgroup.clone(), node: node_cgroup.clone() }
    }

    /// Asks the runtime until it has said where it keeps things.
    pub(super) async fn find(self) {
        let mut wait = ASK_FIRST;
        let images = loop {
            match self.runtime.places().await {
                Ok(places) => break places,
                Err(error) => {
                    let why = error_chain(&error);
                    tracing::debug!(why, "where images are is not known; asking again");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(ASK_MOST);
        };
        let places = UsagePlaces {
            pods_cgroup: self.runtime.cgroup().await,
            imagefs: images.images,
            containerfs: images.containers,
            ..self.base
        };
        let _ = self.known.set(places);
    }
}

// === impl Measured ===

impl Measured {
    /// Measures; how often the file systems are asked depends on how near they are to the policy's
    /// thresholds.
    pub(super) fn new(
        places: &Places,
        runtime: Arc<dyn RuntimeFigures>,
        policy: watch::Receiver<Arc<Policy>>,
    ) -> Self {
        let reader = NodeReader::new(&places.base, Arc::clone(&places.known), policy);
        let walked = watch::Sender::new(None);
        Self { node: Mutex::new(reader), runtime, walks: Arc::default(), walked }
    }

    /// Walks through the pods' files in the background, one walk at a time.
    fn walk(&self) {
        let Ok(turn) = Arc::clone(&self.walks).try_lock_owned() else { return };
        let (runtime, walked) = (Arc::clone(&self.runtime), self.walked.clone());
        tokio::spawn(async move {
            if or_warn(runtime.figures(Some(DISK_AGE)).await).is_some() {
                walked.send_replace(Some(Instant::now()));
            }
            drop(turn);
        });
    }

    /// Has them walked through, and says whether what is known then is young enough to choose by.
    async fn has_walked(&self) -> bool {
        let mut walked = self.walked.subscribe();
        self.walk();
        let asked = Instant::now();
        let is_younger = |at: &Option<Instant>, age| at.is_some_and(|at| asked - at < age);
        let _ = timeout(WALK, walked.wait_for(|at| is_younger(at, DISK_AGE))).await;
        is_younger(&self.walked.borrow(), STALE)
    }
}

impl Signals for Measured {
    async fn node(&self) -> Result<NodeStats, MeasureError> {
        self.node.lock().await.read().await
    }

    async fn pods(&self, pods: &[Pod], wanted: Wanted) -> Vec<Option<PodStats>> {
        if wanted == Wanted::Disk && !self.has_walked().await {
            return Vec::new();
        }
        let Some(figures) = or_warn(self.runtime.figures(None).await) else { return Vec::new() };
        let mut figures: HashMap<PodUid, PodStats> = figures.into_iter().collect();
        pods.iter().map(|pod| figures.remove(pod.uid())).collect()
    }
}

fn or_warn(figures: Result<Figures, RuntimeError>) -> Option<Figures> {
    figures
        .inspect_err(|error| {
            tracing::warn!(why = error_chain(error), "the runtime does not say what pods use");
        })
        .ok()
}

// === impl NodeReader ===

impl NodeReader {
    fn new(
        places: &UsagePlaces,
        known: Arc<OnceLock<UsagePlaces>>,
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
        let Reading { mut stats, problems } = self.measure().await;
        let is_blind = stats.memory.is_none() && stats.pids.is_none() && stats.nodefs.is_none();
        for error in &problems {
            let why = error_chain(error);
            if self.told.insert(why.clone()) {
                tracing::warn!(why, "eviction does not see all of the node");
            }
        }
        // What is on one file system is not known before the runtime has said where its images are.
        stats.layout = stats.layout.filter(|_| self.is_whole);
        if !is_blind {
            return Ok(stats);
        }
        let first = problems.into_iter().next();
        Err(MeasureError {
            what: "nothing of the node can be measured".to_owned(),
            source: first.map(|error| Arc::new(error) as _),
        })
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

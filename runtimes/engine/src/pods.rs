//! All pods of a runtime.

use std::fmt;
use std::sync::{Arc, MutexGuard, Weak};

use tokio::sync::broadcast;
use winddown_shared::{
    ContainerKind, Event, Mutex, PodEvent, PodEventKind, PodUid, PodUidMap, Recorder, RuntimePod,
};

use crate::last_line::LastLines;
use crate::pod::{PodEntry, RunScope};

/// How many changes a slow reader may fall behind before it has to check all pods.
const CHANGES_CAPACITY: usize = 1024;

/// winddown's name and version in the user agents of probes and hooks.
pub const DEFAULT_PROGRAM: &str = concat!("winddown-", env!("CARGO_PKG_VERSION"));

/// The pods that a runtime knows, and their spontaneous changes.
pub struct Pods<B: RunScope> {
    known: Mutex<PodUidMap<Arc<PodEntry<B>>>>,
    changes: broadcast::Sender<PodUid>,
    /// Weak, because the recorder may hold the runtime.
    recorder: Mutex<Weak<dyn Recorder>>,
    /// Its name and version, for user agents.
    program: Mutex<Arc<str>>,
    /// Reads the last lines of containers.
    pub(crate) last_lines: LastLines,
}

impl<B: RunScope> Default for Pods<B> {
    fn default() -> Self {
        let recorder = Mutex::new(Weak::<()>::new() as Weak<dyn Recorder>);
        Self {
            known: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES_CAPACITY),
            recorder,
            program: Mutex::new(DEFAULT_PROGRAM.into()),
            last_lines: LastLines::default(),
        }
    }
}

impl<B: RunScope> Pods<B> {
    /// Locks all pods, by UID. The lock must not be held across an await.
    pub fn lock(&self) -> MutexGuard<'_, PodUidMap<Arc<PodEntry<B>>>> {
        self.known.lock()
    }

    /// Returns all pods that are known now.
    pub fn all(&self) -> Vec<Arc<PodEntry<B>>> {
        self.lock().values().cloned().collect()
    }

    /// Whether anything of any pod runs, or may run because of a start in progress.
    pub fn anything_runs(&self) -> bool {
        self.lock().values().any(|entry| entry.lock().any_running())
    }

    /// Returns all pods for a listing.
    pub fn list(&self) -> Vec<RuntimePod> {
        self.lock().values().map(|entry| entry.lock().summary(entry.uid())).collect()
    }

    /// The pod, if it is known.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<PodEntry<B>>> {
        self.lock().get(uid).cloned()
    }

    /// Returns the pod, adding it if it is not known yet.
    pub fn get_or_new(&self, uid: &PodUid) -> Arc<PodEntry<B>> {
        let fresh = || Arc::new(PodEntry::new(uid.clone(), self.changes.clone()));
        Arc::clone(self.lock().entry(uid.clone()).or_insert_with(fresh))
    }

    /// Removes the pod.
    pub fn remove(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    /// Tells the pod workers to check the pod.
    pub fn announce(&self, uid: PodUid) {
        // Fails only without receivers.
        let _ = self.changes.send(uid);
    }

    /// Sends [events](Self::record_event) to this recorder from now on.
    pub fn record_to(&self, recorder: &Arc<dyn Recorder>) {
        *self.recorder.lock() = Arc::downgrade(recorder);
    }

    /// Sends probes and hooks as this program, `NAME-VERSION`, from now on.
    pub fn identify_as(&self, program: &str) {
        *self.program.lock() = program.into();
    }

    /// The program, `NAME-VERSION`, that probes and hooks are sent as.
    pub fn program(&self) -> Arc<str> {
        Arc::clone(&self.program.lock())
    }

    pub(crate) fn recorder(&self) -> Option<Arc<dyn Recorder>> {
        self.recorder.lock().upgrade()
    }

    /// Records an event of the pod, or of the container of this name. Takes the pod's lock.
    pub fn record_event(&self, entry: &PodEntry<B>, container: Option<&str>, what: PodEventKind) {
        let Some(recorder) = self.recorder() else { return };
        let mut state = entry.lock();
        let pod = state.pod_ref(entry.uid());
        let container = container.map(|name| {
            let kind = state.container(name).map_or(ContainerKind::Regular, |one| one.kind);
            (kind, name.into())
        });
        drop(state);
        recorder.record(&Event::Pod(PodEvent { pod, container, what }));
    }

    /// Subscribes to the UIDs of pods that changed spontaneously.
    pub fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.changes.subscribe()
    }
}

impl<B: RunScope> fmt::Debug for Pods<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pods").field("known", &self.known).finish_non_exhaustive()
    }
}

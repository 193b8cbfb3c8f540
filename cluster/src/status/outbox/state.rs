//! All entries of the outbox, and every change to them. No I/O and no waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::oneshot;
use tokio::time::Instant;
use winddown_api_client::equality::is_terminal;
use winddown_shared::{Backoff, Pod, PodRef, PodUid, PodUidMap};

use super::attempt::{Job, Outcome, SendFault, Told};
use super::entry::{Class, LastReported, OutboxEntry, OutboxPosition, SendReason};
use super::{SpooledStatus, StatusUpdate};

mod contact;

#[derive(Debug)]
pub(super) struct OutboxState {
    entries: PodUidMap<OutboxEntry>,
    ready: BTreeMap<(Class, u64), PodUid>,
    later: BTreeMap<(Instant, u64), PodUid>,
    to_keep: BTreeSet<PodUid>,
    /// Numbers statuses, places in line and requests.
    turn: u64,
    /// Whether there is a disk to keep final statuses on.
    keeps: bool,
    in_flight: usize,
    keeping: usize,
    silent_since: Option<Instant>,
    sent: u64,
    reasserted: u64,
    failures: u64,
    pub(super) host_ips: Arc<[String]>,
}

impl OutboxState {
    pub(super) fn new(keeps: bool) -> Self {
        Self {
            entries: PodUidMap::default(),
            ready: BTreeMap::new(),
            later: BTreeMap::new(),
            to_keep: BTreeSet::new(),
            turn: 0,
            keeps,
            in_flight: 0,
            keeping: 0,
            silent_since: None,
            sent: 0,
            reasserted: 0,
            failures: 0,
            host_ips: Arc::default(),
        }
    }

    /// Submits a status. Returns whether that gives the driver something to do.
    pub(super) fn submit(&mut self, update: StatusUpdate, now: Instant) -> bool {
        let StatusUpdate { pod, status, last, generation } = update;
        let uid = pod.uid.clone();
        self.turn += 1;
        let turn = self.turn;
        let entry = self.entries.entry(uid.clone()).or_insert_with(|| OutboxEntry::new(pod));
        if let Some(said) = &entry.said
            && said.last == last
            && said.generation == generation
            && (Arc::ptr_eq(&said.status, &status) || said.status == status)
        {
            return false;
        }
        entry.says(LastReported { turn, status, last, generation });
        // A server that named a time is left alone until then. A final status still goes to disk.
        let asked =
            matches!(entry.place, OutboxPosition::Later((at, _), SendReason::Asked) if at > now);
        if last && self.keeps {
            self.to_keep.insert(uid.clone());
            if !asked {
                self.put(&uid, OutboxPosition::Keeping);
            }
            return true;
        }
        if !asked {
            self.line_up(&uid);
        }
        !asked
    }

    /// Restores what an earlier agent could not send. A status that was submitted since is newer.
    pub(super) fn restore(&mut self, uid: &PodUid, kept: SpooledStatus) {
        let SpooledStatus { namespace, name, last, generation, status } = kept;
        self.turn += 1;
        let turn = self.turn;
        let pod = PodRef { namespace, name, uid: uid.clone() };
        let entry = self.entries.entry(uid.clone()).or_insert_with(|| OutboxEntry::new(pod));
        if entry.said.is_some() {
            // The file has to be removed nevertheless.
            entry.on_disk.get_or_insert(0);
            return;
        }
        entry.says(LastReported { turn, status, last, generation });
        entry.on_disk = Some(turn);
        self.put(uid, OutboxPosition::Ready((Class::Kept, turn)));
    }

    /// Records the pod in the API. Returns whether there is something to check.
    pub(super) fn api_saw(&mut self, pod: &Pod, now: Instant) -> bool {
        let uid = pod.uid();
        let entry = self
            .entries
            .entry(uid.clone())
            .or_insert_with(|| OutboxEntry::new(pod.pod_ref().clone()));
        if !entry.note_seen(pod) || entry.said.is_none() {
            return false;
        }
        match entry.place {
            OutboxPosition::Idle => {
                let at = entry.may_reassert(now);
                if at > now {
                    self.delay(uid, at, SendReason::Other);
                } else {
                    self.line_up(uid);
                }
                true
            }
            OutboxPosition::InFlight(_) => {
                entry.dirty = true;
                false
            }
            _ => false,
        }
    }

    /// Records that a list of all pods begins.
    pub(super) fn listing(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.is_listed_anew = true);
    }

    /// Forgets a pod. Waiters are released when the entry is dropped.
    pub(super) fn remove(&mut self, uid: &PodUid) -> Option<OutboxEntry> {
        self.put(uid, OutboxPosition::Idle);
        self.entries.remove(uid)
    }

    pub(super) fn wait_for(&mut self, uid: &PodUid) -> Option<oneshot::Receiver<()>> {
        let entry = self.entries.get_mut(uid)?;
        if entry.is_delivered() { None } else { Some(entry.wait()) }
    }

    pub(super) fn final_status(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>> {
        let said = self.entries.get(uid)?.said.as_ref()?;
        if said.last { Some(said.status.clone()) } else { None }
    }

    /// Returns the pods whose latest status the API does not have. They are retried immediately.
    pub(super) fn unacknowledged(&mut self, now: Instant) -> Vec<(PodRef, oneshot::Receiver<()>)> {
        self.try_again(|why| why != SendReason::Asked, now);
        let open = self.entries.values_mut().filter(|entry| !entry.is_delivered());
        open.map(|entry| (entry.pod.clone(), entry.wait())).collect()
    }

    /// The latest status of the pod, if it is not on disk.
    pub(super) fn to_keep(&self, uid: &PodUid) -> Option<(u64, SpooledStatus)> {
        let entry = self.entries.get(uid)?;
        let said = entry.said.as_ref().filter(|said| entry.on_disk != Some(said.turn))?;
        let record = SpooledStatus {
            namespace: entry.pod.namespace.clone(),
            name: entry.pod.name.clone(),
            last: said.last,
            generation: said.generation,
            status: said.status.clone(),
        };
        Some((said.turn, record))
    }

    /// Records that the status of `turn` is on disk.
    pub(super) fn kept(&mut self, uid: &PodUid, turn: u64) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.on_disk = Some(turn);
        }
    }

    /// Takes the statuses to write now. [`keeping_ended`](Self::keeping_ended) must follow for each.
    pub(super) fn take_to_keep(&mut self) -> Vec<(PodUid, u64, SpooledStatus)> {
        let mut taken = Vec::new();
        for uid in std::mem::take(&mut self.to_keep) {
            match self.to_keep(&uid) {
                Some((turn, record)) => {
                    self.keeping += 1;
                    taken.push((uid, turn, record));
                }
                None => self.after_keeping(&uid),
            }
        }
        taken
    }

    /// Handles the end of a write. The status is sent even if it could not be written.
    pub(super) fn keeping_ended(&mut self, uid: &PodUid, turn: u64, kept: bool) {
        self.keeping -= 1;
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if kept {
            entry.on_disk = Some(turn);
        }
        // A later final status is still being written.
        if entry.turn() == turn || !entry.is_last() {
            self.after_keeping(uid);
        }
    }

    fn after_keeping(&mut self, uid: &PodUid) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.kept_turn = entry.turn();
        if entry.place == OutboxPosition::Keeping {
            self.line_up(uid);
        }
    }

    /// Returns the next request to make, unless `most` are in progress.
    pub(super) fn next_job(&mut self, now: Instant, most: usize) -> Option<Job> {
        if self.in_flight >= most {
            return None;
        }
        while let Some((&(at, _), uid)) = self.later.first_key_value()
            && at <= now
        {
            let uid = uid.clone();
            self.line_up(&uid);
        }
        while let Some((_, uid)) = self.ready.pop_first() {
            self.turn += 1;
            let ticket = self.turn;
            let Some(entry) = self.entries.get_mut(&uid) else { continue };
            let Some(said) = entry.said.clone() else {
                entry.place = OutboxPosition::Idle;
                continue;
            };
            entry.place = OutboxPosition::InFlight(ticket);
            entry.dirty = false;
            self.in_flight += 1;
            return Some(Job {
                ticket,
                pod: entry.pod.clone(),
                news: !entry.is_delivered(),
                said,
                in_api: entry.in_api.clone(),
                as_written: entry.as_written.clone(),
                not_taken: entry.not_taken.clone(),
                host_ips: self.host_ips.clone(),
            });
        }
        None
    }

    /// When the next waiting pod is due. While `most` requests are in progress, only the end of one matters.
    pub(super) fn next_time(&self, most: usize) -> Option<Instant> {
        if self.in_flight >= most {
            return None;
        }
        self.later.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Handles the result of a request. Returns whether the pod's record on disk is no longer needed.
    pub(super) fn ended(&mut self, job: &Job, outcome: Outcome, now: Instant) -> bool {
        self.in_flight -= 1;
        self.note_contact(&outcome, now);
        let uid = &job.pod.uid;
        let ours = |entry: &&mut OutboxEntry| entry.place == OutboxPosition::InFlight(job.ticket);
        let Some(entry) = self.entries.get_mut(uid).filter(ours) else {
            // The pod is gone, or has come back since.
            return false;
        };
        entry.place = OutboxPosition::Idle;
        match outcome {
            Ok(told) => self.delivered(job, told, now),
            Err(SendFault::Gone) => {
                self.entries.remove(uid);
                true
            }
            Err(SendFault::Stale) => {
                entry.in_api = None;
                self.back_off(uid, None, SendReason::Other, now);
                false
            }
            Err(SendFault::Refused(error)) => {
                self.failures += 1;
                if !std::mem::replace(&mut entry.complained, true) {
                    tracing::error!(
                        pod = %job.pod,
                        error,
                        "the API server does not accept the pod's status; retrying"
                    );
                }
                // Another status may be accepted; the same one hardly.
                if entry.backoff.failures() == 0 {
                    entry.backoff = Backoff::PATIENT;
                }
                entry.in_api = None;
                self.back_off(uid, None, SendReason::Other, now);
                false
            }
            Err(SendFault::Later { after, .. }) => {
                self.failures += 1;
                let why = if after.is_some() { SendReason::Asked } else { SendReason::Silence };
                self.back_off(uid, after, why, now);
                false
            }
        }
    }

    /// Takes the answer to a status that the API server accepted. Returns whether the record on disk is no longer needed.
    fn delivered(&mut self, job: &Job, told: Told, now: Instant) -> bool {
        let Told { in_api, not_taken, patches, is_disputed } = told;
        let Some(entry) = self.entries.get_mut(&job.pod.uid) else { return false };
        self.sent += patches;
        entry.backoff.reset();
        entry.not_taken = not_taken;
        entry.note_answer(&in_api, job.in_api.as_ref());
        entry.as_written = Some(in_api);
        if !job.news && is_disputed {
            self.reasserted += patches;
            entry.has_reasserted(now);
        }
        entry.acknowledge(job.said.turn);
        let done = entry.is_delivered() && entry.on_disk.is_some() && is_settled(entry, &job.said);
        if done {
            entry.on_disk = None;
        }
        if self.keeps && entry.is_last() && entry.kept_turn < entry.turn() {
            entry.place = OutboxPosition::Keeping;
        } else if entry.dirty || !entry.is_delivered() {
            self.line_up(&job.pod.uid);
        }
        done
    }

    fn try_again(&mut self, whom: impl Fn(SendReason) -> bool, now: Instant) {
        let waiting: Vec<PodUid> = self
            .later
            .values()
            .filter(|uid| match self.entries.get(uid).map(|entry| entry.place) {
                Some(OutboxPosition::Later((at, _), why)) => at > now && whom(why),
                _ => false,
            })
            .cloned()
            .collect();
        for uid in waiting {
            self.line_up(&uid);
        }
    }

    fn back_off(&mut self, uid: &PodUid, after: Option<Duration>, why: SendReason, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let wait = entry.backoff.after_failure(after);
        self.delay(uid, now + wait, why);
    }

    fn delay(&mut self, uid: &PodUid, at: Instant, why: SendReason) {
        self.turn += 1;
        self.put(uid, OutboxPosition::Later((at, self.turn), why));
    }

    fn line_up(&mut self, uid: &PodUid) {
        let Some(entry) = self.entries.get(uid) else { return };
        self.turn += 1;
        self.put(uid, OutboxPosition::Ready((entry.class(), self.turn)));
    }

    /// Moves the pod. One with a request in progress stays, and is checked again after it.
    fn put(&mut self, uid: &PodUid, place: OutboxPosition) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if matches!(entry.place, OutboxPosition::InFlight(_)) {
            entry.dirty = true;
            return;
        }
        match std::mem::replace(&mut entry.place, place) {
            OutboxPosition::Ready(key) => drop(self.ready.remove(&key)),
            OutboxPosition::Later(key, _) => drop(self.later.remove(&key)),
            OutboxPosition::Idle | OutboxPosition::Keeping | OutboxPosition::InFlight(_) => {}
        }
        match place {
            OutboxPosition::Ready(key) => drop(self.ready.insert(key, uid.clone())),
            OutboxPosition::Later(key, _) => drop(self.later.insert(key, uid.clone())),
            OutboxPosition::Idle | OutboxPosition::Keeping | OutboxPosition::InFlight(_) => {}
        }
    }
}

/// Whether the record of the status is no longer needed: that of a final status stays until the
/// pod's phase in the API is terminal as well.
fn is_settled(entry: &OutboxEntry, said: &LastReported) -> bool {
    !said.last || entry.in_api.as_ref().is_some_and(|pod| is_terminal(pod))
}

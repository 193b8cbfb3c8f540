//! Pods that exceed their own disk limits.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use winddown_shared::{Event, Pod, PodKiller, PodStateProvider, PressureCondition};

use super::EvictionController;
use super::evict::EvictionRequest;
use crate::history::{DecisionOutcome, EvictionRecord};
use crate::limits::{OverLimit, has_local_limits, over_limit};
use crate::pending_reclaim::Amounts;
use crate::policy::HARD_GRACE;
use crate::seams::{Reclaim, Signals, WantedFigures};
use crate::usage::left_behind;

/// The interval between checks of the limits.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
const MEASURE_TIMEOUT: Duration = Duration::from_millis(500);

impl<K: PodKiller + PodStateProvider, S: Signals, R: Reclaim> EvictionController<K, S, R> {
    /// Evicts all pods that exceed a limit of their own, unless the policy spares them. They stop concurrently with
    /// each other and with the loop.
    pub(super) async fn check_limits(&mut self) {
        let now = Instant::now();
        if !self.policy.local_storage_limits || now < self.sampling.next_limits {
            return;
        }
        self.sampling.next_limits = now + CHECK_INTERVAL;
        let mut pods = self.parts.killer.non_terminating_pods();
        pods.retain(|pod| has_local_limits(pod) && !self.policy.exempts(pod));
        // A victim whose hook still runs is staying, and would be asked twice.
        pods.retain(|pod| {
            self.victims
                .terminating
                .endings
                .get(pod.uid())
                .is_none_or(|ending| !ending.is_victim(now))
        });
        if pods.is_empty() {
            return;
        }
        let measured = self.parts.signals.pods(&pods, WantedFigures::Disk);
        let Ok(figures) = timeout(MEASURE_TIMEOUT, measured).await else {
            return tracing::warn!("could not measure the pods' disk usage within 500ms");
        };
        let layout = self.policy.layout();
        let over: Vec<(&Pod, OverLimit, Amounts)> = pods
            .iter()
            .enumerate()
            .filter_map(|(place, pod)| {
                let stats = figures.at(place)?;
                let over = over_limit(pod, stats, layout)?;
                Some((pod, over, left_behind(pod, stats, layout)))
            })
            .collect();
        if over.is_empty() {
            return;
        }
        let lock = self.parts.victims.clone();
        lock.choose(|| self.ask_all(over));
    }

    fn ask_all(&mut self, over: Vec<(&Pod, OverLimit, Amounts)>) {
        if !self.parts.paused_by.borrow().is_empty() {
            return;
        }
        let staying = self.parts.killer.non_terminating_pods();
        for (pod, OverLimit { cause, message }, leaves) in over {
            if !staying.iter().any(|staying| staying.uid() == pod.uid()) {
                continue;
            }
            let shadow = self.policy.shadow;
            let outcome = if shadow { DecisionOutcome::Shadow } else { DecisionOutcome::Evicting };
            let mut record = EvictionRecord::new(self.parts.wall.now(), cause, outcome);
            record.victim = Some(pod.pod_ref().to_string());
            let record = self.shown.note(record);
            let message = message.into();
            if shadow {
                let (pod, signal) = (pod.pod_ref().clone(), cause.as_str());
                self.parts.recorder.record(&Event::EvictionShadowed { pod, signal, message });
                continue;
            }
            self.ask(EvictionRequest {
                pod: pod.clone(),
                cause,
                condition: PressureCondition::Disk,
                grace: Some(HARD_GRACE),
                message,
                annotations: Vec::new(),
                // The pod's own fault, as with the kubelet: a Job counts it as a failure.
                disruption: false,
                leaves,
                record,
            });
        }
    }
}

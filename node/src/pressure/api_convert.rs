//! Converts the state of eviction to the types of the control API.

use winddown_control::api::{
    AwayStatus, EvictionHookRun, EvictionPlan, EvictionRecord, PressureStatus, RankedPodStatus,
    SwapStatus, ThresholdStatus,
};
use winddown_eviction::{
    CandidateVerdict, DecisionOutcome, DecisionRecord, EvictedStaticPod, Explanation, HookRun,
    RankedPod, ThresholdView,
};
use winddown_shared::SwapStats;

/// Converts an explanation.
pub(super) fn plan(told: Explanation) -> EvictionPlan {
    let pressure = PressureStatus {
        conditions: told.conditions.into_iter().map(str::to_owned).collect(),
        shadow: told.shadow,
        thresholds: told.thresholds.into_iter().map(threshold).collect(),
        ..PressureStatus::default()
    };
    EvictionPlan {
        signal: told.signal.map(str::to_owned),
        pods: told.pods.into_iter().map(ranked).collect(),
        ..EvictionPlan::new(pressure)
    }
}

pub(super) fn threshold(view: ThresholdView) -> ThresholdStatus {
    ThresholdStatus {
        signal: view.signal.to_owned(),
        hard: view.hard,
        threshold: view.threshold,
        available: view.available,
        capacity: view.capacity,
        met_seconds: view.met_seconds,
        grace_seconds: view.grace_seconds,
    }
}

pub(super) fn swap((swap, counts): (SwapStats, bool)) -> SwapStatus {
    let SwapStats { total, free, zswap, zswapped } = swap;
    SwapStatus { total, free, zswap, zswapped, counts }
}

pub(super) fn away(away: EvictedStaticPod) -> AwayStatus {
    AwayStatus {
        namespace: away.pod.namespace.to_string(),
        name: away.pod.name.to_string(),
        uid: away.pod.uid,
        back_in_seconds: away.back_in_seconds,
    }
}

fn ranked(ranked: RankedPod) -> RankedPodStatus {
    let verdict = serde_json::to_value(ranked.verdict).unwrap_or_default();
    RankedPodStatus {
        namespace: ranked.pod.namespace.to_string(),
        name: ranked.pod.name.to_string(),
        uid: ranked.pod.uid,
        priority: ranked.priority,
        usage: ranked.usage,
        swap: ranked.swap,
        zswap: ranked.zswap,
        request: ranked.request,
        verdict: verdict.as_str().unwrap_or_default().to_owned(),
    }
}

pub(super) fn record(record: DecisionRecord) -> EvictionRecord {
    let outcome = outcome(&record);
    EvictionRecord {
        id: record.id,
        at: record.at,
        signal: record.signal.to_string(),
        threshold: record.threshold,
        available: record.available,
        hard: record.hard,
        short_for_ms: record.short_for_ms,
        victim: record.victim.map(|pod| format!("{}/{}", pod.namespace, pod.name)),
        outcome,
        hook: record.hook.map(hook),
        ranking: record.ranking.into_iter().map(ranked).collect(),
        times: record.times,
    }
}

fn hook(run: HookRun) -> EvictionHookRun {
    EvictionHookRun { took_ms: run.took_ms, error: run.error, output: run.output }
}

fn outcome(record: &DecisionRecord) -> String {
    let is_unmeasured = |ranked: &RankedPod| ranked.verdict == CandidateVerdict::NotMeasured;
    match &record.outcome {
        DecisionOutcome::Reclaiming => "giving back what no pod misses".to_owned(),
        DecisionOutcome::Reclaimed(back) => {
            format!("gave back {} items, {} bytes", back.items, back.bytes)
        }
        DecisionOutcome::ReclaimingMemory { from } => {
            format!("the kernel takes memory back from {}/{}", from.namespace, from.name)
        }
        DecisionOutcome::ReclaimedMemory { from, error: Some(error), .. } => {
            format!("no memory taken back from {}/{}: {error}", from.namespace, from.name)
        }
        DecisionOutcome::ReclaimedMemory { from, bytes, took_ms, error: None } => {
            let pod = format!("{}/{}", from.namespace, from.name);
            format!("the kernel took back {bytes} bytes from {pod} in {took_ms} ms")
        }
        DecisionOutcome::Evicting => "asked to end".to_owned(),
        DecisionOutcome::Evicted { took_ms } => format!("ended in {took_ms} ms"),
        DecisionOutcome::Failed { error } => format!("not ended: {error}"),
        DecisionOutcome::NoCandidate if record.ranking.iter().any(is_unmeasured) => {
            "no pod can be ended yet: it is not known what some use".to_owned()
        }
        DecisionOutcome::NoCandidate => "no pod can be ended".to_owned(),
        DecisionOutcome::Shadow => "would have been ended".to_owned(),
        DecisionOutcome::KilledByKernel { processes: 1 } => {
            "the kernel killed a process".to_owned()
        }
        DecisionOutcome::KilledByKernel { processes } => {
            format!("the kernel killed {processes} processes")
        }
    }
}

#[cfg(test)]
mod tests {
    use winddown_eviction::{Cause, PodName};
    use winddown_shared::WallTime;

    use super::*;

    #[test]
    fn that_no_pod_can_be_ended_is_not_said_for_good_of_pods_that_are_not_measured() {
        let ranked = |verdict| RankedPod {
            pod: PodName { namespace: "shop".into(), name: "web".into(), uid: "u".to_owned() },
            priority: 0,
            usage: None,
            swap: None,
            zswap: None,
            request: 0,
            verdict,
        };
        let of = |verdicts: &[CandidateVerdict]| DecisionRecord {
            id: 1,
            at: WallTime::UNIX_EPOCH,
            signal: Cause::MemoryPressure,
            threshold: None,
            available: None,
            hard: true,
            short_for_ms: None,
            victim: None,
            outcome: DecisionOutcome::NoCandidate,
            hook: None,
            ranking: verdicts.iter().copied().map(ranked).collect(),
            times: 1,
            last_at: WallTime::UNIX_EPOCH,
        };
        assert_eq!(record(of(&[])).outcome, "no pod can be ended");
        assert_eq!(record(of(&[CandidateVerdict::Critical])).outcome, "no pod can be ended");
        let unmeasured =
            record(of(&[CandidateVerdict::Critical, CandidateVerdict::NotMeasured])).outcome;
        assert_eq!(unmeasured, "no pod can be ended yet: it is not known what some use");
    }
}

//! What the planners are given: nodes of any size that are alike but for their size.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_eviction::{Candidate, Cause, Shortage, Signal, choose};
use winddown_node::ordered_start::{StartParts, StartRun};
use winddown_preemption::{Requirement, Strategy, select};
use winddown_shared::status::StatusStore;
use winddown_shared::{
    DesiredPods, Pod, PodKiller, PodStats, PodWorkers, Quantity, QuantityFormat, ResourceName,
    RunningPods, RuntimePod, WallClock, WallTime,
};
use winddown_shutdown::{AdmissionGate, BootClock, GroupPeriod, Policy, plan};

use crate::workers::{AtOnce, Silent};

/// A plan to be made, as often as one likes. Answers with the number of pods it came to.
pub(crate) type Plan = Box<dyn Fn() -> usize>;

/// A pure planner, and what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planner {
    /// A shutdown in groups of priorities.
    Shutdown,
    /// A shutdown by role, with half of the time that is wanted.
    ShutdownShort,
    /// Victims by distance, for a pod that lacks as much on a small node as on a large one.
    Distance,
    /// The same, the best set.
    Minimal,
    /// Who ends when memory is short.
    Eviction,
    /// A whole start in order, in which each pod is ready at a time of its own.
    Start,
    /// What the runtime lists, when the workers hear it, as nothing of it is theirs.
    Listing,
}

/// Priorities of the pods, in turn. Two of five are out of reach for preemption.
const PRIORITIES: [i32; 5] = [0, 0, 1000, 2_000_000_000, 2_000_001_000];

impl Planner {
    pub(crate) const ALL: [Self; 7] = [
        Self::Shutdown,
        Self::ShutdownShort,
        Self::Distance,
        Self::Minimal,
        Self::Eviction,
        Self::Start,
        Self::Listing,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::ShutdownShort => "shutdown-short",
            Self::Distance => "distance",
            Self::Minimal => "minimal",
            Self::Eviction => "eviction",
            Self::Start => "start",
            Self::Listing => "listing",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown, five priority groups",
            Self::ShutdownShort => "shutdown by role, half of the time",
            Self::Distance => "preemption, distance",
            Self::Minimal => "preemption, minimal",
            Self::Eviction => "eviction for want of memory",
            Self::Start => "a whole start in order",
            Self::Listing => "a listing of what runs",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|planner| planner.as_str() == name)
    }

    /// What is to be planned for so many pods.
    pub(crate) fn prepare(self, count: usize) -> Result<Plan, String> {
        let pods = (0..count).map(pod).collect::<Result<Vec<_>, _>>()?;
        match self {
            Self::Shutdown => {
                let group = |priority| GroupPeriod { priority, shutdown_grace_period_seconds: 30 };
                let groups = [0, 1000, 10_000, 2_000_000_000, 2_000_001_000].map(group);
                let policy = Policy::by_priority(groups).map_err(|error| error.to_string())?;
                Ok(Box::new(move || plan(&pods, &policy, None).pod_count()))
            }
            Self::ShutdownShort => {
                let (total, later) = (Duration::from_secs(120), Duration::from_secs(40));
                let policy = Policy::by_role(total, later).map_err(|error| error.to_string())?;
                Ok(Box::new(move || plan(&pods, &policy, Some(total / 2)).pod_count()))
            }
            Self::Distance => preempt(pods, Strategy::Distance),
            Self::Minimal => preempt(pods, Strategy::Minimal),
            Self::Eviction => Ok(evict(pods)),
            Self::Start => Ok(Box::new(move || start(&pods).unwrap_or(0))),
            Self::Listing => listing(pods),
        }
    }
}

fn preempt(pods: Vec<Pod>, strategy: Strategy) -> Result<Plan, String> {
    let (preemptor, lacking) = arriving()?;
    select(&preemptor, &pods, &lacking, strategy).map_err(|error| error.to_string())?;
    Ok(Box::new(move || {
        select(&preemptor, &pods, &lacking, strategy).map_or(0, |chosen| chosen.victims.len())
    }))
}

/// A critical pod, and what it lacks: as much on a small node as on a large one.
fn arriving() -> Result<(Pod, Vec<Requirement>), String> {
    let lacking = [(ResourceName::from("cpu"), 250), (ResourceName::from("memory"), 300 << 20)];
    Ok((pod(3)?, lacking.to_vec()))
}

fn evict(pods: Vec<Pod>) -> Plan {
    let policy = winddown_eviction::Policy::new(Vec::new(), false);
    let used = |i: usize| {
        let mut stats = PodStats::default();
        stats.memory_working_set =
            Some(32 << 20 | u64::try_from(i * 7919 % 4096).unwrap_or(0) << 12);
        stats
    };
    let stats: Vec<PodStats> = (0..pods.len()).map(used).collect();
    let amount = |bytes| Quantity::new(bytes, QuantityFormat::BinarySi);
    let now = Instant::now();
    let shortage = Shortage {
        cause: Cause::Signal(Signal::MemoryAvailable),
        signal: Signal::MemoryAvailable,
        hard: true,
        threshold: amount(100 << 20),
        available: amount(50 << 20),
        deficit: 50 << 20,
        measured_at: None,
        since: now,
        reclaim: &[],
    };
    Box::new(move || {
        let candidates: Vec<Candidate<'_>> =
            pods.iter().zip(&stats).map(|(pod, stats)| Candidate::new(pod, Some(stats))).collect();
        let choice = choose(&shortage, &candidates, &policy, now);
        choice.considered.len() + usize::from(choice.victim.is_some())
    })
}

/// The pods become ready in turn, and the start sees each of them.
fn start(pods: &[Pod]) -> Option<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok()?;
    let policy = Policy::by_role(Duration::from_secs(30), Duration::from_secs(10)).ok()?;
    let statuses = StatusStore::default();
    let wanted = DesiredPods::all(pods.to_vec());
    let parts = StartParts {
        wanted: watch::Sender::new(Some(Arc::new(wanted))).subscribe(),
        statuses: statuses.clone(),
        gate: AdmissionGate::new().changes(),
        policy: watch::Sender::new(Arc::new(policy)).subscribe(),
        group_timeout: Duration::from_secs(3600),
        wall: WallClock::fixed(WallTime::UNIX_EPOCH),
        boot: BootClock::new(Duration::default),
        boot_id: String::new(),
    };
    let start = StartRun::new(parts, None)?;
    let report = start.report();
    runtime.block_on(async {
        let task = tokio::spawn(start.run());
        for pod in pods {
            statuses.set(pod.clone(), ready());
            tokio::task::yield_now().await;
        }
        task.await.ok()
    })?;
    Some(report.borrow().as_ref()?.pods().count())
}

fn listing(pods: Vec<Pod>) -> Result<Plan, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let entered = runtime.enter();
    let workers = PodWorkers::new(AtOnce, Arc::new(Silent));
    let runtime_pod = |pod: &Pod| RuntimePod::of(pod, true);
    drop(entered);
    Ok(Box::new(move || {
        let _entered = runtime.enter();
        workers.listing_begins();
        let runtime_only = pods.iter().map(runtime_pod).collect();
        workers.note_running(RunningPods { pods: pods.clone(), runtime_only, known: true });
        workers.running().pods.len()
    }))
}

fn ready() -> api::PodStatus {
    let ready = api::PodCondition {
        type_: "Ready".into(),
        status: "True".into(),
        ..api::PodCondition::default()
    };
    api::PodStatus { conditions: Some(vec![ready]), ..api::PodStatus::default() }
}

/// The pod at this place: priority, grace and requests differ from place to place.
fn pod(i: usize) -> Result<Pod, String> {
    let requests = BTreeMap::from([
        ("cpu".to_owned(), ApiQuantity(format!("{}m", 50 + i * 7 % 10 * 10))),
        ("memory".to_owned(), ApiQuantity(format!("{}Mi", 64 + i * 13 % 128))),
    ]);
    let resources = api::ResourceRequirements {
        requests: Some(requests),
        ..api::ResourceRequirements::default()
    };
    let main = api::Container {
        name: "main".into(),
        resources: Some(resources),
        ..api::Container::default()
    };
    let grace = i64::try_from(i % 7 * 10).unwrap_or(0);
    let object = api::Pod {
        metadata: ObjectMeta {
            name: Some(format!("pod-{i}")),
            namespace: Some("default".into()),
            uid: Some(format!("{i:08}-0123-4567-89ab-cdef01234567")),
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            containers: vec![main],
            priority: Some(PRIORITIES[i % PRIORITIES.len()]),
            termination_grace_period_seconds: Some(grace),
            ..api::PodSpec::default()
        }),
        status: None,
    };
    Pod::new(object).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use winddown_preemption::{Strategy, select};
    use winddown_shared::Pod;

    use super::{Planner, arriving, pod};

    #[test]
    fn every_planner_has_a_plan_for_a_node_of_any_size() {
        for planner in Planner::ALL {
            assert_eq!(Planner::named(planner.as_str()), Some(planner));
            for pods in [10, 300] {
                assert!(planner.prepare(pods).unwrap()() > 0, "{planner:?}, {pods} pods");
            }
        }
    }

    /// The search for the best set takes a certain number of looks, whatever it finds, and that is
    /// what makes it dear; beside that it looks at each pod some times: 4000 more pods are eight times 500.
    #[test]
    fn the_search_for_the_best_victims_is_bounded() {
        let (preemptor, lacking) = arriving().unwrap();
        let looks = |count| {
            let pods: Vec<Pod> = (0..count).map(|i| pod(i).unwrap()).collect();
            select(&preemptor, &pods, &lacking, Strategy::Minimal).unwrap().work
        };
        let (small, middle, large) = (looks(500), looks(1000), looks(5000));
        println!("pods looked at: {small} of 500, {middle} of 1000, {large} of 5000");
        assert!(large - middle <= 9 * (middle - small), "{small} {middle} {large}");
    }
}

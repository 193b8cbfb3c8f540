//! The random choices of a schedule, as a pure function of its seed.

use std::time::Duration;

use super::{Fate, Fault, Feature, Phase, Service};
use crate::Suite;
use crate::{PodBehavior, SeededRng, TestPod};

/// The pod that arrives at a full node in [`Phase::Preemption`].
pub(super) const INTRUDER: &str = "intruder";
/// The pod that takes the node's memory in [`Phase::Eviction`].
pub(super) const HOG: &str = "hog";
/// `system-node-critical`.
const CRITICAL: i32 = 2_000_001_000;
/// How long the first pod takes to stop in a shutdown with faults, so that the faults strike during it.
const SLOW_MS: (u32, u32) = (2000, 2500);

/// The runtime of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    /// Processes of the node.
    Process,
    /// Transient services of the node's systemd.
    Systemd,
    /// The same, on a node in a cluster. The pods are static, and the API shows them.
    Cluster,
    /// Containers of a real containerd.
    Containerd,
    /// The same, of a kubelet that answers nothing: the agent beside it only terminates them.
    Companion,
}

/// A fault, when it strikes and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// The fault.
    pub fault: Fault,
    /// The time since the start of the phase.
    pub after: Duration,
    /// How long a fault lasts that does not pass by itself.
    pub lasts: Duration,
    /// How far the clock jumps, in seconds, for faults of the clock.
    pub jump: u32,
}

/// A schedule: a node, its pods, and the faults.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// The seed.
    pub seed: u64,
    /// What the node is doing when the faults strike.
    pub phase: Phase,
    /// The runtime of the pods.
    pub runtime: Runtime,
    /// The node's Debian release.
    pub suite: Suite,
    /// The pods in the manifests folder. In [`Phase::Preemption`] another one is added.
    pub pods: Vec<TestPod>,
    /// One to three different faults.
    pub strikes: Vec<Strike>,
    /// Whether the node may come to rest between the faults and the power-off.
    pub rests: bool,
    /// The enabled features.
    pub features: Vec<Feature>,
}

// === impl Runtime ===

impl Runtime {
    /// Its name in the configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Process | Self::Cluster => "process",
            Self::Systemd => "systemd",
            Self::Containerd | Self::Companion => "cri",
        }
    }

    /// Whether the pods are containers.
    pub(super) fn has_containers(self) -> bool {
        matches!(self, Self::Containerd | Self::Companion)
    }

    /// Whether the node is in a cluster.
    pub(super) fn has_api(self) -> bool {
        matches!(self, Self::Cluster | Self::Companion)
    }
}

// === impl Schedule ===

impl Schedule {
    /// The schedule for `seed`.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let rng = &mut rng;
        let phase = rng.one_of(Phase::ALL);
        let runtime = match (seed % 5, phase) {
            // Only processes can be limited by the control group, and static pods in a cluster are not evicted.
            (_, Phase::Eviction) => Runtime::Process,
            (0, _) => Runtime::Containerd,
            (1, _) => Runtime::Cluster,
            (2, _) => Runtime::Systemd,
            // No kubelet would start pods.
            (3, Phase::Steady | Phase::Shutdown) => Runtime::Companion,
            _ => Runtime::Process,
        };
        // Debian 13 in a container has no memory controller, and its containerd cannot start containers.
        let suite = match runtime.has_containers() || phase == Phase::Eviction {
            true => Suite::Bookworm,
            false => rng.one_of([Suite::Bookworm, Suite::Trixie]),
        };
        let pods = pods(rng, phase, runtime);
        let strikes = strikes(rng, (phase, runtime, suite));
        // An idle node has no pods to wait for, and a shutdown waits for itself.
        let rests = matches!(phase, Phase::Idle | Phase::Shutdown) || !rng.one_in(4);
        let features = Vec::new();
        let mut schedule = Self { seed, phase, runtime, suite, pods, strikes, rests, features };
        // Drawn last, so that adding a feature does not change the faults of a seed.
        for feature in Feature::ALL {
            if feature.fits(&schedule) && rng.one_in(feature.rarity()) {
                schedule.features.push(feature);
                schedule.pods.extend(pod_of(feature).map(|pod| placed(pod, runtime)));
            }
        }
        schedule
    }

    /// The first `count` schedules from `seed` on that can be played in a row on one node: none of them leaves anything
    /// there that the next one would find.
    #[must_use]
    pub fn in_a_row(seed: u64, count: usize) -> Vec<Self> {
        let leaves_nothing = |schedule: &Self| {
            let fits = schedule.runtime == Runtime::Process
                && schedule.suite == Suite::Bookworm
                && !matches!(schedule.phase, Phase::Eviction | Phase::Drained);
            fits && schedule.features.is_empty()
                && schedule.strikes.iter().all(|strike| !strike.fault.outlasts_a_boot())
        };
        (seed..).map(Self::draw).filter(leaves_nothing).take(count).collect()
    }

    /// The pod that arrives at a full node and requests `cpu`.
    pub(super) fn intruder(&self, cpu: String) -> TestPod {
        let mut pod = TestPod::new(INTRUDER, CRITICAL, 200);
        pod.cpu = Some(cpu);
        placed(pod, self.runtime)
    }

    /// Whether this feature is enabled.
    #[must_use]
    pub fn is_on(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// Whether this fault strikes.
    #[must_use]
    pub fn has(&self, fault: Fault) -> bool {
        self.strikes.iter().any(|strike| strike.fault == fault)
    }

    /// Whether the faults may cancel the shutdown, so that the node stays up.
    #[must_use]
    pub fn may_be_taken_back(&self) -> bool {
        self.phase == Phase::Shutdown && self.strikes.iter().any(|strike| strike.fault.takes_back())
    }
}

/// The pod that abuses the feature, or needs it.
fn pod_of(feature: Feature) -> Option<TestPod> {
    let (behavior, name) = match feature {
        Feature::StartInOrder => (PodBehavior::NeverReady, "never-ready"),
        Feature::Guard => (PodBehavior::Holding, "holding"),
        Feature::RebootInPlace => (PodBehavior::Staying, "staying"),
        Feature::AfterNodes | Feature::FarNotice => return None,
    };
    Some(TestPod { behavior, ..TestPod::new(name, CRITICAL, 100) })
}

fn placed(pod: TestPod, runtime: Runtime) -> TestPod {
    if runtime.has_containers() { pod.in_container() } else { pod }
}

fn pods(rng: &mut SeededRng, phase: Phase, runtime: Runtime) -> Vec<TestPod> {
    let most = if runtime.has_containers() { 5 } else { 9 };
    let count = rng.between(3, most);
    let mut pods: Vec<TestPod> = (0..count).map(|n| pod(rng, phase, runtime, n)).collect();
    if phase == Phase::Shutdown {
        pods[0] = TestPod::new("pod-0", 0, rng.between(SLOW_MS.0, SLOW_MS.1));
    }
    if phase == Phase::Preemption {
        // The intruder wants the whole CPU: less important pods that request some are preempted.
        for pod in pods.iter_mut().filter(|pod| pod.priority < 2_000_000_000).step_by(2) {
            pod.cpu = Some("100m".to_owned());
        }
        pods[0] = TestPod { cpu: Some("100m".to_owned()), ..TestPod::new("pod-0", 0, 400) };
    }
    if phase == Phase::Eviction {
        let hog = TestPod { behavior: PodBehavior::Hog, ..TestPod::new(HOG, -10, 100) };
        pods.push(hog);
    }
    pods.into_iter().map(|pod| placed(pod, runtime)).collect()
}

fn pod(rng: &mut SeededRng, phase: Phase, runtime: Runtime, number: u32) -> TestPod {
    let priority = rng.one_of([0, 0, 0, 999, 1000, 50_000, 2_000_000_000, CRITICAL]);
    let mut pod = TestPod::new(format!("pod-{number}"), priority, rng.between(0, 1000));
    pod.grace_seconds = rng.between(3, 20);
    // Where pods are stopped for others, the time that stubborn pods take does not matter.
    let stubborn = rng.one_in(6);
    if stubborn && !matches!(phase, Phase::Preemption | Phase::Eviction | Phase::Drained) {
        pod.behavior = match runtime.has_containers() {
            // The first process of a container cannot suspend itself.
            true => PodBehavior::Deaf,
            false => rng.one_of([PodBehavior::Deaf, PodBehavior::Stuck]),
        };
        pod.grace_seconds = rng.between(1, 2);
    }
    pod
}

fn strikes(rng: &mut SeededRng, (phase, runtime, suite): (Phase, Runtime, Suite)) -> Vec<Strike> {
    let count = rng.between(1, 3);
    let mut strikes: Vec<Strike> = Vec::new();
    while strikes.len() < usize::try_from(count).unwrap_or(1) {
        // Faults that only this runtime can suffer would otherwise be rare.
        let fault = match (rng.one_in(4), runtime) {
            (true, Runtime::Cluster) => Fault::ApiDown,
            (true, Runtime::Companion) if rng.one_in(2) => Fault::ApiDown,
            (true, Runtime::Containerd | Runtime::Companion) => {
                let fates = [Fate::Killed, Fate::Stopped, Fate::Restarted, Fate::Hangs];
                Fault::Of(Service::Containerd, rng.one_of(fates))
            }
            _ => rng.one_of(Fault::ALL),
        };
        let after = Duration::from_millis(u64::from(rng.between(0, 1500)));
        let lasts = Duration::from_millis(u64::from(rng.between(100, 1000)));
        let jump = rng.one_of([5, 3600, 30 * 86_400]);
        let others = strikes.iter().map(|strike| strike.fault);
        if fault.strikes(phase, runtime, suite)
            && others.clone().all(|other| fault.goes_with(other))
        {
            strikes.push(Strike { fault, after, lasts, jump });
        }
    }
    strikes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Feature, Runtime, Schedule};
    use crate::Suite;
    use crate::chaos::{Fault, Phase};

    fn many() -> impl Iterator<Item = Schedule> {
        (0..4000).map(Schedule::draw)
    }

    #[test]
    fn one_seed_gives_one_schedule() {
        let text = |seed| format!("{:?}", Schedule::draw(seed));
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn every_fault_strikes_in_every_phase_that_it_can_strike_in() {
        let mut drawn = BTreeSet::new();
        for schedule in many() {
            for strike in &schedule.strikes {
                drawn.insert((strike.fault, schedule.phase, schedule.runtime));
            }
        }
        let runtimes = [
            Runtime::Process,
            Runtime::Systemd,
            Runtime::Cluster,
            Runtime::Containerd,
            Runtime::Companion,
        ];
        for runtime in runtimes {
            for (fault, phase) in Fault::ALL.into_iter().flat_map(|f| Phase::ALL.map(|p| (f, p))) {
                let no_such_node = match runtime {
                    Runtime::Companion => !matches!(phase, Phase::Steady | Phase::Shutdown),
                    _ => runtime != Runtime::Process && phase == Phase::Eviction,
                };
                let suites = [Suite::Bookworm, Suite::Trixie];
                let strikes = suites.iter().any(|suite| fault.strikes(phase, runtime, *suite));
                let expected = strikes && !no_such_node;
                assert_eq!(drawn.contains(&(fault, phase, runtime)), expected, "{fault} {phase}");
            }
        }
    }

    #[test]
    fn everything_is_switched_on_in_every_phase_and_runtime_that_it_fits() {
        let fits = |schedule: &Schedule| Feature::ALL.map(|feature| feature.fits(schedule));
        let (mut drawn, mut fitting) = (BTreeSet::new(), BTreeSet::new());
        for schedule in many() {
            let place = |feature| (feature, schedule.phase, schedule.runtime);
            drawn.extend(schedule.features.iter().map(|feature| place(*feature)));
            let all = Feature::ALL.into_iter().zip(fits(&schedule));
            fitting.extend(all.filter(|(_, fits)| *fits).map(|(feature, _)| place(feature)));
        }
        assert_eq!(drawn, fitting);
        let all: BTreeSet<_> = drawn.into_iter().map(|(feature, _, _)| feature).collect();
        assert_eq!(all, Feature::ALL.into());
    }

    #[test]
    fn faults_that_rule_each_other_out_are_never_drawn_together() {
        for schedule in many() {
            let faults: Vec<Fault> = schedule.strikes.iter().map(|strike| strike.fault).collect();
            assert!((1..=3).contains(&faults.len()), "{schedule:?}");
            for (n, fault) in faults.iter().enumerate() {
                assert!(faults[..n].iter().all(|other| fault.goes_with(*other)), "{schedule:?}");
            }
        }
    }

    #[test]
    fn a_shutdown_takes_long_enough_to_be_struck_and_a_full_node_has_someone_to_end() {
        for schedule in many() {
            match schedule.phase {
                Phase::Shutdown => {
                    let last = schedule.strikes.iter().map(|strike| strike.after).max();
                    let slow = schedule.pods.iter().map(|pod| pod.stop_ms).max();
                    assert!(last.unwrap().as_millis() < u128::from(slow.unwrap()), "{schedule:?}");
                }
                Phase::Preemption => assert!(schedule.pods.iter().any(|pod| pod.cpu.is_some())),
                _ => {}
            }
        }
    }
}

//! The ordered start of a node's pods as a plug-in: the reverse of a shutdown, with a time limit for each group.
//!
//! [`start_plan`] (pure) is the plan of a shutdown, backwards. [`StartRun`] follows the desired pods and their statuses, and
//! publishes whose turn it is (`StartTurn` of `shared`); the intake alone admits pods. A pod whose turn has not come has no
//! worker. The report is the state: it is written at each turn, and the next agent of the boot continues from it.

mod plan;
mod report;
mod run;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_control::ApiError;
use winddown_control::api::{self, ErrorCode, StartStatus, StartingGroup, StartingPod};
use winddown_host::OneThread;
use winddown_shared::{DesiredPods, Pod, Runtime, critical, error_chain};
use winddown_shutdown::Policy;

use crate::api::{blocking, unreadable};
use crate::core::Core;
use crate::metrics::{PluginGauge, ScrapedNode};
use crate::plugin::{NodePlugin, PluginRegistry, PluginSection, StartAnswers};

pub use plan::{StartGroup, StartPlan, StartRank, start_plan};
pub use report::{PodStart, StartOutcome, StartReport, StartedGroup, StartedPod};
pub use run::{StartParts, StartRun};

/// The warning in a plan without a group timeout, in which all pods start at once.
const OFF: &str =
    "ordered start is off: after a boot all pods start at once; set startGroupTimeout";
/// The target of the log lines, which filters and readers of the journal know.
const TARGET: &str = "winddown_node::shutdown::start";

/// The plug-in that starts the pods after a boot in the reverse of the order in which they end.
pub struct OrderedStart {
    policy: watch::Receiver<Arc<Policy>>,
    group_timeout: Duration,
    state_directory: PathBuf,
}

/// The state of the ordered start.
struct Started {
    /// `None` before the pods are known, and if they all start at once.
    report: watch::Receiver<Option<StartReport>>,
    /// Zero if they all start at once.
    group_timeout: Duration,
    policy: watch::Receiver<Arc<Policy>>,
    wanted: watch::Receiver<Option<Arc<DesiredPods>>>,
    state_directory: PathBuf,
    /// Reads the disk for requests.
    reading: OneThread,
}

impl OrderedStart {
    /// Starts each group of a shutdown by `policy` when the one that ends after it is ready, or after `group_timeout` at
    /// the latest. With zero all start at once; the pods of a kubelet always do. The report is kept in
    /// `state_directory`.
    pub fn new(
        policy: watch::Receiver<Arc<Policy>>,
        group_timeout: Duration,
        state_directory: impl Into<PathBuf>,
    ) -> Self {
        Self { policy, group_timeout, state_directory: state_directory.into() }
    }
}

impl<R: Runtime> NodePlugin<R> for OrderedStart {
    fn register(self: Box<Self>, node: &mut PluginRegistry<R>) {
        let (started, run) = Started::of_boot(&node.core, *self);
        let started = Arc::new(started);
        node.core.count(started.report.clone());
        let contributions = &mut node.contributions;
        contributions.links.turns = run.as_ref().map(StartRun::turn);
        contributions.sections.push(Arc::clone(&started) as _);
        contributions.answers.start = Some(Arc::clone(&started) as _);
        let stop = node.core.stop.clone();
        node.start(move |_| {
            if let Some(run) = run {
                started.begin(run, stop);
            }
        });
    }
}

impl PluginSection for Started {
    fn status(&self, status: &mut api::Status) {
        status.start = self.waiting();
    }

    fn facts(&self, facts: &mut ScrapedNode) {
        let report = self.report.borrow();
        let Some(report) = report.as_ref() else { return };
        let not_ready = report.groups.iter().flat_map(|group| group.not_ready()).count();
        facts.of_plugins.extend([
            PluginGauge::count(
                "winddown_start_waiting_pods",
                "Pods that wait for others before they start.",
                report.waiting.len(),
            ),
            PluginGauge::count(
                "winddown_start_not_ready_pods",
                "Pods that others wait for, or that were not ready in the time of their group.",
                not_ready,
            ),
        ]);
        facts.of_plugins.extend(report.took.map(|took| {
            let help = "How long the ordered start of the pods took after the boot.";
            PluginGauge::seconds("winddown_start_duration", help, took)
        }));
    }
}

impl StartAnswers for Started {
    fn plan(&self) -> api::StartPlan {
        let wanted = self.wanted.borrow().clone().unwrap_or_default();
        start_view(&start_plan(&wanted.pods, &self.policy.borrow()), self.group_timeout)
    }

    fn report(&self) -> BoxFuture<'_, Result<serde_json::Value, ApiError>> {
        let (known, state) = (self.report.borrow().clone(), self.state_directory.clone());
        blocking(&self.reading, move || last_report(known.as_ref(), &state)).boxed()
    }
}

// === impl Started ===

impl Started {
    /// Returns the state, and the start itself unless that of this boot is over. Blocks on the disk.
    fn of_boot<R: Runtime>(core: &Core<R>, settings: OrderedStart) -> (Self, Option<StartRun>) {
        let OrderedStart { policy, group_timeout, state_directory } = settings;
        let group_timeout = if core.fit.admits_all() { Duration::ZERO } else { group_timeout };
        let mut started = Self {
            report: watch::Sender::new(None).subscribe(),
            group_timeout,
            policy: policy.clone(),
            wanted: core.wanted.subscribe(),
            state_directory,
            reading: OneThread::default(),
        };
        if group_timeout.is_zero() {
            return (started, None);
        }
        let earlier = StartReport::load(&started.state_directory).unwrap_or_else(|error| {
            tracing::warn!(
                target: TARGET,
                "cannot read the progress of the ordered start: {}",
                error_chain(&error)
            );
            None
        });
        let parts = StartParts {
            wanted: core.wanted.subscribe(),
            statuses: core.statuses.clone(),
            gate: core.gate.changes(),
            policy,
            group_timeout,
            wall: core.wall.clone(),
            boot: core.boot_clock.clone(),
            boot_id: core.identity.boot_id.clone(),
        };
        let over = watch::Sender::new(earlier.clone()).subscribe();
        let start = StartRun::new(parts, earlier);
        started.report = start.as_ref().map_or(over, StartRun::report);
        (started, start)
    }

    /// The current group and the pods that wait for it; `None` while no pod waits.
    fn waiting(&self) -> Option<StartStatus> {
        let report = self.report.borrow();
        let report = report.as_ref().filter(|report| !report.is_over())?;
        let group = report.current().filter(|_| !report.waiting.is_empty())?;
        Some(StartStatus {
            group: group.name.clone(),
            not_ready: group.not_ready().collect(),
            until: report.started_at.checked_add(group.started + report.group_timeout).ok(),
            waiting: report.waiting.len(),
        })
    }

    /// Starts the pods in order, and stores the progress.
    fn begin(&self, run: StartRun, stop: CancellationToken) {
        let (mut report, state) = (run.report(), self.state_directory.clone());
        // Nothing waits for the disk: an agent that starts meanwhile finds most pods running.
        tokio::spawn(async move {
            let mut kept = None;
            while report.changed().await.is_ok() {
                let turn = report.borrow_and_update().as_ref().map(StartReport::revision);
                // Written once per turn: the report holds all pods of the node, too much to write for each ready one.
                if std::mem::replace(&mut kept, turn) == turn {
                    continue;
                }
                let Some(now) = report.borrow().clone() else { continue };
                let state = state.clone();
                let stored = tokio::task::spawn_blocking(move || now.store(&state)).await;
                if let Ok(Err(error)) = stored {
                    tracing::warn!(target: TARGET, "cannot save the start report: {}", error_chain(&error));
                }
            }
        });
        critical::spawn("ordered start", async move { stop.run_until_cancelled(run.run()).await });
    }
}

/// Converts a plan for the control API; each group has so much time.
pub fn start_view(plan: &StartPlan, group_timeout: Duration) -> api::StartPlan {
    let pod = |pod: &Pod| StartingPod {
        namespace: pod.namespace().to_string(),
        name: pod.name().to_string(),
        uid: pod.uid().to_string(),
        priority: pod.priority_or_zero(),
        has_no_priority: pod.priority().is_none(),
    };
    let groups = plan.groups.iter().map(|group| StartingGroup {
        name: group.name.clone(),
        priority: group.rank.priority,
        drivers: group.rank.drivers,
        pods: group.pods.iter().map(pod).collect(),
    });
    let off = group_timeout.is_zero().then(|| OFF.to_owned());
    api::StartPlan {
        groups: groups.collect(),
        warnings: off.into_iter().collect(),
        group_timeout_seconds: group_timeout.as_secs_f64(),
    }
}

/// The report of the last ordered start: `known`, or else the one in the state directory. Blocks on the disk.
///
/// # Errors
/// There is no report, or it cannot be read.
pub fn last_report(
    known: Option<&StartReport>,
    state: &Path,
) -> Result<serde_json::Value, ApiError> {
    let on_disk = match known {
        Some(_) => None,
        None => StartReport::load(state).map_err(|error| unreadable(&error))?,
    };
    let Some(report) = known.or(on_disk.as_ref()) else {
        let what = "no ordered start has been reported on this node yet";
        return Err(ApiError::new(ErrorCode::NotFound, what).with_hint(
            "startGroupTimeout in the configuration lets pods start in order after a boot",
        ));
    };
    serde_json::to_value(report)
        .map_err(|error| ApiError::new(ErrorCode::Internal, error_chain(&error)))
}

#[cfg(feature = "config")]
impl crate::Configured {
    /// The ordered start as configured.
    pub fn ordered_start(&self) -> OrderedStart {
        let config = self.configuration().config;
        OrderedStart::new(
            self.policy(),
            config.shutdown.start_group_timeout,
            &config.access.state_directory,
        )
    }
}

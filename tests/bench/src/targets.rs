//! What the figures are to be, in one place.

use std::time::Duration;

/// Resident memory of the agent with 100 pods, in bytes: of processes, and of containers.
pub(crate) const RESIDENT: u64 = 15_000_000;
pub(crate) const RESIDENT_WITH_CONTAINERS: u64 = 18_000_000;
/// Processor time of the idle agent, in hundredths of a processor.
pub(crate) const IDLE_CPU: f64 = 0.02;
/// How often the idle agent runs, in a second.
pub(crate) const WAKE_UPS: f64 = 0.5;
/// From the start of the service to 100 containers that run.
pub(crate) const STARTED: Duration = Duration::from_millis(5500);
/// From the signal to the first SIGTERM, with processes and with containers.
pub(crate) const FIRST_TERM: Duration = Duration::from_millis(4);
pub(crate) const FIRST_TERM_OF_CONTAINERS: Duration = Duration::from_millis(6);
/// From a group's last exit to the next group's first SIGTERM.
pub(crate) const GAP: Duration = Duration::from_millis(20);
/// The same where others take every processor.
pub(crate) const GAP_BUSY: Duration = Duration::from_millis(60);
/// From a critical pod's manifest on a full node to its container, as a part of the kubelet's time. The second that its
/// victim takes is in neither.
pub(crate) const PREEMPTED: f64 = 0.5;
/// From the last exit to the released lock, with containers.
pub(crate) const RELEASE: Duration = Duration::from_millis(20);
/// From the signal to the released lock; the pods need two seconds of it.
pub(crate) const SHUTDOWN: Duration = Duration::from_secs(3);
/// From `systemctl poweroff` to the last exit; the pods need two seconds of it.
pub(crate) const LAST_EXIT: Duration = Duration::from_millis(2080);
/// From memory running short to SIGTERM.
pub(crate) const PRESSURE: Duration = Duration::from_millis(60);
/// The daemon as packages have it, and the package, in bytes.
pub(crate) const DAEMON: u64 = 14_000_000;
pub(crate) const PACKAGE: u64 = 9_000_000;
/// Of the pod workers, for each pod or update.
pub(crate) const CREATE: Duration = Duration::from_nanos(3000);
pub(crate) const UPDATE: Duration = Duration::from_nanos(800);
pub(crate) const KILL: Duration = Duration::from_nanos(1900);
/// Memory of an idle pod of the pod workers, in bytes.
pub(crate) const IDLE_POD: u64 = 2048;
/// How many times faster than the kubelet victims are chosen: among pods that choices were made among, and among
/// pods that were just taken.
pub(crate) const VICTIMS: f64 = 1000.0;
pub(crate) const VICTIMS_AMONG_NEW: f64 = 300.0;
/// The best set of victims, among up to 500 pods.
pub(crate) const MINIMAL: Duration = Duration::from_millis(5);

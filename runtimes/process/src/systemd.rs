//! Containers as transient services of systemd.
//!
//! # Behaviour
//! * As in the process runtime, `image` is not pulled: a container's `command` (or `args`) is a program of the host. A
//!   pod with fields that cannot be honoured that way is refused, and the fields are named
//!   ([`process::check_supported`](crate::process::check_supported)).
//! * Each attempt of a container is a transient service `winddown-podUID-CONTAINER-ATTEMPT.service` in its pod's slice
//!   `winddown-podUID.slice`, below `winddown.slice`. It has its own cgroup with the container's limits. It does not
//!   depend on the agent in any way.
//! * The agent decides when to start, restart and stop a container ([`container_plan`](winddown_engine::container_plan)),
//!   never the service manager, which keeps the result of a container until the agent has recorded it and asks to
//!   forget it; this distinguishes a unit that never started from one that ran and exited.
//! * A second service writes the log, in the format and place of the other runtimes, and to the journal.
//! * An agent that was restarted or killed lists the units and continues with them ([`SystemdRuntime::open`]). Units
//!   are not enabled: after a boot none exists.
//! * A pod that asks to survive soft-reboots, and may ([`Survivors`](crate::process::Survivors)), has its services in a
//!   slice that systemd leaves running, see systemd-soft-reboot.service(8). The next agent finds them as after a
//!   restart.
//! * Nothing is polled: the service manager reports changes. If it hangs or is unavailable, the current call fails, and
//!   when it is back all units are listed again.
//!
//! # Limits
//! * No isolation except by cgroups.
//! * Out-of-memory kills are detected on cgroup v2 only, and only there a container with a memory limit does not swap.
//! * When a container exits successfully, the agent kills the processes it leaves behind: while no agent runs, they
//!   continue.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use winddown_engine::action_error::ActionError;
use winddown_engine::driver::StopTarget;
use winddown_engine::machine_lock::MachineLock;
use winddown_host::UnitPlaces;
use winddown_shared::{Mutex, Pod, PodUid, RuntimeError, UnsupportedField};
use winddown_shim::order::ExecCommand;
use winddown_shim::procfs;

mod adopt;
mod attempt;
mod end;
mod hook;
mod kill;
mod listen;
mod names;
mod open;
mod start;
mod unit_cache;
pub use winddown_host::service_units as units;

pub use open::SystemdOpenError;

use names::UnitRole;
use unit_cache::UnitCache;
use units::ServiceUnits;

use crate::process::cgroup::Unenforced;
use crate::programs::config::ProcessConfig;
use crate::programs::pod::{PodEntry, Run, Starting};
use crate::programs::stats::StatsSources;
use crate::programs::support::check_supported as supported_by_programs;
use crate::programs::{self, CommandFiles, ProgramDriver, ProgramRuntime, caused};

/// Runs pods as transient services. See the [module](self).
pub type SystemdRuntime<U> = ProgramRuntime<Services<U>>;

type Context<U> = programs::ProgramContext<Services<U>>;

/// The driver of [`SystemdRuntime`], which runs each container as a transient service.
#[derive(Debug)]
pub struct Services<U> {
    units: U,
    unit_cache: UnitCache,
    /// The next number of a command beside a container.
    hooks: AtomicU64,
    /// Pods with a start request that was not answered.
    unsure: Mutex<HashSet<PodUid>>,
    unenforced: Unenforced,
    /// The agent's own unit. Units of pods are stopped after it, because its stop terminates the pods in order.
    agent: String,
    /// Held while the runtime exists.
    #[allow(dead_code, reason = "what counts is that it is held")]
    on_machine: Option<MachineLock>,
}

/// Returns every field of `pod` that this runtime cannot honour; empty if the pod runs as written. Pure.
pub fn check_supported(pod: &Pod) -> Vec<UnsupportedField> {
    let mut found = supported_by_programs(pod);
    let spec = pod.spec.iter();
    let mut all = spec.flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    if all.any(|container| !names::fits(pod.uid(), &container.name)) {
        found.push(UnsupportedField::new(
            "metadata.uid",
            "with the containers' names it is too long for the name of a unit: use shorter ones",
        ));
    }
    found
}

/// Whether containers run that an agent has started as services, as the kernel shows them: a bus that hangs would leave it
/// open. Blocking.
///
/// # Errors
/// The processes cannot be listed.
pub fn has_running(proc_root: &Path) -> io::Result<bool> {
    let places = UnitPlaces::of(proc_root);
    let is_container = |pid: i32| {
        let service = places.service(&pid.to_string());
        let named = service.and_then(|service| names::parse(&service));
        let runs = || procfs::stat(proc_root, pid).ok().flatten().is_some_and(|s| !s.has_ended());
        named.is_some_and(|named| matches!(named.role, UnitRole::Main(_))) && runs()
    };
    Ok(procfs::pids(proc_root)?.any(is_container))
}

impl<U> Services<U> {
    fn new(
        units: U,
        unenforced: Unenforced,
        agent: String,
        on_machine: Option<MachineLock>,
    ) -> Self {
        Self {
            units,
            unit_cache: UnitCache::default(),
            hooks: AtomicU64::new(0),
            unsure: Mutex::default(),
            unenforced,
            agent,
            on_machine,
        }
    }

    /// Notes that units of a pod may run that the agent does not know.
    fn unsure(&self, uid: &PodUid) {
        self.unsure.lock().insert(uid.clone());
    }

    fn is_unsure(&self, uid: &PodUid) -> bool {
        self.unsure.lock().contains(uid)
    }

    fn sure(&self, uid: &PodUid) {
        self.unsure.lock().remove(uid);
    }
}

impl<U: ServiceUnits> ProgramDriver for Services<U> {
    const SCHEME: &'static str = "systemd";

    fn unsupported(&self, pod: &Pod) -> Vec<UnsupportedField> {
        let mut found = check_supported(pod);
        found.extend(self.unenforced.field(pod));
        found
    }

    async fn start(
        context: &Arc<Context<U>>,
        starting: Starting,
        pod: &Pod,
        name: &Arc<str>,
        next: (u32, Duration),
    ) -> Result<(), RuntimeError> {
        start::start(context, &starting, pod, name, next).await
    }

    async fn exec(
        context: &Arc<Context<U>>,
        beside: (&Pod, &str),
        command: ExecCommand,
        files: CommandFiles,
        limit: Duration,
    ) -> Result<i32, ActionError> {
        hook::exec(context, beside, &command, files, limit).await
    }

    async fn settle(context: &Arc<Context<U>>, entry: &Arc<PodEntry>) -> Result<(), RuntimeError> {
        start::settle(context, entry).await?;
        adopt::look_again(context, entry).await
    }

    async fn send_stop_signal(
        context: &Arc<Context<U>>,
        entry: &Arc<PodEntry>,
        target: &StopTarget,
    ) {
        kill::send_stop_signal(context, entry, target).await;
    }

    async fn kill(
        context: &Arc<Context<U>>,
        entry: &Arc<PodEntry>,
        target: &StopTarget,
        round: u32,
    ) {
        kill::kill(context, entry, target, round).await;
    }

    async fn unkillable_error(
        context: &Arc<Context<U>>,
        entry: &Arc<PodEntry>,
        target: &StopTarget,
    ) -> RuntimeError {
        kill::unkillable_error(context, entry, target).await
    }

    /// Stops the pod's slice with everything in it.
    async fn clean_up(context: &Arc<Context<U>>, uid: &PodUid) -> Result<(), RuntimeError> {
        let slice = names::slice(uid);
        let stopped = context.driver.units.stop(&slice).await;
        stopped.map_err(|error| caused(format!("cannot stop {slice}"), error))?;
        context.driver.sure(uid);
        Ok(())
    }

    fn stats_sources(&self, uid: &PodUid, container: &str, run: &Run) -> StatsSources {
        let unit = names::main(uid, container, run.attempt);
        let pid = self.unit_cache.view(&unit).and_then(|view| view.main_pid);
        // Without a memory controller, by its processes.
        let root = pid.map(|pid| (pid, true));
        StatsSources { unit: pid.map(|pid| (pid, unit)), root, ..StatsSources::default() }
    }

    fn pods_cgroup(&self) -> Option<String> {
        Some(format!("/{}", names::SLICE))
    }
}

impl<U: ServiceUnits> SystemdRuntime<U> {
    /// Takes over the state directory, and every running pod that is recorded there or has units of this runtime.
    ///
    /// # Errors
    /// The directories cannot be created or read, another agent uses them, or the service manager does not list the
    /// units.
    pub async fn open(config: ProcessConfig, units: U) -> Result<Self, SystemdOpenError> {
        open::open(config, units).await
    }

    /// The service manager.
    pub fn units(&self) -> &U {
        &self.context.driver.units
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_kernel_shows_whether_containers_of_services_run() {
        let pod = "winddown.slice/winddown-podu.slice/winddown-podu-main";
        for (group, state, runs) in [
            (&*format!("0::/{pod}-0.service"), 'S', true),
            (&*format!("5:cpu:/\n1:name=systemd:/{pod}-0.service\n0::/"), 'S', true),
            (&*format!("0::/{pod}-12.service/init.scope"), 'S', true),
            ("0::/winddown.slice/winddown-survivors.slice/winddown-podu-a-1.service", 'S', true),
            (&*format!("0::/{pod}-0.service"), 'Z', false),
            (&*format!("0::/{pod}-0-log.service"), 'S', false),
            (&*format!("0::/{pod}-hook-1_2.service"), 'S', false),
            (&*format!("0::/user.slice/user-7.slice/user@7.service/{pod}-0.service"), 'S', false),
            // Of a machine in a container.
            (&*format!("0::/machine.slice/node.service/payload/{pod}-0.service"), 'S', false),
            (&*format!("0::/system.slice/docker-1f.scope/{pod}-0.service"), 'S', false),
            ("0::/system.slice/winddown.service", 'S', false),
            ("", 'S', false),
        ] {
            let proc = tempfile::tempdir().unwrap();
            let process = proc.path().join("7");
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("cgroup"), format!("{group}\n")).unwrap();
            let zeros = "0 ".repeat(15);
            fs::write(process.join("stat"), format!("7 (db) {state} 1 {zeros}1 0 50 0\n")).unwrap();
            assert_eq!(has_running(proc.path()).unwrap(), runs, "{group} {state}");
        }
        assert!(has_running(Path::new("/nonexistent")).is_err(), "unknown is not none");
    }

    #[test]
    fn an_agent_in_a_container_finds_the_services_of_its_own_systemd() {
        for (manager, runs) in [("/machine.slice/node.service/payload", true), ("", false)] {
            let proc = tempfile::tempdir().unwrap();
            let own = "/machine.slice/node.service/payload/init.scope";
            let pod = "winddown.slice/winddown-podu.slice/winddown-podu-a-0.service";
            let pod = format!("{manager}/{pod}");
            for (process, group) in [("1", own), ("7", &*pod)] {
                let process = proc.path().join(process);
                fs::create_dir_all(&process).unwrap();
                fs::write(process.join("cgroup"), format!("1:name=systemd:{group}\n")).unwrap();
            }
            let stat = format!("7 (db) S 1 {}1 0 50 0\n", "0 ".repeat(15));
            fs::write(proc.path().join("7/stat"), stat).unwrap();
            assert_eq!(has_running(proc.path()).unwrap(), runs, "{manager}");
        }
    }
}

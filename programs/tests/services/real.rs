//! The systemd of the node that this process runs in, with queries that only a real systemd answers.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use winddown_daemon::service::units_of_pods;
use winddown_runtimes::process::ShimCommand;
use winddown_runtimes::systemd::SystemdRuntime;
use winddown_shared::Runtime as _;
use winddown_systemd::units::UnitsClient;

use crate::bed::{
    Act, PATIENCE, POLITE, STUBBORN, exit_of, is_running, pod, run, status_until, stop,
};
use crate::node::PROGRAMS;
use crate::stage::{ManagedStage, Stage, dir_with_act, process_config};

/// Passes the names of all scenarios to a macro.
macro_rules! real_scenarios {
    ($then:ident $($words:ident)*) => {
        $then! { $($words)* =>
            a_bus_that_is_restarted_in_mid_life_ends_nothing_and_hides_no_end
            a_stop_that_is_under_way_while_the_bus_is_restarted_keeps_its_time
            a_container_may_have_as_many_tasks_as_the_node
            units_are_still_understood_after_the_service_manager_has_read_them_again
            a_container_that_somebody_else_stops_has_failed_whatever_it_exits_with
        }
    };
}
pub(crate) use real_scenarios;

/// Ends what a scenario that ran before in the same node has left: all have pods of the same names.
const CLEAR: &str =
    "for how in 'kill --signal=KILL' stop reset-failed; do systemctl $how 'winddown-pod*'; done";

/// The node's systemd. Its units are those of one test at a time.
pub(crate) struct Systemd {
    dir: TempDir,
}

impl Stage for Systemd {
    type Runtime = SystemdRuntime<UnitsClient>;

    async fn set() -> Self {
        let stage = Self { dir: dir_with_act() };
        // It fails if there is none, or one goes by itself meanwhile.
        Command::new("sh").args(["-c", CLEAR]).output().unwrap();
        stage.nothing_loaded().await;
        stage
    }

    async fn open(&self) -> Self::Runtime {
        let config = process_config(
            &self.dir,
            ShimCommand::new(Path::new(PROGRAMS).join("winddown-shim"), []),
        );
        SystemdRuntime::open(config, units_of_pods()).await.unwrap()
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl ManagedStage for Systemd {
    async fn running(&self) -> Vec<String> {
        // A unit that has stopped but is kept is listed as exited or failed.
        let is_main = |row: &&str| row.contains(" running ") && !row.contains("-log.service");
        let listed = systemctl(&["list-units", "--plain", "--no-legend", "winddown-pod*.service"]);
        listed.lines().filter(is_main).map(str::to_owned).collect()
    }

    async fn nothing_loaded(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let all = ["list-units", "--all", "--plain", "--no-legend", "winddown-pod*.service"];
            let left = systemctl(&all);
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left: {left}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn systemctl(args: &[&str]) -> String {
    let output = Command::new("systemctl").args(args).output().unwrap();
    assert!(output.status.success(), "systemctl {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn one(container: &Value) -> Value {
    json!({"restartPolicy": "Never", "containers": [container]})
}

pub(crate) async fn a_bus_that_is_restarted_in_mid_life_ends_nothing_and_hides_no_end<S>(stage: &S)
where
    S: ManagedStage,
{
    let runtime = stage.open().await;
    let lasts = pod("lasts", &one(&stage.container("main", POLITE)));
    let (ends, gate) = stage.gated("ends", Act { run: "gate", code: 9, ..POLITE });
    stage.up(&runtime, &lasts).await;
    run(&runtime, &ends).await;
    systemctl(&["stop", "dbus.socket", "dbus.service"]);
    gate.open();
    sleep(Duration::from_millis(300)).await;
    systemctl(&["start", "dbus.socket", "dbus.service"]);
    let seen = status_until(&runtime, &ends, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(exit_of(&seen[0]).unwrap().exit_code, 9);
    let seen = runtime.sync_pod(&lasts).await.unwrap().status.containers;
    assert!(is_running(&seen[0]) && seen[0].restart_count == 0, "{seen:?}");
    assert!(!stop(&runtime, &lasts, 20).await.forced());
    stage.nothing_loaded().await;
}

pub(crate) async fn a_stop_that_is_under_way_while_the_bus_is_restarted_keeps_its_time<S>(stage: &S)
where
    S: ManagedStage,
{
    let runtime = stage.open().await;
    let slow = Act { stop: "2", stop_code: 7, ..POLITE };
    let pod = pod("web", &one(&stage.container("main", slow)));
    stage.up(&runtime, &pod).await;
    let restart = async {
        sleep(Duration::from_millis(500)).await;
        tokio::task::spawn_blocking(|| systemctl(&["restart", "dbus.service"])).await.unwrap();
    };
    let (stopped, ()) = tokio::join!(stop(&runtime, &pod, 20), restart);
    assert_eq!((stopped.containers[0].exit_code, stopped.forced()), (7, false));
    stage.nothing_loaded().await;
}

pub(crate) async fn a_container_may_have_as_many_tasks_as_the_node<S: ManagedStage>(stage: &S) {
    let runtime = stage.open().await;
    let pod = pod("web", &one(&stage.container("main", POLITE)));
    stage.up(&runtime, &pod).await;
    let running = stage.running().await;
    let unit = running[0].split_whitespace().next().unwrap();
    let shown = systemctl(&["show", "-p", "TasksMax", unit]);
    assert_eq!(shown.trim(), "TasksMax=infinity", "{unit}");
    stop(&runtime, &pod, 20).await;
}

pub(crate) async fn units_are_still_understood_after_the_service_manager_has_read_them_again<S>(
    stage: &S,
) where
    S: ManagedStage,
{
    let runtime = stage.open().await;
    let pod = pod("web", &one(&stage.container("main", POLITE)));
    stage.up(&runtime, &pod).await;
    systemctl(&["daemon-reload"]);
    let listed = ["list-units", "--all", "--plain", "--no-legend", "winddown-pod*.service"];
    let units = systemctl(&listed);
    let units: Vec<_> = units.lines().filter_map(|row| row.split_whitespace().next()).collect();
    assert!(!units.is_empty());
    for unit in units {
        let shown = systemctl(&["show", "-p", "LoadState", unit]);
        assert_eq!(shown.trim(), "LoadState=loaded", "{unit}");
    }
    let seen = runtime.sync_pod(&pod).await.unwrap().status.containers;
    assert!(is_running(&seen[0]) && seen[0].restart_count == 0, "{seen:?}");
    assert!(!stop(&runtime, &pod, 20).await.forced());
    stage.nothing_loaded().await;
}

pub(crate) async fn a_container_that_somebody_else_stops_has_failed_whatever_it_exits_with<S>(
    stage: &S,
) where
    S: ManagedStage,
{
    let runtime = stage.open().await;
    for (name, act) in [("polite", POLITE), ("stubborn", STUBBORN)] {
        let spec = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [stage.container("main", act)]});
        let pod = pod(name, &spec);
        stage.up(&runtime, &pod).await;
        let running = stage.running().await;
        let unit = running[0].split_whitespace().next().unwrap().to_owned();
        systemctl(&["stop", &unit]);
        let seen = status_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
        let exit = exit_of(&seen[0]).unwrap();
        assert!(exit.exit_code > 128 && &*exit.reason == "Error", "{name}: {exit:?}");
        stage.nothing_loaded().await;
    }
}

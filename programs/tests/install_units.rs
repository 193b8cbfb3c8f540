//! The installed units, checked with systemd's own tools.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use winddown_install::{InstallOptions, Runtime, install_on};

/// The highest exposure score of the unit with a container runtime; lower is better.
const EXPOSURE_LIMIT: f64 = 2.5;

const DROP_IN: &str = "etc/systemd/system/winddown.service.d/10-process-runtime.conf";

/// Runs `systemd-analyze`, or prints why the test is skipped.
fn analyze(test: &str, args: &[&str]) -> Option<Output> {
    match Command::new("systemd-analyze").args(args).env("SYSTEMD_COLORS", "0").output() {
        Ok(output) => Some(output),
        Err(error) => {
            assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "systemd-analyze: {error}");
            println!("SKIPPED: {test}: systemd-analyze: {error}; apt install systemd");
            None
        }
    }
}

fn installed(runtime: Runtime) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let mut options =
        InstallOptions::new(Path::new(env!("CARGO_BIN_EXE_winddown")).parent().unwrap());
    options.root = root.path().to_owned();
    options.runtime = runtime;
    install_on(&options, None).unwrap();
    root
}

/// Returns the unit and its drop-in as one file, because the tool searches only the host's directories for drop-ins. A
/// drop-in is read after the unit, as if appended.
fn whole_unit(root: &TempDir) -> String {
    let unit = root.path().join("etc/systemd/system/winddown.service");
    let mut text = fs::read_to_string(unit).unwrap();
    if let Ok(drop_in) = fs::read_to_string(root.path().join(DROP_IN)) {
        text += &drop_in;
    }
    // The tool requires that the program exists on this host.
    text.replace("/usr/bin/winddownd", "/bin/true")
}

fn exposure(test: &str, runtime: Runtime) -> Option<f64> {
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join("winddown.service");
    fs::write(&unit, whole_unit(&installed(runtime))).unwrap();
    let unit = unit.to_str().unwrap();
    let output = analyze(test, &["security", "--offline=true", "--no-pager", unit])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let score = text.lines().find_map(|line| {
        line.split_once("Overall exposure level for winddown.service: ")?.1.split(' ').next()
    });
    Some(score.unwrap_or_else(|| panic!("no score in:\n{text}")).parse().unwrap())
}

/// Whether the machine's systemd is of this version or later.
fn is_at_least(version: u32) -> bool {
    let said = Command::new("systemd-analyze").arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let number = said.ok().and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
    number.is_some_and(|number: u32| number >= version)
}

#[test]
fn systemd_finds_nothing_to_say_against_the_units() {
    for runtime in [Runtime::Cri, Runtime::Process] {
        let dir = tempfile::tempdir().unwrap();
        let unit = dir.path().join("winddown.service");
        let whole = whole_unit(&installed(runtime));
        // systemd 252 reports an unknown line as an error, although at run time it ignores it.
        let known = |line: &&str| is_at_least(254) || !line.starts_with("DelegateSubgroup=");
        let lines: Vec<&str> = whole.lines().filter(known).collect();
        fs::write(&unit, lines.join("\n")).unwrap();
        let test = "systemd_finds_nothing_to_say_against_the_units";
        let args = ["verify", "--man=no", "--recursive-errors=no", unit.to_str().unwrap()];
        let Some(output) = analyze(test, &args) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{runtime:?}: {said:?}");
    }
}

#[test]
fn with_a_container_runtime_the_unit_is_well_sandboxed() {
    let test = "with_a_container_runtime_the_unit_is_well_sandboxed";
    let Some(score) = exposure(test, Runtime::Cri) else { return };
    println!("systemd-analyze security, container runtime: {score}");
    assert!(score <= EXPOSURE_LIMIT, "{score} is more than {EXPOSURE_LIMIT}");
}

/// The process runtime's unit scores badly on purpose: nothing that pods inherit may be left of
/// the sandbox, so that they run as from a shell.
#[test]
fn with_the_process_runtime_pods_inherit_no_sandbox() {
    let test = "with_the_process_runtime_pods_inherit_no_sandbox";
    let Some(score) = exposure(test, Runtime::Process) else { return };
    println!("systemd-analyze security, process runtime: {score}");
    assert!(score > 9.0, "{score}: something of the sandbox is left");
}

/// The agent keeps the values of Secrets in /run, and the kernel counts them as the unit's.
#[test]
fn nothing_of_the_agents_is_swapped_out_but_pods_that_are_its_children_may_be() {
    for (runtime, limits) in [(Runtime::Cri, &["0"][..]), (Runtime::Process, &["0", "infinity"])] {
        let whole = whole_unit(&installed(runtime));
        let set = whole.lines().filter_map(|line| line.strip_prefix("MemorySwapMax="));
        assert_eq!(set.collect::<Vec<_>>(), limits, "{runtime:?}");
    }
}

#[test]
fn the_drop_in_takes_back_exactly_what_pods_inherit() {
    let root = installed(Runtime::Process);
    let keys = |text: &str| -> BTreeSet<String> {
        let settings = text.lines().filter(|line| !line.starts_with(['#', '[']));
        settings.filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect()
    };
    let unit = root.path().join("etc/systemd/system/winddown.service");
    let unit = fs::read_to_string(unit).unwrap();
    let sandbox = unit.split_once("# --- Sandbox").unwrap().1.split_once("[Install]").unwrap().0;
    let drop_in = fs::read_to_string(root.path().join(DROP_IN)).unwrap();
    let kept: Vec<_> = keys(sandbox).difference(&keys(&drop_in)).cloned().collect();
    // Empty already; set for each pod by its launcher, so that the agent's own files are root's alone.
    assert_eq!(kept, ["AmbientCapabilities", "UMask"]);
    let added: Vec<_> = keys(&drop_in).difference(&keys(&unit)).cloned().collect();
    // Defaults that only matter to a unit with children of its own.
    assert_eq!(added, ["Delegate", "DelegateSubgroup", "OOMPolicy"]);
}

#[test]
fn every_paragraph_of_the_drop_in_begins_with_a_reason() {
    let root = installed(Runtime::Process);
    let text = fs::read_to_string(root.path().join(DROP_IN)).unwrap();
    for paragraph in text.split("\n\n") {
        let first = paragraph.lines().find(|line| *line != "[Service]").unwrap_or("#");
        assert!(first.starts_with('#'), "no reason above: {first}");
    }
}

/// A container runtime that repairs its storage and a k3s without its datastore start for hours, and their pods run: an
/// agent that waited for them would not come back after a crash.
#[test]
fn the_agent_waits_at_its_start_for_no_unit_that_may_never_come_up_and_stops_before_all_of_them() {
    let root = installed(Runtime::Cri);
    let units = root.path().join("etc/systemd/system");
    let after = |unit: &str| -> BTreeSet<String> {
        let text = fs::read_to_string(units.join(unit)).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("After="));
        lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
    };
    let (agent, order) = (after("winddown.service"), after("winddown-order.target"));
    let short = ["dbus", "dbus-broker", "systemd-logind"].map(|name| format!("{name}.service"));
    let slow = |unit: &&String| unit.ends_with(".service") && !short.contains(unit);
    assert_eq!(agent.iter().find(slow), None);
    assert!(agent.contains("winddown-order.target"));
    let mut needed: Vec<&str> =
        "containerd crio docker kubelet k3s rke2-server k0sworker".split(' ').collect();
    // The API server and what it needs, where they are units.
    needed.extend(["etcd", "kube-apiserver", "snap.microk8s.daemon-k8s-dqlite", "snap.etcd.etcd"]);
    for unit in needed {
        assert!(order.contains(&format!("{unit}.service")), "{unit}: {order:?}");
    }
    let unit = fs::read_to_string(units.join("winddown.service")).unwrap();
    // A start of its own would wait for all of them, and the agent for that.
    assert!(unit.contains(
        "systemctl --no-block --job-mode=ignore-dependencies start winddown-order.target"
    ));
    assert!(!unit.contains("\nWants=winddown-order.target"));
}

//! Commands, from the command line to the output.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::world::{World, printing, run};
use crate::{Cli, Exit, Output, dispatch};
use winddown_control::api::{
    ClosedBy, ConfigView, DrainEvent, DrainRequest, Health, KillAnswer, KillBody, NodeStatus,
    NoticeBody, PreemptionCase, PreemptionPlan, ReleaseAnswer, ReportList, RoomVerdict,
    ShutdownPlan, StartPlan, Status, WithdrawAnswer,
};
use winddown_control::{
    ActApi, ApiError, ControlSocket, HealthApi, Limits, PlanApi, ReportApi, Server, StatusApi,
};

const NO_AGENT: &str = "--socket /nonexistent/winddown.sock";

#[test]
fn without_an_agent_a_command_says_so_what_to_do_and_ends_with_4() {
    for command in [
        "status",
        "status --watch",
        "kill web",
        "drain",
        "plan shutdown",
        "plan preemption",
        "config show --running",
    ] {
        let ran = run(&format!("winddown {NO_AGENT} {command}"));
        assert_eq!(ran.exit, Exit::AgentUnreachable, "{command}");
        assert_eq!(
            ran.err,
            "error: cannot reach the agent: /nonexistent/winddown.sock does not exist\n  \
             next: `sudo systemctl start winddown` starts the agent (where there is no such unit, \
             `sudo winddown install` first); `systemctl status winddown` says why it does not run\n",
            "{command}"
        );
        assert_eq!(ran.out, "", "{command}");
    }
}

#[test]
fn by_the_default_configuration_an_ordinary_pod_and_one_of_the_node_both_get_the_grace_of_30s() {
    let pods = tempfile::tempdir().unwrap();
    for (name, priority) in [("web", 0), ("dns", 2_000_001_000)] {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  hostNetwork: true\n  \
             priority: {priority}\n  containers: [{{name: c, image: host, command: [/bin/true]}}]\n"
        );
        std::fs::write(pods.path().join(format!("{name}.yaml")), manifest).unwrap();
    }
    let ran = World::new("nodeName: edge-1\n")
        .run(&format!("plan shutdown -f {}", pods.path().display()));
    let rows: Vec<String> = ran
        .out
        .lines()
        .filter(|line| line.contains("default "))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(rows, ["default web-edge-1 0 30s 30s", "default dns-edge-1 2000001000 30s 30s"]);
    assert!(!ran.out.contains("! "), "{}", ran.out);
}

#[test]
fn a_config_is_checked_with_code_3_when_it_is_wrong() {
    let ran = World::new("shutdownGracePeriod: 0s\n").run("config check");
    assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
    assert!(ran.out.ends_with("config.yaml: valid, 1 warning\n"), "{}", ran.out);
    assert!(
        ran.err.starts_with("note: ") && ran.err.contains("shutdownGracePeriod"),
        "{}",
        ran.err
    );
    let ran = World::new("shutdownGracePeriod: soon\nmaxPods: 0\n").run("config check");
    assert_eq!(ran.exit, Exit::ConfigInvalid);
    for wrong in ["shutdownGracePeriod", "maxPods"] {
        assert!(ran.err.contains(wrong), "{}", ran.err);
    }
    let ran = World::new("shutdownGracePeriod: 45s\n").run("config show");
    assert!(ran.out.contains("shutdownGracePeriod: 45s\n"), "{}", ran.out);
    assert!(run("winddown config default").out.contains("shutdownGracePeriod"));
}

#[test]
fn json_lines_are_planned_one_by_one_and_a_bad_one_does_not_stop_the_rest() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("cases.jsonl");
    let case = |id: &str| {
        format!(
            "{{\"id\":\"{id}\",\"config\":{{\"shutdownGracePeriod\":\"20s\"}},\"pods\":[{{\"metadata\":{{\"name\":\"p\"}}}}]}}\n"
        )
    };
    std::fs::write(&file, format!("{}\n{{\"pods\":\n{}", case("one"), case("two"))).unwrap();
    let ran = run(&format!("winddown plan shutdown -o json -f {}", file.display()));
    let ids: Vec<String> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].to_string())
        .collect();
    assert_eq!(ids, ["\"one\"", "\"two\""]);
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.contains("cases.jsonl:3\n  because: cut off"), "{}", ran.err);
    assert!(ran.err.contains("error: cases that could not be read: 1\n  next: fix"), "{}", ran.err);

    std::fs::write(&file, case("one")).unwrap();
    let ran = run(&format!("winddown plan shutdown -f {}", file.display()));
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Success, ""));
    assert_eq!(
        ran.out,
        "one:\n  priority 0 and above: at most 20s\n    p 20s\n  priority 2000000000 and above: at most 0s\n"
    );
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},
    "spec":{"terminationGracePeriodSeconds":40,"hostNetwork":true,
    "containers":[{"name":"web","command":["web"]}]}}"#;

#[test]
fn a_directory_and_a_manifest_are_planned_without_an_agent() {
    let world = World::new("shutdownGracePeriod: 30s\n");
    let directory = tempfile::TempDir::new().unwrap();
    let manifest = directory.path().join("pod.json");
    std::fs::write(&manifest, POD).unwrap();
    for path in [directory.path(), &manifest] {
        let ran = world.run(&format!("plan shutdown -f {}", path.display()));
        assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
        assert!(ran.out.starts_with("shutdown: 1 pod to terminate, at most 30s\n"), "{}", ran.out);
    }
    let ran = run("winddown plan shutdown -f /nonexistent");
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.starts_with("error: /nonexistent: cannot be read\n  because: No such file"));
}

#[test]
fn a_plan_tells_what_the_configured_clouds_notice_leaves_undone() {
    let world = World::new("shutdownGracePeriod: 2m\nshutdownNotices:\n  cloud: gcp\n");
    let directory = tempfile::TempDir::new().unwrap();
    std::fs::write(directory.path().join("pod.json"), POD).unwrap();
    let plan = |more: &str| {
        world.run(&format!("plan shutdown -f {} {more}", directory.path().display())).out
    };
    assert!(plan("").contains("\n! after a notice of gcp, 30s: "), "{}", plan(""));
    let asked = plan("--deadline 5s");
    assert!(!asked.contains("notice of gcp"), "{asked}");
}

#[test]
fn the_last_run_that_ended_a_pod_is_checked_and_not_a_drain_that_found_none() {
    let world = World::new("");
    let pod = serde_json::json!([{
        "namespace": "default", "name": "web", "uid": "u", "priority": 0, "graceSeconds": 20.0,
        "outcome": "killed", "requestedMs": 0, "exitMs": 900,
    }]);
    let forced = world.keep_with(1, "b0", "loginManager", "forced", &pod);
    let empty = world.keep(2, "b0", "drain", "clean");
    let ran = world.run("report --check -o json");
    let shown: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&shown["outcome"], ran.exit), (&"forced".into(), Exit::PodsLeft), "{forced}");
    assert_eq!(world.run(&format!("report --check --id {empty}")).exit, Exit::Success);
}

#[test]
fn a_run_that_went_wrong_is_checked_even_if_it_was_cancelled_or_its_pods_are_unknown() {
    for (end, wanted) in [
        ("exited", Exit::Success),
        ("spared", Exit::Success),
        ("killed", Exit::PodsLeft),
        ("terminating", Exit::PodsLeft),
        ("stillRunning", Exit::PodsLeft),
    ] {
        let world = World::new("");
        let pod = serde_json::json!([{
            "namespace": "default", "name": "web", "uid": "u", "priority": 0,
            "graceSeconds": 20.0, "outcome": end,
        }]);
        world.keep_with(1, "b0", "loginManager", "cancelled", &pod);
        assert_eq!(world.run("report --check").exit, wanted, "{end}");
    }
    let world = World::new("");
    let pod = serde_json::json!([{
        "namespace": "default", "name": "web", "uid": "u", "priority": 0,
        "graceSeconds": 20.0, "outcome": "exited",
    }]);
    world.keep_with(1, "b0", "loginManager", "clean", &pod);
    assert_eq!(world.run("report --check").exit, Exit::Success);
    world.keep(2, "b1", "loginManager", "incomplete");
    assert_eq!(world.run("report --check").exit, Exit::PodsLeft, "no pod is known of this run");
    std::fs::write(world.reports().join("shutdown-20261120T120300Z-b2.json"), "").unwrap();
    let ran = world.run("report --check --id none");
    assert_eq!(ran.exit, Exit::Failure, "{}", ran.err);
    let ran = world.run("report --check");
    assert!(ran.exit == Exit::PodsLeft && ran.err.contains("20261120T120300Z"), "{}", ran.err);
}

#[test]
fn a_check_without_an_agent_passes_over_no_run_that_the_power_or_the_agent_has_cut() {
    let pod = |end: &str| {
        serde_json::json!([{
            "namespace": "default", "name": "web", "uid": "u", "priority": 0,
            "graceSeconds": 20.0, "requestedMs": 0, "outcome": end,
        }])
    };
    let this = winddown_host::machine::boot_id();
    let checked = |run: &World, wanted: Exit, said: &str| {
        let ran = run.run("report --check");
        assert_eq!(ran.exit, wanted, "{}", ran.err);
        assert!(ran.err.contains(said), "{said}: {}", ran.err);
    };
    let world = World::new("");
    world.keep_with(1, "b1", "loginManager", "clean", &pod("exited"));
    let mark = |boot: &str| {
        let mark = serde_json::json!({"bootId": boot, "startedAt": "2026-11-20T11:00:00Z"});
        std::fs::write(world.state().join("boot.json"), mark.to_string()).unwrap();
    };
    mark("b1");
    checked(&world, Exit::Success, "");
    mark("b2");
    let cut = "no report says how the pods last terminated: the node went";
    checked(&world, Exit::PodsLeft, cut);
    for shows_an_earlier_one in ["report", "report -b -1"] {
        let ran = world.run(shows_an_earlier_one);
        assert_eq!(ran.exit, Exit::Success);
        assert!(ran.err.contains(cut), "{}", ran.err);
    }

    world.leave_record("shutdown.json", 2, "b2", &pod("terminating"));
    checked(&world, Exit::PodsLeft, "the machine went down in the middle");
    // The next agent makes a report of it.
    world.keep_with(2, "b2", "loginManager", "clean", &pod("exited"));
    checked(&world, Exit::Success, "");

    for (name, minute) in [("shutdown.json", 3), ("drain.json", 4)] {
        mark("b2");
        world.leave_record(name, minute, &this, &pod("terminating"));
        let what = "the agent was stopped in the middle of the run that began at 2026-11-20 12:0";
        checked(&world, Exit::PodsLeft, what);
        // The clock was set back between two runs.
        world.keep_with(30, &this, "loginManager", "cancelled", &pod("exited"));
        checked(&world, Exit::PodsLeft, what);
        world.keep_with(minute, &this, "loginManager", "clean", &pod("exited"));
        checked(&world, Exit::Success, "");
        std::fs::write(world.state().join(name), "{").unwrap();
        checked(&world, Exit::PodsLeft, "the last run may be one whose record cannot be read");
        std::fs::remove_file(world.state().join(name)).unwrap();
    }
    // How an earlier boot ended is known, whatever was cut in it.
    world.leave_record("drain.json", 5, "b0", &pod("terminating"));
    checked(&world, Exit::Success, "");
    std::fs::write(world.state().join("boot.json"), "{").unwrap();
    checked(&world, Exit::PodsLeft, "the last run may be one whose record cannot be read");
}

#[test]
fn reports_are_read_from_disk_when_no_agent_answers() {
    let world = World::new("");
    assert!(world.run("report").err.contains("no shutdown has been reported on this node yet"));
    for (minute, boot) in [(1, "b0"), (2, "b1"), (3, "b2"), (4, "b2")] {
        world.keep(minute, boot, "loginManager", if minute == 4 { "forced" } else { "clean" });
    }
    // Reports are identified by the minute at which they began.
    let shown = |line: &str| {
        let ran = world.run(&format!("report -o json {line}"));
        let report: serde_json::Value = serde_json::from_str(&ran.out).expect(&ran.err);
        report["startedAt"].as_str().unwrap()[14..16].to_owned()
    };
    assert_eq!(shown(""), "04");
    assert_eq!(world.run("report").exit, Exit::Success);
    assert_eq!(world.run("report --check").exit, Exit::PodsLeft);
    // No report is of this boot.
    assert_eq!(shown("--boot -1"), "04");
    assert_eq!(shown("-b -2"), "02");
    assert_eq!(shown("-b -3"), "01");
    let ran = world.run("report -b");
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.contains("this boot has not been shut down"), "{}", ran.err);
    let ran = world.run("report --boot -4");
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.contains("no report of boot -4: only 3 boots left reports"), "{}", ran.err);
    world.keep(5, "b3", "drain", "clean");
    assert_eq!(shown("--boot -1"), "04", "a drain is no shutdown");
    world.keep(6, &winddown_host::machine::boot_id(), "loginManager", "cancelled");
    assert_eq!((shown("-b 0"), shown("-b -1")), ("06".to_owned(), "04".to_owned()));
    assert_eq!(world.run("report -b 0 --check").exit, Exit::Success);
    assert_eq!(world.run("report --id ../../etc/passwd").exit, Exit::Usage);
}

#[test]
fn reports_are_listed_with_those_that_cannot_be_read() {
    let world = World::new("");
    world.keep(1, "b0", "loginManager", "clean");
    let broken = world.reports().join("shutdown-20261120T120200Z-b0.json");
    std::fs::write(&broken, "").unwrap();
    let ran = world.run("report --list");
    assert!(ran.out.starts_with("ID "), "{}", ran.out);
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
    assert!(ran.err.starts_with("note: ") && ran.err.contains("shutdown-2026"), "{}", ran.err);
    assert!(world.run("report -o html").out.starts_with("<!DOCTYPE html>"));
    assert_eq!(world.run("report --list -o html").exit, Exit::Usage);
}

#[test]
fn a_copied_report_is_read_from_its_file() {
    let world = World::new("");
    world.keep(1, "b0", "loginManager", "clean");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), world.run("report -o json").out).unwrap();
    let path = file.path().display();
    let ran = run(&format!("winddown report --file {path}"));
    assert_eq!((ran.exit, &*ran.err), (Exit::Success, ""));
    std::fs::write(file.path(), "{\"outcome\":\"clean\"}").unwrap();
    let ran = run(&format!("winddown report --file {path}"));
    let expected = format!("error: {path}\n  because: not a report of this version\n");
    assert!(ran.err.starts_with(&expected), "{}", ran.err);
    std::fs::write(file.path(), "not json").unwrap();
    let ran = run(&format!("winddown report --file {path}"));
    assert!(ran.err.starts_with(&format!("error: {path}: is not a report\n")), "{}", ran.err);
    assert_eq!(run("winddown report --file /nonexistent").exit, Exit::Failure);
}

#[test]
fn completions_and_the_version_are_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(&format!("winddown completions {shell}"));
        assert!(ran.out.contains("drain"), "{shell}");
        assert!(!ran.out.contains("shim "), "{shell} offers a hidden command");
    }
    let ran = run("winddown version");
    assert_eq!(ran.out, format!("winddown {}\n", env!("CARGO_PKG_VERSION")));
    let json: serde_json::Value =
        serde_json::from_str(&run("winddown version -o json").out).unwrap();
    assert_eq!(json["apiVersion"], "winddown.dev/v1alpha1");
}

#[test]
fn a_reader_that_goes_away_changes_no_verdict_and_ends_what_follows() {
    struct Gone;
    impl io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let bad = tempfile::tempdir().unwrap();
    std::fs::write(bad.path().join("bad.yaml"), "kind: Nonsense\n").unwrap();
    let plan = format!("plan shutdown -f {}", bad.path().display());
    with_agent(|socket| {
        for (command, verdict) in [
            ("config default", Exit::Success),
            ("status --watch", Exit::Success),
            ("status --watch -o json", Exit::Success),
            ("drain", Exit::PodsLeft),
            ("drain -o json", Exit::PodsLeft),
            ("kill stubborn -o yaml", Exit::PodsLeft),
            (&plan, Exit::ConfigInvalid),
        ] {
            let mut output = Output::plain(Gone, io::sink());
            let line = format!("winddown {socket} {command}");
            let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
            let result = dispatch(&cli, &mut output);
            assert_eq!(output.finish(result), verdict, "{command}");
        }
    });
}

#[test]
fn a_full_disk_under_the_output_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut output = Output::plain(full, io::sink());
    let cli = Cli::try_parse_from(["winddown", "config", "default"]).unwrap();
    let error = dispatch(&cli, &mut output).unwrap_err();
    assert_eq!(error.error.to_string(), "the answer cannot be written");
    assert_eq!(output.finish(Err(error)), Exit::Failure);
}

/// An agent on a thread of its own, for commands that bring their own runtime.
pub(super) fn with_agent(test: impl FnOnce(&str)) {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("s");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let stop = CancellationToken::new();
    let socket = runtime.block_on(ControlSocket::bind(&path, None)).unwrap();
    let server = Server::new(Arc::new(Agent::default()), Limits::default(), stop.clone());
    let task = runtime.spawn(server.serve(socket));
    test(&format!("--socket {}", path.display()));
    stop.cancel();
    runtime.block_on(task).unwrap();
}

#[test]
fn the_status_is_printed_in_each_form() {
    with_agent(|socket| {
        let text = run(&format!("winddown {socket} status"));
        assert_eq!(text.exit, Exit::Success, "{}", text.err);
        assert!(text.out.starts_with("node       edge-1, winddown"), "{}", text.out);
        let json = run(&format!("winddown {socket} status -o json"));
        let read: Status = serde_json::from_str(&json.out).unwrap();
        assert_eq!(read, Agent::default().status());
        let yaml = run(&format!("winddown {socket} status -o yaml"));
        let read: Status = serde_saphyr::from_str(&yaml.out).unwrap();
        assert_eq!(read, Agent::default().status());
    });
}

#[test]
fn a_kill_says_how_the_pod_ended_and_5_when_it_did_not() {
    with_agent(|socket| {
        let ran = run(&format!("winddown {socket} kill web"));
        assert_eq!(
            (ran.exit, ran.out.as_str()),
            (Exit::Success, "default/web: terminated in 1.5s\n")
        );
        let ran = run(&format!("winddown {socket} kill stubborn --grace 1s"));
        assert_eq!(ran.exit, Exit::PodsLeft);
        assert_eq!(
            ran.out,
            "default/stubborn: still runs after 11s (c: in D state); the kill continues\n"
        );
    });
}

#[test]
fn a_drain_tells_each_group_and_pod_and_ends_with_5_when_sigkill_was_needed() {
    with_agent(|socket| {
        let ran = run(&format!("winddown {socket} drain"));
        assert_eq!(
            ran.out,
            "2 pods in 1 group, at most 30s\n\
             priority 0 and above: 2 pods, at most 20s\n  \
             default/a terminated in 1.2s\n  \
             default/b\\x1b[2J terminated in 20s, SIGKILL was needed\n\
             priority 0 and above: all terminated in 20s\n\
             2 pods terminated in 20s, 1 needed SIGKILL\n"
        );
        assert_eq!(ran.exit, Exit::PodsLeft);
        let ran = run(&format!("winddown {socket} drain -o json"));
        assert_eq!(ran.out.lines().count(), 6);
        assert!(ran.out.starts_with("{\"apiVersion\":\"winddown.dev/v1alpha1\",\"kind\":\"DrainEvent\",\"event\":\"started\","), "{}", ran.out);
    });
}

#[test]
fn a_deadline_and_its_reason_reach_the_agent_and_the_pods_end_is_followed() {
    with_agent(|socket| {
        // run() splits at every space, and this reason has one.
        let socket = socket.split(' ').next_back().expect("a path");
        let line = ["winddown", "--socket", socket, "drain", "--deadline", "2m", "--reason"];
        let cli = Cli::try_parse_from(line.into_iter().chain(["rack moves"])).expect("parsed");
        let ran = printing(|output| dispatch(&cli, output));
        assert_eq!(ran.exit, Exit::PodsLeft);
        assert!(ran.out.starts_with("2 pods in 1 group, at most 30s\n"), "{}", ran.out);
    });
}

#[test]
fn a_withdrawal_says_what_keeps_the_node_closed() {
    with_agent(|socket| {
        let ran = run(&format!("winddown {socket} undrain"));
        assert_eq!(
            ran.out,
            "the deadline is withdrawn; pods are still not admitted: the node is shutting down\n"
        );
        assert_eq!(ran.exit, Exit::Refused);
        let ran = run(&format!("winddown {socket} undrain -o json"));
        let head = "{\"apiVersion\":\"winddown.dev/v1alpha1\",\"kind\":\"WithdrawAnswer\",\"withdrawn\":true,";
        assert!(ran.out.starts_with(head), "{}", ran.out);
        let ran = run(&format!("winddown {socket} undrain -o yaml"));
        assert!(ran.out.contains("\nkind: WithdrawAnswer\n"), "{}", ran.out);
    });
}

#[test]
fn a_wait_ends_in_time_and_says_what_was_missing() {
    with_agent(|socket| {
        let ran = run(&format!("winddown {socket} wait --for=lock --timeout 50ms"));
        assert_eq!(ran.exit, Exit::Failure);
        assert_eq!(
            ran.err,
            "error: after 50ms: the shutdown lock is not held\n  next: `winddown doctor` says what \
             to do; --timeout waits longer\n"
        );
        let ran = run(&format!("winddown {socket} wait --for=lock --timeout 1200ms"));
        assert!(ran.err.contains(", 1s: the shutdown lock is not held\n"), "{}", ran.err);
        let ran = run(&format!("winddown {socket} wait --for=drained"));
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Success, "the node is drained\n"));
    });
    let ran = run(&format!("winddown {NO_AGENT} wait --for=lock --timeout 50ms"));
    assert_eq!(ran.exit, Exit::AgentUnreachable, "{}", ran.err);
}

/// Its status never changes.
#[derive(Default)]
struct Agent(watch::Sender<u64>);

impl StatusApi for Agent {
    fn status(&self) -> Status {
        let node = NodeStatus { name: "edge-1".to_owned(), ..NodeStatus::default() };
        let time = "2026-11-20T12:00:00Z".parse().unwrap();
        let mut status = Status { time, node, ..Status::default() };
        status.admission_closed_by = vec![ClosedBy::Drain];
        status
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    fn config(&self) -> ConfigView {
        ConfigView::default()
    }

    fn metrics(&self) -> String {
        String::new()
    }
}

impl HealthApi for Agent {
    fn health(&self) -> Health {
        Health::default()
    }

    fn readiness(&self) -> Health {
        Health::default()
    }
}

impl PlanApi for Agent {
    async fn shutdown_plan(&self, within: Option<Duration>) -> ShutdownPlan {
        ShutdownPlan {
            requested_seconds: within.map_or(30.0, |within| within.as_secs_f64()),
            ..Default::default()
        }
    }

    fn start_plan(&self) -> Result<StartPlan, ApiError> {
        Ok(StartPlan { group_timeout_seconds: 30.0, ..Default::default() })
    }

    fn preemption_plan(
        &self,
        manifest: Option<&[u8]>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ApiError> {
        let mut plan = PreemptionPlan {
            strategy: strategy.unwrap_or("distance").to_owned(),
            ..Default::default()
        };
        let named = |text: &[u8]| PreemptionCase {
            pod: String::from_utf8_lossy(text).into_owned(),
            verdict: RoomVerdict::Starts,
            ..PreemptionCase::default()
        };
        plan.pod = manifest.map(named);
        Ok(plan)
    }

    async fn eviction_plan(
        &self,
        signal: Option<&str>,
    ) -> Result<winddown_control::api::EvictionPlan, ApiError> {
        Ok(super::eviction::asked(signal))
    }
}

impl ActApi for Agent {
    async fn kill(&self, namespace: &str, name: &str, _: KillBody) -> Result<KillAnswer, ApiError> {
        let still_running = name == "stubborn";
        Ok(KillAnswer {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            took_seconds: if still_running { 11.0 } else { 1.5 },
            message: "c: in D state".to_owned(),
            still_running,
            ..KillAnswer::default()
        })
    }

    async fn release(&self, namespace: &str, name: &str) -> Result<ReleaseAnswer, ApiError> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Ok(ReleaseAnswer { namespace, name, ..ReleaseAnswer::default() })
    }

    async fn drain(
        &self,
        _: DrainRequest,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        let (events, receiver) = mpsc::unbounded_channel();
        let ended = |name: &str, took_seconds, forced| DrainEvent::PodTerminated {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            took_seconds,
            forced,
        };
        for event in [
            DrainEvent::Started { groups: 1, pods: 2, seconds: 30.0, pods_unknown: false },
            DrainEvent::GroupStarted { priority: 0, name: None, pods: 2, seconds: 20.0 },
            ended("a", 1.2, false),
            ended("b\x1b[2J", 20.0, true),
            DrainEvent::GroupFinished {
                priority: 0,
                name: None,
                took_seconds: 20.0,
                still_running: 0,
            },
            DrainEvent::Finished {
                terminated: 2,
                forced: 1,
                still_running: 0,
                took_seconds: 20.0,
                pods_unknown: false,
                cancelled: false,
            },
        ] {
            events.send(event).unwrap();
        }
        Ok(receiver)
    }

    async fn give_notice(
        &self,
        body: NoticeBody,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        assert_eq!((body.in_seconds, body.text.as_str()), (Some(120), "rack moves"));
        self.drain(DrainRequest::default()).await
    }

    async fn withdraw_notice(&self) -> WithdrawAnswer {
        let message = "the node is shutting down".to_owned();
        WithdrawAnswer {
            withdrawn: true,
            opened: false,
            admission_closed: true,
            message,
            warning: None,
        }
    }
}

impl ReportApi for Agent {
    async fn reports(&self) -> Result<ReportList, ApiError> {
        Ok(ReportList::default())
    }

    async fn report(&self, _: &str) -> Result<serde_json::Value, ApiError> {
        Ok(serde_json::Value::Null)
    }
}

//! Commands from what is typed to what is printed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::world::{Sink, World, run, run_with};
use crate::{Cli, Exit, Output, dispatch};
use winddown_control::api::{
    ConfigView, DrainEvent, DrainRequest, Health, KillAnswer, KillBody, NodeStatus, NoticeBody,
    PreemptionCase, PreemptionPlan, ReportEntry, ReportList, RoomVerdict, ShutdownPlan, Status,
    WithdrawAnswer,
};
use winddown_control::{AgentApi, ApiError, ControlSocket, Limits, Server};

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
            "error: /nonexistent/winddown.sock: no agent listens here, there is no such socket\n  \
             next: is the agent running? `systemctl status winddown` tells, \
             `systemctl start winddown` starts it\n",
            "{command}"
        );
        assert_eq!(ran.out, "", "{command}");
    }
}

#[test]
fn a_config_is_checked_with_code_3_when_it_is_wrong() {
    let ran = run("winddown config check /c.yaml");
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Success, "/c.yaml: valid, 1 warning\n"));
    assert_eq!(ran.err, "note: cgroupDriver is not used\n");
    let ran = run_with("winddown config check", &World { config_error: true, ..World::default() });
    assert_eq!(ran.exit, Exit::ConfigInvalid);
    assert_eq!(
        ran.err,
        "error: config.yaml:3: shutdownGracePeriod: not a duration\n  \
         config.yaml:4: maxPods: must be at least 1\n"
    );
    assert_eq!(run("winddown config show").out, "kind: Configuration\n");
    assert_eq!(run("winddown config default").out, "# defaults\n");
}

#[test]
fn json_lines_are_planned_one_by_one_and_a_bad_one_does_not_stop_the_rest() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("cases.jsonl");
    let case = |id: &str| {
        format!(
            "{{\"id\":\"{id}\",\"config\":{{}},\"pods\":[{{\"metadata\":{{\"name\":\"p\"}}}}]}}\n"
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
    assert!(ran.err.starts_with("error: line 3\n  because: cut off"), "{}", ran.err);
    assert!(ran.err.ends_with("error: cases that could not be read: 1\n"), "{}", ran.err);

    std::fs::write(&file, case("one")).unwrap();
    let ran = run(&format!("winddown plan shutdown -f {}", file.display()));
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Success, ""));
    assert_eq!(ran.out, "one:\n  priority 0 and above: at most 20s\n    p 3s\n");
}

#[test]
fn a_directory_and_a_manifest_are_planned_without_an_agent() {
    let directory = tempfile::TempDir::new().unwrap();
    let manifest = directory.path().join("pod.json");
    std::fs::write(&manifest, "{\"kind\":\"Pod\"}").unwrap();
    for path in [directory.path(), &manifest] {
        let ran = run(&format!("winddown {NO_AGENT} plan shutdown -f {}", path.display()));
        assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
        assert_eq!(ran.out, "shutdown: no pods to end, at most 30s\n");
    }
    let ran = run("winddown plan shutdown -f /nonexistent");
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.starts_with("error: /nonexistent: cannot be read\n  because: No such file"));
}

#[test]
fn a_plan_tells_what_the_configured_clouds_notice_leaves_undone() {
    let directory = tempfile::TempDir::new().unwrap();
    let world = World { notice: Some(("gcp", Duration::from_secs(30))), ..World::default() };
    let plan = |more: &str| {
        let file = directory.path().display();
        run_with(&format!("winddown {NO_AGENT} plan shutdown -f {file} {more}"), &world).out
    };
    assert!(plan("").ends_with("\n! after a notice of gcp, 30s: web gets 30s\n"), "{}", plan(""));
    let asked = plan("--deadline 5s");
    assert!(asked.ends_with("\n! web gets 5s\n"), "{asked}");
}

#[test]
fn the_last_run_that_ended_a_pod_is_checked_and_not_a_drain_that_found_none() {
    let entry = |id: &str, pods| ReportEntry { id: id.to_owned(), pods, ..ReportEntry::default() };
    let world = World {
        reports: vec![entry("empty", 0), entry("forced", 2)],
        outcome: "forced",
        ..World::default()
    };
    let ran = run_with(&format!("winddown {NO_AGENT} report --check"), &world);
    assert_eq!((ran.out.as_str(), ran.exit), ("report \"forced\"\n", Exit::PodsLeft));
}

#[test]
fn reports_are_read_from_disk_when_no_agent_answers() {
    let entry = |id: &str, boot: &str| ReportEntry {
        id: id.to_owned(),
        boot_id: boot.to_owned(),
        outcome: "clean".to_owned(),
        ..ReportEntry::default()
    };
    let world = World {
        reports: vec![entry("r4", "b2"), entry("r3", "b2"), entry("r2", "b1"), entry("r1", "b0")],
        outcome: "forced",
        config_error: false,
        ..World::default()
    };
    let run = |line: &str| run_with(&format!("winddown {NO_AGENT} report {line}"), &world);
    assert_eq!(run("").out, "report \"latest\"\n");
    // No report is of this boot.
    assert_eq!(run("--boot -1").out, "report \"r4\"\n");
    assert_eq!(run("-b -2").out, "report \"r2\"\n");
    assert_eq!(run("-b -3").out, "report \"r1\"\n");
    let ran = run("-b");
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.contains("this boot has not been shut down"), "{}", ran.err);
    let this = winddown_machine::host::boot_id();
    let called_off = World {
        reports: [vec![entry("r5", &this)], world.reports.clone()].concat(),
        outcome: "cancelled",
        ..World::default()
    };
    let run_here =
        |line: &str| run_with(&format!("winddown {NO_AGENT} report {line}"), &called_off);
    assert_eq!(run_here("-b 0").out, "report \"r5\"\n");
    assert_eq!(run_here("-b -1").out, "report \"r4\"\n");
    let drain = ReportEntry { trigger: "drain".to_owned(), ..entry("r5", "b3") };
    let drained = World {
        reports: [vec![drain], world.reports.clone()].concat(),
        outcome: "clean",
        ..World::default()
    };
    let ran = run_with(&format!("winddown {NO_AGENT} report --boot -1"), &drained);
    assert_eq!(ran.out, "report \"r4\"\n", "a drain is no shutdown");
    let ran = run("--boot -4");
    assert_eq!(ran.exit, Exit::Failure);
    assert!(ran.err.contains("no report of boot -4: only 3 boots left reports"), "{}", ran.err);
    let ran = run("--list");
    assert!(
        ran.out.starts_with("ID  STARTED  TRIGGER  OUTCOME  PODS  TOOK  BOOT\n"),
        "{}",
        ran.out
    );
    assert_eq!(ran.err, "note: x.json: empty\n");
    assert_eq!(run("-o svg").out, "<svg id=\"latest\"/>\n");
    assert_eq!(run("--list -o svg").exit, Exit::Usage);
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    std::fs::write(file.path(), "{\"id\":\"copied\"}").unwrap();
    assert_eq!(run(&format!("--file {path}")).out, "report \"copied\"\n");
    std::fs::write(file.path(), "not json").unwrap();
    let ran = run(&format!("--file {path}"));
    assert!(ran.err.starts_with(&format!("error: {path}: is not a report\n")), "{}", ran.err);
    assert_eq!(run("--file /nonexistent").exit, Exit::Failure);
    assert_eq!(run("").exit, Exit::Success);
    assert_eq!(run("--check").exit, Exit::PodsLeft);
    assert_eq!(run("--id ../../etc/passwd").exit, Exit::Usage);
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
fn a_reader_that_goes_away_is_no_failure() {
    struct Gone;
    impl io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut output = Output::plain(Gone, io::sink());
    let cli = Cli::try_parse_from(["winddown", "config", "default"]).unwrap();
    let result = dispatch(&cli, &World::default(), &mut output);
    assert_eq!(output.finish(result), Exit::Success);
}

#[test]
fn a_full_disk_under_the_output_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut output = Output::plain(full, io::sink());
    let cli = Cli::try_parse_from(["winddown", "config", "default"]).unwrap();
    let result = dispatch(&cli, &World::default(), &mut output);
    assert_eq!(output.finish(result), Exit::Failure);
}

/// An agent on a thread of its own, for commands that bring their own runtime.
pub(super) fn with_agent(test: impl FnOnce(&str)) {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("s");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let stop = CancellationToken::new();
    let socket = runtime.block_on(ControlSocket::bind(&path, None)).unwrap();
    let server = Server::new(Arc::new(Agent), Limits::default(), stop.clone());
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
        assert_eq!(read, Agent.status());
        let yaml = run(&format!("winddown {socket} status -o yaml"));
        let read: Status = serde_saphyr::from_str(&yaml.out).unwrap();
        assert_eq!(read, Agent.status());
    });
}

#[test]
fn a_kill_says_how_the_pod_ended_and_5_when_it_did_not() {
    with_agent(|socket| {
        let ran = run(&format!("winddown {socket} kill web"));
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Success, "default/web: ended in 1.5s\n"));
        let ran = run(&format!("winddown {socket} kill stubborn --grace 1s"));
        assert_eq!(ran.exit, Exit::PodsLeft);
        assert_eq!(
            ran.out,
            "default/stubborn: still runs after 11s (c: in D state); the kill goes on\n"
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
             default/a ended in 1.2s\n  \
             default/b\\x1b[2J ended in 20s, SIGKILL was needed\n\
             priority 0 and above: all ended in 20s\n\
             2 pods ended in 20s, 1 needed SIGKILL\n"
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
        let (out, err) = (Sink::default(), Sink::default());
        let mut output = Output::plain(out.clone(), err);
        let result = dispatch(&cli, &World::default(), &mut output);
        assert_eq!(output.finish(result), Exit::PodsLeft);
        assert!(out.text().starts_with("2 pods in 1 group, at most 30s\n"), "{}", out.text());
    });
}

#[test]
fn a_withdrawal_says_what_keeps_the_node_closed() {
    with_agent(|socket| {
        let ran = run(&format!("winddown {socket} drain --withdraw"));
        assert_eq!(
            ran.out,
            "the deadline is withdrawn; still no pod is let in: the node is shutting down\n"
        );
        assert_eq!(ran.exit, Exit::Refused);
        let ran = run(&format!("winddown {socket} drain --withdraw -o json"));
        let head = "{\"apiVersion\":\"winddown.dev/v1alpha1\",\"kind\":\"WithdrawAnswer\",\"withdrawn\":true,";
        assert!(ran.out.starts_with(head), "{}", ran.out);
        let ran = run(&format!("winddown {socket} undrain -o yaml"));
        assert!(ran.out.contains("\nkind: WithdrawAnswer\n"), "{}", ran.out);
    });
}

struct Agent;

impl AgentApi for Agent {
    fn status(&self) -> Status {
        let node = NodeStatus { name: "edge-1".to_owned(), ..NodeStatus::default() };
        Status::new("2026-11-20T12:00:00Z".parse().unwrap(), node)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        watch::Sender::new(0).subscribe()
    }

    fn shutdown_plan(&self, within: Option<Duration>) -> ShutdownPlan {
        ShutdownPlan::new(within.map_or(30.0, |within| within.as_secs_f64()))
    }

    fn preemption_plan(
        &self,
        manifest: Option<&[u8]>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ApiError> {
        let mut plan = PreemptionPlan::new(strategy.unwrap_or("distance"));
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

    async fn drain(
        &self,
        _: DrainRequest,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        let (events, receiver) = mpsc::unbounded_channel();
        let ended = |name: &str, took_seconds, forced| DrainEvent::PodEnded {
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
            DrainEvent::GroupEnded { priority: 0, name: None, took_seconds: 20.0, left: 0 },
            DrainEvent::Finished {
                ended: 2,
                forced: 1,
                left: 0,
                took_seconds: 20.0,
                pods_unknown: false,
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
        WithdrawAnswer { withdrawn: true, opened: false, admission_closed: true, message }
    }

    async fn reports(&self) -> Result<ReportList, ApiError> {
        Ok(ReportList::default())
    }

    async fn report(&self, _: &str) -> Result<serde_json::Value, ApiError> {
        Ok(serde_json::Value::Null)
    }

    fn config(&self) -> ConfigView {
        ConfigView::default()
    }

    fn health(&self) -> Health {
        Health::default()
    }

    fn readiness(&self) -> Health {
        Health::default()
    }

    fn metrics(&self) -> String {
        String::new()
    }
}

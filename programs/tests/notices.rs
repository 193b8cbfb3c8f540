//! Notices, with the real agent and real processes as pods: no bus, no cloud, no container runtime.

#![allow(clippy::expect_used, clippy::panic, reason = "clippy does not see that helpers are tests")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use winddown_control::Client;

use crate::agent::{Bed, LIMIT, manifest};

/// Starts two pods, one of them critical, on a node with this source of notices.
fn start(notices: &str) -> Bed {
    let config = format!(
        "evictionHard: {{memory.available: 100Mi}}\nshutdownGracePeriod: 20s\n\
         shutdownGracePeriodCriticalPods: 5s\n{notices}"
    );
    let pods = [("web", 0), ("dns", 2_000_000_000)].map(|(name, priority)| {
        let fields = format!("priority: {priority}\nterminationGracePeriodSeconds: 10");
        (name, manifest(name, &fields, "command: [sleep, '3600']"))
    });
    Bed::start(&config, &pods)
}

impl Bed {
    fn notice_file(&self) -> PathBuf {
        self.root().join("run/winddown/notice")
    }

    fn drain(&self, arguments: &[&str]) -> Output {
        self.ask(&[&["drain"], arguments].concat()).output().expect("the program runs")
    }

    fn undrain(&self) -> Output {
        self.ask(&["undrain"]).output().expect("the program runs")
    }

    async fn status(&self) -> Option<Value> {
        let status = Client::new(self.socket()).status().await.ok()?;
        serde_json::to_value(status).ok()
    }

    /// Waits until the status is as `wanted`.
    async fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let client = Client::new(self.socket());
        let mut last = Value::Null;
        let follow = async {
            loop {
                if let Ok(mut lines) = client.watch().await {
                    while let Ok(Some(status)) = lines.next::<Value>().await {
                        last = status;
                        if wanted(&last) {
                            return;
                        }
                    }
                }
                // No agent listens at the moment.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(LIMIT, follow).await;
        assert!(found.is_ok(), "never {what}: {last:#}\n{}", self.log());
        last
    }

    async fn until_running(&self) -> Value {
        self.until("both pods run", |status| states(status) == ["syncing", "syncing"]).await
    }

    async fn until_ended(&self) -> Value {
        let over = |state: &str| matches!(state, "terminated" | "finished");
        let all_over = |status: &Value| {
            let states = states(status);
            states.len() == 2 && states.iter().all(|state| over(state))
        };
        self.until("both pods are terminated", all_over).await
    }
}

fn states(status: &Value) -> Vec<&str> {
    let running = |pod: &Value| pod["phase"] == "Running" || pod["state"] != "syncing";
    let pods = status["pods"].as_array().into_iter().flatten().filter(|pod| running(pod));
    pods.filter_map(|pod| pod["state"].as_str()).collect()
}

#[tokio::test]
async fn a_file_ends_the_pods_and_its_removal_brings_them_back() {
    let bed = start("shutdownNotices: {file: /run/winddown/notice}\n");
    bed.until_running().await;
    std::fs::write(bed.notice_file(), "2m battery low\n").expect("written");
    let status = bed.until_ended().await;
    let notice = &status["notices"][0];
    assert_eq!((&notice["source"], &notice["text"]), (&"file".into(), &"battery low".into()));
    assert_eq!(status["admissionClosed"], true);
    let withdrawal = bed.undrain();
    assert_eq!(withdrawal.status.code(), Some(6), "the file is not the operator's");
    std::fs::remove_file(bed.notice_file()).expect("removed");
    let status = bed.until_running().await;
    assert_eq!(status["admissionClosed"], false);
    assert!(status.get("notices").is_none(), "{status:#}");
}

#[tokio::test]
async fn a_notice_takes_effect_in_time_for_a_grace_period_that_a_reload_made_longer() {
    let bed = start("shutdownNotices: {file: /run/winddown/notice}\n");
    bed.until_running().await;
    std::fs::write(bed.notice_file(), "30m maintenance\n").expect("written");
    bed.until("held back", |status| status["notices"][0]["inEffect"] == false).await;
    bed.reload("shutdownGracePeriod: 20s", "shutdownGracePeriod: 1h");
    bed.until("in force", |status| status["notices"][0]["inEffect"] == true).await;
}

#[tokio::test]
async fn a_deadline_lasts_over_a_killed_agent_until_it_is_withdrawn() {
    let mut bed = start("");
    bed.until_running().await;
    let drained = bed.drain(&["--deadline", "10m", "--reason", "rack 7 moves"]);
    let said = String::from_utf8_lossy(&drained.stdout).into_owned();
    assert_eq!(drained.status.code(), Some(0), "{said}");
    assert!(said.starts_with("2 pods in 2 groups, at most "), "{said}");
    assert!(said.contains("2 pods terminated in "), "{said}");
    bed.restart();
    // The notice includes its sender.
    let known = |status: &Value| {
        let text = status["notices"][0]["text"].as_str().unwrap_or_default();
        text.starts_with("rack 7 moves (uid ")
    };
    let status = bed.until("the new agent knows", known).await;
    assert_eq!(status["admissionClosed"], true, "{status:#}");
    // A new pod is refused, so no pod was admitted unnoticed.
    let late = bed.root().join("etc/winddown/pods/late.yaml");
    let web = bed.root().join("etc/winddown/pods/web.yaml");
    let manifest = std::fs::read_to_string(web).expect("read").replace("name: web", "name: late");
    std::fs::write(&late, manifest).expect("written");
    let refused = |status: &Value| {
        let rejected = status["rejected"].as_array().into_iter().flatten();
        rejected.into_iter().any(|pod| pod["name"] == "late-n1" && pod["reason"] == "NodeShutdown")
    };
    bed.until("the late pod is refused", refused).await;
    std::fs::remove_file(&late).expect("removed");
    let withdrawal = bed.undrain();
    assert_eq!(withdrawal.status.code(), Some(0));
    let said = String::from_utf8_lossy(&withdrawal.stdout).into_owned();
    assert_eq!(said, "the deadline is withdrawn; pods are admitted, and static pods restart\n");
    bed.until_running().await;
    assert!(bed.status().await.is_some_and(|status| status["admissionClosed"] == false));
}

#[tokio::test]
async fn a_spot_interruption_of_the_metadata_service_ends_the_pods() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let due = Arc::new(AtomicBool::new(false));
    let is_due = Arc::clone(&due);
    std::thread::spawn(move || serve_interruption(&listener, &is_due));
    let notices = format!(
        "shutdownNotices: {{cloud: aws, pollInterval: 1s, metadataEndpoint: 'http://{address}'}}\n"
    );
    let bed = start(&notices);
    bed.until_running().await;
    due.store(true, Ordering::SeqCst);
    let status = bed.until("noticed", |status| status["notices"][0]["inEffect"] == true).await;
    assert_eq!(status["notices"][0]["source"], "aws");
    assert_eq!(status["notices"][0]["text"], "the spot instance is terminated");
    bed.until_ended().await;
}

/// Serves as a metadata service that, once `due`, announces an interruption in 2286.
fn serve_interruption(listener: &TcpListener, due: &AtomicBool) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let target = lines.next().unwrap_or_default();
        lines.find(String::is_empty);
        drop(lines);
        // The service's own clock counts, which is far from ours: two minutes are left.
        let (status, body) = match target.split(' ').nth(1) {
            Some("/latest/api/token") => ("200 OK", "token"),
            Some("/latest/meta-data/spot/instance-action") => match due.load(Ordering::SeqCst) {
                true => ("200 OK", r#"{"action": "terminate", "time": "2286-11-20T12:02:00Z"}"#),
                false => ("404 Not Found", ""),
            },
            _ => ("200 OK", "[]"),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nDate: Sat, 20 Nov 2286 12:00:00 GMT\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(body.as_bytes());
    }
}

//! What happened to the pods while nodes were rebooted, by their own logs and by the API server.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use winddown_node_tests::scenario::TestResult;

use super::client::{Counted, Lost};
use super::{Fleet, NAMESPACE};
use crate::beside_kubelet::seconds;

/// The apps whose pods terminate together, in the order of the groups.
const GROUPS: [&[&str]; 3] = [&["web", "hooked", "work"], &["store"], &["agent"]];

/// A reboot of a node. Times are nanoseconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) node: String,
    pub(super) asked: u64,
    pub(super) off: u64,
    /// The node is ready, and pods may be bound to it.
    pub(super) open: u64,
    /// As many servers and identities are ready as there were.
    pub(super) whole: u64,
    /// What winddown's report says.
    pub(super) report: String,
}

/// What a pod wrote down.
#[derive(Clone, Debug)]
struct Log {
    pod: String,
    node: String,
    lines: Vec<(String, u64)>,
}

/// How the pods of a node ended when it went down.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) pods: usize,
    /// Asked, and gone by themselves.
    pub(super) willing: usize,
    pub(super) killed: Vec<String>,
    /// Never asked.
    pub(super) unasked: Vec<String>,
    /// Started after the shutdown began.
    pub(super) late: Vec<String>,
    pub(super) in_order: bool,
    pub(super) last_exit: Option<u64>,
}

/// What all reboots came to.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) counted: Counted,
    pub(super) turns: Vec<(Turn, Ends)>,
    /// From SIGTERM to the API server showing that the server is not ready, in seconds: the least and the most.
    pub(super) withdrawn: Option<(f64, f64)>,
    pub(super) doubled: Vec<String>,
    /// Containers that were started again in the same pod.
    pub(super) restarted: Vec<String>,
    pub(super) work_done: i32,
    pub(super) work_failed: i32,
    pub(super) work_cut: usize,
    pub(super) keepers: i32,
    /// Nodes that are cordoned or tainted, and pods that terminate or have failed, at the end.
    pub(super) left: Vec<String>,
}

// === impl Log ===

impl Log {
    fn all(folder: &Path) -> TestResult<Vec<Self>> {
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(entry.path())?;
            let mut log = Self { pod: String::new(), node: String::new(), lines: Vec::new() };
            log.pod = name.rsplit_once('.').map_or(name.clone(), |(pod, _)| pod.to_owned());
            for line in text.lines() {
                let mut words = line.split(' ');
                let (Some(what), Some(at), Some(node)) = (words.next(), words.next(), words.next())
                else {
                    continue;
                };
                node.clone_into(&mut log.node);
                log.lines.push((what.to_owned(), at.parse()?));
            }
            logs.push(log);
        }
        Ok(logs)
    }

    fn app(&self) -> &str {
        self.pod.split('-').next().unwrap_or_default()
    }

    /// When it first wrote this at this time or later.
    fn first(&self, what: &[&str], since: u64) -> Option<u64> {
        let mut lines = self.lines.iter();
        lines.find(|(said, at)| what.contains(&said.as_str()) && *at >= since).map(|(_, at)| *at)
    }

    fn count(&self, what: &str) -> usize {
        self.lines.iter().filter(|(said, _)| said == what).count()
    }
}

const END: [&str; 3] = ["EXIT", "DONE", "CUT"];

// === impl Ends ===

impl Ends {
    fn of(turn: &Turn, logs: &[Log]) -> Self {
        let mut ends = Self { in_order: true, ..Self::default() };
        let mut before = 0;
        let of_node = || logs.iter().filter(|log| log.node == turn.node);
        for log in of_node() {
            let started = log.first(&["START"], turn.asked);
            if started.is_some_and(|started| started < turn.off) {
                ends.late.push(log.pod.clone());
            }
        }
        for apps in GROUPS {
            let (mut first, mut last) = (u64::MAX, before);
            for log in of_node().filter(|log| apps.contains(&log.app())) {
                let was_there = log.first(&["START"], 0).is_some_and(|start| start < turn.off)
                    && log.first(&END, 0).is_none_or(|end| end >= turn.asked);
                if !was_there {
                    continue;
                }
                ends.pods += 1;
                let term = log.first(&["TERM"], turn.asked).filter(|at| *at <= turn.off);
                let end = log.first(&END, turn.asked).filter(|at| *at <= turn.off);
                match (term, end) {
                    (_, Some(end)) => {
                        ends.willing += 1;
                        last = last.max(end);
                    }
                    (Some(_), None) => ends.killed.push(log.pod.clone()),
                    (None, None) => ends.unasked.push(log.pod.clone()),
                }
                first = first.min(term.unwrap_or(u64::MAX));
            }
            ends.in_order &= first >= before;
            before = last;
        }
        ends.last_exit = (before > 0).then_some(before);
        ends
    }
}

// === impl Account ===

impl Account {
    pub(super) async fn of(fleet: &Fleet, turns: Vec<Turn>, counted: Counted) -> TestResult<Self> {
        let logs = Log::all(&fleet.shared.path().join("logs"))?;
        let turns = turns.into_iter().map(|turn| (turn.clone(), Ends::of(&turn, &logs))).collect();
        let named = |is: &dyn Fn(&Log) -> bool| -> Vec<String> {
            logs.iter().filter(|log| is(log)).map(|log| log.pod.clone()).collect()
        };
        let servers = logs.iter().filter(|log| log.app() == "web");
        let spans: Vec<f64> = servers
            .filter_map(|log| {
                Some(since(log.first(&["TERM"], 0)?, *counted.withdrawn.get(&log.pod)?))
            })
            .collect();
        print_lost(&counted.lost, &logs);
        let admin = fleet.api.admin().await;
        let job: Job = Api::namespaced(admin.clone(), NAMESPACE).get("work").await?;
        let job = job.status.unwrap_or_default();
        let sets: Api<StatefulSet> = Api::namespaced(admin, NAMESPACE);
        let set = sets.get("store").await?.status.unwrap_or_default();
        Ok(Self {
            withdrawn: spans
                .iter()
                .copied()
                .reduce(f64::min)
                .zip(spans.into_iter().reduce(f64::max)),
            doubled: named(&|log| log.count("DOUBLED") > 0),
            restarted: named(&|log| log.count("START") > 1),
            work_done: job.succeeded.unwrap_or(0),
            work_failed: job.failed.unwrap_or(0),
            work_cut: named(&|log| log.count("CUT") > 0).len(),
            keepers: set.ready_replicas.unwrap_or(0),
            left: left(fleet).await?,
            counted,
            turns,
        })
    }

    /// Fails unless nothing was lost, cut off or left behind.
    pub(super) fn check(&self) {
        assert!(self.counted.lost.is_empty(), "lost: {:#?}", self.counted.lost);
        for (turn, ends) in &self.turns {
            assert_eq!(turn.report, "clean", "{turn:?}");
            assert!(ends.in_order && ends.willing == ends.pods, "{turn:?}: {ends:?}");
        }
        assert_eq!(self.work_failed, 0);
        assert_eq!(self.keepers, super::objects::KEEPERS);
        for none in [&self.doubled, &self.restarted, &self.left] {
            assert!(none.is_empty(), "{self:#?}");
        }
    }

    pub(super) fn row(&self, who: &str) -> String {
        let mut kinds = BTreeMap::<_, usize>::new();
        for lost in &self.counted.lost {
            *kinds.entry((lost.loss, lost.is_long)).or_default() += 1;
        }
        let kinds: Vec<String> = kinds
            .iter()
            .map(|((loss, is_long), count)| {
                format!("{count} {}{loss:?}", if *is_long { "long " } else { "" }).to_lowercase()
            })
            .collect();
        let kinds =
            if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        let sum =
            |of: fn(&Ends) -> usize| self.turns.iter().map(|(_, ends)| of(ends)).sum::<usize>();
        let most = |of: fn(&Turn) -> u64| {
            self.turns.iter().map(|(turn, _)| seconds(of(turn) - turn.asked)).fold(0.0, f64::max)
        };
        let withdrawn = self
            .withdrawn
            .map_or(String::new(), |(least, most)| format!("{least:.2} to {most:.2} s"));
        let left = if self.left.is_empty() { "nothing".to_owned() } else { self.left.join(", ") };
        format!(
            "| {who} | {} | {} | {}{kinds} | {withdrawn} | {} of {} | {} | {} of {} | {} | {} | {} | {} | {:.0} s | {:.0} s | {left} |\n",
            self.turns.len(),
            self.counted.sent,
            self.counted.lost.len(),
            sum(|ends| ends.willing),
            sum(|ends| ends.pods),
            sum(|ends| ends.late.len()),
            self.turns.iter().filter(|(_, ends)| ends.in_order).count(),
            self.turns.len(),
            self.work_done,
            self.work_cut,
            self.work_failed,
            self.doubled.len(),
            most(|turn| turn.off),
            most(|turn| turn.whole),
        )
    }
}

/// Says of each request that was lost when that was in the life of its server.
fn print_lost(lost: &[Lost], logs: &[Log]) {
    for lost in lost {
        let log = logs.iter().find(|log| log.pod == lost.pod);
        let after = |what: &[&str]| Some(since(log?.first(what, 0)?, lost.at));
        println!(
            "lost: {lost:?}: seconds after SIGTERM {:?}, after the server's end {:?}",
            after(&["TERM"]),
            after(&END)
        );
    }
}

/// The seconds from one time to another, which may be earlier.
fn since(from: u64, to: u64) -> f64 {
    if to >= from { seconds(to - from) } else { -seconds(from - to) }
}

/// What is not as it was before the first reboot.
async fn left(fleet: &Fleet) -> TestResult<Vec<String>> {
    let admin = fleet.api.admin().await;
    let mut left = Vec::new();
    for node in Api::<Node>::all(admin.clone()).list(&ListParams::default()).await? {
        let spec = node.spec.unwrap_or_default();
        let taints: Vec<String> =
            spec.taints.into_iter().flatten().map(|taint| taint.key).collect();
        if spec.unschedulable == Some(true) || !taints.is_empty() {
            left.push(format!("node {:?} {taints:?}", node.metadata.name));
        }
    }
    let mut counts = BTreeMap::<String, usize>::new();
    let pods: Api<Pod> = Api::namespaced(admin, NAMESPACE);
    for pod in pods.list(&ListParams::default()).await? {
        let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
        let app = pod.metadata.labels.unwrap_or_default().remove("app").unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() {
            *counts.entry(format!("{app} terminating")).or_default() += 1;
        } else if !["Running", "Succeeded"].contains(&phase.as_str()) {
            *counts.entry(format!("{app} {phase}")).or_default() += 1;
        }
    }
    left.extend(counts.into_iter().map(|(what, count)| format!("{count} {what}").to_lowercase()));
    Ok(left)
}

impl Turn {
    pub(super) fn times(&self) -> [Duration; 3] {
        [self.off, self.open, self.whole].map(|at| Duration::from_nanos(at - self.asked))
    }
}

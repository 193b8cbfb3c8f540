//! Judges the observations. Pure.

mod alone;
mod containers;
mod kubelet;
mod node;
mod room;
mod shutdown;
mod unit;

use std::time::Duration;

pub(crate) use alone::is_without_winddown;
pub(crate) use kubelet::{delay_in_image, lock};
pub(crate) use node::no_group;
pub(crate) use shutdown::{agents_lock, is_going_down, listens_elsewhere};
pub(crate) use unit::kept_away;
use winddown_systemd::inspect::{LockView, LoginView};

use super::facts::{Fact, Facts, NotObserved, UNIT};
use super::finding::{Area, Diagnosis, Finding, Severity};
use super::fix::Fix;

/// Advice for what only the agent's log explains.
const LOG: &str = "`journalctl -u winddown -e` says why";
/// The command that shows a user what only root may see.
const AS_ROOT: &str = "sudo winddown doctor";
const START: &str = "systemctl start winddown";
const RESTART: &str = "systemctl restart winddown";

/// Maximum number of letters of an id: a column of the text.
pub(crate) const LONGEST_ID: usize = 16;

/// The constant part of a check.
#[derive(Clone, Copy, Debug)]
struct Check {
    id: &'static str,
    area: Area,
    why: &'static str,
}

/// A check; returns `None` if it does not apply to this node.
type Run = fn(&Facts) -> Option<Finding>;

/// All checks, in the order in which findings of the same severity are shown.
const CHECKS: [Run; 38] = [
    shutdown::agent,
    shutdown::periods,
    shutdown::lock,
    shutdown::logind,
    shutdown::scheduled,
    shutdown::delay,
    shutdown::guard,
    shutdown::after_nodes,
    shutdown::paths,
    unit::unit,
    unit::sandbox,
    unit::boot,
    unit::order,
    unit::stop_time,
    unit::crash,
    containers::runtime,
    containers::admission,
    containers::starts,
    containers::loops,
    containers::rejected,
    containers::scopes,
    containers::slice,
    containers::limits,
    kubelet::beside,
    containers::api,
    containers::server,
    containers::out_of_memory,
    node::config,
    node::manifests,
    node::writers,
    node::exposed,
    node::state,
    node::logs,
    node::disks,
    room::room,
    node::socket,
    node::clock,
    shutdown::last,
];

/// Checks that depend on the configuration: if it cannot be read, their findings would be about the defaults.
const OF_THE_CONFIGURATION: [&str; 15] = [
    "periods",
    "delay",
    "sandbox",
    "order",
    "stop-time",
    "crash",
    "runtime",
    "starts",
    "crash-loop",
    "scopes",
    "slice",
    "limits",
    "kubelet",
    "logs",
    "room",
];

/// Checks of what the agent's start sets right. Before it, "start the agent" is all there is to say of them, but of a file
/// that beats the agent's own, and of one that logind has not read.
const CURED_BY_START: [&str; 3] = ["lock", "delay", "unit"];

/// The checks for a node with a kubelet and without winddown, where findings about the agent
/// would be of no use.
const CHECKS_OF_A_KUBELETS_NODE: [Run; 4] =
    [kubelet::own_shutdown, shutdown::logind, shutdown::paths, containers::out_of_memory];

/// Judges the observations: the verdict on the node, and all findings.
pub fn diagnose(facts: &Facts) -> Diagnosis {
    let protection = facts.live.then(|| facts.protection());
    Diagnosis::new(facts.node.clone(), protection, findings(facts))
}

/// Judges the observations: returns one finding for each check that applies.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let checks: &[Run] = match alone::is_alone(facts) {
        true => &CHECKS_OF_A_KUBELETS_NODE,
        false => &CHECKS,
    };
    let is_read = facts.config.is_read();
    let found = checks.iter().filter_map(|check| check(facts));
    let found = found.filter(|found| is_read || !OF_THE_CONFIGURATION.contains(&found.id));
    let awaits_start = facts.awaits_start();
    let cured = |found: &Finding| {
        let needs_more = matches!(found.fix_id, Some(Fix::DelayOverridden | Fix::LogindStale));
        CURED_BY_START.contains(&found.id) && !needs_more
    };
    let found = found.filter(|found| !awaits_start || !cured(found));
    let other = facts.agent.known().and_then(|status| status.node.product.as_deref());
    let known = |found: Finding| match other {
        Some(other) => found.without_fix(other),
        None => found,
    };
    found.map(known).collect()
}

impl Check {
    const fn new(id: &'static str, area: Area, why: &'static str) -> Self {
        assert!(id.len() <= LONGEST_ID, "the id would run into the title");
        Self { id, area, why }
    }

    fn found(self, severity: Severity, title: impl Into<String>) -> Finding {
        Finding {
            id: self.id,
            area: self.area,
            severity,
            title: title.into(),
            evidence: Vec::new(),
            fix: Vec::new(),
            fix_id: None,
            advice: Vec::new(),
            why: self.why,
        }
    }

    fn ok(self, title: impl Into<String>) -> Finding {
        self.found(Severity::Ok, title)
    }

    fn info(self, title: impl Into<String>) -> Finding {
        self.found(Severity::Info, title)
    }

    fn warning(self, title: impl Into<String>) -> Finding {
        self.found(Severity::Warning, title)
    }

    fn problem(self, title: impl Into<String>) -> Finding {
        self.found(Severity::Problem, title)
    }

    /// The finding when `fact`, named `what`, was not observed. `None` if only files are read.
    fn not_observed<T>(self, what: &str, fact: &Fact<T>) -> Option<Finding> {
        let Fact::Unknown(kind, why) = fact else { return None };
        match kind {
            NotObserved::NotLive => None,
            NotObserved::Denied => Some(
                self.info(format!("{what} could not be seen by this user"))
                    .saw(why)
                    .fix(Fix::NotPermitted, [AS_ROOT]),
            ),
            NotObserved::Absent | NotObserved::Silent | NotObserved::Failed => {
                Some(self.info(format!("{what} could not be seen")).saw(why))
            }
        }
    }
}

fn listed(lock: &LockView) -> String {
    format!("logind lists: {} {} {}, process {}", lock.who, lock.mode, lock.what, lock.pid)
}

fn lock_count(login: &LoginView) -> String {
    match login.locks.len() {
        1 => "1 lock".to_owned(),
        count => format!("{count} locks"),
    }
}

fn span(duration: Duration) -> String {
    if duration > Duration::from_secs(100 * 365 * 24 * 3600) {
        return "an unlimited time".to_owned();
    }
    winddown_shared::display::duration(duration)
}

//! Checks of the agent, its inhibitor lock, and the ways in which the node can go down.

use std::path::Path;
use std::time::Duration;

use winddown_host::shell_word;
use winddown_shared::display::{age, pod_count};
use winddown_systemd::drop_in::{self, Setting};
use winddown_systemd::inspect::{LockView, LoginView};

use super::unit::state_of;
use super::{Check, LOG, RESTART, START, listed, lock_count, span};
use crate::facts::{Fact, Facts, NotObserved};
use crate::finding::{Area, Finding, Severity};
use crate::fix::Fix;
use winddown_control::api::{
    LockState, NodeStage, NodeStatus, ProtectionReason, ProtectionState, Status,
};

/// Before this version the SysV commands, run as root, bypassed logind (systemd#22058).
const SYSV_ASKS_LOGIND: u32 = 251;
/// The first version with `systemctl soft-reboot`.
const SOFT_REBOOT: u32 = 254;

/// The first version in which blocking locks also apply to root.
const OBEYED_BY_ROOT: u32 = 257;

const NOT_HELD: &str = "the shutdown lock is not held: a shutdown would not wait for the pods";
const RESTART_LOGIND: &str = "systemctl restart systemd-logind";
/// How long logind waits where no file says so.
const LOGINDS_OWN_DELAY: Duration = Duration::from_secs(5);
pub(super) const RELOAD_LOGIND: &str = "systemctl kill -s HUP systemd-logind";

/// Checks that the agent runs and answers.
pub(super) fn agent(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "agent",
        Area::Shutdown,
        "without a running agent nothing terminates the pods in order",
    );
    match &facts.agent {
        Fact::Known(status) => Some(answers(CHECK, &status.node)),
        Fact::Unknown(NotObserved::NotLive | NotObserved::Denied, _) => {
            CHECK.not_observed("the agent's status", &facts.agent)
        }
        Fact::Unknown(NotObserved::Silent, why) => Some(
            CHECK
                .problem("the agent does not answer")
                .saw(why)
                .fix(Fix::AgentSilent, [RESTART])
                .advise(LOG),
        ),
        Fact::Unknown(_, why) if listens_elsewhere(facts) => Some(
            CHECK
                .info("an agent runs, but not with this socket")
                .saw(why)
                .saw("the configuration, which could not be read, may name another socket")
                .advise("name its socket: `winddown --socket SOCKET doctor`"),
        ),
        Fact::Unknown(NotObserved::Absent, why) if facts.unit_is_active() => Some(
            CHECK
                .problem("the agent runs, but nothing can reach it: its socket is gone")
                .saw(why)
                .fix(Fix::SocketGone, [RESTART]),
        ),
        Fact::Unknown(NotObserved::Absent, why) => {
            let found = CHECK.problem("no agent runs on this node").saw(why);
            let unit = facts.bus.service.known().filter(|unit| unit.load_state != "not-found");
            // Of a unit that has failed, or does not exist, the check `unit` says what to do.
            Some(match unit {
                Some(unit) if facts.awaits_start() => {
                    found.saw(state_of(unit)).fix(Fix::AgentStopped, [START])
                }
                Some(_) => found.advise(LOG),
                None => found,
            })
        }
        Fact::Unknown(NotObserved::Failed, why) => {
            Some(CHECK.warning("the agent could not be asked").saw(why).advise(LOG))
        }
    }
}

/// The finding about an agent that answers.
fn answers(check: Check, node: &NodeStatus) -> Finding {
    let (own, version) = (env!("CARGO_PKG_VERSION"), &node.version);
    let up = age(i64::try_from(node.uptime_seconds).unwrap_or(i64::MAX));
    let seen = format!("process {}, version {version}, up {up}", node.pid);
    if let Some(product) = &node.product {
        return check.ok(format!("the agent of {product} runs and answers")).saw(seen);
    }
    if version == own || version.is_empty() {
        return check.ok("the agent runs and answers").saw(seen);
    }
    check
        .info("the running agent is of another version than this command")
        .saw(seen)
        .saw(format!("this command: version {own}"))
        .fix(Fix::AgentVersion, [RESTART])
}

/// Whether an agent runs that probably listens on a socket that only the configuration names.
pub(crate) fn listens_elsewhere(facts: &Facts) -> bool {
    is_out_of_reach(facts) && !facts.config.is_read()
}

/// Whether systemd runs an agent that does not answer at the socket.
fn is_out_of_reach(facts: &Facts) -> bool {
    facts.agent.not_observed() == Some(NotObserved::Absent) && facts.unit_is_active()
}

/// Checks that graceful shutdown is enabled.
pub(super) fn periods(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "periods",
        Area::Shutdown,
        "a shutdown kills what still runs when its time is over; with none configured, all pods terminate at once",
    );
    let enabled = match &facts.agent {
        Fact::Known(status) => status.shutdown_plan.enabled,
        Fact::Unknown(..) => !facts.wanted.is_zero(),
    };
    let file = facts.config.file.display();
    let plan = facts.agent.known().filter(|_| enabled).map(|status| &status.shutdown_plan);
    if let Some(plan) = plan {
        let (cut, usual) = (&plan.warnings, &plan.default_grace_cut);
        let found = match (cut.is_empty(), usual.is_empty()) {
            (false, _) => Some(CHECK.warning("pods ask for more time than a shutdown gives them")),
            (true, false) => Some(CHECK.info("a shutdown gives pods less than the default grace")),
            (true, true) => None,
        };
        if let Some(found) = found {
            // No period helps there.
            if facts.is_delay_short() {
                let title =
                    "pods get less time than they ask for: logind does not wait long enough";
                return Some(CHECK.info(title).saw_all(cut).saw_all(usual));
            }
            let raise = &plan.raise;
            let next = format!("raise {raise} in {file}, then: `systemctl reload winddown`");
            return Some(found.saw_all(cut).saw_all(usual).advise(next));
        }
    }
    Some(if enabled {
        CHECK.ok(format!("pods get up to {} at a shutdown", span(facts.budget)))
    } else {
        CHECK
            .problem("graceful shutdown is switched off: a shutdown kills the pods")
            .saw(format!("{file}: shutdownGracePeriod is 0"))
            .advise(format!("set shutdownGracePeriod in {file}, then: `systemctl reload winddown`"))
    })
}

/// Checks that the lock is held, and that logind lists it.
pub(super) fn lock(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "lock",
        Area::Shutdown,
        "logind waits for a shutdown lock, and for nothing else, before it stops the node",
    );
    let status = facts.agent.known();
    if let Some(status) = status.filter(|status| is_going_down(status)) {
        let phase = format!("{:?}", status.shutdown.phase).to_lowercase();
        return Some(CHECK.info("a shutdown is under way").saw(format!("phase {phase}")));
    }
    let login = match &facts.bus.login {
        Fact::Known(login) => login,
        // Another check reports that logind does not answer.
        Fact::Unknown(NotObserved::NotLive, _) => return None,
        Fact::Unknown(_, why) => {
            let status = status?;
            let finding = if status.lock.state == LockState::Held {
                CHECK
                    .info("the agent holds the shutdown lock; whether logind lists it is not known")
            } else {
                CHECK.problem(NOT_HELD).advise(LOG)
            };
            return Some(finding.saw(said_of_lock(status)).saw(why));
        }
    };
    let ours = agents_lock(facts, login);
    Some(match (ours, status, facts.agent.not_observed()) {
        (Some(lock), None, Some(NotObserved::Absent | NotObserved::Silent))
            if !is_out_of_reach(facts) =>
        {
            CHECK
                .warning(
                    "the shutdown lock is held, but no agent answers that would terminate the pods",
                )
                .saw(listed(lock))
                .saw("systemd keeps the lock of an agent that is gone until the next one comes")
                .fix(Fix::LockHolderSilent, [RESTART])
        }
        (Some(lock), ..) => {
            CHECK.ok("the shutdown lock is held, and logind lists it").saw(listed(lock))
        }
        (None, status, _) => {
            let found = CHECK
                .problem(NOT_HELD)
                .saw(format!("logind lists {}; winddown's is not among them", lock_count(login)))
                .saw(status.map(said_of_lock).unwrap_or_default());
            // A running agent tries again by itself. Of one that does not run, the checks `agent` and `unit` say what to
            // do.
            if status.is_some() { found.advise(LOG) } else { found }
        }
    })
}

/// The agent's lock. Every user can take a delay lock under any name: the agent's belongs to root, or to the owner of
/// its socket.
pub(crate) fn agents_lock<'a>(facts: &Facts, login: &'a LoginView) -> Option<&'a LockView> {
    let agents = facts.files.socket.known().map_or(0, |socket| socket.uid);
    login.locks.iter().find(|lock| {
        lock.who == "winddown" && lock.delays_shutdown() && (lock.uid == 0 || lock.uid == agents)
    })
}

/// Checks that logind exists and answers.
pub(super) fn logind(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "logind",
        Area::Shutdown,
        "only logind can make a shutdown wait; without it the unit's own stop is all there is",
    );
    Some(match &facts.bus.login {
        Fact::Known(login) => CHECK.ok("logind answers").saw(format!(
            "delay: {}; lists {}",
            span(login.delay),
            lock_count(login)
        )),
        Fact::Unknown(NotObserved::Absent, why) => {
            let finding = CHECK.problem("there is no logind: a shutdown cannot be delayed");
            match facts.bus.is_booted {
                true => finding.saw(why).fix(
                    Fix::LogindStopped,
                    ["systemctl unmask systemd-logind", "systemctl start dbus", RESTART_LOGIND],
                ),
                // Without systemd no command starts logind.
                false => finding.saw("systemd does not run this machine"),
            }
        }
        Fact::Unknown(NotObserved::Silent, why) => CHECK
            .problem("logind does not answer")
            .saw(why)
            .fix(Fix::LogindSilent, [RESTART_LOGIND]),
        Fact::Unknown(NotObserved::Failed, why) => CHECK
            .warning("logind answered with an error")
            .saw(why)
            .advise("`journalctl -u systemd-logind -e` says why"),
        Fact::Unknown(..) => return CHECK.not_observed("logind", &facts.bus.login),
    })
}

/// Names a shutdown that is scheduled. Returns a finding only if one is.
pub(super) fn scheduled(facts: &Facts) -> Option<Finding> {
    const CHECK: Check =
        Check::new("scheduled", Area::Shutdown, "the pods terminate as the shutdown begins");
    let scheduled = facts.bus.login.known()?.scheduled.as_ref()?;
    let at = scheduled.at;
    let finding = CHECK.info(format!("a shutdown is scheduled for {at:.0}")).saw(format!(
        "logind: {} in {}",
        scheduled.kind.as_str(),
        age(at.duration_since(facts.clock.now).as_secs())
    ));
    let finding = match &scheduled.message {
        Some(message) => finding.saw(format!("message: {message}")),
        None => finding,
    };
    Some(
        finding.advise("`shutdown -c` cancels it; `winddown plan shutdown` shows what it would do"),
    )
}

/// Checks that logind waits as long as the plan requires.
pub(super) fn delay(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "delay",
        Area::Shutdown,
        "when logind stops waiting, what still runs is killed; the plan shrinks to fit before that",
    );
    let wanted = facts.delay_wanted();
    if wanted.is_zero() {
        return None;
    }
    let setting = facts.files.setting.known().and_then(Option::as_ref);
    let on_disk = facts.delay_on_disk();
    let given = facts.delay_given()?;
    if given >= wanted {
        return Some(CHECK.ok(format!(
            "logind waits {}, {} are required",
            span(given),
            span(wanted)
        )));
    }
    let finding = match given.is_zero() && facts.live {
        true => CHECK.problem("logind waits for no lock: only the stop of the agent's unit does"),
        false => {
            CHECK.warning(format!("logind waits {} of the {} required", span(given), span(wanted)))
        }
    };
    let finding = finding.saw(delay_set_by(facts));
    if on_disk >= wanted {
        return Some(
            finding
                .saw("logind has not read the file again, or refused it: `journalctl -u systemd-logind -e`")
                .fix(Fix::LogindStale, reread_delay(facts)),
        );
    }
    Some(fix_delay(facts, finding, setting, wanted))
}

impl Facts {
    /// How long logind waits at most; `None` if that is not known.
    fn delay_given(&self) -> Option<Duration> {
        match self.bus.login.known() {
            Some(login) => Some(login.delay),
            None if self.live => self.told_delay(),
            None => Some(self.delay_on_disk()),
        }
    }

    /// How long logind waits by its files.
    fn delay_on_disk(&self) -> Duration {
        let setting = self.files.setting.known().and_then(Option::as_ref);
        setting.map_or(LOGINDS_OWN_DELAY, |setting| setting.value)
    }

    /// Whether logind waits for a shorter time than the agent wants.
    fn is_delay_short(&self) -> bool {
        self.delay_given().is_some_and(|given| given < self.delay_wanted())
    }
}

/// Checks that logind refuses shutdowns while pods hold them.
pub(super) fn guard(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "guard",
        Area::Shutdown,
        "a pod that blocks shutdowns is still interrupted by a shutdown that bypasses logind",
    );
    let guard = facts.agent.known()?.guard.as_ref()?;
    let pods = guard.pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name));
    let version = facts.bus.system.known().and_then(|system| system.major());
    let finding = match guard.state {
        LockState::Held => CHECK.info("pods block shutdowns, which logind refuses"),
        _ => CHECK
            .warning("pods block shutdowns, and logind does not refuse them")
            .saw(guard.why.clone().unwrap_or_default())
            .advise(LOG),
    };
    let finding = finding.saw_all(&pods.collect::<Vec<_>>());
    let keys = "the power button, pressed for long too, ends the node at once with PowerKeyIgnoreInhibited=yes in \
                logind.conf; without, logind refuses it";
    let finding = finding.saw(keys);
    Some(match version.filter(|version| *version < OBEYED_BY_ROOT) {
        Some(version) => finding
            .saw(format!("systemd {version}: root is refused only with --check-inhibitors=yes")),
        None => finding,
    })
}

/// Checks that the nodes that go down before this one are known, and report their progress.
pub(super) fn after_nodes(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "after-nodes",
        Area::Shutdown,
        "this node's control plane terminates after a fixed time if other nodes do not report their shutdown",
    );
    let after = facts.agent.known()?.cluster.as_ref()?.after_nodes.as_ref()?;
    let selected = format!("shutdownAfterNodes: {}", after.selector);
    let list =
        format!("see which nodes match: `kubectl get nodes -l {}`", shell_word(&after.selector));
    if let Some(why) = &after.problem {
        let finding =
            CHECK.warning("the API server does not report the progress of other nodes").saw(why);
        return Some(
            finding
                .advise("give it the right to read all nodes: `kubectl apply -f /usr/share/winddown/rbac/after-nodes.yaml`"),
        );
    }
    let Some(nodes) = &after.nodes else {
        return Some(CHECK.info("the API server has not listed the nodes yet"));
    };
    if nodes.is_empty() {
        let finding = CHECK.warning("no other node goes down before this one").saw(selected);
        return Some(finding.saw("it matches no node, or this one alone").advise(list));
    }
    let silent = nodes.iter().filter(|node| node.stage == NodeStage::NotReporting);
    let silent: Vec<_> = silent.map(|node| node.name.clone()).collect();
    Some(match silent.is_empty() {
        true => CHECK.ok(format!("nodes that go down first: {}", nodes.len())).saw(selected),
        false => CHECK
            .warning("nodes that go down first never report it, so each shutdown waits in vain")
            .saw_each(silent.into_iter())
            .advise("install winddown there, or leave them out of shutdownAfterNodes"),
    })
}

/// Checks which ways of shutting down stop the pods in order.
pub(super) fn paths(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "paths",
        Area::Shutdown,
        "a shutdown that neither asks logind nor stops units leaves no chance to terminate pods",
    );
    let system = match &facts.bus.system {
        Fact::Known(system) => system,
        // Reported by the check `unit`.
        Fact::Unknown(..) => return None,
    };
    let version = system.major().unwrap_or(0);
    let verdict = facts.protection();
    let is_alone = super::alone::is_alone(facts);
    let delayed =
        "waits for the lock: poweroff, reboot, halt, kexec by systemctl; shutdown +N; power key";
    let soft = if version >= SOFT_REBOOT { "; soft-reboot" } else { "" };
    let stop = match is_alone {
        true => {
            "kills the pods, because it goes around logind: a start of poweroff.target and the like"
        }
        false => "terminates pods as the unit stops: a start of poweroff.target and the like",
    };
    let lost = "not covered: reboot -f and the like with --force, kexec -e, a panic, a power cut";
    let bypassing = bypassing(facts);
    let old = version > 0 && version < SYSV_ASKS_LOGIND;
    let sysv = format!(
        "systemd {version}: shutdown now, reboot, halt and poweroff, typed by root, go around \
         logind (systemd#22058); `systemctl reboot` and the like do not"
    );
    let finding =
        match (old, bypassing.is_empty()) {
            _ if is_alone && verdict.reason == ProtectionReason::LockHeld => CHECK
                .info("the kubelet terminates its pods in order only when a shutdown asks logind"),
            _ if is_alone && verdict.state == ProtectionState::Unknown => CHECK
                .info("it is unknown whether any shutdown terminates the kubelet's pods in order"),
            _ if verdict.reason == ProtectionReason::NotACompanion => {
                CHECK.info("no shutdown makes this agent terminate the kubelet's pods")
            }
            _ if is_alone || is_without_any_end(verdict.reason) => {
                CHECK.info("no shutdown terminates the pods in order")
            }
            _ if verdict.state == ProtectionState::Unknown => {
                CHECK.info("it is unknown whether any shutdown terminates the pods in order")
            }
            (false, true) => CHECK.ok("every orderly shutdown terminates the pods in order"),
            (true, _) => CHECK
                .info("commands of this host go around logind: the unit's stop terminates the pods")
                .saw(sysv),
            (false, false) => CHECK.info("some shutdown commands of this host are not systemd's"),
        };
    Some(finding.saw_all(&bypassing).saw(format!("{delayed}{soft}")).saw(stop).saw(lost))
}

/// The shutdown commands that are not systemd's, one line each.
fn bypassing(facts: &Facts) -> Vec<String> {
    facts
        .files
        .commands
        .known()
        .into_iter()
        .flatten()
        .filter_map(|command| {
            let name = command.leads_to.file_name()?;
            let (path, leads_to) = (command.path.display(), command.leads_to.display());
            (name != "systemctl")
                .then(|| format!("{path} is {leads_to}, which may go around logind"))
        })
        .collect()
}

/// Reports how the last shutdown went.
pub(super) fn last(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "last-shutdown",
        Area::Shutdown,
        "the last shutdown is the best predictor of the next one",
    );
    let Fact::Known(list) = &facts.files.reports else {
        return CHECK.not_observed("the last shutdown's report", &facts.files.reports);
    };
    if !list.problems.is_empty() {
        let title = "a report cannot be read, which may be the last shutdown's";
        return Some(
            CHECK.info(title).saw_all(&list.problems).advise("move away what cannot be read"),
        );
    }
    let last = list.last_run().or(list.reports.first());
    let unreported = match (facts.agent.known(), &facts.files.unreported) {
        (Some(status), _) => status.unreported(last),
        (None, Fact::Known(what)) => what.clone(),
        (None, unknown) => return CHECK.not_observed("what the last run left", unknown),
    };
    if let Some(what) = unreported {
        return Some(CHECK.info("no report says how the pods last terminated").saw(what).advise(
            "`winddown report` shows the last report there is, `winddown status` more of it",
        ));
    }
    Some(match last {
        None => CHECK.ok("no shutdown has been reported yet"),
        Some(entry) => {
            let run = match entry.trigger.as_str() {
                run @ ("drain" | "drill") => run,
                _ => "shutdown",
            };
            let took = winddown_shared::display::seconds(entry.took_seconds);
            let pods = pod_count(entry.pods);
            let seen = format!("{}: {}, {pods}, {took}", entry.id, entry.outcome);
            match entry.graceful {
                Some(true) => CHECK.ok(format!("the last {run} was graceful")).saw(seen),
                Some(false) | None => CHECK
                    .info(format!("the last {run} was not graceful for all pods"))
                    .saw(seen)
                    .advise(format!("`winddown report --id {}` shows it", entry.id)),
            }
        }
    })
}

pub(crate) fn is_going_down(status: &Status) -> bool {
    status.lock.state == LockState::Released || status.shutdown.phase.is_under_way()
}

/// Whether nothing ends the pods, on whatever way the node goes down. Where only the lock is missing, the unit's stop
/// still ends them.
fn is_without_any_end(reason: ProtectionReason) -> bool {
    matches!(
        reason,
        ProtectionReason::NoAgent | ProtectionReason::Disabled | ProtectionReason::ApiServerAwaited
    )
}

fn said_of_lock(status: &Status) -> String {
    let state = match status.lock.state {
        LockState::Held => "held",
        LockState::Waiting => "not held, retrying",
        LockState::Released => "released",
        LockState::Absent => "not available",
        LockState::Unknown => "unknown",
    };
    match &status.lock.why {
        Some(why) => format!("the agent says: {state}: {why}"),
        None => format!("the agent says: {state}"),
    }
}

/// Adds the fix for the delay, depending on the file that sets it now.
fn fix_delay(
    facts: &Facts,
    finding: Finding,
    setting: Option<&Setting>,
    wanted: Duration,
) -> Finding {
    // The agent's own file beats all others.
    let Some(setting) = setting.filter(|setting| setting.beats(drop_in::NAME)) else {
        let ours = drop_in::NAME;
        if !facts.live {
            let finding = Finding { severity: Severity::Info, ..finding };
            let seen = format!("the agent writes {ours} as it starts: the image needs nothing");
            return finding.saw(seen);
        }
        return match facts.agent.known() {
            Some(_) => finding
                .saw(format!("the agent writes {ours} itself, and could not"))
                .fix(Fix::DelayNotRaised, ["mkdir -p -m 755 /etc/systemd/logind.conf.d", RESTART]),
            None => finding.saw(format!("the agent writes {ours} itself as it starts")),
        };
    };
    let finding =
        finding.saw(format!("its name sorts after {}, and the last name wins", drop_in::NAME));
    let mut commands = vec![override_command(facts, &setting.file, wanted)];
    if facts.live {
        commands.extend(reread_delay(facts).map(str::to_owned));
    }
    finding.fix(Fix::DelayOverridden, commands)
}

/// The commands that put the delay of the files in force. logind tells nobody of a new delay: until an agent reads it
/// again, its plan is for the old one.
fn reread_delay(facts: &Facts) -> impl Iterator<Item = &'static str> {
    let agent = facts.agent.known().map(|_| "systemctl reload winddown");
    std::iter::once(RELOAD_LOGIND).chain(agent)
}

/// The setting that determines how long logind waits.
pub(super) fn delay_set_by(facts: &Facts) -> String {
    match facts.files.setting.known().and_then(Option::as_ref) {
        Some(setting) => {
            let file = facts.below_root(&setting.file.to_string_lossy());
            format!("{file}: InhibitDelayMaxSec={}", span(setting.value))
        }
        None => "no file sets InhibitDelayMaxSec: logind's own 5s".to_owned(),
    }
}

/// The command that makes logind use the wanted delay instead of this drop-in's.
pub(super) fn override_command(facts: &Facts, file: &Path, wanted: Duration) -> String {
    let root = if facts.live { Path::new("/") } else { &facts.root };
    drop_in::edit_command(root, file, wanted)
}

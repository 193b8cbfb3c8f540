//! Checks of the systemd unit.

use std::path::Path;
use std::time::Duration;

use winddown_systemd::inspect::{ServiceView, setting_that_shows};

use super::{Check, LOG, RESTART, START, UNIT, span};
use crate::facts::{Fact, Facts, NotObserved, ORDER, OutOfReach};
use crate::finding::{Area, Finding};
use crate::fix::Fix;
use winddown_config::RuntimeKind;
use winddown_host::has_plain_characters;
use winddown_shared::seconds_up;
use winddown_shutdown::UnitStop;

const INSTALL: &str = "winddown install";
const RELOAD: &str = "systemctl daemon-reload";
/// As the agent's unit does.
const BEGIN: &str =
    "systemctl --no-block --job-mode=ignore-dependencies start winddown-order.target";

/// Checks that the unit is installed and active.
pub(super) fn unit(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "unit",
        Area::Unit,
        "the unit starts the agent, at boot and when it fails, and terminates the pods when logind is bypassed",
    );
    let service = match &facts.bus.service {
        Fact::Known(service) => service,
        Fact::Unknown(NotObserved::NotLive, _) => return on_disk(CHECK, facts),
        Fact::Unknown(NotObserved::Absent, why) => {
            return Some(
                CHECK
                    .problem("systemd does not run this machine, or cannot be reached")
                    .saw(why)
                    .saw("without it nothing starts the agent, and nothing waits for it"),
            );
        }
        Fact::Unknown(NotObserved::Silent, why) => {
            return Some(
                CHECK
                    .problem("systemd does not answer")
                    .saw(why)
                    .advise("`systemctl status` says what it waits for"),
            );
        }
        Fact::Unknown(..) => return CHECK.not_observed("the unit", &facts.bus.service),
    };
    match service.load_state.as_str() {
        "loaded" => {}
        "not-found" => {
            return Some(
                CHECK
                    .problem(format!("{UNIT} is not installed"))
                    .fix(Fix::UnitMissing, [INSTALL, START]),
            );
        }
        "masked" => {
            return Some(
                CHECK
                    .problem(format!("{UNIT} is masked"))
                    .saw(&service.fragment_path)
                    .fix(Fix::UnitMasked, ["systemctl unmask winddown", INSTALL, START]),
            );
        }
        state => {
            return Some(
                CHECK
                    .problem(format!("systemd cannot use {UNIT}: {state}"))
                    .saw(&service.fragment_path)
                    .advise(
                        "`systemd-analyze verify winddown.service` names the line; `winddown install --force` \
                         writes the unit again",
                    ),
            );
        }
    }
    Some(state(CHECK, facts, service))
}

/// Checks that the unit lets the agent use the configured paths. Returns a finding only if it does not.
pub(super) fn sandbox(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "sandbox",
        Area::Unit,
        "an agent whose unit denies it its directories does not start, or loses what it writes",
    );
    // If unknown, the reason is reported by the check `unit`.
    let kept = facts.beyond.out_of_reach.known().filter(|kept| !kept.is_empty())?;
    let file = facts.config.file.display();
    let mut found = CHECK
        .problem("the unit keeps the agent from paths of its configuration")
        .saw_each(kept.iter().map(|one| {
            let file = one.kubeconfig.as_deref().unwrap_or(&facts.config.file);
            format!("{}: {}", file.display(), kept_away(one))
        }));
    let (named, kept): (Vec<_>, Vec<_>) = kept.iter().partition(|one| one.kubeconfig.is_some());
    for one in named {
        found = found.advise(how_to_show(one));
    }
    // A directory that is opened for a socket would be missing at the next boot, and the unit would not start.
    let (moved, opened): (Vec<_>, Vec<_>) =
        kept.into_iter().partition(|one| one.hidden || one.field.ends_with("Socket"));
    for one in moved {
        let place = if one.hidden { "" } else { " below /run/winddown" };
        found = found.advise(format!("write another path{place} for {} in {file}", one.field));
    }
    if opened.iter().any(|one| !has_plain_characters(&one.path.to_string_lossy())) {
        return Some(found.advise("name directories without blanks and special characters"));
    }
    if !opened.is_empty() {
        // What an earlier fix opened is in the same file, and stays open.
        let all = beyond_unit(facts).chain(opened.iter().map(|one| &*one.path));
        let mut paths: Vec<String> = Vec::new();
        for path in all.map(|path| path.display().to_string()) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let paths = paths.join(" ");
        let open = drop_in(UNIT, "50-paths", "Service", &format!("ReadWritePaths={paths}"));
        let make = format!("mkdir -p -m 711 {paths}");
        found = found.fix(Fix::PathsClosed, [&make, &open, RELOAD, RESTART]);
    }
    Some(found)
}

/// The configured directories that the agent writes to and the unit itself does not open.
fn beyond_unit(facts: &Facts) -> impl Iterator<Item = &Path> {
    const OF_UNIT: [&str; 3] = ["/run/winddown", "/var/lib/winddown", "/var/log"];
    let kept = facts.beyond.out_of_reach.known().into_iter().flatten();
    let hidden: Vec<&Path> = kept.filter(|one| one.hidden).map(|one| &*one.path).collect();
    let written = facts.config.config.written_directories().into_iter();
    let written = written.filter(|(field, _)| !field.ends_with("Socket")).map(|(_, path)| path);
    written.filter(move |path| {
        let is_plain = has_plain_characters(&path.to_string_lossy());
        is_plain && !hidden.contains(path) && !OF_UNIT.iter().any(|own| path.starts_with(own))
    })
}

/// How the agent gets to see what its kubeconfig names. Of what a command opens and writes itself nothing is known.
fn how_to_show(one: &OutOfReach) -> String {
    let setting = setting_that_shows(&one.path).unwrap_or("ProtectHome=read-only");
    let more = match one.field.ends_with(".command") {
        true => {
            "; a command that writes files or opens devices needs ReadWritePaths= and PrivateDevices=no, too"
        }
        false => "",
    };
    format!(
        "write {setting} below [Service] in `systemctl edit winddown`, then `systemctl restart winddown`{more}"
    )
}

/// Says which path the sandbox of the agent's unit keeps from the agent.
pub(crate) fn kept_away(one: &OutOfReach) -> String {
    let (field, path) = (one.field, one.path.display());
    match one.hidden {
        true => format!("{field}: {UNIT} does not see {path} (ProtectHome=, PrivateTmp=)"),
        false => format!("{field}: {UNIT} may not write to {path} (ProtectSystem=strict)"),
    }
}

/// Checks that the unit is started at boot.
pub(super) fn boot(facts: &Facts) -> Option<Finding> {
    const CHECK: Check =
        Check::new("boot", Area::Unit, "after the next boot the node would not be protected");
    let state = match &facts.bus.service {
        Fact::Known(service) if service.load_state == "loaded" => service.unit_file_state.as_str(),
        Fact::Unknown(NotObserved::NotLive, _) => {
            let installed = facts.files.installed.known().filter(|installed| installed.unit)?;
            if installed.enabled { "enabled" } else { "disabled" }
        }
        // Reported by the check `unit`.
        _ => return None,
    };
    Some(match state {
        "enabled" | "static" | "generated" | "alias" => CHECK.ok("the unit is started at boot"),
        state => CHECK
            .warning("the unit is not started at boot")
            .saw(format!("{UNIT}: {}", if state.is_empty() { "unknown" } else { state }))
            .fix(
                if facts.live { Fix::NotEnabled } else { Fix::NotEnabledInImage },
                [if facts.live {
                    "systemctl enable winddown".to_owned()
                } else {
                    facts.install("")
                }],
            ),
    })
}

/// Checks that the unit stops before the units that it needs in order to stop the pods.
pub(super) fn order(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "order",
        Area::Unit,
        "units stop in the reverse order of their start: what the agent needs must outlive it",
    );
    let service = loaded(facts)?;
    let kubelet = kubelets_unit(facts);
    let kubelet = kubelet.as_deref();
    let is_after = |unit: &&str| service.after.iter().any(|after| after == unit);
    let (mut missing, mut needed) = (Vec::new(), Vec::new());
    for any_of in [
        ["dbus.service", "dbus-broker.service", "dbus.socket"].as_slice(),
        &["systemd-logind.service"],
        facts.runtime_units(),
        kubelet.as_slice(),
    ] {
        let known = any_of.iter().copied().find(is_after);
        let there = any_of.iter().copied().find(|unit| facts.has_runtime_unit(unit));
        needed.extend(known.or(there).or(any_of.first().copied()));
        if known.is_none() {
            missing.extend(there.or(any_of.first().copied()));
        }
    }
    // The unit of k3s is both the runtime's and the kubelet's.
    missing.dedup();
    needed.dedup();
    let config = &facts.config.config;
    let is_known = config.node.runtime != RuntimeKind::Cri || !facts.runtime_units().is_empty();
    if missing.is_empty() && is_known {
        let kubelet = if kubelet.is_some() { ", the kubelet" } else { "" };
        let title = format!("the agent stops before logind, the bus{kubelet} and the runtime");
        return Some(CHECK.ok(title));
    }
    if missing.is_empty() {
        let title =
            "the agent stops before logind and the bus; whether before the runtime is not known";
        let seen = format!("containerRuntimeEndpoint: {}", config.node.container_runtime_endpoint);
        let advice = "name the runtime's unit in `systemctl edit winddown-order.target`: below [Unit], After=UNIT";
        return Some(CHECK.info(title).saw(seen).advise(advice));
    }
    let names = missing.join(" ");
    Some(
        CHECK
            .problem("the agent is not stopped before what it needs")
            .saw(format!("{UNIT} is not stopped before {names}"))
            .fix(
                Fix::OrderMissing,
                // All of them: what an earlier fix wrote is in the same file.
                [
                    &*drop_in(ORDER, "50-order", "Unit", &format!("After={}", needed.join(" "))),
                    RELOAD,
                    BEGIN,
                ],
            ),
    )
}

/// The unit of the kubelet that has to end the pods; `None` if the agent ends them without one, or if it is not known.
fn kubelets_unit(facts: &Facts) -> Option<String> {
    let kubelet = facts.kubelet.config.known()?.as_ref().filter(|_| facts.is_beside_kubelet())?;
    Some(format!("{}.service", kubelet.unit))
}

/// Checks that systemd waits long enough for the agent to stop.
pub(super) fn stop_time(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "stop-time",
        Area::Unit,
        "where logind is bypassed the pods have the time systemd gives the unit to stop",
    );
    let service = loaded(facts)?;
    let (given, wanted) = (service.timeout_stop, facts.delay_wanted());
    let limit = facts.bus.limit.known().copied().flatten();
    if given >= wanted
        && let Some(limit) = limit.filter(|&limit| UnitStop::delay_of(limit, wanted) < wanted)
    {
        return Some(limited(CHECK, limit, wanted));
    }
    Some(if given >= wanted {
        CHECK.ok(format!("systemd gives the unit {} to stop", span(given)))
    } else {
        let found = CHECK
            .warning(format!(
                "systemd gives the unit {} to stop, {} are required",
                span(given),
                span(wanted)
            ))
            .saw(format!("{UNIT}: TimeoutStopSec={}", span(given)))
            .saw("the agent asks for more as it stops, which a hanging one cannot");
        match foreign_drop_in(service) {
            None => found.fix(Fix::StopTimeShort, [INSTALL]),
            Some(file) => found.advise(format!(
                "raise TimeoutStopSec= to {}s where `systemctl cat winddown` shows it ({file}?), or remove it there \
                 and run `winddown install`; then `systemctl daemon-reload`",
                seconds_up(wanted)
            )),
        }
    })
}

/// The finding that systemd stops waiting for units before the agent is done, in a way down that bypasses logind.
fn limited(check: Check, limit: Duration, wanted: Duration) -> Finding {
    let enough = seconds_up(wanted.saturating_add(UnitStop::AFTERWARDS));
    check
        .warning(format!(
            "where logind is bypassed systemd waits {} for all units, the pods require {}",
            span(limit),
            span(wanted)
        ))
        .saw(format!("poweroff.target, reboot.target: JobTimeoutSec={}", span(limit)))
        .saw("the agent shortens its plan to that")
        .advise(format!(
            "write JobTimeoutSec={enough} below [Unit] of both, in drop-ins; then `systemctl daemon-reload`"
        ))
}

/// Checks that neither pods nor the lock are lost when the agent fails.
pub(super) fn crash(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "crash",
        Area::Unit,
        "an agent that fails must come back at once, with the lock and the pods as they were",
    );
    let service = loaded(facts)?;
    let kills_pods = facts.runtime_in_use() == RuntimeKind::Process
        && !matches!(service.kill_mode.as_str(), "process" | "none" | "");
    if kills_pods {
        return Some(restart_kills_pods(CHECK, service, facts.config.config.node.runtime));
    }
    if let Some(loose) = loose(CHECK, facts, service) {
        return Some(loose);
    }
    let mut weak = Vec::new();
    if service.fd_store_max == 0 {
        weak.push("FileDescriptorStoreMax=0: the lock is lost with the agent".to_owned());
    }
    if service.restart != "always" {
        weak.push(format!("Restart={}: the agent may stay away", service.restart));
    }
    // Of a unit that is not active, systemd does not tell it.
    if service.watchdog == Duration::ZERO && service.active_state == "active" {
        weak.push("WatchdogSec=0: an agent that hangs is not noticed".to_owned());
    }
    let again = match service.restarts {
        0 => String::new(),
        1 => "systemd has started the agent again once".to_owned(),
        times => format!("systemd has started the agent again {times} times"),
    };
    Some(if weak.is_empty() {
        CHECK
            .ok("a crash of the agent loses neither lock nor pods")
            .saw(format!("systemd keeps {} of its descriptors", service.fd_store))
            .saw(again)
    } else {
        CHECK
            .warning("a crash of the agent would leave the node unprotected")
            .saw_all(&weak)
            .saw(again)
            .advise(
                "`systemctl cat winddown` shows the file that says so: remove the line there, then \
                 `systemctl daemon-reload`",
            )
    })
}

/// The finding that the unit is set up for children of the agent, which the agent has not and is not to have.
fn loose(check: Check, facts: &Facts, service: &ServiceView) -> Option<Finding> {
    let configured = facts.config.config.node.runtime;
    let needs_it = [configured, facts.runtime_in_use()].contains(&RuntimeKind::Process);
    // systemd also names one that a link to /dev/null masks.
    let is_in_force = service.kill_mode == "process";
    let drop_in = service.drop_ins.iter().find(is_for_processes);
    let drop_in = drop_in.filter(|_| is_in_force && !needs_it)?;
    Some(
        check
            .info("the unit is set up for `runtime: process`: the agent has no sandbox")
            .saw(drop_in)
            .saw(format!("the configuration says `runtime: {configured}`"))
            .advise("`winddown install` fits the unit to it; then `systemctl restart winddown`"),
    )
}

/// Whether this is the drop-in of an installation or a package for pods that are the agent's children.
fn is_for_processes(path: &&String) -> bool {
    path.ends_with("/winddown.service.d/10-process-runtime.conf")
}

fn restart_kills_pods(check: Check, service: &ServiceView, configured: RuntimeKind) -> Finding {
    let found = check
        .problem("a restart of the agent would kill the pods")
        .saw(format!("{UNIT}: KillMode={}, pods are its children", service.kill_mode));
    if configured != RuntimeKind::Process {
        // The unit is as it has to be, once these pods have terminated.
        return found
            .saw(format!(
                "the configuration says `runtime: {configured}`, and the pods run without"
            ))
            .advise("`winddown drain`, `systemctl restart winddown`, `winddown undrain`");
    }
    // Once the drop-in of the installation is there, something else overrides it.
    let other = foreign_drop_in(service)
        .or_else(|| {
            service.drop_ins.iter().rev().find(|path| !is_for_processes(path)).map(String::as_str)
        })
        .filter(|_| service.drop_ins.iter().any(|path| is_for_processes(&path)));
    match other {
        None => found.fix(Fix::RestartKillsPods, ["winddown install --runtime process"]),
        Some(file) => found.advise(format!(
            "`systemctl cat winddown` shows what sets KillMode= ({file}?): remove the line there, then \
             `systemctl daemon-reload`"
        )),
    }
}

/// A drop-in that is not winddown's: what it sets, no installation changes.
fn foreign_drop_in(service: &ServiceView) -> Option<&str> {
    const OURS: [&str; 3] = ["10-process-runtime.conf", "20-stop-time.conf", "50-paths.conf"];
    let is_foreign = |path: &&String| {
        let name = path.rsplit_once("/winddown.service.d/").map(|(_, name)| name);
        name.is_some_and(|name| !OURS.contains(&name))
    };
    service.drop_ins.iter().rev().find(is_foreign).map(String::as_str)
}

/// The command that ends a process and waits until it is gone.
fn kill(pid: u32) -> String {
    format!("kill {pid} && while kill -0 {pid} 2>/dev/null; do sleep 0.1; done")
}

/// The command that writes a drop-in of a unit with one line.
fn drop_in(unit: &str, name: &str, section: &str, line: &str) -> String {
    let directory = format!("/etc/systemd/system/{unit}.d");
    // In printf's format between single quotes: names of units may have backslashes.
    let line = line.replace('\\', r"\\").replace('%', "%%").replace('\'', r"'\''");
    format!("mkdir -p {directory} && printf '[{section}]\\n{line}\\n' > {directory}/{name}.conf")
}

fn loaded(facts: &Facts) -> Option<&ServiceView> {
    facts.bus.service.known().filter(|service| service.load_state == "loaded")
}

fn on_disk(check: Check, facts: &Facts) -> Option<Finding> {
    Some(match &facts.files.installed {
        Fact::Known(installed) if installed.unit => check.ok(format!("{UNIT} is installed")),
        Fact::Known(_) => check
            .problem(format!("{UNIT} is not installed"))
            .fix(Fix::UnitMissingInImage, [facts.install("")]),
        Fact::Unknown(..) => return check.not_observed("the unit's file", &facts.files.installed),
    })
}

pub(super) fn state_of(service: &ServiceView) -> String {
    format!("{UNIT}: {} ({})", service.active_state, service.sub_state)
}

fn state(check: Check, facts: &Facts, service: &ServiceView) -> Finding {
    let seen = state_of(service);
    match service.active_state.as_str() {
        "active" | "reloading" | "refreshing" if service.need_daemon_reload => check
            .warning("the unit's files have changed since systemd read them")
            .saw(seen)
            .fix(Fix::UnitStale, [RELOAD, RESTART]),
        "active" | "reloading" | "refreshing" => check.ok("the unit is installed and active").saw(seen),
        "activating" if service.sub_state.starts_with("auto-restart") => check
            .problem("the agent does not keep running: systemd starts it again and again")
            .saw(seen)
            .saw(format!("result: {}", service.result))
            .advise(LOG),
        "activating" => {
            check.warning("the unit is still being started").saw(seen).advise(LOG)
        }
        "deactivating" if service.sub_state == "stop-post" => check
            .problem("the agent does not keep running: systemd waits before it starts it again")
            .saw(seen)
            .saw(format!("result: {}", service.result))
            .advise(LOG),
        "failed" => {
            let why = "systemd does not start the agent again, and nothing terminates the pods in order";
            let failed = Check { why, ..check }
                .problem("the unit has failed")
                .saw(seen)
                .saw(format!("result: {}", service.result));
            match facts.unit_can_start() {
                true => failed.fix(Fix::UnitFailed, [RESTART]).advise(LOG),
                false => failed.advise(LOG),
            }
        }
        _ => match facts.agent.known() {
            Some(status) => check
                .warning("an agent runs, but not as the unit: a shutdown that bypasses logind is not covered")
                .saw(seen)
                .fix(Fix::AgentOutsideUnit, [&*kill(status.node.pid), START]),
            None => {
                let found = check.problem("the unit is not active").saw(seen);
                if facts.unit_can_start() { found.fix(Fix::AgentStopped, [START]) } else { found }
            }
        },
    }
}

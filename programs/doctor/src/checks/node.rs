//! Checks of the configuration, the disk and the clock.

use std::path::Path;

use winddown_config::{Exposure, Mode};
use winddown_shared::display::{age, bytes, clean};

use super::{Check, RESTART};
use crate::facts::{ConfigRead, Fact, Facts, NotObserved};
use crate::finding::{Area, Finding};
use crate::fix::Fix;
use winddown_control::api::{DirectoryStatus, DirectoryUse, ManifestProblem, Status};
use winddown_host::{FreeSpace, OthersMayWrite, Writers, path_word, shell_word};

/// Timestamps of file servers differ from this clock by less.
const CLOCK_SLACK_SECONDS: i64 = 120;
const NTP: &str = "switch the node's time service on (systemd-timesyncd, chrony), or install one";

/// Checks that the configuration is valid, and in force.
pub(super) fn config(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "config",
        Area::Node,
        "an agent does not start with a configuration that is wrong, so the next restart would fail",
    );
    let (file, word) = (facts.config.file.display(), path_word(&facts.config.file));
    let warnings = match &facts.config.read {
        ConfigRead::Valid(warnings) => warnings,
        ConfigRead::Defaults => {
            return Some(
                CHECK
                    .info("there is no configuration: the defaults are in effect")
                    .saw(format!("{file} is not there"))
                    .advise(format!(
                        "`winddown config default > {word}` writes the defaults, to be changed"
                    )),
            );
        }
        ConfigRead::LastInForce { copy, wrong } => {
            return Some(last_in_force(CHECK, &facts.config.file, copy, wrong));
        }
        ConfigRead::Invalid(lines) => {
            return Some(
                CHECK
                    .problem("the configuration is wrong")
                    .saw_all(lines)
                    .saw("what depends on it was not checked")
                    .advise(format!(
                        "correct it; `winddown config check {word}` says when it is right"
                    )),
            );
        }
        ConfigRead::Unread(kind, why) => return unread(&CHECK, facts, *kind, why),
    };
    if let Some(ends) = ends_as_companion(CHECK, facts) {
        return Some(ends);
    }
    if let Some(changed) = changed_since(CHECK, facts, warnings) {
        return Some(changed);
    }
    let warnings = with_those_of_agent(warnings, facts);
    if let Some(waits) = at_restart(CHECK, facts, &warnings) {
        return Some(waits);
    }
    Some(if warnings.is_empty() {
        CHECK.ok("the configuration is valid").saw(file.to_string())
    } else {
        CHECK.info("the configuration is valid, with remarks").saw_all(&warnings)
    })
}

/// The finding that `copy` stands in for `file`, which is `wrong` or, if nothing is, not there.
fn last_in_force(check: Check, file: &Path, copy: &Path, wrong: &[String]) -> Finding {
    let why =
        "what the file should say is not in effect, and only the copy keeps the agent what it was";
    let check = Check { why, ..check };
    let (shown, last) = (file.display(), copy.display());
    if wrong.is_empty() {
        return check
            .problem("the configuration file is missing: the last one in effect is used")
            .saw(format!("{shown} does not exist; {last} has the last one in effect"))
            .advise(format!(
                "put {shown} back, for example: cp {} {}",
                path_word(copy),
                path_word(file)
            ));
    }
    check
        .problem("the configuration is wrong: the last one in effect is used")
        .saw_all(wrong)
        .saw(format!("{last} has the last one in effect"))
        .advise(format!("correct {shown}, then: `systemctl reload winddown`"))
}

/// Why a changed file matters that the agent has not taken over.
const NOT_IN_EFFECT: &str = "a shutdown goes by the configuration that the agent has in effect";

/// How an agent without a unit takes over a configuration.
const NO_UNIT: &str = "no unit has started the agent: restart it, in a pod by a rollout";

/// The finding that the agent is the companion of a kubelet only until it starts again: a restart takes nothing over that
/// is wanted.
fn ends_as_companion(check: Check, facts: &Facts) -> Option<Finding> {
    let file = facts.config.file.display();
    if !facts.is_beside_kubelet() || facts.config.config.node.mode == Mode::Companion {
        return None;
    }
    let why = "beside a kubelet only a companion terminates the kubelet's pods";
    Some(
        Check { why, ..check }
            .problem("the agent is the kubelet's companion, and is not to be once it is restarted")
            .saw(format!("{file} does not say `mode: companion`"))
            .advise(format!("write `mode: companion` back into {file}")),
    )
}

/// The finding that the file was changed after the agent had read it.
fn changed_since(check: Check, facts: &Facts, warnings: &[String]) -> Option<Finding> {
    let check = Check { why: NOT_IN_EFFECT, ..check };
    let config = &facts.agent.known()?.config;
    let (loaded, changed) = config.loaded_at.zip(config.changed_at)?;
    let file = facts.config.file.display();
    let found = check
        .warning("the configuration was changed after the agent had read it: it is not in effect")
        .saw(format!("{file}: changed {changed:.0}, read {loaded:.0}"))
        .saw_all(warnings);
    Some(match facts.unit_is_active() {
        true => found.fix(Fix::ConfigChanged, ["systemctl reload winddown"]),
        false => found.advise(NO_UNIT),
    })
}

/// The finding that the agent has read changes that take effect when it is restarted.
fn at_restart(check: Check, facts: &Facts, warnings: &[String]) -> Option<Finding> {
    let check = Check { why: NOT_IN_EFFECT, ..check };
    let fields = &facts.agent.known()?.config.at_restart;
    if fields.is_empty() {
        return None;
    }
    let found = check
        .warning("a part of the configuration is in effect only after a restart of the agent")
        .saw_all(warnings);
    Some(match facts.unit_is_active() {
        _ if fields.iter().any(|field| field == "runtime") => {
            found.advise("the commands for `runtime` bring all of it into effect")
        }
        true => found.fix(Fix::ConfigAtRestart, ["systemctl restart winddown"]),
        false => found.advise(NO_UNIT),
    })
}

/// Adds what only the running agent notices, such as an address in use.
fn with_those_of_agent(of_file: &[String], facts: &Facts) -> Vec<String> {
    let mut warnings = of_file.to_vec();
    let of_agent = facts.agent.known().map(|status| status.config.warnings.as_slice());
    for warning in of_agent.unwrap_or_default() {
        if !warnings.contains(warning) {
            warnings.push(warning.clone());
        }
    }
    warnings
}

/// Says why the configuration could not be read.
fn unread(check: &Check, facts: &Facts, kind: NotObserved, why: &str) -> Option<Finding> {
    let file = facts.config.file.display();
    let found = match kind {
        NotObserved::Silent => {
            Some(check.problem("the configuration cannot be read: the disk hangs").saw(why))
        }
        _ => {
            let not_observed = Fact::<()>::Unknown(kind, format!("{file}: {why}"));
            check.not_observed("the configuration", &not_observed)
        }
    };
    found.map(|found| found.saw("what depends on it was not checked"))
}

/// Checks that the manifests are valid. Returns `None` beside a kubelet: the agent reads none there.
pub(super) fn manifests(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "manifests",
        Area::Node,
        "a pod whose manifest is wrong does not run, or runs as the manifest was before",
    );
    if facts.is_beside_kubelet() {
        return None;
    }
    let manifests = &facts.agent.known()?.manifests;
    if manifests.problems.is_empty() {
        return Some(CHECK.ok("the manifests are valid"));
    }
    let line = |problem: &ManifestProblem| {
        let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
        let field = if problem.field.is_empty() { "" } else { ": " };
        format!("{}{line}{field}{}: {}", problem.file, problem.field, problem.message)
    };
    // Its message says what to do.
    let of_directory =
        manifests.problems.iter().find(|problem| problem.file == manifests.directory);
    let title = match (of_directory, manifests.problems.len()) {
        (Some(_), _) => "the directory of the manifests cannot be read".to_owned(),
        (None, 1) => "a manifest is invalid".to_owned(),
        (None, count) => format!("there are {count} problems in the manifests"),
    };
    let mut found = CHECK.warning(title).saw_each(manifests.problems.iter().map(line));
    if found.evidence.len() < manifests.problems.len() {
        found = found.advise("`winddown status -o wide` lists them all");
    }
    Some(match of_directory {
        Some(_) => found,
        None => found.advise("correct or remove the file; it is read again at once"),
    })
}

/// Checks that only root can write manifests. Returns a finding only if others can.
pub(super) fn writers(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "manifest-writers",
        Area::Node,
        "a user who can write a manifest can run any program as any user, root included",
    );
    let found = match &facts.files.others_may_write {
        // The agent reads none.
        _ if facts.is_beside_kubelet() => return None,
        Fact::Known(found) => found,
        // Reported by the check `manifests`.
        Fact::Unknown(NotObserved::Absent | NotObserved::NotLive, _) => return None,
        Fact::Unknown(..) => {
            return CHECK.not_observed("the manifests", &facts.files.others_may_write);
        }
    };
    if found.is_empty() {
        return None;
    }
    let title = "users other than root can write manifests";
    let everybody = found.iter().any(|one| one.who == Writers::Everybody);
    let finding = if everybody { CHECK.problem(title) } else { CHECK.warning(title) };
    Some(
        finding
            .saw_each(found.iter().map(|one| clean(&one.to_string()).into_owned()))
            .fix(Fix::ManifestsWritable, found.iter().map(OthersMayWrite::fix_command)),
    )
}

/// Checks that only root decides what the agent believes and runs, and can read its keys.
pub(super) fn exposed(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "writers",
        Area::Node,
        "the agent is root: who can write what it reads decides what root does, and who can read its keys is the node",
    );
    let found = match &facts.files.exposed {
        Fact::Known(found) => found,
        // Reported by the check `config`.
        Fact::Unknown(NotObserved::Absent, _) => return None,
        Fact::Unknown(..) => {
            return CHECK.not_observed("the paths that root trusts", &facts.files.exposed);
        }
    };
    if found.is_empty() {
        return None;
    }
    let everybody = |how: &Exposure| match how {
        Exposure::Writable(one) => {
            matches!(one.who, Writers::Everybody | Writers::FirstToCreate { .. })
        }
        Exposure::Readable(one) => one.group.is_none(),
        Exposure::Unknown { .. } => false,
    };
    let can = |is: fn(&Exposure) -> bool| found.iter().any(|one| is(&one.how));
    let writes = can(|how| matches!(how, Exposure::Writable(_)));
    let what = match (writes, can(|how| matches!(how, Exposure::Readable(_)))) {
        (true, true) => "write what root trusts, and read its secrets",
        (true, false) => "write what root trusts",
        (false, true) => "read root's secrets",
        (false, false) => {
            let finding = CHECK.info("it is not known who can write what root trusts");
            return Some(finding.saw_each(found.iter().map(ToString::to_string)));
        }
    };
    let finding = match found.iter().any(|one| everybody(&one.how)) {
        true => CHECK.problem(format!("every user can {what}")),
        false => CHECK.warning(format!("users other than root can {what}")),
    };
    let finding = finding.saw_each(found.iter().map(ToString::to_string));
    let advice = found.iter().filter_map(|one| {
        let purpose = match one.how {
            Exposure::Readable(_) => "to close it",
            Exposure::Writable(_) | Exposure::Unknown { .. } => "to accept it as it is",
        };
        Some(format!("{purpose}, run: {}", clean(&one.mend()?)))
    });
    Some(advice.fold(finding, Finding::advise))
}

/// Checks that the state that has to survive a shutdown can be written.
pub(super) fn state(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "state",
        Area::Node,
        "the phase of a shutdown is kept on disk, so that a restarted agent continues it",
    );
    // Reported by the check `sandbox`: this command may write where the agent may not.
    let mut kept = facts.beyond.out_of_reach.known().into_iter().flatten();
    if kept.any(|one| one.field == "stateDirectory") {
        return None;
    }
    let state = match &facts.files.state {
        Fact::Known(state) => state,
        Fact::Unknown(NotObserved::Silent, why) => {
            return Some(CHECK.problem("the state directory's disk does not answer").saw(why));
        }
        Fact::Unknown(NotObserved::Absent, why) if facts.agent.known().is_some() => {
            return Some(
                CHECK
                    .problem("the state directory is gone")
                    .saw(why)
                    .fix(Fix::StateGone, ["systemctl restart winddown"]),
            );
        }
        Fact::Unknown(NotObserved::Absent, why) => {
            return Some(
                CHECK
                    .info("there is no state directory yet: the agent makes it as it starts")
                    .saw(why),
            );
        }
        Fact::Unknown(..) => return CHECK.not_observed("the state directory", &facts.files.state),
    };
    let path = state.path.display();
    let free = left(&path, state.left.bytes, state.left.inodes);
    let look = space(&[&state.path]);
    Some(if let Some(why) = &state.unwritable {
        CHECK
            .problem("the state directory cannot be written")
            .saw(format!("{path}: {why}"))
            .saw(free)
            .advise(look)
    } else if state.left.is_low(FreeSpace::FEW_BYTES) {
        CHECK.warning("the state directory's disk is almost full").saw(free).advise(look)
    } else {
        CHECK.ok("the state directory can be written").saw(free)
    })
}

/// Checks that the containers' logs have a directory. Returns a finding only if something else has its place.
pub(super) fn logs(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "logs",
        Area::Node,
        "what pods print is lost, or they do not start: no link is followed there, as a pod may have made it",
    );
    let found = facts.files.in_place_of_logs.known()?.as_ref()?;
    let (path, file) = (found.path.display(), facts.config.file.display());
    let move_away = format!("move {path} away");
    let advice = match &found.leads_to {
        Some(directory) => format!(
            "if the link is yours, write podLogsDir: {} into {file}; otherwise {move_away}",
            directory.display()
        ),
        None => move_away,
    };
    Some(
        CHECK
            .warning("the directory of the pods' logs is none")
            .saw(format!("{path}: {}", found.what))
            .advise(format!("{advice}; then `{RESTART}`")),
    )
}

/// How to see what is left on the disks of these paths.
pub(super) fn space(paths: &[&Path]) -> String {
    let words: Vec<_> = paths.iter().map(path_word).collect();
    let words = words.join(" ");
    format!("`df -h {words}; df -i {words}` shows what is left")
}

/// What is left on the disk of `path`.
fn left(path: impl std::fmt::Display, free: u64, inodes: Option<u64>) -> String {
    let inodes = inodes.map(|inodes| format!(", {inodes} inodes")).unwrap_or_default();
    format!("{path}: {} free{inodes}", bytes(free))
}

/// Checks that there is room for the output of pods and for what the next agent continues from. Returns a finding only if
/// there is not; the state directory has a check of its own.
pub(super) fn disks(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "disks",
        Area::Node,
        "what pods print is lost, and an agent that restarts during a shutdown may not continue it",
    );
    let directories = &facts.agent.known()?.directories;
    let low: Vec<&DirectoryStatus> = directories
        .iter()
        .filter(|one| one.is_low && matches!(one.holds, DirectoryUse::Logs | DirectoryUse::Run))
        .collect();
    let paths: Vec<&Path> = low.iter().map(|one| Path::new(&one.path)).collect();
    let title = match low.as_slice() {
        [] => return None,
        [one] if one.is_full => format!("the disk of {} is full", one.path),
        [one] if one.read_only => format!("the disk of {} is read-only", one.path),
        [one] => format!("the disk of {} is almost full", one.path),
        _ => "disks that the agent or its pods write to are full or almost full".to_owned(),
    };
    let seen = |one: &&DirectoryStatus| match one.free_bytes {
        None => format!("{}: its disk does not answer", one.path),
        Some(free) => left(&one.path, free, one.free_inodes),
    };
    Some(
        CHECK
            .warning(title)
            .saw_each(low.iter().map(seen))
            .advise(format!("make room; {}", space(&paths))),
    )
}

/// Checks that the control socket is not open to all users.
pub(super) fn socket(facts: &Facts) -> Option<Finding> {
    const CHECK: Check =
        Check::new("socket", Area::Node, "a user who can write to the socket can terminate pods");
    if let Fact::Known(Some(group)) = &facts.beyond.missing_group {
        let why = "an agent does not start without the group that its socket is to have";
        return Some(
            Check { why, ..CHECK }
                .problem("the group of the control socket does not exist")
                .saw(no_group(group))
                .fix(Fix::NoGroup, [&*format!("groupadd -r {}", shell_word(group)), RESTART]),
        );
    }
    let socket = match &facts.files.socket {
        Fact::Known(socket) => socket,
        // Reported by the check `agent`.
        Fact::Unknown(NotObserved::Absent, _) => return None,
        Fact::Unknown(..) => return CHECK.not_observed("the control socket", &facts.files.socket),
    };
    let path = socket.path.display();
    let seen =
        format!("{path}: mode {:04o}, owner {}, group {}", socket.mode, socket.uid, socket.group);
    let wanted = facts.config.config.access.control_socket_group.as_deref();
    Some(if socket.mode & 0o007 != 0 {
        let mode = if wanted.is_some() { "0660" } else { "0600" };
        CHECK
            .problem("the control socket is open to all users")
            .saw(seen)
            .fix(Fix::SocketOpen, [format!("chmod {mode} {}", path_word(&socket.path))])
    } else if socket.directory_mode & 0o1002 == 0o002 {
        let directory = socket.path.parent().unwrap_or(&socket.path);
        let word = path_word(directory);
        CHECK
            .problem("all users can replace the control socket")
            .saw(format!("{}: mode {:04o}", directory.display(), socket.directory_mode))
            .fix(Fix::SocketReplaceable, [format!("chmod 0755 {word}")])
    } else if let Some(wanted) = wanted.filter(|wanted| **wanted != socket.group) {
        CHECK
            .warning(format!("the control socket does not belong to group {wanted}"))
            .saw(seen)
            .fix(Fix::SocketGroup, [RESTART])
    } else if wanted.is_none() && socket.mode & 0o070 != 0 && facts.config.is_read() {
        CHECK
            .warning("the control socket is open to a group, and none is configured")
            .saw(seen)
            .fix(Fix::SocketGroup, [RESTART])
    } else if wanted.is_some() || socket.mode & 0o070 != 0 {
        CHECK.ok("the control socket is for its owner and group only").saw(seen)
    } else {
        CHECK.ok("the control socket is for its owner only").saw(seen)
    })
}

/// Says that there is no such group, which the control socket is to have.
pub(crate) fn no_group(group: &str) -> String {
    format!("controlSocketGroup: there is no group {group}")
}

pub(super) fn clock(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "clock",
        Area::Node,
        "reports carry wall time, and a notice may name its deadline in it; graces do not depend on it",
    );
    let clock = &facts.clock;
    if let Some(was_set) = facts.agent.known().and_then(Status::clock_was_set) {
        return Some(
            CHECK
                .warning(format!("{was_set} while the agent ran"))
                .saw(format!("now {:.0}", clock.now))
                .advise(NTP),
        );
    }
    if let Some((file, newest)) = &clock.newest {
        let behind = newest.as_second().saturating_sub(clock.now.as_second());
        if behind > CLOCK_SLACK_SECONDS {
            return Some(
                CHECK
                    .warning(format!("the clock is {} behind", age(behind)))
                    .saw(format!("now {:.0}, {} is of {newest:.0}", clock.now, file.display()))
                    .advise(NTP),
            );
        }
    }
    Some(match &facts.bus.synchronised {
        Fact::Known(true) => CHECK.ok("the clock is synchronised"),
        Fact::Known(false) => CHECK
            .info("the clock is not synchronised")
            .saw(format!("now {:.0}", clock.now))
            .advise(NTP),
        // This machine has no time service that could say so.
        Fact::Unknown(NotObserved::Absent, why) => {
            CHECK.ok("the clock is not behind; whether it is synchronised is not known").saw(why)
        }
        unknown => return CHECK.not_observed("whether the clock is synchronised", unknown),
    })
}

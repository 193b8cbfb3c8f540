//! Checks of a kubelet: one that is alone on the node, one that this agent is the companion of, and one that it is not.

use std::path::Path;

use winddown_companion::kubelet::SettingDifference;
use winddown_config::{ENABLE_AND_RESTART, Mode, scalar};
use winddown_host::{path_word, shell_word};
use winddown_node::KubeletPresence;
use winddown_systemd::drop_in;
use winddown_systemd::inspect::{LockView, LoginView};

use super::alone::is_idle;
use super::shutdown::{RELOAD_LOGIND, delay_set_by, override_command};
use super::{Check, listed, lock_count};
use crate::facts::{ConfigRead, Fact, Facts, KubeletConfig, NotObserved};
use crate::finding::{Area, Finding};
use crate::fix::Fix;
use winddown_control::api::ProtectionReason as Why;

/// The inhibitor lock of a kubelet. It must belong to root: every user can take a lock under any name.
pub(crate) fn lock(login: &LoginView) -> Option<&LockView> {
    login.locks.iter().find(|lock| lock.who == "kubelet" && lock.uid == 0 && lock.delays_shutdown())
}

/// The kubelet's configuration for shutdowns with its location, or why it cannot be read.
fn said_by(facts: &Facts, config: &KubeletConfig) -> String {
    let said = [&config.problem, &config.enabled, &config.gate];
    let said = said.into_iter().find(|said| !said.is_empty());
    let said = said.map_or("no shutdownGracePeriod above 0s", String::as_str);
    format!("{}: {said}", facts.below_root(&config.place))
}

/// Adds what was seen of the kubelet.
fn seen(facts: &Facts, finding: Finding) -> Finding {
    let process = facts.kubelet.processes.known().and_then(|kubelets| kubelets.first());
    let process = process.map(|p| format!("process {}: {}", p.pid, p.name));
    let unclear = match &facts.kubelet.processes {
        Fact::Unknown(NotObserved::Failed, why) => Some(why.clone()),
        Fact::Unknown(..) | Fact::Known(_) => None,
    };
    let unit = facts.kubelet.unit.known().and_then(Option::as_ref);
    let unit = unit.filter(|_| process.is_none()).map(|unit| format!("{unit} is set up to run"));
    let lock = facts.bus.login.known().and_then(lock).map(listed);
    let config = facts.kubelet.config.known().and_then(Option::as_ref);
    finding
        .saw(process.or(unclear).or(unit).unwrap_or_default())
        .saw(lock.unwrap_or_default())
        .saw(config.map(|config| said_by(facts, config)).unwrap_or_default())
        .saw(if is_idle(facts) { IDLE } else { "" })
}

const IDLE: &str = "winddown.service neither runs nor is enabled";

/// Checks that a kubelet's pods are ended by one of the two, and by one only.
pub(super) fn beside(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "kubelet",
        Area::Containers,
        "a kubelet's pods terminate in order if the kubelet terminates them, or winddown as its companion; not by \
         an agent with pods of its own",
    );
    if facts.is_beside_kubelet() {
        return beside_companion(facts);
    }
    let verdict = facts.protection();
    if verdict.reason == Why::NotACompanion {
        return Some(become_companion(facts, seen(facts, CHECK.problem(verdict.text))));
    }
    if facts.protection_facts().kubelet.presence.is_none() {
        let unseen = CHECK.not_observed("whether a kubelet runs", &facts.kubelet.processes);
        return unseen.or_else(|| {
            CHECK.not_observed("whether a kubelet is set up to run", &facts.kubelet.unit)
        });
    }
    Some(match facts.kubelet.config.known() {
        Some(Some(_)) => seen(
            facts,
            CHECK.info("there is a kubelet's configuration here, but no kubelet that uses it"),
        ),
        _ => CHECK.ok("no kubelet runs pods on this node"),
    })
}

/// Checks that the kubelet of a companion runs the pods, and leaves their end to the companion.
fn beside_companion(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "kubelet",
        Area::Containers,
        "two agents that terminate pods at one shutdown share the time and upset each other's order",
    );
    const ABSENT: Check = Check {
        why: "without a kubelet no pod starts, and pods terminate without their preStop hooks",
        ..CHECK
    };
    let config = facts.kubelet.config.known().and_then(Option::as_ref);
    let decided = facts.protection_facts().kubelet;
    let is_away =
        matches!(decided.presence, Some(KubeletPresence::Absent | KubeletPresence::Enabled));
    if is_away && facts.live {
        let unit = config.map_or("kubelet", |config| &config.unit);
        let title = "no kubelet runs here, and with `mode: companion` nothing else runs pods";
        return Some(
            seen(facts, ABSENT.problem(title))
                .fix(Fix::KubeletStopped, [format!("systemctl start {}", shell_word(unit))])
                .advise(format!("or write another mode in {}", facts.config.file.display())),
        );
    }
    if !facts.kubelet.differences.is_empty() {
        return Some(fit_to_kubelet(facts, CHECK));
    }
    let is_on = config.is_some_and(|config| !config.enabled.is_empty());
    if decided.lock == Some(true) || is_on {
        let title = "the kubelet terminates the same pods at a shutdown as this agent";
        return Some(switch_off(facts, seen(facts, CHECK.problem(title)), config));
    }
    Some(match config {
        Some(config) if !config.problem.is_empty() => {
            let title = "whether a kubelet terminates pods at a shutdown is not known: its configuration \
                         could not be read";
            seen(facts, CHECK.info(title))
        }
        Some(_) => {
            seen(facts, CHECK.ok("a kubelet runs the pods, and leaves terminating them to this agent"))
        }
        None => match &facts.kubelet.config {
            Fact::Unknown(..) => {
                return CHECK.not_observed("the kubelet's configuration", &facts.kubelet.config);
            }
            Fact::Known(_) => seen(
                facts,
                CHECK.info(
                    "whether a kubelet terminates pods at a shutdown is not known: its configuration was \
                     not found",
                ),
            ),
        },
    })
}

/// The configuration of a companion is for another kubelet: a drain would evict, cordon and taint that one's node.
fn fit_to_kubelet(facts: &Facts, check: Check) -> Finding {
    const WHY: &str = "an agent with another kubelet's settings drains another node, asks another container runtime, or \
                       does not see the volumes of the pods";
    let all = &facts.kubelet.differences;
    let said = |one: &SettingDifference| {
        format!("{}: it says {}, by the kubelet it would be {}", one.field, one.ours, one.kubelets)
    };
    let title = "the configuration is not for the kubelet that is here";
    let finding = Check { why: WHY, ..check }.problem(title);
    let finding = all.iter().fold(finding, |finding, one| finding.saw(said(one)));
    let new = |one: &SettingDifference| {
        format!("{}: {}", one.field, scalar(&one.kubelets.as_str().into()))
    };
    let lines: Vec<String> = all.iter().map(new).collect();
    let file = path_word(&facts.config.file);
    if !facts.config.has_lines {
        let then = if facts.live { ", then: `systemctl restart winddown`" } else { "" };
        return finding.advise(format!("set in {file}: {}{then}", lines.join("; ")));
    }
    let old: String = all.iter().map(|one| format!(" -e '/^{}:/d'", one.field)).collect();
    let lines: Vec<_> = lines.iter().map(|line| shell_word(line)).collect();
    // The last line may lack its end.
    let edit =
        format!("sed -i{old} -e '$a\\' {file} && printf '%s\\n' {} >>{file}", lines.join(" "));
    match facts.live {
        true => finding.fix(Fix::AnotherKubelet, [edit, "systemctl restart winddown".to_owned()]),
        false => finding.fix(Fix::AnotherKubeletInImage, [edit]),
    }
}

/// Adds the steps by which the agent becomes the companion of the kubelet. Until the agent has started again, the
/// kubelet ends its pods as before.
fn become_companion(facts: &Facts, finding: Finding) -> Finding {
    if facts.config.config.node.mode == Mode::Companion {
        let seen = "the configuration says `mode: companion`: the agent was started before that was written";
        return finding
            .saw(seen)
            .fix(Fix::CompanionNotStarted, restart_as_companion(facts).iter().copied());
    }
    let file = path_word(&facts.config.file);
    // An installation stops at a configuration that is there, unless it sets nothing but defaults.
    let is_there = matches!(facts.config.read, ConfigRead::Valid(_));
    let aside = is_there.then(|| format!("mv {file} {file}.standalone"));
    let install = facts.install("--companion");
    let kubelet = facts.kubelet.config.known().and_then(Option::as_ref);
    // The installation would stop at the same file.
    let is_stuck =
        |kubelet: &&KubeletConfig| !kubelet.problem.is_empty() && !kubelet.file.is_empty();
    if let Some(kubelet) = kubelet.filter(is_stuck) {
        let theirs = facts.below_root(&kubelet.file);
        let told = "--kubeconfig KUBECONFIG --container-runtime-endpoint ADDRESS";
        let aside = aside.map(|aside| format!("first `{aside}`; ")).unwrap_or_default();
        let then = if facts.live { "; then restart winddown" } else { "" };
        return finding.advise(format!(
            "{aside}once {theirs} can be read, `{install}` makes the agent its companion; where it never can, \
             `{install} {told}` does{then}"
        ));
    }
    if !facts.live {
        return finding.fix(Fix::NotACompanionInImage, aside.into_iter().chain([install]));
    }
    let restart = restart_as_companion(facts).iter().copied().map(str::to_owned);
    finding.fix(Fix::NotACompanion, aside.into_iter().chain([install]).chain(restart))
}

/// The commands that restart an agent without the pods that it has of its own.
fn restart_as_companion(facts: &Facts) -> &'static [&'static str] {
    let has_pods = facts.agent.known().is_some_and(|status| !status.pods.is_empty());
    // No `&&`: after a drain that needed SIGKILL the node is not to stay drained.
    match has_pods {
        true => &["winddown drain", "systemctl restart winddown", "winddown undrain"],
        false => &["systemctl restart winddown"],
    }
}

/// Adds what keeps a kubelet from ending pods; `config` is its configuration, if it was found. Until the agent runs,
/// nobody else ends them.
fn switch_off(facts: &Facts, finding: Finding, config: Option<&KubeletConfig>) -> Finding {
    let config = config.filter(|config| config.problem.is_empty());
    let unit = config.map_or("kubelet", |config| &config.unit);
    let is_down = facts.live && facts.protection_facts().agent_runs == Some(false);
    let start = is_down.then(|| ENABLE_AND_RESTART.to_owned());
    let restart = facts.live.then(|| format!("systemctl restart {}", shell_word(unit)));
    let first = start.as_ref().map(|start| format!("first `{start}`; ")).unwrap_or_default();
    let then = restart.as_ref().map(|restart| format!(", then: `{restart}`")).unwrap_or_default();
    match config {
        None => finding.advise(format!(
            "{first}set shutdownGracePeriod: 0s in the kubelet's configuration{then}"
        )),
        Some(config) if config.enabled.is_empty() => finding
            .saw("the kubelet has not been restarted since that was written")
            .fix(Fix::KubeletStale, start.into_iter().chain(restart)),
        Some(config) => match edit(facts, config) {
            Edit::Command(sed) => {
                let fix = if facts.live {
                    Fix::KubeletTerminatesPods
                } else {
                    Fix::KubeletTerminatesPodsInImage
                };
                finding.fix(fix, start.into_iter().chain([sed]).chain(restart))
            }
            Edit::Words(words) => finding.advise(format!("{first}{words}{then}")),
        },
    }
}

/// A change of the kubelet's configuration.
enum Edit {
    Command(String),
    Words(String),
}

/// How to change the kubelet's configuration so that the kubelet leaves terminating its pods to this agent.
fn edit(facts: &Facts, config: &KubeletConfig) -> Edit {
    let file = facts.below_root(&config.file);
    if config.is_new {
        let directory = Path::new(&file).parent().unwrap_or(Path::new("/")).display().to_string();
        let lines: Vec<_> = config.lines.iter().map(|line| shell_word(line)).collect();
        return Edit::Command(format!(
            "mkdir -p {} && printf '%s\\n' {} > {}",
            shell_word(&directory),
            lines.join(" "),
            shell_word(&file)
        ));
    }
    let lines: Vec<&str> = config.lines.iter().map(|line| line.trim_end_matches(',')).collect();
    let lines = lines.join("; ");
    if !config.rewritten.is_empty() {
        Edit::Words(format!("set these fields in {file}: {lines}; {}", config.rewritten))
    } else if config.is_plain {
        Edit::Command(format!(
            "sed -i -E 's/^(shutdownGracePeriod(CriticalPods)?):.*/\\1: 0s/' {}",
            shell_word(&file)
        ))
    } else {
        Edit::Words(format!("set these fields in {file}: {lines}"))
    }
}

const WHY_SWITCHED_ON: &str = "switched off, it lets systemd kill all pods at once; winddown terminates them as its companion";

/// Checks that the kubelet's own graceful shutdown works as configured.
pub(super) fn own_shutdown(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "kubelet-shutdown",
        Area::Shutdown,
        "a kubelet that cannot delay a shutdown for long enough does not delay it at all, and says so in \
         its log only",
    );
    let verdict = facts.protection();
    let config = match &facts.kubelet.config {
        Fact::Known(Some(config)) if config.problem.is_empty() => config,
        Fact::Known(Some(config)) => {
            let title = "whether the kubelet terminates its pods at a shutdown is not known: its \
                         configuration could not be read";
            return Some(CHECK.warning(title).saw(said_by(facts, config)));
        }
        Fact::Known(None) => return Some(seen(facts, CHECK.warning(verdict.text))),
        Fact::Unknown(..) => {
            return CHECK.not_observed("the kubelet's configuration", &facts.kubelet.config);
        }
    };
    let unit = shell_word(&config.unit);
    let restart = format!("systemctl restart {unit}");
    let problem = || CHECK.problem(&*verdict.text);
    Some(match verdict.reason {
        Why::KubeletDisabled => {
            const OFF: Check = Check { why: WHY_SWITCHED_ON, ..CHECK };
            let advice = how_to_switch_on(facts, config, &restart);
            let finding = OFF.problem(&*verdict.text).saw(said_by(facts, config));
            finding.advise(format!("`{}`, or {advice}", facts.install("--companion")))
        }
        Why::KubeletDelayTooShort => {
            let finding = problem().saw(said_by(facts, config)).saw(delay_set_by(facts));
            let setting = facts.files.setting.known().and_then(Option::as_ref);
            // Any other file the kubelet's own beats, which it writes as it starts.
            let wins = setting.filter(|set| set.beats(drop_in::KUBELETS_NAME));
            let edit = wins.map(|set| override_command(facts, &set.file, config.wanted));
            if facts.live {
                let commands = edit.into_iter().chain([RELOAD_LOGIND.to_owned(), restart]);
                finding.fix(Fix::KubeletDelayShort, commands)
            } else {
                finding.fix(Fix::KubeletDelayShortInImage, edit)
            }
        }
        Why::KubeletLockNotHeld => {
            let locks = facts.bus.login.known().map(lock_count).unwrap_or_default();
            let locks = format!("logind lists {locks}; the kubelet's is not among them");
            seen(facts, problem())
                .saw(locks)
                .fix(Fix::KubeletLockLost, [restart])
                .advise(format!("`journalctl -u {unit} -e` says why"))
        }
        Why::LockHeld => seen(facts, CHECK.ok("the kubelet's own graceful shutdown is protected")),
        _ if !facts.live => {
            let title =
                "the kubelet is set up to terminate its pods; whether it can shows when it runs";
            CHECK.info(title).saw(said_by(facts, config))
        }
        _ => return CHECK.not_observed("logind", &facts.bus.login),
    })
}

/// Says where to set the time that a kubelet takes for its pods.
fn how_to_switch_on(facts: &Facts, config: &KubeletConfig, restart: &str) -> String {
    let file = facts.below_root(&config.file);
    let fields = "shutdownGracePeriod and shutdownGracePeriodCriticalPods";
    let then = if facts.live { format!(", then: `{restart}`") } else { String::new() };
    if !config.gate.is_empty() {
        return format!("remove {}{then}", config.gate);
    }
    let lasting = match config.rewritten {
        "" => String::new(),
        rewritten => format!("; {rewritten}"),
    };
    format!("set {fields} in {file}{lasting}{then}")
}

/// How long logind would wait for a kubelet of an image, where that is certain: the kubelet raises the delay by a file
/// of its own, which counts unless the name of another file sorts after it.
pub(crate) fn delay_in_image(facts: &Facts) -> Option<std::time::Duration> {
    let setting = facts.files.setting.known()?.as_ref()?;
    setting.beats(drop_in::KUBELETS_NAME).then_some(setting.value)
}

//! Checks of a node whose kubelet stops the pods, before winddown is installed there.

use winddown_kubelet::processes::KUBELETS;
use winddown_systemd::inspect::{LockView, LoginView};

use super::shutdown::{RELOAD_LOGIND, delay_set_by, override_command};
use super::{Check, listed, lock_count, span};
use crate::facts::{ConfigRead, Fact, Facts, KubeletConfig, NotObserved};
use crate::finding::{Area, Finding};
use crate::fix::Fix;

/// Whether a kubelet runs, and nothing of winddown is installed.
pub(super) fn is_alone(facts: &Facts) -> bool {
    let mut processes = facts.processes.known().into_iter().flatten();
    let runs = processes.any(|process| KUBELETS.contains(&&*process.name));
    let nothing_of_ours = facts.config.read == ConfigRead::Defaults
        && facts.installed.known().is_some_and(|installed| !installed.unit)
        && matches!(facts.agent, Fact::Unknown(NotObserved::Absent, _));
    runs && nothing_of_ours
}

/// The inhibitor lock of a kubelet. It must belong to root: every user can take a lock under any name.
pub(super) fn lock(login: &LoginView) -> Option<&LockView> {
    login.locks.iter().find(|lock| lock.who == "kubelet" && lock.uid == 0 && lock.delays_shutdown())
}

/// The kubelet's configuration for shutdowns with its location, or why it cannot be read.
pub(super) fn said_by(facts: &Facts, config: &KubeletConfig) -> String {
    let said = if config.problem.is_empty() { &config.enabled } else { &config.problem };
    let said = if said.is_empty() { "no shutdownGracePeriod" } else { said };
    format!("{}: {said}", facts.below_root(&config.place))
}

/// Checks that the kubelet's own graceful shutdown works as configured.
pub(super) fn own_shutdown(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "kubelet-shutdown",
        Area::Shutdown,
        "a kubelet that cannot delay a shutdown for long enough does not delay it at all, and says so in \
         its log only",
    );
    let config = match &facts.kubelet {
        Fact::Known(Some(config)) if config.problem.is_empty() => config,
        Fact::Known(Some(config)) => {
            let title = "the kubelet's configuration could not be read";
            return Some(CHECK.warning(title).saw(said_by(facts, config)));
        }
        Fact::Known(None) => return Some(CHECK.info("the kubelet's configuration was not found")),
        Fact::Unknown(..) => {
            return CHECK.not_observed("the kubelet's configuration", &facts.kubelet);
        }
    };
    let restart = format!("systemctl restart {}", config.unit);
    if config.enabled.is_empty() {
        return Some(
            CHECK
                .problem("a shutdown of this node kills its pods without their grace")
                .saw(said_by(facts, config))
                .advise(format!(
                    "set shutdownGracePeriod and shutdownGracePeriodCriticalPods in {}, then: `{restart}`",
                    config.file
                )),
        );
    }
    let login = match &facts.login {
        Fact::Known(login) => login,
        Fact::Unknown(..) => return CHECK.not_observed("logind", &facts.login),
    };
    let said = said_by(facts, config);
    if login.delay < config.wanted {
        let (given, wanted) = (span(login.delay), span(config.wanted));
        let title = format!(
            "a shutdown of this node kills its pods: logind waits {given} of the {wanted} that the \
             kubelet wants"
        );
        let finding = CHECK.problem(title).saw(said).saw(delay_set_by(facts));
        let setting = facts.setting.known().and_then(Option::as_ref);
        let edit = setting.map(|setting| override_command(facts, &setting.file, config.wanted));
        let commands = edit.into_iter().chain([RELOAD_LOGIND.to_owned(), restart]);
        return Some(finding.fix(Fix::KubeletDelayShort, commands));
    }
    Some(match lock(login) {
        Some(lock) => {
            CHECK.ok("the kubelet's own graceful shutdown is protected").saw(said).saw(listed(lock))
        }
        None => CHECK
            .problem("a shutdown of this node kills its pods: the kubelet holds no shutdown lock")
            .saw(said)
            .saw(format!("logind lists {}; the kubelet's is not among them", lock_count(login)))
            .fix(Fix::KubeletLockLost, [restart])
            .advise(format!("`journalctl -u {} -e` says why", config.unit)),
    })
}

//! What the doctor's facts say to the rule by which a node is protected or not.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use winddown_config::{Config, Mode};
use winddown_control::api::{Protection, ProtectionReason};
use winddown_host::OneThread;
use winddown_node::{
    AgentRole, ApiServerUse, KubeletFacts, KubeletPresence, ProtectionFacts, protection,
};
use winddown_shared::Mutex;
use winddown_systemd::Bus;
use winddown_systemd::inspect::{Inspector, LoginView};

use crate::checks;
use crate::collect::kubelet;
use crate::facts::{Fact, Facts, KubeletOnDisk, NotObserved};

/// How long files count that were read. An agent looks once a minute at least.
const FILES_MAX_AGE: Duration = Duration::from_secs(120);

/// Looks at the kubelet of the running machine, for an agent that has to know whether it protects its pods.
#[derive(Debug)]
pub struct KubeletLook {
    root: PathBuf,
    config: Config,
    bus: Bus,
    patience: Duration,
    /// A disk that hangs takes one thread.
    reading: OneThread,
    /// What the files said, and when their reading began.
    read: Arc<Mutex<Option<(Instant, KubeletOnDisk)>>>,
}

// === impl KubeletLook ===

impl KubeletLook {
    /// Reads files below `root` and asks logind on `bus`, which may each take as long as `patience`. `config`: the agent's.
    pub fn new(root: impl Into<PathBuf>, config: &Config, bus: Bus, patience: Duration) -> Self {
        let (root, config) = (root.into(), config.clone());
        Self { root, config, bus, patience, reading: OneThread::default(), read: Arc::default() }
    }

    /// Looks. On a busy machine files are as they were when they were last read to their end. Cancel-safe; what is being
    /// read is read to its end.
    pub async fn look(&self) -> KubeletFacts {
        let (root, config, read) = (self.root.clone(), self.config.clone(), Arc::clone(&self.read));
        let reading = self.reading.run(move |()| {
            let began = Instant::now();
            let disk = KubeletOnDisk::look(&root, true, &config);
            *read.lock() = Some((began, disk));
        });
        let (_, login) =
            tokio::join!(timeout(self.patience, reading), timeout(self.patience, self.login()));
        let unseen = || Fact::Unknown(NotObserved::Failed, String::new());
        let login = login.ok().flatten().map_or_else(unseen, Fact::Known);
        match &*self.read.lock() {
            Some((began, disk)) if began.elapsed() < FILES_MAX_AGE => of_kubelet(disk, &login),
            // Nobody knows what a disk would say that does not answer.
            _ => KubeletFacts::default(),
        }
    }

    async fn login(&self) -> Option<LoginView> {
        let inspector = Inspector::connect(&self.bus, self.patience).await.ok()?;
        inspector.login().await.ok()
    }
}

// === impl Facts ===

impl Facts {
    /// The verdict on this node.
    pub fn protection(&self) -> Protection {
        let mut facts = self.protection_facts();
        let is_read = self.config.is_read();
        // Without an agent and a lock of the kubelet's it does not matter what the agent would be.
        if !is_read && facts.agent_runs == Some(false) && facts.kubelet.lock == Some(false) {
            facts.role = AgentRole::Companion;
            return protection(&facts);
        }
        if !is_read && facts.kubelet.presence != Some(KubeletPresence::Absent) {
            return Protection {
                text:
                    "whether the kubelet's pods are protected is not known: the configuration does \
                       not say what this agent is to the kubelet"
                        .to_owned(),
                next: "`winddown config check` says what is wrong with it".to_owned(),
                ..Protection::default()
            };
        }
        protection(&facts)
    }

    /// What the rule has to know of this node.
    pub(crate) fn protection_facts(&self) -> ProtectionFacts {
        let role = match self.mode_in_use() {
            _ if checks::is_without_winddown(self) => AgentRole::None,
            Mode::Companion => AgentRole::Companion,
            Mode::Standalone | Mode::Cluster => AgentRole::Runtime,
        };
        let status = self.agent.known();
        // What only the agent knows is as its own verdict says.
        let told = status.and_then(|status| status.protection.as_ref()).map(|told| told.reason);
        ProtectionFacts {
            role,
            agent_runs: self.agent_runs(),
            agent_lock: self.agent_lock(),
            agent_wants: match status.is_none_or(|status| status.shutdown_plan.enabled) {
                true => self.delay_wanted(),
                false => Duration::ZERO,
            },
            delay: self.delay(),
            is_rehearsal: told == Some(ProtectionReason::Rehearsal),
            api_server: match told {
                Some(ProtectionReason::ApiServerAwaited) => ApiServerUse::Awaited,
                Some(ProtectionReason::ApiServerUnusable) => ApiServerUse::Unusable,
                _ => ApiServerUse::Usable,
            },
            kubelet: self.kubelet_facts(),
        }
    }

    /// What the rule has to know of the kubelet.
    pub(crate) fn kubelet_facts(&self) -> KubeletFacts {
        of_kubelet(&self.kubelet, &self.bus.login)
    }

    fn agent_runs(&self) -> Option<bool> {
        match self.agent.not_observed() {
            None => Some(true),
            Some(NotObserved::Absent) => (!checks::listens_elsewhere(self)).then_some(false),
            Some(NotObserved::Silent) => Some(false),
            Some(NotObserved::Denied | NotObserved::Failed | NotObserved::NotLive) => None,
        }
    }

    fn agent_lock(&self) -> Option<bool> {
        let status = self.agent.known();
        if status.is_some_and(checks::is_going_down) {
            return Some(true);
        }
        match &self.bus.login {
            Fact::Known(login) => Some(checks::agents_lock(self, login).is_some()),
            Fact::Unknown(NotObserved::Absent, _) => Some(false),
            Fact::Unknown(..) => None,
        }
    }

    fn delay(&self) -> Option<Duration> {
        if !self.live {
            return checks::delay_in_image(self);
        }
        match self.bus.login.known() {
            Some(login) => Some(login.delay),
            None => self.told_delay(),
        }
    }

    /// How long a shutdown waits, as the agent has been told.
    pub(crate) fn told_delay(&self) -> Option<Duration> {
        let told = self.agent.known().and_then(|status| status.lock.delay_seconds);
        told.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}

/// What the rule has to know of a kubelet.
fn of_kubelet(disk: &KubeletOnDisk, login: &Fact<LoginView>) -> KubeletFacts {
    use NotObserved::NotLive;
    let lock = login.known().map(|login| checks::lock(login).is_some());
    let unit = disk.unit.known().map(Option::is_some);
    let presence = match (&disk.processes, unit) {
        _ if lock == Some(true) => Some(KubeletPresence::Runs),
        (Fact::Known(kubelets), _) if !kubelets.is_empty() => Some(KubeletPresence::Runs),
        (Fact::Known(_) | Fact::Unknown(NotLive, _), Some(true)) => Some(KubeletPresence::Enabled),
        (Fact::Known(_) | Fact::Unknown(NotLive, _), Some(false)) => Some(KubeletPresence::Absent),
        // One that starts at boot, and may run: it is not known to be missing.
        (Fact::Unknown(..), Some(true)) => Some(KubeletPresence::Runs),
        (Fact::Unknown(..), Some(false)) | (_, None) => None,
    };
    let config = disk.config.known().and_then(Option::as_ref);
    let wants = config.filter(|config| config.problem.is_empty()).and_then(kubelet::wants);
    KubeletFacts { presence, wants, lock, is_another: !disk.differences.is_empty() }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;

    use tokio::time::{advance, pause, resume};

    use super::*;

    #[tokio::test]
    async fn files_that_take_long_answer_the_next_look_and_those_that_hang_do_not_for_ever() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let bus = Bus::Address(format!("unix:path={}", root.path().join("none").display()));
        let look = KubeletLook::new(root.path(), &Config::default(), bus, Duration::ZERO);
        let seen = async {
            while look.look().await.presence.is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(20), seen).await.expect("what was read late is known");
        let (go, gate) = mpsc::channel::<()>();
        let mut hangs = pin!(look.reading.run(move |()| gate.recv()));
        assert!(timeout(Duration::ZERO, &mut hangs).await.is_err());
        assert_eq!(look.look().await.presence, Some(KubeletPresence::Absent));
        pause();
        advance(FILES_MAX_AGE).await;
        resume();
        assert_eq!(look.look().await, KubeletFacts::default(), "nobody knows what a disk has now");
        drop(go);
    }
}

//! The random choices of a round.

use std::fmt;
use std::time::Duration;

use super::SeededRng;
use crate::{PodBehavior, TestPod};

/// The fault of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// The agent is killed while it is idle.
    AgentKilledBefore,
    /// `systemctl restart winddown` while the agent is idle.
    AgentRestarted,
    /// The system bus is restarted while the agent is idle.
    DbusRestarted,
    /// logind is restarted while the agent is idle.
    LogindRestarted,
    /// The agent is killed this long after the first pod was asked to stop.
    AgentKilledAfter(Duration),
    /// The agent is suspended for 0.4 s, this long after the first pod was asked to stop.
    AgentHangsAfter(Duration),
}

/// How the node is shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// `systemctl reboot`
    Systemctl,
    /// `shutdown -r now`
    Shutdown,
    /// `systemctl start reboot.target`, which bypasses logind.
    PastLogind,
}

/// A round.
#[derive(Debug, Clone)]
pub struct Round {
    /// The pods.
    pub pods: Vec<TestPod>,
    /// The fault.
    pub fault: Fault,
    /// How the node is shut down.
    pub way: Way,
}

// === impl Round ===

impl Round {
    /// Draws a round: 5 to 20 pods, one in six of which does not stop by itself, and a fault in three of four rounds.
    pub fn draw(rng: &mut SeededRng) -> Self {
        let count = rng.between(5, 20);
        // The first pod records SIGTERM, so that tests can wait for it.
        let first = TestPod::new("pod-0", 0, rng.between(0, 1500));
        let others = (1..count).map(|n| pod(rng, n)).collect::<Vec<_>>();
        let pods = std::iter::once(first).chain(others).collect();
        let way = rng.one_of([Way::Systemctl, Way::Systemctl, Way::Shutdown, Way::PastLogind]);
        let mut fault = if rng.one_in(4) { Fault::None } else { Fault::draw(rng) };
        if way == Way::PastLogind && matches!(fault, Fault::AgentKilledAfter(_)) {
            // systemd restarts nothing in that case, so a killed agent would have no successor.
            fault = Fault::AgentKilledBefore;
        }
        Self { pods, fault, way }
    }

    /// The number of pods that do not stop by themselves.
    #[must_use]
    pub fn stubborn(&self) -> usize {
        self.pods.iter().filter(|pod| pod.behavior != PodBehavior::Willing).count()
    }
}

fn pod(rng: &mut SeededRng, number: u32) -> TestPod {
    let priority = rng.one_of([0, 0, 0, -5, 999, 1000, 50_000, 2_000_000_000, 2_000_001_000]);
    let mut pod = TestPod::new(format!("pod-{number}"), priority, rng.between(0, 1500));
    pod.grace_seconds = rng.between(3, 20);
    if rng.one_in(6) {
        pod.behavior = rng.one_of([PodBehavior::Deaf, PodBehavior::Stuck]);
        // Shorter than any group's time, to keep the test short.
        pod.grace_seconds = rng.between(1, 2);
    }
    pod
}

// === impl Fault ===

impl Fault {
    fn draw(rng: &mut SeededRng) -> Self {
        let delay = Duration::from_millis(u64::from(rng.between(0, 1200)));
        rng.one_of([
            Self::AgentKilledBefore,
            Self::AgentRestarted,
            Self::DbusRestarted,
            Self::LogindRestarted,
            Self::AgentKilledAfter(delay),
            Self::AgentKilledAfter(delay),
            Self::AgentHangsAfter(delay),
        ])
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::AgentKilledBefore => f.write_str("agent killed while idle"),
            Self::AgentRestarted => f.write_str("agent restarted while idle"),
            Self::DbusRestarted => f.write_str("dbus restarted while idle"),
            Self::LogindRestarted => f.write_str("logind restarted while idle"),
            Self::AgentKilledAfter(delay) => {
                write!(f, "agent killed {:.1} s into the shutdown", delay.as_secs_f64())
            }
            Self::AgentHangsAfter(delay) => {
                write!(f, "agent hung for 0.4 s, {:.1} s into the shutdown", delay.as_secs_f64())
            }
        }
    }
}

// === impl Way ===

impl Way {
    /// The command that is run on the node.
    #[must_use]
    pub fn command(self) -> &'static str {
        match self {
            Self::Systemctl => "systemctl reboot",
            Self::Shutdown => "shutdown -r now",
            Self::PastLogind => "systemctl start --no-block reboot.target",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, Round, SeededRng};
    use crate::PodBehavior;

    #[test]
    fn enough_rounds_have_every_kind_of_fault_and_of_pod() {
        let mut rng = SeededRng::new(1);
        let rounds: Vec<Round> = (0..200).map(|_| Round::draw(&mut rng)).collect();
        let kinds = |found: &dyn Fn(&Fault) -> bool| rounds.iter().any(|r| found(&r.fault));
        assert!(kinds(&|fault| matches!(fault, Fault::AgentKilledAfter(_))));
        assert!(kinds(&|fault| matches!(fault, Fault::AgentHangsAfter(_))));
        assert!(kinds(&|fault| *fault == Fault::DbusRestarted));
        assert!(rounds.iter().all(|round| (5..=20).contains(&round.pods.len())));
        assert!(rounds.iter().all(|round| round.pods[0].behavior == PodBehavior::Willing));
        assert!(rounds.iter().any(|round| round.stubborn() > 2));
    }
}

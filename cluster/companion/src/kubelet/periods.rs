//! The time that a kubelet's configuration gives to pods at a shutdown.

use serde::Deserialize;

/// The names of the fields.
pub(super) const PERIOD: &str = "shutdownGracePeriod";
pub(super) const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
pub(super) const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";

/// The time that a kubelet gives to pods at a shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Periods {
    /// `shutdownGracePeriod`.
    pub total: String,
    /// `shutdownGracePeriodCriticalPods`.
    pub critical: String,
    /// `shutdownGracePeriodByPodPriority`.
    pub groups: Vec<KubeletPriorityPeriod>,
}

/// An entry of `shutdownGracePeriodByPodPriority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletPriorityPeriod {
    /// The lowest priority of the group's pods.
    pub priority: i32,
    /// The group's time. A kubelet accepts one below 0, and gives none.
    pub shutdown_grace_period_seconds: i64,
}

/// All zero: the kubelet does not stop pods.
impl Default for Periods {
    fn default() -> Self {
        Self { total: "0s".to_owned(), critical: "0s".to_owned(), groups: Vec::new() }
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notation {
    Yaml,
    Json,
}

/// The first lines of a file that has only what is set here.
pub(super) const HEAD: [&str; 2] =
    ["apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration"];

impl Periods {
    /// The fields that set these periods, one in each line.
    pub(super) fn fields(&self, notation: Notation) -> [String; 3] {
        let groups = self.groups.iter().map(|group| {
            let (priority, seconds) = (group.priority, group.shutdown_grace_period_seconds);
            format!("{{\"priority\": {priority}, \"shutdownGracePeriodSeconds\": {seconds}}}")
        });
        let groups = format!("[{}]", groups.collect::<Vec<_>>().join(", "));
        match notation {
            Notation::Json => [
                format!("\"{PERIOD}\": \"{}\",", self.total),
                format!("\"{CRITICAL}\": \"{}\",", self.critical),
                format!("\"{BY_PRIORITY}\": {groups},"),
            ],
            Notation::Yaml => [
                format!("{PERIOD}: {}", self.total),
                format!("{CRITICAL}: {}", self.critical),
                format!("{BY_PRIORITY}: {groups}"),
            ],
        }
    }
}

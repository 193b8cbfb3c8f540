//! The time that a kubelet's configuration gives to pods at a shutdown.

use std::path::Path;

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
    pub groups: Vec<PriorityPeriod>,
}

/// An entry of `shutdownGracePeriodByPodPriority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityPeriod {
    /// The lowest priority of the group's pods.
    pub priority: i32,
    /// The group's time.
    pub shutdown_grace_period_seconds: u32,
}

/// All zero: the kubelet does not stop pods.
impl Default for Periods {
    fn default() -> Self {
        Self { total: "0s".to_owned(), critical: "0s".to_owned(), groups: Vec::new() }
    }
}

impl Periods {
    /// The lines that set these periods in `file`, which is JSON, YAML, or (`.conf`) a drop-in with no other content.
    pub fn lines(&self, file: &Path) -> Vec<String> {
        let ending = file.extension().unwrap_or_default();
        let groups = self.groups.iter().map(|group| {
            let (priority, seconds) = (group.priority, group.shutdown_grace_period_seconds);
            format!("{{\"priority\": {priority}, \"shutdownGracePeriodSeconds\": {seconds}}}")
        });
        let groups = format!("[{}]", groups.collect::<Vec<_>>().join(", "));
        if ending == "json" {
            return vec![
                format!("\"{PERIOD}\": \"{}\",", self.total),
                format!("\"{CRITICAL}\": \"{}\",", self.critical),
                format!("\"{BY_PRIORITY}\": {groups},"),
            ];
        }
        let head = ["apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration"];
        let mut lines: Vec<String> = match ending == "conf" {
            true => head.map(str::to_owned).into(),
            false => Vec::new(),
        };
        lines.push(format!("{PERIOD}: {}", self.total));
        lines.push(format!("{CRITICAL}: {}", self.critical));
        lines.push(format!("{BY_PRIORITY}: {groups}"));
        lines
    }
}

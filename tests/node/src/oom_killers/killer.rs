//! The compared programs.

use serde_json::json;

use super::LOGS;
use super::scene::Pod;
use crate::Node;
use crate::packages::add_packages;
use crate::scenario::{Scenario, TestResult};

pub(super) const POD: &str = "/usr/local/bin/pressure-pod";
/// The settings that systemd-oomd's manual recommends for services that may be killed; it uses its own limits: 60 % for
/// 30 s.
const SLICE: &str = "[Slice]\nManagedOOMMemoryPressure=kill\nManagedOOMSwap=kill\n";

/// A compared program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killer {
    /// winddown, whose pods are processes here.
    Winddown,
    /// earlyoom.
    Earlyoom,
    /// nohang.
    Nohang,
    /// systemd-oomd.
    SystemdOomd,
}

impl Killer {
    /// All programs, in the table's order.
    pub const ALL: [Self; 4] = [Self::Winddown, Self::Earlyoom, Self::Nohang, Self::SystemdOomd];

    /// The name, which for all but winddown is also that of the Debian package and the unit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Winddown => "winddown",
            Self::Earlyoom => "earlyoom",
            Self::Nohang => "nohang",
            Self::SystemdOomd => "systemd-oomd",
        }
    }

    /// Starts it in a node that only has winddown, with SIGTERM at 100 MiB if it has such a threshold.
    pub(super) async fn start(self, scenario: &Scenario) -> TestResult {
        let node = &scenario.node;
        let configure = match self {
            Self::Winddown => return scenario.start().await,
            Self::Earlyoom => {
                "echo 'EARLYOOM_ARGS=\"-M 102400,51200 -r 0\"' >/etc/default/earlyoom".to_owned()
            }
            Self::Nohang => {
                "sed -i 's/^soft_threshold_min_mem .*/soft_threshold_min_mem = 100 M/; \
                             s/^hard_threshold_min_mem .*/hard_threshold_min_mem = 50 M/' \
                             /etc/nohang/nohang.conf"
                    .to_owned()
            }
            Self::SystemdOomd => {
                format!(
                    "printf '{SLICE}' >/etc/systemd/system/beside.slice && systemctl reload dbus"
                )
            }
        };
        add_packages(node, &[self.name()])?;
        let start =
            format!("{configure} && systemctl daemon-reload && systemctl start {}", self.name());
        node.run(&["sh", "-c", &start]).await?;
        Ok(())
    }

    /// Starts a pod: as a pod of winddown, or else as a service.
    pub(super) async fn start_pod(self, node: &Node, pod: Pod) -> TestResult {
        let log = format!("{LOGS}/{}", pod.name);
        let number = pod.does.1.to_string();
        let argv = [POD, &log, pod.does.0, &number];
        if self == Self::Winddown {
            let manifest = json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": { "name": pod.name },
                "spec": {
                    "hostNetwork": true,
                    "restartPolicy": "Never",
                    "priority": pod.priority,
                    "containers": [{
                        "name": "main", "image": "host", "command": argv,
                        "resources": { "requests": { "memory": format!("{}Mi", pod.asks) } },
                    }],
                },
            });
            return Ok(node.write(&manifest_of(pod), manifest.to_string(), 0o644)?);
        }
        let unit = format!("--unit=pod-{}", pod.name);
        // Like a pod without its own limit; systemd's default would stop a fork bomb.
        let run =
            ["systemd-run", "--quiet", "--slice=beside.slice", "--property=TasksMax=infinity"];
        node.run(&[&run[..], &[&unit], &argv].concat()).await?;
        Ok(())
    }

    /// Stops pods, whether they still run or not, and waits until they have exited.
    pub(super) async fn end_pods(self, node: &Node, pods: &[Pod]) -> TestResult {
        let each = pods.iter().map(|pod| match self {
            Self::Winddown => format!("rm -f {}", manifest_of(*pod)),
            _ => format!("systemctl stop pod-{0}; systemctl reset-failed pod-{0}", pod.name),
        });
        let end = each
            .chain(["while pgrep -f ^/usr/local/bin/pressure-pod; do sleep 0.2; done".to_owned()]);
        let end = end.collect::<Vec<_>>().join("\n");
        node.run(&["sh", "-c", &end]).await?;
        Ok(())
    }

    /// The program's journal, which explains what it did.
    pub(super) async fn journal(self, node: &Node) -> String {
        node.journal(&[&format!("--unit={}", self.name())]).await.unwrap_or_default()
    }
}

fn manifest_of(pod: Pod) -> String {
    format!("/etc/winddown/pods/{}.json", pod.name)
}

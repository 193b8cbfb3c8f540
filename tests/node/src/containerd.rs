//! A node's containerd: its configuration, images and containers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::image::{self, PAUSE};
use crate::{Node, NodeError};

const ARCHIVE: &str = "/var/lib/images.tar";
const NETWORK: &str =
    r#"{ "cniVersion": "0.4.0", "name": "none", "plugins": [{ "type": "loopback" }] }"#;
/// A bridge, with addresses of SUBNET from a list on the node's disk.
const POD_NETWORK: &str = r#"{
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [{
        "type": "bridge",
        "bridge": "pods0",
        "isGateway": true,
        "ipam": { "type": "host-local", "ranges": [[{ "subnet": "SUBNET" }]] }
    }]
}"#;
/// A part of containerd's configuration: runc asks systemd for control groups. On a node with its own kernel, systemd
/// manages those of version 2.
pub const SYSTEMD_CGROUPS: &str = r#"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
"#;
/// The list of addresses: a file for each address in use.
const ADDRESSES: &str = "/var/lib/cni/networks/pods";
/// The timeout for containerd to answer. On an idle machine it takes some 0.2 s.
const ANSWERS: Duration = Duration::from_secs(20);

impl Node {
    /// Configures containerd for a machine without network plug-ins and without the privilege to lower a process's OOM
    /// score. The node is off.
    ///
    /// # Errors
    /// [`NodeError::File`].
    pub fn configure_containerd(&self) -> Result<(), NodeError> {
        let config = format!(
            "version = 2\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\n  restrict_oom_score_adj = true\n  \
             disable_apparmor = true\n  sandbox_image = \"{PAUSE}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/usr/lib/cni\"\n{}",
            if self.has_own_kernel() { SYSTEMD_CGROUPS } else { "" }
        );
        self.write("/etc/containerd/config.toml", config, 0o644)?;
        // Read but never used: all pods are on the host's network. Without it, containerd is not ready.
        self.write("/etc/cni/net.d/10-none.conflist", NETWORK, 0o644)?;
        // Every sandbox gets a copy of it. The address does not exist.
        self.write("/etc/resolv.conf", "nameserver 192.0.2.53\n", 0o644)?;
        self.write(ARCHIVE, image::archive(self.base().root())?, 0o644)
    }

    /// Gives pods that are not on the host's network a network of their own, 10.88.`third`.0/24. The node may be on or
    /// off.
    ///
    /// # Errors
    /// [`NodeError::File`].
    pub fn configure_pod_network(&self, third: u8) -> Result<(), NodeError> {
        let network = POD_NETWORK.replace("SUBNET", &format!("10.88.{third}.0/24"));
        // containerd uses the first file by name.
        self.write("/etc/cni/net.d/05-pods.conflist", network, 0o644)
    }

    /// The addresses of [`configure_pod_network`](Self::configure_pod_network) that are in use. The node is on.
    ///
    /// # Errors
    /// [`NodeError::Command`].
    pub async fn pod_addresses(&self) -> Result<Vec<String>, NodeError> {
        let list = format!("mkdir -p {ADDRESSES}; ls {ADDRESSES}");
        let files = self.run(&["sh", "-c", &list]).await?;
        Ok(files.lines().filter(|name| name.starts_with("10.")).map(str::to_owned).collect())
    }

    /// Imports the images that pods need into containerd. The node is on, and containerd is configured.
    ///
    /// # Errors
    /// [`NodeError::Command`], [`NodeError::TimedOut`].
    pub async fn import_images(&self) -> Result<(), NodeError> {
        self.containerd_answers().await?;
        self.run(&["ctr", "--namespace=k8s.io", "images", "import", ARCHIVE]).await.map(drop)
    }

    /// Waits until containerd answers.
    ///
    /// # Errors
    /// [`NodeError::TimedOut`].
    pub async fn containerd_answers(&self) -> Result<Duration, NodeError> {
        let answers = async || self.run(&["ctr", "--timeout=1s", "version"]).await.is_ok();
        self.wait_until("containerd to answer", ANSWERS, answers).await
    }

    /// The first process of every running container and sandbox, by ID. Process IDs are those of the node.
    ///
    /// # Errors
    /// [`NodeError::Command`].
    pub async fn containers(&self) -> Result<BTreeMap<String, u32>, NodeError> {
        let text = self.run(&["ctr", "--namespace=k8s.io", "tasks", "list"]).await?;
        Ok(running(&text))
    }
}

/// Parses the table of `ctr tasks list`: ID, process, state.
fn running(table: &str) -> BTreeMap<String, u32> {
    let lines = table.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (id, pid, state) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?);
        (state == "RUNNING").then(|| (id.to_owned(), pid))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::running;

    #[test]
    fn only_what_runs_is_counted() {
        let table = "TASK    PID    STATUS    \nab12    17     RUNNING\ncd34    18     STOPPED\n";
        assert_eq!(running(table), [("ab12".to_owned(), 17)].into());
    }
}

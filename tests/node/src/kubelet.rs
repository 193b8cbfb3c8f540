//! A real kubelet on a node with containerd. No package registry has it, so the user has to provide the program.

use std::path::Path;

use serde_json::{Value, json};

use crate::{Node, NodeError};

/// The folder from which the kubelet reads static pods.
pub const STATIC_PODS: &str = "/etc/kubernetes/manifests";
/// The path of the kubelet in a node.
pub const KUBELET: &str = "/usr/local/bin/kubelet";
/// The path of its credentials, if it has any.
pub const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const CONFIGURATION: &str = "/var/lib/kubelet/config.yaml";

/// Prepares what a kubelet requires: it uses the address of the default route, waits for name servers that do not answer
/// unless it finds its own name, and insists on these kernel settings, which belong to the host here and cannot be
/// written.
const PREPARE: &str = "echo 10.99.0.1 $(hostname) >>/etc/hosts
ip link add kubelet0 type bridge
ip address add 10.99.0.1/24 dev kubelet0
ip link set kubelet0 up
ip route add default dev kubelet0
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/run/$(basename ${setting%=*})
    echo ${setting#*=} >$file
    mount --bind $file /proc/sys/${setting%=*}
done";

/// A `KubeletConfiguration` that suits a node, to which tests add their settings.
pub fn configuration() -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [], "failSwapOn": false, "localStorageCapacityIsolation": false,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "staticPodPath": STATIC_PODS, "resolvConf": "/etc/resolv.conf",
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        // The disk is the host's, and may be full.
        "evictionHard": {"memory.available": "50Mi"}, "imageGCHighThresholdPercent": 100,
        "maxPods": 300,
    })
}

impl Node {
    /// Installs `program` as the service `kubelet`, without starting it. It joins a cluster if [`KUBECONFIG`] exists by
    /// then; otherwise it is standalone. The node is on.
    ///
    /// # Errors
    /// [`NodeError::File`], [`NodeError::Command`].
    pub async fn install_kubelet(
        &self,
        program: &Path,
        configuration: &Value,
    ) -> Result<(), NodeError> {
        self.install(program, KUBELET)?;
        self.configure_kubelet(configuration)?;
        let joins = match self.host_path(KUBECONFIG).exists() {
            true => format!(" --kubeconfig={KUBECONFIG}"),
            false => String::new(),
        };
        let unit = format!(
            "[Service]\nExecStart={KUBELET} --config={CONFIGURATION}{joins} --v=2\n\
             Restart=always\nRestartSec=10\n"
        );
        self.write("/etc/systemd/system/kubelet.service", unit, 0o644)?;
        self.run(&["sh", "-ec", PREPARE]).await?;
        self.run(&["systemctl", "daemon-reload"]).await.map(drop)
    }

    /// Replaces the kubelet's configuration, which it reads when it starts.
    ///
    /// # Errors
    /// [`NodeError::File`].
    pub fn configure_kubelet(&self, configuration: &Value) -> Result<(), NodeError> {
        self.write(CONFIGURATION, configuration.to_string(), 0o644)
    }
}

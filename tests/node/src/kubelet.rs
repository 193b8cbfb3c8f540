//! A real kubelet on a node with containerd. No package registry has one: who wants to see one names its program.

use std::path::Path;

use serde_json::{Value, json};

use crate::{Node, NodeError};

/// Where the kubelet reads static pods.
pub const STATIC_PODS: &str = "/etc/kubernetes/manifests";
/// Where a node's program of the kubelet is.
pub const KUBELET: &str = "/usr/local/bin/kubelet";
/// Where its credentials are, if it has any.
pub const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const CONFIGURATION: &str = "/var/lib/kubelet/config.yaml";

/// A kubelet takes the address of the default route, and wants these settings of the kernel, which are the
/// host's here and cannot be written.
const PREPARE: &str = "ip link add kubelet0 type bridge
ip address add 10.99.0.1/24 dev kubelet0
ip link set kubelet0 up
ip route add default dev kubelet0
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/run/$(basename ${setting%=*})
    echo ${setting#*=} >$file
    mount --bind $file /proc/sys/${setting%=*}
done";

/// A `KubeletConfiguration` that suits a node, to which a test adds what it is about.
pub fn configuration() -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [], "failSwapOn": false, "localStorageCapacityIsolation": false,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "staticPodPath": STATIC_PODS, "resolvConf": "/etc/resolv.conf",
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        // The disk is the host's, and may be as full as it likes.
        "evictionHard": {"memory.available": "50Mi"}, "imageGCHighThresholdPercent": 100,
        "maxPods": 120,
    })
}

impl Node {
    /// Makes `program` the service `kubelet`, without starting it. It joins a cluster if [`KUBECONFIG`] is there by
    /// then, and stands alone otherwise. The node is on.
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

    /// Gives the kubelet another configuration, which it reads when it is started.
    ///
    /// # Errors
    /// [`NodeError::File`].
    pub fn configure_kubelet(&self, configuration: &Value) -> Result<(), NodeError> {
        self.write(CONFIGURATION, configuration.to_string(), 0o644)
    }
}

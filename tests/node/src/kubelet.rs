//! A real kubelet on a node with containerd. No package registry has it, so the user has to provide the program.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::{Value, json};

use crate::{Node, NodeError};

/// The folder from which the kubelet reads static pods.
pub const STATIC_PODS: &str = "/etc/kubernetes/manifests";
/// The path of the kubelet in a node.
pub const KUBELET: &str = "/usr/local/bin/kubelet";
/// The path of its credentials, if it has any.
pub const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// The address of a node that is the only one.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const CONFIGURATION: &str = "/var/lib/kubelet/config.yaml";

/// Prepares what a kubelet requires: it uses the address of the default route, waits for name servers that do not answer
/// unless it finds its own name, and insists on these kernel settings, which belong to the host here and cannot be
/// written. It limits huge pages, and CRI-O takes the controller for mounted if the kernel has it.
const PREPARE: &str = "echo $1 $(hostname) >>/etc/hosts
ip link add kubelet0 type bridge
ip address add $1/24 dev kubelet0
ip link set kubelet0 up
ip route add default dev kubelet0
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/run/$(basename ${setting%=*})
    echo ${setting#*=} >$file
    mount --bind $file /proc/sys/${setting%=*}
done
[ -e /sys/fs/cgroup/hugetlb ] || mount -t tmpfs none /sys/kernel/mm/hugepages";

/// The same on a node with its own kernel: the settings are its own, and its address is on the wire to the host. A
/// processor without a clock rate is one too few for the kubelet.
const PREPARE_OWN_KERNEL: &str = "echo 10.99.0.2 $(hostname) >>/etc/hosts
ip address add 10.99.0.2/24 dev vec0
ip link set vec0 up
ip route add default via 10.99.0.1
{ grep . /proc/cpuinfo; echo 'cpu MHz : 1000.000'; } >/run/cpuinfo
mount --bind /run/cpuinfo /proc/cpuinfo";

/// A `KubeletConfiguration` that suits `node`, to which tests add their settings.
pub fn configuration(node: &Node) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "failCgroupV1": false, "cgroupDriver": "cgroupfs",
        // Where systemd manages the groups, each container needs a slice.
        "cgroupsPerQOS": node.has_own_kernel(),
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
    /// then; otherwise it is standalone. The node is on, and has this address if it shares the host's kernel.
    ///
    /// # Errors
    /// [`NodeError::File`], [`NodeError::Command`].
    pub async fn install_kubelet(
        &self,
        program: &Path,
        configuration: &Value,
        address: Ipv4Addr,
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
        self.prepare_for_kubelet(address).await?;
        self.run(&["systemctl", "daemon-reload"]).await.map(drop)
    }

    /// Prepares what a kubelet requires, which is gone after a reboot.
    ///
    /// # Errors
    /// Those of [`Node::run`].
    pub async fn prepare_for_kubelet(&self, address: Ipv4Addr) -> Result<(), NodeError> {
        let prepare = if self.has_own_kernel() { PREPARE_OWN_KERNEL } else { PREPARE };
        self.run(&["sh", "-ec", prepare, "sh", &address.to_string()]).await.map(drop)
    }

    /// Replaces the kubelet's configuration, which it reads when it starts.
    ///
    /// # Errors
    /// [`NodeError::File`].
    pub fn configure_kubelet(&self, configuration: &Value) -> Result<(), NodeError> {
        self.write(CONFIGURATION, configuration.to_string(), 0o644)
    }
}

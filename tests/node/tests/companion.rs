//! An agent beside a kubelet that finds neither credentials nor an API server when it starts: on a node that has not
//! joined yet, after a restored disk, during an outage of the control plane.

mod early;
mod found_pods;
mod hostile;

use serde_json::json;
use winddown_apiserver::ApiServer;

/// The kubelet's kubeconfig and its certificate, where kubeadm has them.
const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
const CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const CONFIGURATION: &str = "/etc/winddown/config.yaml";

/// A configuration as `winddown install --companion` writes it, and with groups by role.
fn configuration() -> String {
    format!(
        "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nmode: companion\nruntime: cri\n\
         kubeconfig: {KUBECONFIG}\n\
         containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n\
         shutdownOrder: role\nshutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 12s\n"
    )
}

/// The kubelet's kubeconfig.
fn kubeconfig(server: &ApiServer) -> String {
    server.kubeconfig_with(&json!({"client-certificate": CERTIFICATE, "client-key": CERTIFICATE}))
}

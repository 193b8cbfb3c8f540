//! The node when no control plane has a Node object for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use winddown_shared::{Allocatable, NodeView};

/// The operating system, as Go names it. The agent supports no other.
const OS: &str = "linux";

/// A node that is its own authority: it has no taints, and defines its own labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalNode {
    /// The node's name, which is also the label `kubernetes.io/hostname`, as on a node of a kubelet with
    /// `--hostname-override`.
    pub name: Arc<str>,
    /// Labels from the configuration. They override the labels that every node has.
    pub labels: BTreeMap<String, String>,
    /// Whether the runtime applies `supplementalGroupsPolicy: Strict`.
    pub strict_groups: bool,
    /// Whether the kernel enforces AppArmor profiles.
    pub app_armor: bool,
}

impl LocalNode {
    /// The node as admission sees it, with the labels that a kubelet gives its node.
    #[must_use]
    pub fn view(&self, allocatable: Allocatable) -> NodeView {
        let arch = arch();
        let own = [
            ("kubernetes.io/os", OS),
            ("kubernetes.io/arch", arch),
            ("kubernetes.io/hostname", &*self.name),
            // Long deprecated, and still on every node of a kubelet.
            ("beta.kubernetes.io/os", OS),
            ("beta.kubernetes.io/arch", arch),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut labels = BTreeMap::from(own);
        labels.extend(self.labels.clone());
        NodeView {
            name: Arc::clone(&self.name),
            labels,
            taints: Vec::new(),
            allocatable,
            os: OS.into(),
            supplemental_groups_policy: self.strict_groups,
            app_armor: self.app_armor,
            unsafe_sysctls: Vec::new(),
        }
    }
}

/// The machine's architecture, as Go names it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        "loongarch64" => "loong64",
        same => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)]) -> NodeView {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let node = LocalNode { name: "edge-1".into(), labels, ..LocalNode::default() };
        node.view(Allocatable::default())
    }

    #[test]
    fn a_node_has_the_labels_of_every_node_and_its_own() {
        let node = node(&[("zone", "a")]);
        assert_eq!(node.label("kubernetes.io/os"), Some("linux"));
        assert_eq!(node.label("kubernetes.io/hostname"), Some("edge-1"));
        assert_eq!(node.label("beta.kubernetes.io/arch"), node.label("kubernetes.io/arch"));
        assert_eq!(node.label("zone"), Some("a"));
        assert_eq!((&*node.name, &*node.os), ("edge-1", "linux"));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_architecture_is_named_as_images_name_it() {
        assert_eq!(node(&[]).label("kubernetes.io/arch"), Some("amd64"));
    }

    #[test]
    fn the_configuration_has_the_last_word_on_a_label_but_not_on_the_system() {
        let node = node(&[("kubernetes.io/hostname", "other"), ("kubernetes.io/os", "plan9")]);
        assert_eq!(node.label("kubernetes.io/hostname"), Some("other"));
        assert_eq!(node.label("kubernetes.io/os"), Some("linux"));
    }
}

//! What a companion has to have in common with its kubelet.

use std::fs;
use std::path::{Path, PathBuf};

use winddown_host::in_root;

use super::Kubelet;

/// Where a kubelet keeps its pods unless it is told otherwise.
const USUAL_ROOT_DIRECTORY: &str = "/var/lib/kubelet";

/// What a companion has to have in common with its kubelet. What is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommonSettings {
    /// The name of the node.
    pub node_name: Option<String>,
    /// The address of the container runtime.
    pub endpoint: Option<String>,
    /// The directory of the pods.
    pub root_directory: Option<String>,
}

/// A setting of a kubelet's that is another than the companion's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingDifference {
    /// The companion's field.
    pub field: &'static str,
    /// The companion's value.
    pub ours: String,
    /// The kubelet's value.
    pub kubelets: String,
}

// === impl CommonSettings ===

impl CommonSettings {
    /// Those of a companion with this configuration. `name`: the node's, if the configuration has it. `host_name`: that of
    /// its machine, if it is known.
    pub fn of_companion(
        name: Option<&str>,
        host_name: Option<&str>,
        endpoint: &str,
        root_directory: &Path,
    ) -> Self {
        Self {
            node_name: name.map(str::to_owned).or_else(|| host_name.map(as_node_name)),
            endpoint: Some(endpoint.to_owned()),
            root_directory: Some(root_directory.display().to_string()),
        }
    }

    /// Says where these settings of a companion differ from a kubelet's, as far as both are known.
    pub fn differences(&self, root: &Path, kubelets: &Self) -> Vec<SettingDifference> {
        let all = [
            ("nodeName", &self.node_name, &kubelets.node_name),
            ("containerRuntimeEndpoint", &self.endpoint, &kubelets.endpoint),
            ("kubeletRootDir", &self.root_directory, &kubelets.root_directory),
        ];
        let differs = |(field, ours, kubelets): (_, &Option<String>, &Option<String>)| {
            let (ours, kubelets) = (ours.clone()?, kubelets.clone()?);
            let is_other = ours != kubelets && !is_one_file(root, &ours, &kubelets);
            is_other.then_some(SettingDifference { field, ours, kubelets })
        };
        all.into_iter().filter_map(differs).collect()
    }
}

/// Whether two paths or addresses of sockets lead to one file, which need not be there yet.
fn is_one_file(root: &Path, one: &str, other: &str) -> bool {
    let path = |name: &str| PathBuf::from(name.strip_prefix("unix://").unwrap_or(name));
    let [one, other] = [path(one), path(other)];
    if one.is_relative() || other.is_relative() {
        return false;
    }
    // An agent's own paths have its root before them.
    let [one, other] =
        [one, other].map(|path| real(root, path.strip_prefix(root).unwrap_or(&path)));
    one == other
}

/// The path without links, as far as it exists. `/var/run` leads to `/run` on every machine, also before its boot.
fn real(root: &Path, path: &Path) -> PathBuf {
    let path = in_root(root, path);
    let usual =
        path.strip_prefix(in_root(root, "/var/run")).map(|rest| in_root(root, "/run").join(rest));
    let path = usual.unwrap_or(path);
    let there = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match there {
        Some((above, real)) => real.join(path.strip_prefix(above).unwrap_or(Path::new(""))),
        None => path,
    }
}

/// The name of a host as that of its node.
fn as_node_name(host_name: &str) -> String {
    host_name.trim().to_lowercase()
}

// === impl Kubelet ===

impl Kubelet {
    /// The name that its options give the node; `None` if it takes the host's.
    pub fn node_name(&self) -> Option<String> {
        let name = as_node_name(self.option("--hostname-override")?);
        // In an image, `%H` of its unit is not known, and is the host's name.
        Some(name).filter(|name| !name.is_empty() && name != "%h")
    }

    /// What a companion has to have in common with it, as far as that is known. `host_name`: the name of its machine.
    pub fn common_settings(&self, root: &Path, host_name: Option<&str>) -> CommonSettings {
        if self.problem.is_some() || !self.is_known() {
            return CommonSettings::default();
        }
        let said = self.configuration(root);
        let is_read = said.as_ref().is_none_or(|said| said.problem.is_none());
        let endpoint = self.option("--container-runtime-endpoint").map(str::to_owned);
        let in_file = || said?.endpoint.map(|said| said.value);
        // A program that contains one may choose by settings of its own.
        let usual = || (is_read && !self.is_contained()).then(|| self.usual_endpoint().to_owned());
        let endpoint = endpoint.or_else(in_file).or_else(usual);
        CommonSettings {
            node_name: self.node_name().or_else(|| host_name.map(as_node_name)),
            endpoint,
            root_directory: Some(
                self.option("--root-dir").unwrap_or(USUAL_ROOT_DIRECTORY).to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its agent called the node unprotected, and `doctor` had it written another name.
    #[test]
    fn a_host_whose_name_has_capitals_gives_a_companion_and_its_kubelet_the_same_one() {
        let kubelet = Kubelet { pid: Some(9), ..Kubelet::default() };
        let (root, endpoint) = (Path::new("/nonexistent"), kubelet.usual_endpoint());
        let kubelets = kubelet.common_settings(root, Some("SRV-01"));
        let ours = |name| {
            let directory = Path::new(USUAL_ROOT_DIRECTORY);
            CommonSettings::of_companion(name, Some("SRV-01"), endpoint, directory)
        };
        assert_eq!(ours(None).differences(root, &kubelets), []);
        assert_eq!(ours(Some("srv-01")).differences(root, &kubelets), []);
        assert_eq!(ours(Some("srv-02")).differences(root, &kubelets).len(), 1);
    }

    /// kubeadm names the socket below `/var/run`, and before the runtime's first start there is none.
    #[test]
    fn two_names_of_one_file_do_not_differ_though_it_is_not_there() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("data")).unwrap();
        std::os::unix::fs::symlink("data", root.path().join("link")).unwrap();
        for (one, other, expected) in [
            ("unix:///var/run/containerd/c.sock", "unix:///run/containerd/c.sock", true),
            ("/run/crio/crio.sock", "unix:///run/crio/crio.sock", true),
            ("/link/kubelet", "/data/kubelet", true),
            ("/var/lib/kubelet/", "/var/lib/kubelet", true),
            ("/var/lib/kubelet", "/data/kubelet", false),
            ("unix:///run/crio/crio.sock", "unix:///run/containerd/c.sock", false),
            ("node1", "node2", false),
        ] {
            assert_eq!(is_one_file(root.path(), one, other), expected, "{one} {other}");
        }
    }
}

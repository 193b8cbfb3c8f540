//! Reads the pods to plan with, as the agent would read and admit them.

use std::io::Read;
use std::path::Path;

use winddown_shared::{Pod, UnsupportedField};

use crate::{CommandError, Exit};
use winddown_config::{Config, Mode, RuntimeKind};
use winddown_static_pods::{ManifestError, load_directory, load_manifest, read_manifest};
use winddown_yaml::names;

/// The result of reading manifests.
#[derive(Debug, Default)]
pub(super) struct PlannedInput {
    /// The pods that the agent would run.
    pub(super) pods: Vec<Pod>,
    /// Why the other pods would be refused, and the errors of invalid manifests.
    pub(super) left_out: Vec<String>,
}

impl PlannedInput {
    pub(super) fn exit(&self) -> Exit {
        if self.left_out.is_empty() { Exit::Success } else { Exit::ConfigInvalid }
    }
}

/// What only the machine knows of the pods that are refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningAgent {
    pub(super) pid: u32,
    pub(super) runtime: RuntimeKind,
}

/// Reads the pods of a manifest, of a directory, or of `stdin` if the path is `-`. Without the agent of this machine,
/// limits that the machine does not enforce are not found.
pub(super) fn read(
    path: &Path,
    stdin: impl Read,
    config: &Config,
    agent: Option<RunningAgent>,
) -> Result<PlannedInput, CommandError> {
    let node = node_name(config, &winddown_host::machine::node_name())?;
    let mut given = match path {
        _ if path.is_dir() => in_directory(path, &node)?,
        _ if path == Path::new("-") => of_one(checked(path, &bytes(path, stdin)?, &node)?),
        _ => of_one(load_manifest(path, &node).map_err(refused)?),
    };
    let PlannedInput { pods, left_out } = &mut given;
    pods.retain(|pod| {
        let mut why = unsupported(config, pod);
        why.extend(agent.and_then(|agent| refused_limit(agent, pod)));
        let told: Vec<String> =
            why.iter().map(|one| format!("{}: {}", one.field, one.why)).collect();
        if !told.is_empty() {
            left_out.push(format!("{} would be refused: {}", pod.pod_ref(), told.join("; ")));
        }
        told.is_empty()
    });
    Ok(given)
}

/// Returns the node's name, with which the name of every pod ends, on a host with this name.
pub(crate) fn node_name(config: &Config, host: &str) -> Result<String, CommandError> {
    let name = config.node_name_or(host);
    if names::is_dns_subdomain(&name) {
        return Ok(name);
    }
    let what = format!("the host name `{name}` is no node name, and no pod's name can end with it");
    let hint =
        "set `nodeName` in the configuration, or a host name: `hostnamectl set-hostname NAME`";
    Err(CommandError::message(Exit::ConfigInvalid, what).with_hint(hint))
}

/// Parses a manifest that was read from `path`.
pub(crate) fn checked(path: &Path, bytes: &[u8], node: &str) -> Result<Pod, CommandError> {
    read_manifest(path, bytes, node).map_err(refused)
}

/// Reads a manifest from the open file of `path`.
pub(crate) fn bytes(path: &Path, open: impl Read) -> Result<Vec<u8>, CommandError> {
    winddown_yaml::read(open).map_err(|error| CommandError::unreadable(path, error))
}

fn of_one(pod: Pod) -> PlannedInput {
    PlannedInput { pods: vec![pod], left_out: Vec::new() }
}

fn in_directory(path: &Path, node: &str) -> Result<PlannedInput, CommandError> {
    let now = winddown_host::machine::wall_clock().now();
    let read =
        load_directory(path, node, now).map_err(|error| CommandError::unreadable(path, error))?;
    if read.pods.is_empty() && read.errors.is_empty() {
        let why = "no pod is planned from here; each file is the manifest of a pod, unless its name \
                   begins with a dot";
        let error = CommandError::message(Exit::Failure, format!("{}: {why}", path.display()));
        return Err(error.with_hint(format!(
            "give a manifest, or a directory with some: ls {}",
            path.display()
        )));
    }
    Ok(PlannedInput {
        pods: read.pods,
        left_out: read.errors.iter().map(ToString::to_string).collect(),
    })
}

/// Returns the fields for which the configured runtime refuses the pod; none in companion mode, where the kubelet runs
/// the pods.
fn unsupported(config: &Config, pod: &Pod) -> Vec<UnsupportedField> {
    match config.node.runtime {
        _ if config.node.mode == Mode::Companion => Vec::new(),
        RuntimeKind::Process => winddown_runtimes::process::check_supported(pod),
        RuntimeKind::Systemd => winddown_runtimes::systemd::check_supported(pod),
        RuntimeKind::Cri => winddown_cri::check_supported(pod),
    }
}

/// Returns the limit of the pod for which this agent refuses it.
fn refused_limit(agent: RunningAgent, pod: &Pod) -> Option<UnsupportedField> {
    let pid = match agent.runtime {
        RuntimeKind::Process => Some(agent.pid),
        RuntimeKind::Systemd => None,
        RuntimeKind::Cri => return None,
    };
    let (proc_root, cgroups) = (Path::new("/proc"), Path::new("/sys/fs/cgroup"));
    winddown_runtimes::process::refused_limit(proc_root, cgroups, pid, pod)
}

fn refused(error: ManifestError) -> CommandError {
    let exit = match &error {
        ManifestError::Read { .. } | ManifestError::NotRegular { .. } => Exit::Failure,
        _ => Exit::ConfigInvalid,
    };
    CommandError::new(exit, error)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn read(path: &Path, config: &Config) -> Result<PlannedInput, CommandError> {
        super::read(path, std::io::empty(), config, None)
    }

    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  hostNetwork: true\n  \
                       containers:\n  - {name: a, command: [a]}\n";

    #[test]
    fn each_file_is_planned_or_named_unless_its_name_begins_with_a_dot() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), POD).unwrap();
        std::fs::write(dir.path().join("a.yaml.backup"), POD).unwrap();
        std::fs::write(dir.path().join("#a#"), "half a fi").unwrap();
        std::fs::write(dir.path().join(".a"), "half a fi").unwrap();
        std::fs::create_dir(dir.path().join("more")).unwrap();
        let given = read(dir.path(), &Config::default()).unwrap();
        assert_eq!(given.pods.len(), 1);
        let names = ["#a#: is not run", "a.yaml.backup: metadata.name: the pod", "more: is a dir"];
        assert_eq!(given.left_out.len(), names.len(), "{:?}", given.left_out);
        for (said, name) in given.left_out.iter().zip(names) {
            assert!(said.contains(name), "{said}");
        }
    }

    #[test]
    fn a_host_name_that_is_no_nodes_is_named_once_with_what_to_do() {
        let config = Config::default();
        for host in ["(none)", "my_host", ""] {
            let error = node_name(&config, host).unwrap_err();
            let said = format!("{:#} {}", error.error, error.hint);
            assert!(said.contains(&format!("`{host}`")) && said.contains("nodeName"), "{said}");
        }
        assert_eq!(node_name(&config, "Edge-1").unwrap(), "edge-1");
    }

    #[test]
    fn a_pipe_among_the_manifests_is_an_error_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("a.yaml");
        mknodat(CWD, &pipe, FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let given = read(dir.path(), &Config::default()).unwrap();
        let text = given.left_out.join("\n");
        assert!(text.contains("a.yaml") && text.contains("named pipe"), "{text}");
        assert_eq!(read(&pipe, &Config::default()).unwrap_err().exit, Exit::Failure);
    }

    #[test]
    fn a_file_without_an_end_is_read_only_as_far_as_a_manifest_goes() {
        let error = load_manifest(Path::new("/dev/zero"), "node1").map_err(refused).unwrap_err();
        assert_eq!(error.exit, Exit::Failure);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read(&path, &Config::default()).unwrap_err();
        assert_eq!(error.exit, Exit::ConfigInvalid);
    }

    #[test]
    fn pods_that_the_configured_runtime_refuses_are_left_out_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = "  volumes: [{name: v, hostPath: {path: /srv}}]\n";
        std::fs::write(dir.path().join("a.yaml"), POD).unwrap();
        std::fs::write(dir.path().join("b.yaml"), POD.replace("name: a}", "name: b}") + volumes)
            .unwrap();
        let left_out = |runtime, mode| {
            let mut config = Config::default();
            let name = Some("n1".to_owned());
            config.node = winddown_config::NodeOptions { runtime, mode, name, ..config.node };
            read(dir.path(), &config).unwrap().left_out
        };
        assert_eq!(
            left_out(RuntimeKind::Process, Mode::Standalone),
            [
                "default/b-n1 would be refused: spec.volumes[0]: volumes are not mounted: use paths of the \
              host in the command"
            ]
        );
        let cri = left_out(RuntimeKind::Cri, Mode::Standalone);
        assert!(cri.len() == 2 && cri[0].contains("image"), "{cri:?}");
        assert_eq!(left_out(RuntimeKind::Process, Mode::Companion), Vec::<String>::new());
    }

    #[test]
    fn every_wrong_file_of_a_directory_is_named_and_the_others_are_planned() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("a", POD), ("b", "kind: Deployment\n"), ("c", "\t"), ("d", POD)] {
            std::fs::write(dir.path().join(format!("{name}.yaml")), text).unwrap();
        }
        let given = read(dir.path(), &Config::default()).unwrap();
        assert_eq!(given.pods.len(), 1);
        let named = |name: &str| given.left_out.iter().filter(|text| text.contains(name)).count();
        assert!(named("b.yaml") > 0 && named("c.yaml") > 0, "{:?}", given.left_out);
        let twice = given.left_out.last().unwrap();
        assert!(twice.contains("d.yaml") && twice.contains("a.yaml already"), "{twice}");
    }
}

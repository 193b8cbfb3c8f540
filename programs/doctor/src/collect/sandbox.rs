//! Configured paths that the sandbox of the agent's unit keeps from the agent. Blocks.

use std::path::{Path, PathBuf};

use winddown_config::{Config, Mode};
use winddown_systemd::inspect::SandboxView;

use crate::facts::OutOfReach;

type Configured<'a> = (&'static str, &'a Path);

/// The configured paths that a service with this sandbox cannot use.
pub(super) fn out_of_reach(config: &Config, sandbox: &SandboxView) -> Vec<OutOfReach> {
    let writable = sandbox.writable.as_deref();
    let is_closed = |path: &Path| writable.is_some_and(|all| !is_within(path, all));
    let written = config
        .written_directories()
        .into_iter()
        .map(|(field, path)| (field, path, is_closed(path)));
    let read = read(config).into_iter().map(|(field, path)| (field, path, false));
    let all = written.chain(read).filter_map(|(field, path, is_closed)| {
        let hidden = is_within(path, &sandbox.hidden);
        (hidden || is_closed).then(|| OutOfReach { field, path: path.to_owned(), hidden })
    });
    all.collect()
}

/// What others write and the agent reads.
fn read(config: &Config) -> Vec<Configured<'_>> {
    let cluster = &config.cluster;
    let is_joined = config.node.mode != Mode::Standalone;
    let pods =
        config.pods.static_pod_path.as_deref().filter(|_| config.node.mode != Mode::Companion);
    let all = [
        ("staticPodPath", pods),
        ("kubeconfig", cluster.kubeconfig.as_deref().filter(|_| is_joined)),
        ("bootstrapKubeconfig", cluster.bootstrap_kubeconfig.as_deref().filter(|_| is_joined)),
        ("shutdownNotices.file", config.shutdown.notices.file.as_deref()),
    ];
    all.into_iter().filter_map(|(field, path)| Some((field, path?))).collect()
}

/// Whether the path is one of these directories or below one; links are followed, as systemd does.
fn is_within(path: &Path, directories: &[impl AsRef<Path>]) -> bool {
    let path = resolved(path);
    directories.iter().any(|directory| path.starts_with(resolved(directory.as_ref())))
}

/// Where the path leads, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let follow = |there: &Path| {
        let rest = path.strip_prefix(there).ok()?;
        Some(there.canonicalize().ok()?.join(rest))
    };
    path.ancestors().find_map(follow).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the unit gives an agent with a container runtime, and this directory as well.
    fn sandbox_with(open: &Path) -> SandboxView {
        let open = open.display().to_string();
        let all = ["/run/winddown", "/var/lib/winddown", "/var/log/winddown", open.as_str()];
        let hidden = vec!["/home", "/root", "/run/user"];
        SandboxView { writable: Some(all.map(str::to_owned).into()), hidden }
    }

    fn kept(field: &'static str, path: &str, hidden: bool) -> OutOfReach {
        OutOfReach { field, path: path.into(), hidden }
    }

    #[test]
    fn what_the_unit_does_not_open_or_hides_is_out_of_reach() {
        let mut config = Config::default();
        config.node.mode = Mode::Cluster;
        config.access.state_directory = "/data/winddown".into();
        config.access.control_socket = "/run/other.sock".into();
        config.pods.static_pod_path = Some("/home/me/pods".into());
        config.cluster.kubeconfig = Some("/root/.kube/config".into());
        let sandbox = sandbox_with("/data/another".as_ref());
        assert_eq!(
            out_of_reach(&config, &sandbox),
            [
                kept("stateDirectory", "/data/winddown", false),
                kept("controlSocket", "/run", false),
                kept("staticPodPath", "/home/me/pods", true),
                kept("kubeconfig", "/root/.kube/config", true),
            ]
        );
        assert_eq!(out_of_reach(&config, &SandboxView::default()), [], "it has no sandbox");
        assert_eq!(out_of_reach(&Config::default(), &sandbox), [], "the unit suits the defaults");
    }

    #[test]
    fn a_link_is_where_it_leads() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("open")).unwrap();
        std::os::unix::fs::symlink("open", dir.path().join("link")).unwrap();
        let sandbox = sandbox_with(&dir.path().join("open"));
        for (place, is_open) in [("link/state", true), ("openly/state", false)] {
            let mut config = Config::default();
            config.access.state_directory = dir.path().join(place);
            assert_eq!(out_of_reach(&config, &sandbox).is_empty(), is_open, "{place}");
        }
    }
}

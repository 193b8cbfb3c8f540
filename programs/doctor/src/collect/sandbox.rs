//! Configured paths that the sandbox of the agent's unit keeps from the agent. Blocks.

use std::path::{Path, PathBuf};

use winddown_api_client::files_of_kubeconfig;
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
        (hidden || is_closed).then(|| OutOfReach {
            field,
            kubeconfig: None,
            path: path.to_owned(),
            hidden,
        })
    });
    all.chain(named_by_kubeconfigs(config, sandbox)).collect()
}

/// What the kubeconfigs name: certificates, keys, tokens and commands. The agent only reads and runs these.
fn named_by_kubeconfigs(config: &Config, sandbox: &SandboxView) -> Vec<OutOfReach> {
    let is_kubeconfig = |(field, _): &Configured<'_>| field.ends_with("ubeconfig");
    let files = read(config).into_iter().filter(is_kubeconfig).map(|(_, file)| file);
    let hidden = files.flat_map(|file| {
        let named = files_of_kubeconfig(file).unwrap_or_default().into_iter();
        named.filter(|one| !one.is_searched && is_within(&one.path, &sandbox.hidden)).map(|one| {
            OutOfReach {
                field: one.field,
                kubeconfig: Some(file.to_owned()),
                path: one.path,
                hidden: true,
            }
        })
    });
    hidden.collect()
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
        let all = ["/run/winddown", "/var/lib/winddown", "/var/log", open.as_str()];
        let hidden = vec!["/home", "/root", "/run/user"];
        SandboxView { writable: Some(all.map(str::to_owned).into()), hidden }
    }

    fn kept(field: &'static str, path: &str, hidden: bool) -> OutOfReach {
        OutOfReach { field, kubeconfig: None, path: path.into(), hidden }
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

    /// GKE's command is below /home: an agent that does not see it reaches no API server.
    #[test]
    fn what_the_kubeconfig_names_is_out_of_reach_where_the_unit_hides_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kubeconfig");
        let mut config = Config::default();
        config.cluster.kubeconfig = Some(file.clone());
        let sandbox = SandboxView { writable: None, hidden: vec!["/home", "/root", "/run/user"] };
        let exec = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /home/k/login}}";
        for (user, field, path) in [
            (exec, "users.exec.command", "/home/k/login"),
            ("{tokenFile: /root/token}", "users.tokenFile", "/root/token"),
            (
                "{client-certificate: /etc/a.crt, client-key: /home/a.key}",
                "users.client-key",
                "/home/a.key",
            ),
        ] {
            std::fs::write(&file, naming(user)).unwrap();
            config.node.mode = Mode::Companion;
            let kubeconfig = Some(file.clone());
            let path = path.into();
            let wanted = [OutOfReach { field, kubeconfig, path, hidden: true }];
            assert_eq!(out_of_reach(&config, &sandbox), wanted);
            config.node.mode = Mode::Standalone;
            assert_eq!(out_of_reach(&config, &sandbox), [], "it reads no kubeconfig");
        }
    }

    /// A shell of root's finds other programs by a name than the agent does.
    #[test]
    fn a_command_without_a_directory_is_not_looked_for_in_this_ones_path() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kubeconfig");
        let exec = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}}";
        std::fs::write(&file, naming(exec)).unwrap();
        let mut config = Config::default();
        config.node.mode = Mode::Companion;
        config.cluster.kubeconfig = Some(file);
        let sandbox = SandboxView { writable: None, hidden: vec!["/usr", "/bin"] };
        assert_eq!(out_of_reach(&config, &sandbox), []);
    }

    /// A kubeconfig with this user.
    fn naming(user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://10.0.0.1'}}}}]\n\
             users: [{{name: u, user: {user}}}]\n"
        )
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

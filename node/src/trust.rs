//! The paths that root trusts: those of the configuration, and those that its kubeconfig names.

use std::path::Path;

use winddown_config::{Config, Trust, TrustedPath};

/// Returns what the agent trusts beside its manifests: the configuration `file`, the paths in `config`, and the files
/// and the command in its kubeconfig. A kubeconfig that cannot be read names none: using it reports that. Blocking.
pub fn trusted_paths(config: &Config, file: Option<&Path>) -> Vec<TrustedPath> {
    let path =
        |option: String, path: &Path, trust| TrustedPath { option, path: path.into(), trust };
    let mut all: Vec<_> =
        file.map(|file| path("configuration".to_owned(), file, Trust::Read)).into_iter().collect();
    all.extend(config.trusted_paths());
    #[cfg(feature = "cluster")]
    if config.node.mode != winddown_config::Mode::Standalone {
        use winddown_api_client::FileUse;
        let cluster = &config.cluster;
        let kubeconfigs = [
            ("kubeconfig", &cluster.kubeconfig),
            ("bootstrapKubeconfig", &cluster.bootstrap_kubeconfig),
        ];
        let read = kubeconfigs.into_iter().filter_map(|(key, file)| Some((key, file.as_deref()?)));
        for (key, file) in read {
            for named in winddown_api_client::files_of_kubeconfig(file).unwrap_or_default() {
                let trust = match named.purpose {
                    FileUse::Read => Trust::Read,
                    FileUse::Secret => Trust::Secret,
                    FileUse::Run => Trust::Run,
                };
                all.push(path(format!("{key}: {}", named.field), &named.path, trust));
            }
        }
    }
    all
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: 'https://10.0.0.1', certificate-authority: ca.crt}}]
users: [{name: u, user: USER}]
";

    #[test]
    fn what_a_kubeconfig_names_is_trusted_as_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let names = ["ca.crt", "client.crt", "client.key", "token", "login", "kubeconfig"];
        for name in names {
            fs::write(dir.join(name), "").unwrap();
        }
        let found = |user: &str, mode: u32| {
            fs::write(dir.join("kubeconfig"), KUBECONFIG.replace("USER", user)).unwrap();
            for name in names {
                fs::set_permissions(dir.join(name), Permissions::from_mode(mode)).unwrap();
            }
            let text = format!(
                "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nmode: cluster\n\
                 kubeconfig: {}\n",
                dir.join("kubeconfig").display()
            );
            let (config, _) = Config::parse("c".as_ref(), text.as_bytes()).unwrap();
            let mut paths = trusted_paths(&config, None);
            paths.retain(|one| one.path.starts_with(dir));
            let found = winddown_config::exposed("/".as_ref(), &paths);
            let text = found.iter().map(ToString::to_string);
            text.map(|line| line.replace(&format!("{}/", dir.display()), "")).collect::<Vec<_>>()
        };
        let files = "{client-certificate: client.crt, client-key: client.key}";
        assert_eq!(found(files, 0o600), [""; 0]);
        let lines = found(files, 0o666);
        for line in [
            "kubeconfig: kubeconfig: every user may read it",
            "kubeconfig: clusters.certificate-authority: ca.crt: every user may write to it",
            "kubeconfig: users.client-certificate: client.crt: every user may write to it",
            "kubeconfig: users.client-key: client.key: every user may read it",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line}: {lines:#?}");
        }
        assert!(!lines.iter().any(|line| line.contains("client.crt: every user may read")));
        let lines = found("{tokenFile: token}", 0o644);
        assert!(
            lines.contains(&"kubeconfig: users.tokenFile: token: every user may read it".into())
        );
        let exec = format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}/login}}}}",
            dir.display()
        );
        let lines = found(&exec, 0o777);
        let line = "kubeconfig: users.exec.command: login: every user may write to it";
        assert!(lines.iter().any(|one| one == line), "{lines:#?}");
    }
}

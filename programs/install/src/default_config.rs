//! The initial configuration where the operator gives none: the defaults, with the runtime and its socket.

use std::path::Path;

use winddown_config::{Config, answers, default_yaml, runtime_endpoints};

use super::Runtime;
use super::assets::CONFIG;
use super::host::LiveHost;

/// The container runtimes of a machine or image.
#[derive(Debug)]
pub(super) struct Containers {
    root: std::path::PathBuf,
    live: bool,
    /// The addresses of those that were found.
    found: Vec<String>,
}

impl Containers {
    pub(super) fn of(root: &Path) -> Self {
        let live = LiveHost::at(root).is_some();
        Self { root: root.to_owned(), live, found: runtime_endpoints(root, live) }
    }

    /// Returns the default configuration for `runtime`. Its container runtime is the default one if that is here, or
    /// else the first that is.
    pub(super) fn default_config(&self, runtime: Runtime) -> String {
        let usual = Config::default().node.container_runtime_endpoint;
        let endpoint = match self.found.first() {
            Some(first) if !self.found.contains(&usual) => first.clone(),
            _ => usual,
        };
        with_endpoint(&of_runtime(runtime), &endpoint)
    }

    /// Returns what to say of the container runtime that `config` names; `None` if it is the only one here.
    pub(super) fn note(&self, config: &Config) -> Option<String> {
        if config.node.runtime != Runtime::Cri {
            return None;
        }
        let endpoint = &config.node.container_runtime_endpoint;
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        let path = self.root.join(path.trim_start_matches('/'));
        let is_here = if self.live { answers(&path) } else { path.exists() };
        let others: Vec<&str> =
            self.found.iter().map(String::as_str).filter(|other| *other != endpoint).collect();
        let others = others.join(" and ");
        match (is_here, others.is_empty()) {
            (true, true) => None,
            (true, false) => Some(format!(
                "containerRuntimeEndpoint is {endpoint}; another container runtime is at {others}"
            )),
            (false, true) => Some(format!(
                "no container runtime answers at {endpoint}: install one, or correct \
                 containerRuntimeEndpoint, before winddown starts"
            )),
            (false, false) => Some(format!(
                "no container runtime answers at {endpoint}, but one is at {others}: correct \
                 containerRuntimeEndpoint before winddown starts"
            )),
        }
    }
}

/// Whether `text` sets nothing that [`Containers::default_config`] of this or an earlier version does not set, on this
/// machine or another.
pub(super) fn is_default(text: &[u8]) -> bool {
    let Ok((mut config, _)) = Config::parse(Path::new(CONFIG), text) else { return false };
    let usual = Config::default();
    config.node.runtime = usual.node.runtime;
    config.node.container_runtime_endpoint.clone_from(&usual.node.container_runtime_endpoint);
    config == usual
}

fn of_runtime(runtime: Runtime) -> String {
    let line = format!("\nruntime: {runtime}\n");
    default_yaml().replacen("\nruntime: process\n", &line, 1)
}

fn with_endpoint(text: &str, endpoint: &str) -> String {
    const KEY: &str = "\ncontainerRuntimeEndpoint: ";
    let Some((before, rest)) = text.split_once(KEY) else { return text.to_owned() };
    let rest = rest.find('\n').map_or("", |end| &rest[end..]);
    format!("{before}{KEY}{endpoint}{rest}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_socket_that_is_here_is_written_and_the_default_is_recognised_with_it() {
        let root = tempfile::tempdir().unwrap();
        let socket = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        let look = || {
            let here = Containers::of(root.path());
            let text = here.default_config(Runtime::Cri);
            assert!(is_default(text.as_bytes()), "{text}");
            let (config, _) = Config::parse("c".as_ref(), text.as_bytes()).unwrap();
            assert_eq!(config.node.runtime, Runtime::Cri);
            let note = here.note(&config);
            (
                config.node.container_runtime_endpoint.strip_prefix("unix://").unwrap().to_owned(),
                note,
            )
        };
        let (containerd, crio) = ("/run/containerd/containerd.sock", "/run/crio/crio.sock");
        let (endpoint, note) = look();
        assert_eq!(endpoint, containerd);
        assert!(
            note.unwrap().starts_with("no container runtime answers at unix:///run/containerd")
        );
        socket("run/crio/crio.sock");
        assert_eq!(look(), (crio.to_owned(), None));
        socket("run/containerd/containerd.sock");
        let (endpoint, note) = look();
        assert_eq!(endpoint, containerd);
        assert!(
            note.unwrap().ends_with("another container runtime is at unix:///run/crio/crio.sock")
        );
        fs::remove_file(root.path().join("run/containerd/containerd.sock")).unwrap();
        let mut edited = Config::default();
        edited.node.runtime = Runtime::Cri;
        let note = Containers::of(root.path()).note(&edited).unwrap();
        assert!(note.contains("but one is at unix:///run/crio/crio.sock"), "{note}");
        let older = default_yaml().lines().filter(|line| !line.starts_with("reportsKept"));
        let older = older.collect::<Vec<_>>().join("\n").replace("# ", "# In other words: ");
        assert!(is_default(older.as_bytes()), "{older}");
        assert!(!is_default(
            b"apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nreportsKept: 7\n"
        ));
        assert!(!is_default(b"no configuration"));
        let process = Containers::of(root.path()).note(&Config::default());
        assert_eq!(process, None, "it needs none");
    }
}

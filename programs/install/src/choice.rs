//! Chooses the runtime when none is given.

use std::fmt;
use std::path::Path;

use super::assets::CONFIG;
use super::host::LiveHost;
use super::tree::Tree;
use super::{InstallError, Runtime};
use winddown_config::Config;
use winddown_host::regular;

/// The chosen runtime, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallChoice {
    /// The runtime.
    pub runtime: Runtime,
    why: &'static str,
    /// The addresses of container runtimes, which were not chosen: images and the pods that are there are theirs.
    containers: Vec<String>,
}

/// The facts about a machine or image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MachineFacts {
    configured: Option<Runtime>,
    /// Whether systemd runs the machine, or is in the image.
    systemd: bool,
    /// Whether the machine uses cgroup v2; unknown for an image.
    cgroup_v2: Option<bool>,
    /// The addresses of the container runtimes that answer.
    containers: Vec<String>,
}

/// Chooses the runtime for the machine or image at `root`: the one in its configuration, or else in `config`, its
/// initial configuration; without either, `systemd` if systemd runs it with cgroup v2, otherwise `process`.
///
/// # Errors
/// A path below the root has too many symbolic links.
pub fn choose(root: &Path, config: Option<&Path>) -> Result<InstallChoice, InstallError> {
    let tree = Tree::new(root);
    let there = tree.resolve_whole(CONFIG)?;
    let file = if there.exists() { Some(there.as_path()) } else { config };
    let text = file
        .and_then(|file| Some((file, regular::read(file, regular::MAX_CONFIGURATION_BYTES).ok()?)));
    // Ignore an invalid configuration here; `install` will report its errors.
    let parsed = text.and_then(|(file, text)| Config::parse(file, &text).ok());
    let is_live = LiveHost::at(root).is_some();
    let is_there = |path: &str| tree.resolve_whole(path).is_ok_and(|path| path.exists());
    let seen = MachineFacts {
        configured: parsed.map(|(config, _)| config.node.runtime),
        systemd: is_live
            || is_there("/usr/lib/systemd/systemd")
            || is_there("/lib/systemd/systemd"),
        cgroup_v2: is_live.then(|| is_there("/sys/fs/cgroup/cgroup.controllers")),
        containers: winddown_config::runtime_endpoints(root, is_live),
    };
    Ok(decide(seen))
}

fn decide(seen: MachineFacts) -> InstallChoice {
    let MachineFacts { configured, systemd, cgroup_v2, containers } = seen;
    if let Some(runtime) = configured {
        return InstallChoice {
            runtime,
            why: "the configuration names it",
            containers: Vec::new(),
        };
    }
    let (runtime, why) = match (systemd, cgroup_v2) {
        (false, _) => (Runtime::Process, "systemd is not running"),
        (true, Some(false)) => (Runtime::Process, "control groups are of version 1 here"),
        (true, _) => (
            Runtime::Systemd,
            "systemd enforces limits, keeps logs in the journal, and leaves the agent its sandbox",
        ),
    };
    InstallChoice { runtime, why, containers }
}

impl fmt::Display for InstallChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pods run with `runtime: {}`: {}", self.runtime, self.why)?;
        f.write_str("; --runtime overrides it")?;
        if !self.containers.is_empty() {
            let containers = self.containers.join(" and ");
            write!(f, ". A container runtime is at {containers}: --runtime cri runs pods in it")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_systemd_and_cgroup_v2_gets_services_and_a_configuration_is_heeded() {
        let seen = |configured, systemd, cgroup_v2| MachineFacts {
            configured,
            systemd,
            cgroup_v2,
            containers: Vec::new(),
        };
        for (seen, runtime) in [
            (seen(None, true, Some(true)), Runtime::Systemd),
            (seen(None, true, Some(false)), Runtime::Process),
            (seen(None, true, None), Runtime::Systemd),
            (seen(None, false, Some(true)), Runtime::Process),
            (seen(None, false, None), Runtime::Process),
            (seen(Some(Runtime::Cri), true, Some(true)), Runtime::Cri),
            (seen(Some(Runtime::Process), true, Some(true)), Runtime::Process),
        ] {
            assert_eq!(decide(seen.clone()).runtime, runtime, "{seen:?}");
        }
    }

    #[test]
    fn a_container_runtime_that_was_not_chosen_is_named() {
        let containers = vec!["unix:///run/crio/crio.sock".to_owned()];
        let seen = MachineFacts {
            systemd: true,
            cgroup_v2: Some(false),
            containers,
            ..MachineFacts::default()
        };
        let said = decide(seen.clone()).to_string();
        assert!(
            said.ends_with(
                "A container runtime is at unix:///run/crio/crio.sock: --runtime cri runs pods in it"
            ),
            "{said}"
        );
        let said = decide(MachineFacts { configured: Some(Runtime::Cri), ..seen }).to_string();
        assert!(!said.contains("crio.sock"), "{said}");
    }

    #[test]
    fn an_image_is_looked_at_for_systemd_and_for_a_configuration() {
        let root = tempfile::tempdir().unwrap();
        let of = |config: Option<&Path>| choose(root.path(), config).unwrap().runtime;
        assert_eq!(of(None), Runtime::Process);
        let systemd = root.path().join("usr/lib/systemd/systemd");
        std::fs::create_dir_all(systemd.parent().unwrap()).unwrap();
        std::fs::write(systemd, "").unwrap();
        assert_eq!(of(None), Runtime::Systemd);
        let head = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: ";
        let given = root.path().join("given.yaml");
        std::fs::write(&given, format!("{head}process\n")).unwrap();
        assert_eq!(of(Some(&given)), Runtime::Process);
        std::fs::create_dir_all(root.path().join("etc/winddown")).unwrap();
        std::fs::write(root.path().join("etc/winddown/config.yaml"), format!("{head}cri\n"))
            .unwrap();
        assert_eq!(of(Some(&given)), Runtime::Cri);
    }
}

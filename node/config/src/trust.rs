//! What root trusts: the paths of a configuration through which somebody else could decide what root believes or runs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use winddown_host::{OthersMayRead, OthersMayWrite, others_may_read, others_may_write};
use winddown_shared::display::clean;

use super::{Config, Mode, RuntimeKind, reference};

/// What root does with what is at a path. Each option that is a path has one, see [`reference::Field::trust`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Believes what it reads there.
    Read,
    /// The same, and nobody else may read it: it can hold a private key or a token.
    Secret,
    /// Runs it. A program that others may write is not run.
    Run,
    /// Connects to a socket or makes one there: who may write its directory can put another in its place.
    Socket,
    /// Runs the pods of each file in it. Whoever watches the directory looks at the files.
    Manifests,
    /// Neither believes nor runs it: logs, and what others are meant to write.
    Nothing,
}

/// A path that root trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedPath {
    /// The option that names it, such as `evictionHook.command`.
    pub option: String,
    /// The path.
    pub path: PathBuf,
    /// What root does with what is there.
    pub trust: Trust,
}

/// A path that root trusts, and that others can write or, if it is a secret, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// The option that names it.
    pub option: String,
    /// Who can do what.
    pub how: Exposure,
}

/// Who besides root can do what to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Others may write it, or what leads to it.
    Writable(OthersMayWrite),
    /// Others may read a secret.
    Readable(OthersMayRead),
    /// It could not be looked at.
    Unknown {
        /// The path.
        path: PathBuf,
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
}

// === impl Config ===

impl Config {
    /// Returns the paths of the configuration that root trusts in this mode, in the order of the options.
    pub fn trusted_paths(&self) -> Vec<TrustedPath> {
        let mut all = reference::paths(self);
        all.retain(|one| match &*one.option {
            "staticPodPath" => self.node.mode != Mode::Companion,
            "kubeletRootDir" => self.node.mode == Mode::Companion,
            "containerRuntimeEndpoint" => self.node.runtime == RuntimeKind::Cri,
            _ => one.trust != Trust::Nothing,
        });
        let key_file = all.iter().any(|one| one.option == "tlsPrivateKeyFile");
        // Without a file of its own, the key is in the certificate's file.
        for one in all.iter_mut().filter(|one| one.option == "tlsCertFile" && !key_file) {
            one.trust = Trust::Secret;
        }
        all
    }
}

/// Finds what others can write or read of `paths`; each path is named once. `root` stands for `/`. Blocking.
pub fn exposed(root: &Path, paths: &[TrustedPath]) -> Vec<Exposed> {
    let mut all: Vec<Exposed> = Vec::new();
    for path in paths {
        for how in path.exposures(root) {
            if !all.iter().any(|known| known.how == how) {
                all.push(Exposed { option: path.option.clone(), how });
            }
        }
    }
    all
}

// === impl TrustedPath ===

impl TrustedPath {
    fn exposures(&self, root: &Path) -> Vec<Exposure> {
        let path = match self.trust {
            Trust::Socket => self.path.parent().unwrap_or(&self.path),
            Trust::Nothing | Trust::Manifests => return Vec::new(),
            Trust::Read | Trust::Secret | Trust::Run => &self.path,
        };
        let look = || -> io::Result<Vec<Exposure>> {
            let written = others_may_write(root, path)?.into_iter().map(Exposure::Writable);
            let secret = self.trust == Trust::Secret;
            let read = secret.then(|| others_may_read(root, path)).transpose()?.flatten();
            Ok(written.chain(read.map(Exposure::Readable)).collect())
        };
        let unknown =
            |error: io::Error| Exposure::Unknown { path: path.to_owned(), kind: error.kind() };
        look().unwrap_or_else(|error| vec![unknown(error)])
    }
}

// === impl Exposed ===

impl Exposed {
    /// Returns the command that mends it, for a shell; `None` if it is not known what is wrong.
    pub fn mend(&self) -> Option<String> {
        match &self.how {
            Exposure::Writable(found) => Some(found.fix_command()),
            Exposure::Readable(found) => Some(found.fix_command()),
            Exposure::Unknown { .. } => None,
        }
    }
}

/// One line, for people.
impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = match &self.how {
            Exposure::Writable(found) => found.to_string(),
            Exposure::Readable(found) => found.to_string(),
            Exposure::Unknown { path, kind } => {
                format!("{}: it is not known who may write it: {kind}", path.display())
            }
        };
        write!(f, "{}: {}", self.option, clean(&line))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const HEAD: &str = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\n";

    fn config(text: &str) -> Config {
        Config::parse("config.yaml".as_ref(), format!("{HEAD}{text}").as_bytes()).unwrap().0
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// A configuration that sets each option that is a path, and nothing else that could hide one.
    fn whole() -> Config {
        config(
            "mode: cluster\nruntime: cri\nstaticPodPath: /t/pods\nstateDirectory: /t/state\n\
             podLogsDir: /t/logs\nkubeconfig: /t/kubeconfig\nclientCAFile: /t/ca\nresolvConf: /t/resolv\n\
             tlsCertFile: /t/cert\ntlsPrivateKeyFile: /t/key\nkubeletRootDir: /t/kubelet\n\
             controlSocket: /t/control/s\n\
             containerRuntimeEndpoint: unix:///t/runtime/s\nshutdownNotices: {file: /t/notice}\n\
             evictionHook: {command: [/t/hook, --short]}\n",
        )
    }

    #[test]
    fn each_option_that_is_a_path_says_what_root_does_with_it() {
        fn undecided(fields: &[reference::Field], wanting: &mut Vec<&'static str>) {
            for field in fields {
                let is_path = matches!(
                    field.kind,
                    reference::ValueKind::Path { .. } | reference::ValueKind::Command
                );
                if is_path && field.trust.is_none() {
                    wanting.push(field.name);
                }
                undecided(field.kind.fields(), wanting);
            }
        }
        let mut wanting = Vec::new();
        let fields: Vec<_> = reference::fields().cloned().collect();
        undecided(&fields, &mut wanting);
        assert_eq!(wanting, [""; 0], "add .trusted(…) to these options");
    }

    #[test]
    fn each_path_that_root_trusts_is_named_when_others_may_write_it() {
        let root = tempfile::tempdir().unwrap();
        let below = |path: &Path| root.path().join(path.strip_prefix("/").unwrap());
        mode(root.path(), 0o755);
        let mut seen = 0;
        let mut paths = reference::paths(&whole());
        paths.extend(reference::paths(&config(
            "bootstrapKubeconfig: /t/bootstrap\nmode: cluster\n",
        )));
        for path in paths {
            let looked = match path.trust {
                Trust::Socket => path.path.parent().unwrap(),
                _ => &path.path,
            };
            let file = below(looked);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            if path.trust == Trust::Socket {
                fs::create_dir_all(&file).unwrap();
            } else if !file.exists() {
                fs::write(&file, "").unwrap();
            }
            for dir in file.ancestors().skip(1).take_while(|dir| dir.starts_with(root.path())) {
                mode(dir, 0o755);
            }
            mode(&file, 0o700);
            let name = &path.option;
            assert_eq!(exposed(root.path(), std::slice::from_ref(&path)), [], "{name}");
            mode(&file, 0o666);
            let found = exposed(root.path(), std::slice::from_ref(&path));
            let lines: Vec<_> = found.iter().map(ToString::to_string).collect();
            if matches!(path.trust, Trust::Nothing | Trust::Manifests) {
                assert_eq!(lines, [""; 0], "{name}");
                continue;
            }
            assert_eq!(lines[0], format!("{name}: {}: every user may write to it", file.display()));
            assert_eq!(lines.len(), if path.trust == Trust::Secret { 2 } else { 1 }, "{lines:?}");
            seen += 1;
        }
        assert!(seen >= 13, "{seen}");
    }

    #[test]
    fn a_key_in_the_file_of_its_certificate_is_a_secret_as_well() {
        let trust = |text: &str| {
            let all = config(&format!("mode: cluster\n{text}")).trusted_paths();
            all.into_iter().find(|one| one.option == "tlsCertFile").unwrap().trust
        };
        assert_eq!(trust("tlsCertFile: /c\n"), Trust::Secret);
        assert_eq!(trust("tlsCertFile: /c\ntlsPrivateKeyFile: /k\n"), Trust::Read);
    }

    #[test]
    fn what_this_mode_does_not_use_is_not_looked_at() {
        let names = |text: &str| {
            let all = config(text).trusted_paths();
            all.into_iter().map(|one| one.option).collect::<Vec<_>>()
        };
        assert_eq!(names(""), ["staticPodPath", "stateDirectory", "controlSocket"]);
        let companion =
            ["containerRuntimeEndpoint", "kubeletRootDir", "stateDirectory", "controlSocket"];
        assert_eq!(names("mode: companion\n"), companion);
    }
}

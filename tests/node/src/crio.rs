//! CRI-O on a node: a real one, which no package registry has, so that the user has to provide the program, or a program
//! that stands in for it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::image::{self, IMAGE};
use crate::scenario::TestResult;
use crate::{Node, NodeError};

/// The socket that CRI-O listens on.
pub const SOCKET: &str = "/run/crio/crio.sock";
const PROGRAM: &str = "/usr/local/bin/crio";
const UNIT: &str = "/etc/systemd/system/crio.service";
/// Of the only folder of a node in which overlays may lie.
const STORAGE: &str = "/var/lib/containerd/crio";
/// Runs runc. Where no score may be lowered, containerd is told so, and CRI-O cannot be.
const RUNTIME: &str = "/usr/local/bin/crio-runc";
const RUNC: &str = r#"#!/bin/sh
for word; do
    [ "$option" != --bundle ] || sed -i 's/"oomScoreAdj": -[0-9]*/"oomScoreAdj": 0/' "$word/config.json"
    option=$word
done
exec /usr/sbin/runc "$@"
"#;
const IMAGES: &str = "/var/lib/crio-images.tar";
/// How long CRI-O may take to listen.
const LISTENS: Duration = Duration::from_secs(20);

/// What runs as the service `crio`.
#[derive(Debug, Clone)]
pub enum Crio {
    /// CRI-O itself.
    Real {
        /// The program, with `pinns` beside it. It also takes `conmon` and `skopeo` of this machine.
        program: PathBuf,
        /// Its `cgroup_manager`: `systemd` or `cgroupfs`.
        manager: &'static str,
    },
    /// A program that is started with a folder for its state and the path of its socket.
    StandIn(PathBuf),
}

impl Crio {
    /// The one that `WINDDOWN_CRIO` names, with this `cgroup_manager`. None, after a line `SKIPPED: <test>: <why>`, if it
    /// names none.
    #[must_use]
    pub fn named(test: &str, manager: &'static str) -> Option<Self> {
        let named = std::env::var_os("WINDDOWN_CRIO");
        if named.is_none() {
            println!("SKIPPED: {test}: WINDDOWN_CRIO names no CRI-O");
        }
        named.map(|program| Self::Real { program: program.into(), manager })
    }

    /// The lines of its unit that differ.
    fn service(&self) -> String {
        match self {
            Self::Real { .. } => {
                let unpack = format!("mkdir -p {STORAGE} && tar -C {STORAGE} -xf {IMAGES}");
                let unpack = format!("[ -e {STORAGE}/vfs-images ] || {{ {unpack}; }}");
                format!("Type=notify\nExecStartPre=/bin/sh -c '{unpack}'\nExecStart={PROGRAM}\n")
            }
            Self::StandIn(_) => {
                format!("Type=exec\nExecStart={PROGRAM} /run/crio/state {SOCKET}\n")
            }
        }
    }
}

impl Node {
    /// Installs the service `crio`, which starts at boot, in the place of containerd. The node is off.
    ///
    /// # Errors
    /// Something could not be copied or written, or the images could not be unpacked.
    pub fn install_crio(&self, crio: &Crio) -> TestResult {
        match crio {
            Crio::Real { program, manager } => self.install_real_crio(program, manager)?,
            Crio::StandIn(program) => self.install(program, PROGRAM)?,
        }
        let unit = format!(
            "[Service]\nRuntimeDirectory=crio\nRuntimeDirectoryPreserve=yes\n{}\
             Restart=on-failure\nRestartSec=10\n",
            crio.service()
        );
        self.write(UNIT, unit, 0o644)?;
        let wants = self.written_path("/etc/systemd/system/multi-user.target.wants");
        std::fs::create_dir_all(&wants)?;
        std::os::unix::fs::symlink(UNIT, wants.join("crio.service"))?;
        let containerd = self.written_path("/etc/systemd/system/containerd.service");
        Ok(std::os::unix::fs::symlink("/dev/null", containerd)?)
    }

    fn install_real_crio(&self, program: &Path, manager: &str) -> TestResult {
        self.install(program, PROGRAM)?;
        self.install(&program.with_file_name("pinns"), "/usr/local/bin/pinns")?;
        let conmon = Path::new("/usr/bin/conmon");
        self.install(conmon, "/usr/local/bin/conmon")?;
        for library in
            [program, conmon].into_iter().map(libraries).collect::<TestResult<Vec<_>>>()?.concat()
        {
            if !self.host_path(&library).exists() {
                self.install(Path::new(&library), &library)?;
            }
        }
        self.write("/etc/crio/crio.conf", config(manager), 0o644)?;
        self.write(RUNTIME, RUNC, 0o755)?;
        let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
        self.write("/etc/containers/policy.json", policy, 0o644)?;
        self.write("/etc/resolv.conf", "nameserver 192.0.2.53\n", 0o644)?;
        self.write(IMAGES, storage(&image::archive(self.base().root())?)?, 0o644)?;
        Ok(())
    }

    /// Waits until CRI-O listens.
    ///
    /// # Errors
    /// [`NodeError::TimedOut`].
    pub async fn crio_listens(&self) -> Result<Duration, NodeError> {
        let listens =
            async || std::os::unix::net::UnixStream::connect(self.host_path(SOCKET)).is_ok();
        self.wait_until("CRI-O to listen", LISTENS, listens).await
    }
}

/// Suits a node whose pods need no pause container.
fn config(manager: &str) -> String {
    let monitors = if manager == "cgroupfs" { "pod" } else { "system.slice" };
    format!(
        "[crio]\nroot = \"{STORAGE}\"\nrunroot = \"/run/crio-storage\"\nstorage_driver = \"vfs\"\n\
         [crio.api]\nlisten = \"{SOCKET}\"\n\
         [crio.runtime]\ndefault_runtime = \"runc\"\ncgroup_manager = \"{manager}\"\n\
         conmon_cgroup = \"{monitors}\"\n\
         pinns_path = \"/usr/local/bin/pinns\"\n\
         [crio.runtime.runtimes.runc]\nruntime_path = \"{RUNTIME}\"\nruntime_type = \"oci\"\n\
         monitor_path = \"/usr/local/bin/conmon\"\n\
         [crio.image]\npause_image = \"{IMAGE}\"\n\
         [crio.network]\nplugin_dirs = [\"/usr/lib/cni\"]\n"
    )
}

/// The libraries that a program of this machine needs.
fn libraries(program: &Path) -> TestResult<Vec<String>> {
    let output = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8(output.stdout)?;
    let paths = text.lines().filter_map(|line| line.split_once("=> ")?.1.split(' ').next());
    // `/lib` is a link in the node, too.
    let usual = |path: &str| path.strip_prefix("/lib/").map(|rest| format!("/usr/lib/{rest}"));
    Ok(paths.map(|path| usual(path).unwrap_or_else(|| path.to_owned())).collect())
}

/// The folder of images in CRI-O's format, as a tar, of an archive that `docker save` could have written: CRI-O itself
/// only pulls.
fn storage(archive: &[u8]) -> TestResult<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("images.tar"), archive)?;
    let place = format!("[vfs@{}+{}]", at("root").display(), at("run").display());
    let mut copy = Command::new("skopeo");
    copy.args(["--insecure-policy", "copy", "--quiet"]);
    copy.arg(format!("docker-archive:{}:{IMAGE}", at("images.tar").display()));
    copy.arg(format!("containers-storage:{place}{IMAGE}"));
    must_succeed(copy)?;
    let mut pack = Command::new("tar");
    pack.arg("-C").arg(at("root")).args(["-cf", "-", "."]);
    must_succeed(pack)
}

fn must_succeed(mut command: Command) -> TestResult<Vec<u8>> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

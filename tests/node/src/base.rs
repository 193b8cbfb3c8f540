//! What a node is made of: the cached Debian root and the agent's binary.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::OnceCell;

/// Programs that booting and inspecting a node takes, each with the Debian package that has it.
const PROGRAMS: [(&str, &str); 5] = [
    ("systemd-nspawn", "systemd-container"),
    ("journalctl", "systemd"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
];

/// Why no node can be booted here.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The tests do not run as root.
    #[error("booting a node needs root: run it with sudo")]
    NotRoot,
    /// A program is missing.
    #[error("{program} is not installed: run 'apt-get install {package}'")]
    Missing {
        /// The program looked for in `PATH`.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// Root's powers are not all there, as in a container of its own.
    #[error("no mount or process namespace can be made here: {0}")]
    Namespaces(String),
    /// The base could not be made; the text is the script's own.
    #[error("the node's base could not be made: {0}")]
    Base(String),
    /// A program could not be started.
    #[error("{program} could not be started")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The agent does not build.
    #[error("the agent does not build: {0}")]
    Build(String),
}

/// What a base has beside systemd, dbus and logind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Nothing more.
    Plain,
    /// containerd, runc, and what container images are made of.
    Containerd,
    /// rpm, which takes packages beside Debian's own package manager.
    Rpm,
}

/// A finished Debian root that nodes are laid over. Nothing writes to it.
#[derive(Debug, Clone)]
pub struct Base {
    root: PathBuf,
}

// === impl Base ===

impl Base {
    /// Finds the base in the cache, or makes it, which takes about half a minute.
    ///
    /// # Errors
    /// [`Unavailable`] says what this machine lacks. Nothing is left half-made.
    pub async fn find(flavour: Flavour) -> Result<Self, Unavailable> {
        if !rustix::process::geteuid().is_root() {
            return Err(Unavailable::NotRoot);
        }
        if let Some((program, package)) =
            PROGRAMS.into_iter().find(|(program, _)| !in_path(OsStr::new(program)))
        {
            return Err(Unavailable::Missing { program, package });
        }
        let mut probe = Command::new("unshare");
        probe.args(["--mount", "--pid", "--fork", "--mount-proc", "true"]);
        let probed = output_of(probe).await?;
        if !probed.status.success() {
            return Err(Unavailable::Namespaces(last_line(&probed.stderr)));
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("base.sh");
        let mut make = Command::new(script);
        make.arg(match flavour {
            Flavour::Plain => "plain",
            Flavour::Containerd => "containerd",
            Flavour::Rpm => "rpm",
        });
        let output = output_of(make).await?;
        if !output.status.success() {
            return Err(Unavailable::Base(last_line(&output.stderr)));
        }
        Ok(Self { root: PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()) })
    }

    /// The root folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// The path of the `winddown` binary to try: `WINDDOWN_BIN` if set, else the workspace's own,
/// built first (once per process) so that a test never runs yesterday's agent.
///
/// # Errors
/// [`Unavailable::Build`] when it does not compile.
pub async fn agent_binary() -> Result<PathBuf, Unavailable> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    match std::env::var_os("WINDDOWN_BIN") {
        Some(path) => Ok(PathBuf::from(path)),
        None => BUILT.get_or_try_init(build_agent).await.cloned(),
    }
}

async fn build_agent() -> Result<PathBuf, Unavailable> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--package", "winddown", "--bin", "winddown"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = output_of(build).await?;
    if !output.status.success() {
        return Err(Unavailable::Build(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "winddown")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| Unavailable::Build("cargo named no executable".to_owned()))
}

async fn output_of(mut command: Command) -> Result<std::process::Output, Unavailable> {
    command.stdin(Stdio::null()).output().await.map_err(|source| {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        Unavailable::Start { program, source }
    })
}

fn in_path(program: &OsStr) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end().lines().last().unwrap_or("it said nothing").to_owned()
}

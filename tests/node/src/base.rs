//! What a node is made of: the cached Debian root and the agent's binary.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

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

/// What base.sh exits with when this machine lacks something.
const NOT_HERE: i32 = 3;

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
    /// The base cannot be made here; the text is the script's own.
    #[error("the node's base cannot be made here: {0}")]
    NoBase(String),
    /// Making the base failed; the text is the script's own.
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

/// A release of Debian, which decides how old the node's systemd and containerd are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Suite {
    /// Debian 12: systemd 252 and containerd 1.6, with the control groups of the host.
    #[default]
    Bookworm,
    /// Debian 13: systemd 257 and containerd 1.7. Its control groups are version 2 alone; in a
    /// container they have no controllers where the host keeps those in version 1.
    Trixie,
    /// Debian's next release as it is today: systemd 262 and containerd 2.1, control groups as Debian 13.
    /// It moves, so what is tried on it belongs to the long form.
    Sid,
}

/// What a base has beside systemd, dbus and logind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Nothing more.
    Plain,
    /// containerd, runc, and what container images are made of.
    Containerd,
    /// The programs that pages use beside winddown's: `curl`, `jq`, `man`, `skopeo`, and a registry of images for the last.
    Tools,
    /// rpm, which takes packages beside Debian's own package manager.
    Rpm,
    /// A kernel of the node's own, user-mode Linux: control groups of version 2 with all controllers,
    /// whatever the host has. It boots in 8 s, has one processor, is slow where a process is started
    /// or the kernel is called, and has no stall information (`/proc/pressure`). Debian 13 and later.
    OwnKernel,
    /// The same with containerd. A test takes more than a minute there, so it belongs to the long form.
    OwnKernelContainerd,
    /// Debian's own kernel in an emulated machine: stall information, two processors, `kexec` and a power
    /// key beside the controllers. It needs no privilege of the processor's and boots in half a minute,
    /// so what is tried on it belongs to the long form. Debian 13 only.
    Emulated,
}

/// What a scenario may need of its node beside systemd, logind and the root user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// containerd that runs containers.
    Containers,
    /// Control groups of version 2 with the controllers cpu, io, memory and pids.
    Controllers,
    /// Stall information (`/proc/pressure`) of the node's own, also of each control group.
    Pressure,
    /// More than one processor, and none of them shared with others of the host.
    Processors,
    /// A kernel that starts another one (`systemctl kexec`).
    Kexec,
    /// A power key.
    PowerKey,
}

/// The kinds of node there are, the cheapest first, each with what it has. Of nodes that have the same,
/// the one with the older systemd is first.
const KINDS: [(Recipe, &[Need]); 8] = [
    (Recipe { suite: Suite::Bookworm, flavour: Flavour::Plain }, &[]),
    (Recipe { suite: Suite::Bookworm, flavour: Flavour::Containerd }, &[Need::Containers]),
    (Recipe { suite: Suite::Trixie, flavour: Flavour::Plain }, &[]),
    (Recipe { suite: Suite::Sid, flavour: Flavour::Plain }, &[]),
    (Recipe { suite: Suite::Trixie, flavour: Flavour::OwnKernel }, &[Need::Controllers]),
    (
        Recipe { suite: Suite::Trixie, flavour: Flavour::Emulated },
        &[Need::Controllers, Need::Pressure, Need::Processors, Need::Kexec, Need::PowerKey],
    ),
    (
        Recipe { suite: Suite::Trixie, flavour: Flavour::OwnKernelContainerd },
        &[Need::Controllers, Need::Containers],
    ),
    (
        Recipe { suite: Suite::Sid, flavour: Flavour::OwnKernelContainerd },
        &[Need::Controllers, Need::Containers],
    ),
];

/// What a base is made of. A [`Flavour`] alone stands for Debian 12.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// The release of Debian.
    pub suite: Suite,
    /// What it has beside systemd.
    pub flavour: Flavour,
}

/// A finished Debian root that nodes are laid over. Nothing writes to it.
#[derive(Debug, Clone)]
pub struct Base {
    root: PathBuf,
    recipe: Recipe,
}

// === impl Unavailable ===

impl Unavailable {
    /// Whether this is something that the machine lacks. Everything else went wrong, and is a failure of
    /// the test that met it.
    #[must_use]
    pub fn is_lacking(&self) -> bool {
        match self {
            Self::NotRoot | Self::Missing { .. } | Self::Namespaces(_) | Self::NoBase(_) => true,
            Self::Base(_) | Self::Start { .. } | Self::Build(_) => false,
        }
    }
}

// === impl Suite ===

impl Suite {
    /// Every release there is, the oldest first. [`on_each_release`](crate::on_each_release) tries a
    /// scenario on each.
    pub const EACH: [Self; 3] = [Self::Bookworm, Self::Trixie, Self::Sid];

    /// The major version of systemd that it came with when this was written; sid's moves.
    #[must_use]
    pub fn systemd(self) -> u32 {
        match self {
            Self::Bookworm => 252,
            Self::Trixie => 257,
            Self::Sid => 262,
        }
    }

    /// The version of containerd that it came with when this was written.
    #[must_use]
    pub fn containerd(self) -> &'static str {
        match self {
            Self::Bookworm => "1.6",
            Self::Trixie => "1.7",
            Self::Sid => "2.1",
        }
    }

    /// What Debian calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Sid => "sid",
        }
    }

    /// A base of this release.
    #[must_use]
    pub fn with(self, flavour: Flavour) -> Recipe {
        Recipe { suite: self, flavour }
    }
}

// === impl Flavour ===

impl Flavour {
    /// What base.sh calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tools => "tools",
            Self::Containerd => "containerd",
            Self::Rpm => "rpm",
            Self::OwnKernel => "uml",
            Self::OwnKernelContainerd => "uml-containerd",
            Self::Emulated => "qemu",
        }
    }
}

// === impl Recipe ===

impl Recipe {
    /// Of the kinds of node there are, the cheapest one that has all of `needs` and is no older than
    /// `suite`; nothing if there is none.
    #[must_use]
    pub fn cheapest(suite: Suite, needs: &[Need]) -> Option<Self> {
        let will_do = |(recipe, has): &&(Self, &[Need])| {
            recipe.suite >= suite && needs.iter().all(|need| has.contains(need))
        };
        KINDS.iter().find(will_do).map(|(recipe, _)| *recipe)
    }

    /// Why what is tried on such a node is left to the long form; nothing if it is not.
    #[must_use]
    pub fn left_because(&self) -> Option<&'static str> {
        match self {
            Self { suite: Suite::Sid, .. } => Some("Debian's sid changes from day to day"),
            Self { flavour: Flavour::Emulated, .. } => {
                Some("an emulated machine takes half a minute to boot")
            }
            Self { flavour: Flavour::OwnKernelContainerd, .. } => {
                Some("a test with containers on user-mode Linux takes more than a minute")
            }
            _ => None,
        }
    }
}

impl From<Flavour> for Recipe {
    fn from(flavour: Flavour) -> Self {
        Suite::default().with(flavour)
    }
}

// === impl Base ===

impl Base {
    /// Finds the base in the cache, or makes it, which takes a minute. It is looked for once by each process.
    ///
    /// # Errors
    /// [`Unavailable`] says what this machine lacks. Nothing is left half-made.
    pub async fn find(recipe: impl Into<Recipe>) -> Result<Self, Unavailable> {
        static FOUND: Mutex<Vec<Base>> = Mutex::new(Vec::new());
        let found = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        let recipe = recipe.into();
        let known = found().iter().find(|base| base.recipe == recipe).cloned();
        if let Some(base) = known {
            return Ok(base);
        }
        let base = Self::look_for(recipe).await?;
        found().push(base.clone());
        Ok(base)
    }

    async fn look_for(recipe @ Recipe { suite, flavour }: Recipe) -> Result<Self, Unavailable> {
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
        make.args([suite.name(), flavour.name()]);
        let output = output_of(make).await?;
        if !output.status.success() {
            let why = last_line(&output.stderr);
            return Err(match output.status.code() {
                Some(NOT_HERE) => Unavailable::NoBase(why),
                _ => Unavailable::Base(why),
            });
        }
        Ok(Self { root: PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()), recipe })
    }

    /// The release of Debian that it is.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.recipe.suite
    }

    /// Whether nodes over it have a kernel of their own.
    #[must_use]
    pub fn has_kernel(&self) -> bool {
        matches!(
            self.recipe.flavour,
            Flavour::OwnKernel | Flavour::OwnKernelContainerd | Flavour::Emulated
        )
    }

    /// The root folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// The directory with the programs to try: `WINDDOWN_PROGRAMS` if set, else the workspace's own,
/// built first (once per process) so that a test never runs yesterday's agent.
///
/// # Errors
/// [`Unavailable::Build`] when it does not compile.
pub async fn programs() -> Result<PathBuf, Unavailable> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    match std::env::var_os("WINDDOWN_PROGRAMS") {
        Some(path) => Ok(PathBuf::from(path)),
        None => BUILT.get_or_try_init(build_programs).await.cloned(),
    }
}

/// The variables by which cargo tells a test what it is one of. To whatever starts cargo they are none:
/// there are build scripts, that of ring for one, that are run anew when they change, and with them all that needs
/// those crates is compiled anew.
pub fn of_this_test() -> impl Iterator<Item = OsString> {
    let all = std::env::vars_os().map(|(name, _)| name);
    all.filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    })
}

async fn build_programs() -> Result<PathBuf, Unavailable> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--package", "winddown", "--bins"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    for name in of_this_test() {
        build.env_remove(name);
    }
    let output = output_of(build).await?;
    if !output.status.success() {
        return Err(Unavailable::Build(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "winddown")
        .find_map(|message| Some(Path::new(message["executable"].as_str()?).parent()?.to_owned()))
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

#[cfg(test)]
mod tests {
    use super::{Flavour, Need, Recipe, Suite};

    #[test]
    fn a_scenario_gets_the_cheapest_node_that_has_what_it_needs() {
        let old = |needs| Recipe::cheapest(Suite::Bookworm, needs);
        assert_eq!(old(&[]), Some(Suite::Bookworm.with(Flavour::Plain)));
        assert_eq!(old(&[Need::Containers]), Some(Suite::Bookworm.with(Flavour::Containerd)));
        assert_eq!(old(&[Need::Controllers]), Some(Suite::Trixie.with(Flavour::OwnKernel)));
        assert_eq!(
            old(&[Need::Controllers, Need::Containers]),
            Some(Suite::Trixie.with(Flavour::OwnKernelContainerd))
        );
        assert_eq!(old(&[Need::PowerKey, Need::Containers]), None);
        assert_eq!(
            Recipe::cheapest(Suite::Sid, &[Need::Controllers, Need::Containers]),
            Some(Suite::Sid.with(Flavour::OwnKernelContainerd))
        );
        let new = |needs| Recipe::cheapest(Suite::Trixie, needs);
        assert_eq!(new(&[]), Some(Suite::Trixie.with(Flavour::Plain)));
        assert_eq!(new(&[Need::Controllers]), Some(Suite::Trixie.with(Flavour::OwnKernel)));
        assert_eq!(old(&[Need::Kexec]), Some(Suite::Trixie.with(Flavour::Emulated)));
        assert_eq!(old(&[Need::Kexec, Need::Containers]), None);
    }

    #[test]
    fn each_release_can_be_had_with_nothing_more() {
        for suite in Suite::EACH {
            assert_eq!(Recipe::cheapest(suite, &[]), Some(suite.with(Flavour::Plain)));
        }
    }
}

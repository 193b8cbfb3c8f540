//! The parts of a node: the cached Debian root and the agent's programs.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::packages::is_here;

/// The programs needed to boot and inspect a node, each with its Debian package.
const PROGRAMS: [(&str, &str); 5] = [
    ("systemd-nspawn", "systemd-container"),
    ("journalctl", "systemd"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
];

/// The exit code of base.sh if this machine lacks something.
const NOT_HERE: i32 = 3;

/// Why no node can be booted here.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The tests do not run as root.
    #[error("booting a node needs root: run it with sudo")]
    NotRoot,
    /// A required program is missing.
    #[error("{program} is not installed: run 'apt-get install {package}'")]
    Missing {
        /// The program, which was not found in `PATH`.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// Root lacks some of its privileges, as in a container.
    #[error("no mount or process namespace can be made here: {0}")]
    Namespaces(String),
    /// The base cannot be built on this machine; the text is from the script.
    #[error("the node's base cannot be made here: {0}")]
    NoBase(String),
    /// Building the base failed; the text is from the script.
    #[error("the node's base could not be made: {0}")]
    Base(String),
    /// A program could not be started.
    #[error("{program} could not be started")]
    Start {
        /// The name of the program.
        program: String,
        /// The underlying error.
        #[source]
        source: io::Error,
    },
    /// The agent does not build.
    #[error("the agent does not build: {0}")]
    Build(String),
}

/// A release of Debian, which determines the versions of the node's systemd and containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Suite {
    /// Debian 12: systemd 252 and containerd 1.6, with the control groups of the host.
    #[default]
    Bookworm,
    /// Debian 13: systemd 257 and containerd 1.7. It has control groups of version 2 only; in a container these have no
    /// controllers if the host uses them in version 1.
    Trixie,
    /// Debian's next release in its current state: systemd 262 and containerd 2.1, control groups as in Debian 13. It
    /// changes, so tests on it belong to the long form.
    Sid,
}

/// The contents of a base in addition to systemd, dbus and logind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Nothing else.
    Plain,
    /// containerd, runc, and the contents of container images.
    Containerd,
    /// The programs that documentation pages use: `curl`, `jq`, `man`, `skopeo`, and an image registry for `skopeo`.
    Tools,
    /// rpm, which installs packages next to Debian's own package manager.
    Rpm,
    /// The node's own kernel, user-mode Linux: control groups of version 2 with all controllers, whatever the host has.
    /// It boots in 8 s, has one processor, is slow to start processes and to make system calls, and has no stall
    /// information (`/proc/pressure`). Debian 13 and later.
    OwnKernel,
    /// The same with containerd. A test takes more than a minute on it, so it belongs to the long form.
    OwnKernelContainerd,
    /// Debian's own kernel in an emulated machine: in addition to the controllers it has stall information, two
    /// processors, `kexec` and a power key. It needs no hardware virtualization and boots in half a minute, so tests on
    /// it belong to the long form. Debian 13 and later.
    Emulated,
}

/// What a scenario may need of its node in addition to systemd, logind and root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A containerd that runs containers.
    Containers,
    /// Control groups of version 2 with the controllers cpu, io, memory and pids.
    Controllers,
    /// The node's own stall information (`/proc/pressure`), also for each control group.
    Pressure,
    /// More than one processor, none of them shared with other programs of the host.
    Processors,
    /// A kernel that can start another one (`systemctl kexec`).
    Kexec,
    /// A power key.
    PowerKey,
}

/// The available kinds of nodes with their capabilities, cheapest first. Among kinds with equal capabilities, the one
/// with the older systemd comes first.
const KINDS: [(Recipe, &[Need]); 9] = [
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
    (
        Recipe { suite: Suite::Sid, flavour: Flavour::Emulated },
        &[Need::Controllers, Need::Pressure, Need::Processors, Need::Kexec, Need::PowerKey],
    ),
];

/// The recipe of a base. A [`Flavour`] alone means Debian 12.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// The release of Debian.
    pub suite: Suite,
    /// The contents in addition to systemd.
    pub flavour: Flavour,
}

/// A finished Debian root, over which nodes are mounted as overlays. It is never written to.
#[derive(Debug, Clone)]
pub struct Base {
    root: PathBuf,
    recipe: Recipe,
}

// === impl Unavailable ===

impl Unavailable {
    /// Whether the machine lacks something. Any other error is a failure of the test that meets it.
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
    /// All releases, oldest first. [`on_each_release`](crate::on_each_release) tests a scenario on each.
    pub const EACH: [Self; 3] = [Self::Bookworm, Self::Trixie, Self::Sid];

    /// The major version of systemd at the time of writing; sid's changes.
    #[must_use]
    pub fn systemd(self) -> u32 {
        match self {
            Self::Bookworm => 252,
            Self::Trixie => 257,
            Self::Sid => 262,
        }
    }

    /// The version of containerd at the time of writing.
    #[must_use]
    pub fn containerd(self) -> &'static str {
        match self {
            Self::Bookworm => "1.6",
            Self::Trixie => "1.7",
            Self::Sid => "2.1",
        }
    }

    /// Debian's code name.
    fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Sid => "sid",
        }
    }

    /// A recipe with this release.
    #[must_use]
    pub fn with(self, flavour: Flavour) -> Recipe {
        Recipe { suite: self, flavour }
    }
}

// === impl Flavour ===

impl Flavour {
    /// The name that base.sh uses.
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
    /// The cheapest kind of node that has all of `needs` and is no older than `suite`; none if there is no such kind.
    #[must_use]
    pub fn cheapest(suite: Suite, needs: &[Need]) -> Option<Self> {
        let will_do = |(recipe, has): &&(Self, &[Need])| {
            recipe.suite >= suite && needs.iter().all(|need| has.contains(need))
        };
        KINDS.iter().find(will_do).map(|(recipe, _)| *recipe)
    }

    /// Why tests on such a node are left to the long form; none if they are not.
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
    /// Finds the base in the cache, or builds it, which takes a minute. Each process looks for it only once.
    ///
    /// # Errors
    /// [`Unavailable`] if the base cannot be used. No unfinished base is left behind.
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
        let missing = PROGRAMS.into_iter().find(|(program, _)| !is_here(program));
        if let Some((program, package)) = missing {
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

    /// The base's Debian release.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.recipe.suite
    }

    /// Whether nodes over it are emulated machines.
    pub(crate) fn is_emulated(&self) -> bool {
        self.recipe.flavour == Flavour::Emulated
    }

    /// Whether nodes over it have their own kernel.
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

/// The directory with the programs under test: `WINDDOWN_PROGRAMS` if set, else the workspace's own, which are built
/// first (once per process), so that a test never runs outdated programs.
///
/// # Errors
/// [`Unavailable::Build`] if they do not compile.
pub async fn programs() -> Result<PathBuf, Unavailable> {
    static KNOWN: OnceCell<PathBuf> = OnceCell::const_new();
    let known = KNOWN.get_or_try_init(async || {
        let programs = match std::env::var_os("WINDDOWN_PROGRAMS") {
            Some(path) => PathBuf::from(path),
            None => build_programs().await?,
        };
        // Which build that is: see programs.sh.
        let build = std::fs::read_to_string(programs.join("build")).unwrap_or_default();
        println!("PROGRAMS: {}: {build}", programs.display());
        Ok(programs)
    });
    known.await.cloned()
}

/// `node/examples/agent.rs`, built: from the directory of the programs under test if it is there.
///
/// # Errors
/// [`Unavailable::Build`] if it does not compile.
pub async fn example_agent() -> Result<PathBuf, Unavailable> {
    let shipped = programs().await?.join("example-agent");
    if shipped.exists() {
        return Ok(shipped);
    }
    let features = ["--example", "agent", "--features", "process,systemd"];
    build(&[&["--package", "winddown-node"], &features[..]].concat(), "agent").await
}

/// `bin/workload.rs`, built.
///
/// # Errors
/// [`Unavailable::Build`] if it does not compile.
pub async fn workload() -> Result<PathBuf, Unavailable> {
    build(&["--package", "winddown-node-tests", "--bin", "workload"], "workload").await
}

/// The environment variables with which cargo describes the running test. They must be removed before cargo is started
/// again: some build scripts, such as ring's, are rerun when they change, and then all dependent crates are recompiled.
pub fn of_this_test() -> impl Iterator<Item = OsString> {
    let all = std::env::vars_os().map(|(name, _)| name);
    all.filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    })
}

async fn build_programs() -> Result<PathBuf, Unavailable> {
    let program = build(&["--package", "winddown", "--bins"], "winddown").await?;
    Ok(program.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Builds what `options` say, and returns the program of this name.
async fn build(options: &[&str], name: &str) -> Result<PathBuf, Unavailable> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build
        .arg("build")
        .args(options)
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
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .ok_or_else(|| Unavailable::Build("cargo named no executable".to_owned()))
}

async fn output_of(mut command: Command) -> Result<std::process::Output, Unavailable> {
    command.stdin(Stdio::null()).output().await.map_err(|source| {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        Unavailable::Start { program, source }
    })
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
        assert_eq!(
            Recipe::cheapest(Suite::Sid, &[Need::Kexec]),
            Some(Suite::Sid.with(Flavour::Emulated))
        );
    }

    #[test]
    fn each_release_can_be_had_with_nothing_more() {
        for suite in Suite::EACH {
            assert_eq!(Recipe::cheapest(suite, &[]), Some(suite.with(Flavour::Plain)));
        }
    }
}

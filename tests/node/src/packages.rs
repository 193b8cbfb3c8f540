//! Packages built for a test, and Debian's packages.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::scenario::TestResult;
use crate::{Node, in_long_form, programs};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// How long dpkg may take: unpacking fifty megabytes of a debug build takes its time, above all on a busy node.
pub const DPKG: Duration = Duration::from_secs(240);

/// Packages of the workspace's programs, in a temporary folder.
#[derive(Debug)]
pub struct Packages {
    dir: TempDir,
}

impl Packages {
    /// Builds the packages. `revision` is the package's own, after the program's version.
    ///
    /// # Errors
    /// A tool failed; the error contains its output.
    pub async fn make(revision: &str, formats: &[&str]) -> TestResult<Self> {
        let dir = tempfile::tempdir()?;
        build(revision, formats, dir.path()).await?;
        Ok(Self { dir })
    }

    /// The path of revision 1's .deb, which is built once for all tests of a program: that takes many seconds.
    ///
    /// # Errors
    /// A tool failed; the error contains its output.
    pub async fn the_deb() -> TestResult<PathBuf> {
        static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
        let place = BUILT.get_or_try_init(async || {
            let place = repository().join("target/packages/tests");
            build("1", &["deb"], &place).await?;
            TestResult::Ok(place)
        });
        ending_with(place.await?, ".deb")
    }

    /// The path of the .deb.
    ///
    /// # Errors
    /// None was built.
    pub fn deb(&self) -> TestResult<PathBuf> {
        ending_with(self.dir.path(), ".deb")
    }

    /// The path of the .rpm.
    ///
    /// # Errors
    /// None was built.
    pub fn rpm(&self) -> TestResult<PathBuf> {
        ending_with(self.dir.path(), ".rpm")
    }
}

async fn build(revision: &str, formats: &[&str], out: &Path) -> TestResult {
    let script = repository().join("programs/packaging/build.sh");
    let mut build = Command::new(script);
    build.arg("--programs").arg(programs().await?).arg("--out").arg(out);
    build.args(["--fast", "--revision", revision]).args(formats);
    tokio::task::spawn_blocking(move || text_of(&mut build).map_err(|error| error.to_string()))
        .await??;
    Ok(())
}

fn ending_with(dir: &Path, end: &str) -> TestResult<PathBuf> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(end) {
            return Ok(path);
        }
    }
    Err(format!("no {end} was made").into())
}

/// The repository's root.
#[must_use]
pub fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Whether packages can be built: only in the long form, and only if these programs are installed. If not, prints that the
/// test is left or skipped, or fails if nothing may be skipped. Each program comes with the Debian package that contains it.
///
/// # Errors
/// Programs are missing, and nothing may be skipped.
pub fn are_here(test: &str, tools: &[(&str, &str)]) -> TestResult<bool> {
    Ok(in_long_form(test, "makes packages") && programs_are_here(test, tools)?)
}

/// The same in either form of the tests.
///
/// # Errors
/// Programs are missing, and nothing may be skipped.
pub fn programs_are_here(test: &str, tools: &[(&str, &str)]) -> TestResult<bool> {
    let mut missing = String::new();
    for (program, package) in tools.iter().filter(|(program, _)| !is_here(program)) {
        write!(missing, " {program} (apt-get install {package})")?;
    }
    if missing.is_empty() {
        return Ok(true);
    }
    if std::env::var_os("WINDDOWN_NO_SKIP").is_some() {
        return Err(format!("{test} may not be skipped, and there is no{missing}").into());
    }
    println!("SKIPPED: {test}: there is no{missing}");
    Ok(false)
}

/// Whether the host has this program in `PATH`.
#[must_use]
pub fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Installs winddown's package into a running node as an operator of this runtime does. The agent is not started.
///
/// # Errors
/// A command failed.
pub(crate) async fn install_for(
    node: &Node,
    deb: &Path,
    runtime: &str,
    config: &str,
) -> TestResult {
    dpkg_file(node, &["--install"], deb).await?;
    node.write("/etc/winddown/config.yaml", config, 0o644)?;
    // Hides the drop-in for processes; see docs/how-to/install.md.
    node.run(&["winddown", "install", "--runtime", runtime]).await?;
    Ok(())
}

/// Does something with the package in this file.
///
/// # Errors
/// dpkg failed; the error contains its output.
pub async fn dpkg_file(node: &Node, args: &[&str], deb: &Path) -> TestResult<String> {
    let path = "/var/tmp/winddown.deb";
    node.install(deb, path)?;
    let said = dpkg(node, &[args, &[path]].concat()).await?;
    node.run(&["rm", path]).await?;
    Ok(said)
}

/// Runs dpkg in a node, and returns what it said.
///
/// # Errors
/// dpkg failed; the error contains its output.
pub async fn dpkg(node: &Node, args: &[&str]) -> TestResult<String> {
    let output = node.exec(&[&["dpkg"], args].concat(), DPKG).await?;
    let said = output.stdout + &output.stderr;
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("dpkg {}: {}\n{said}", args.join(" "), output.status).into()),
    }
}

/// Installs Debian packages into a running node. None of their services is started, and systemd has not read their
/// units yet.
///
/// # Errors
/// The packages cannot be downloaded or unpacked.
pub fn add_packages(node: &Node, packages: &[&str]) -> TestResult {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/added-packages.sh");
    let archive = text_of(Command::new(script).arg(node.base().root()).args(packages))?;
    let mut unpack = Command::new("tar");
    unpack.args(["--extract", "--keep-directory-symlink", "--file", archive.trim(), "--directory"]);
    text_of(unpack.arg(node.host_path("/")))?;
    Ok(())
}

/// Runs a program on the host, which must succeed, and returns its output.
///
/// # Errors
/// The program failed; the error contains its output.
pub fn text_of(command: &mut Command) -> TestResult<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    if output.status.success() {
        return Ok(out.into_owned());
    }
    Err(format!("{command:?} failed ({}):\n{out}{err}", output.status).into())
}

//! A node: creates it, boots it, runs commands, powers it off, and boots it again.

mod disk;
mod error;
mod layout;
mod line;
mod machine;
mod network;
mod process;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::select;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use crate::{Base, cgroup};

pub use disk::Disk;
pub use error::{NodeError, error_chain};
use layout::{Layout, in_root};
use line::Line;
use machine::Machine;
pub use network::Dialer;
pub use process::Process;

/// Where a node finds the folder that it shares with others.
pub const SHARED: &str = "/srv/shared";
/// The timeout of a boot, which needs 0.3 s on an idle machine.
const BOOT: Duration = Duration::from_secs(30);
/// The same with the node's own kernel, which needs 8 s, or half a minute in an emulated machine.
const KERNEL_BOOT: Duration = Duration::from_secs(300);
/// The default timeout of a command in the node.
const COMMAND: Duration = Duration::from_secs(120);
/// How often a running command is sent SIGCONT.
const CONTINUE: Duration = Duration::from_millis(500);
/// The socket on which systemd answers.
const MANAGER: &str = "/run/systemd/private";
/// The initial interval of polls. Nothing outside the node can notify us of changes.
const POLL: Duration = Duration::from_millis(20);
/// The final interval of polls: the longer a wait takes, the less its exact end matters.
const SLOWEST_POLL: Duration = Duration::from_millis(250);
/// The same with the node's own kernel, where most polls start a process, which takes long there.
const KERNEL_POLL: Duration = Duration::from_millis(300);
const SLOWEST_KERNEL_POLL: Duration = Duration::from_secs(1);

/// Held by the one emulated machine that exists at a time: it computes on two processors for as long as it is on.
static EMULATED: Semaphore = Semaphore::const_new(1);

/// The output of a command in the node, and its exit status.
#[derive(Debug)]
pub struct Output {
    /// The exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A disposable machine. See the documentation of the crate.
#[derive(Debug)]
pub struct Node {
    name: String,
    base: Base,
    dir: TempDir,
    layout: Layout,
    machine: Option<Machine>,
    _turn: Option<SemaphorePermit<'static>>,
}

// === impl Node ===

impl Node {
    /// The exit code of nspawn if the node requested a reboot.
    pub const REBOOTED: i32 = 133;

    /// Creates a node's files over `base`, without booting it. Waits for another emulated machine to go.
    ///
    /// # Errors
    /// [`NodeError::File`] if the temporary folder cannot be used.
    pub async fn create(base: &Base) -> Result<Self, NodeError> {
        // It is never closed.
        let turn = if base.is_emulated() { EMULATED.acquire().await.ok() } else { None };
        let temp = std::env::temp_dir();
        let dir = tempfile::Builder::new()
            .prefix("winddown-node-")
            .tempdir()
            .map_err(|source| NodeError::File { path: temp, source })?;
        // A machine name may contain letters, digits and dashes; the name from tempfile has letters and digits.
        let name = dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let layout = Layout::prepare(base, dir.path()).await?;
        Ok(Self { name, base: base.clone(), dir, layout, machine: None, _turn: turn })
    }

    /// Creates a node and boots it.
    ///
    /// # Errors
    /// Same as for [`Self::create`] and [`Self::start`].
    pub async fn boot(base: &Base) -> Result<Self, NodeError> {
        let mut node = Self::create(base).await?;
        node.start().await?;
        Ok(node)
    }

    /// Boots the node, for the first time or again after [`Self::wait_off`], and waits until systemd has started
    /// everything.
    ///
    /// # Errors
    /// [`NodeError::Died`] or [`NodeError::TimedOut`], each with the end of the console output.
    pub async fn start(&mut self) -> Result<(), NodeError> {
        let console = self.console_file();
        let machine = Machine::start(&self.name, &self.base, self.dir.path(), &console)
            .map_err(|source| NodeError::Start { program: "setpriv".to_owned(), source })?;
        let machine = self.machine.insert(machine);
        let limit = if self.base.has_kernel() { KERNEL_BOOT } else { BOOT };
        let deadline = Instant::now() + limit;
        while machine.find_leader().is_none() {
            let ended = machine.ended();
            if ended.is_some() || Instant::now() > deadline {
                return Err(self.boot_error(ended));
            }
            sleep(POLL).await;
        }
        loop {
            // Checked before systemd is asked, because asking starts processes.
            if !self.base.has_kernel() && !self.host_path(MANAGER).exists() {
                if Instant::now() > deadline || !self.is_on() {
                    let ended = self.machine.as_mut().and_then(Machine::ended);
                    return Err(self.boot_error(ended));
                }
                sleep(POLL).await;
                continue;
            }
            let asked = self
                .exec(&["systemctl", "is-system-running", "--wait"], limit)
                .await
                .map(|output| output.stdout);
            match asked {
                // "degraded" means that a unit failed, which is for the test to judge.
                Ok(state) if matches!(state.trim(), "running" | "degraded") => return Ok(()),
                _ if Instant::now() > deadline || !self.is_on() => {
                    let ended = self.machine.as_mut().and_then(Machine::ended);
                    return Err(self.boot_error(ended));
                }
                // systemd does not listen yet.
                _ => sleep(POLL).await,
            }
        }
    }

    /// Whether the node is on.
    pub fn is_on(&mut self) -> bool {
        self.machine.as_mut().is_some_and(|machine| machine.ended().is_none())
    }

    /// Whether the node was booted, and neither killed nor seen to go off since.
    pub(crate) fn is_booted(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.leader().is_some())
    }

    /// The node's name, unique on the host while it exists.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The PID on the host of the process with this PID in the node; none if it does not exist.
    #[must_use]
    pub fn host_pid(&self, pid: u32) -> Option<u32> {
        self.machine.as_ref()?.host_pid(pid)
    }

    /// The node's process that was started with exactly these arguments, if it exists.
    #[must_use]
    pub fn process(&self, argv: &[&str]) -> Option<Process> {
        Process::of(self.machine.as_ref()?.host_pid_of(argv)?)
    }

    /// The processes of the node, including those of its containers, that have `word` as one of their arguments: each
    /// with all its arguments.
    #[must_use]
    pub fn processes_with(&self, word: &str) -> Vec<(Process, Vec<String>)> {
        let found = Machine::processes_with(&self.name, word).into_iter();
        found.filter_map(|(pid, arguments)| Some((Process::of(pid)?, arguments))).collect()
    }

    /// The base of the node.
    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    /// Runs a command in the node to its end, or kills it after `limit`. (If the node has its own kernel, the command
    /// continues.)
    ///
    /// # Errors
    /// [`NodeError::Off`], [`NodeError::TimedOut`]. A command that fails is not an error here.
    pub async fn exec(&self, argv: &[&str], limit: Duration) -> Result<Output, NodeError> {
        if let Some((line, root)) = self.line() {
            let argv: Vec<String> = argv.iter().map(|argument| (*argument).to_owned()).collect();
            let run = move || {
                let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
                line.run(&root, &argv, limit)
            };
            return tokio::task::spawn_blocking(run).await.unwrap_or(Err(NodeError::Off));
        }
        let started = |source| NodeError::Start { program: "nsenter".to_owned(), source };
        let mut command = self.command(argv)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.kill_on_drop(true).spawn().map_err(started)?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let mut ended = pin!(timeout(limit, child.wait_with_output()));
        let output = loop {
            select! {
                output = &mut ended => break output,
                // If the node shuts down meanwhile, nsenter has stopped itself; see `command`.
                () = sleep(CONTINUE) => drop(pid.map(|pid| kill_process(pid, Signal::CONT))),
            }
        };
        let timed_out = |_| NodeError::TimedOut {
            what: format!("`{}`", argv.join(" ")),
            limit,
            seen: String::new(),
        };
        let output = output.map_err(timed_out)?.map_err(started)?;
        Ok(Output {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs a command in the node that must succeed, and returns its standard output.
    ///
    /// # Errors
    /// Same as for [`Self::exec`], and [`NodeError::Command`] if the command fails.
    pub async fn run(&self, argv: &[&str]) -> Result<String, NodeError> {
        must_succeed(argv, self.exec(argv, COMMAND).await?)
    }

    /// Runs a command that shuts the node down. It ignores SIGTERM, which systemd may send it before it has returned.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn shut_down(&self, argv: &[&str]) -> Result<String, NodeError> {
        let ignoring = ["sh", "-c", "trap '' TERM; exec \"$@\"", "sh"];
        self.run(&[&ignoring[..], argv].concat()).await
    }

    /// A command that will run in all namespaces of the node, with a clean environment. The caller starts it, and can
    /// read its output while it runs.
    ///
    /// It must exit before the node shuts down, or be sent SIGCONT from outside: systemd suspends all processes before
    /// it kills them, nsenter suspends itself along with its child, and then systemd waits its 90 s for a child that
    /// its parent does not reap.
    ///
    /// # Errors
    /// [`NodeError::Off`], [`NodeError::OwnKernel`].
    pub fn command(&self, argv: &[&str]) -> Result<Command, NodeError> {
        self.shares_kernel("the output of a command as it comes")?;
        let leader = self.machine.as_ref().and_then(Machine::leader).ok_or(NodeError::Off)?;
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={leader}"))
            .args(["--all", "--root", "--wd", "--"])
            .args(argv)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .env("LANG", "C.UTF-8");
        Ok(command)
    }

    /// A dialer for listeners in the node.
    ///
    /// # Errors
    /// [`NodeError::Off`], [`NodeError::File`], [`NodeError::OwnKernel`].
    pub fn dialer(&self) -> Result<Dialer, NodeError> {
        self.shares_kernel("a way to its network")?;
        Ok(Dialer::of(self.network()?))
    }

    /// The node's network; if the node has its own kernel, the one that its wire leads to.
    pub(crate) fn network(&self) -> Result<File, NodeError> {
        let leader = self.machine.as_ref().and_then(Machine::leader).ok_or(NodeError::Off)?;
        let path = PathBuf::from(format!("/proc/{leader}/ns/net"));
        File::open(&path).map_err(|source| NodeError::File { path, source })
    }

    /// Waits until `condition` holds; `what` describes it in the error.
    ///
    /// # Errors
    /// [`NodeError::TimedOut`], with the end of the journal.
    pub async fn wait_until(
        &self,
        what: &str,
        limit: Duration,
        mut condition: impl AsyncFnMut() -> bool,
    ) -> Result<Duration, NodeError> {
        let start = Instant::now();
        let (poll, slowest) = match self.has_own_kernel() {
            true => (KERNEL_POLL, SLOWEST_KERNEL_POLL),
            false => (POLL, SLOWEST_POLL),
        };
        while !condition().await {
            if start.elapsed() > limit {
                return Err(self.timed_out(what, limit).await);
            }
            sleep((start.elapsed() / 20).clamp(poll, slowest)).await;
        }
        Ok(start.elapsed())
    }

    /// Waits until the node has gone off by itself. Returns the exit status: [`Self::REBOOTED`] is the exit code of a
    /// node that wants to be started again, 0 that of a node that is off or halted.
    ///
    /// # Errors
    /// [`NodeError::TimedOut`], which leaves the node as it is; [`NodeError::Off`] if it was off before.
    pub async fn wait_off(&mut self, limit: Duration) -> Result<ExitStatus, NodeError> {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.machine.as_mut().ok_or(NodeError::Off)?.ended() {
                break status;
            }
            if start.elapsed() > limit {
                return Err(self.timed_out("the node to switch off", limit).await);
            }
            sleep(POLL).await;
        };
        self.machine = None;
        cgroup::remove_everywhere(&self.name);
        Ok(status)
    }

    /// Gives services and containers the processor time that they have on a machine of their own, where this node is
    /// otherwise not like one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn weigh_as_on_a_machine(&self) -> std::io::Result<()> {
        cgroup::weigh_as_on_a_machine(&self.name)
    }

    /// Presses the power key of a running emulated machine.
    ///
    /// # Errors
    /// [`NodeError::Off`]; [`NodeError::File`] if there is no key.
    pub fn press_power_key(&self) -> Result<(), NodeError> {
        let leader = self.machine.as_ref().and_then(Machine::leader).ok_or(NodeError::Off)?;
        // boot.sh makes the emulator listen there.
        let path = PathBuf::from(format!("/proc/{leader}/root/tmp/monitor"));
        let pressed = UnixStream::connect(&path)
            .and_then(|mut monitor| monitor.write_all(b"system_powerdown\n"));
        pressed.map_err(|source| NodeError::File { path, source })
    }

    /// Cuts the node's power: everything in it is gone at once. Does nothing if the node is off.
    pub fn kill(&mut self) {
        if let Some(mut machine) = self.machine.take() {
            machine.kill();
            cgroup::remove_everywhere(&self.name);
        }
    }

    /// Reads a file of the node, which may be on or off. `path` is absolute and contains no symbolic link.
    ///
    /// # Errors
    /// [`NodeError::File`].
    pub fn read(&self, path: &str) -> Result<String, NodeError> {
        let path = self.host_path(path);
        match fs::read(&path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(source) => Err(NodeError::File { path, source }),
        }
    }

    /// Writes a file of the node with the given mode, creating its folders.
    ///
    /// # Errors
    /// [`NodeError::File`]; for a running node with its own kernel, those of [`Self::run`].
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>, mode: u32) -> Result<(), NodeError> {
        if let Some((line, root)) = self.line() {
            // Watchers in the node would not notice what the host writes to the disk.
            let mode = format!("--mode={mode:04o}");
            let argv = ["install", "-D", &mode, "@data", path];
            let output = line.run_with(&root, &argv, text.as_ref(), COMMAND)?;
            return must_succeed(&argv, output).map(drop);
        }
        let path = self.written_path(path);
        let written = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text))
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
        written.map_err(|source| NodeError::File { path, source })
    }

    /// Installs winddown's programs into a directory of the node. A node that is off shares them with the host if
    /// possible: they are large, and nothing writes to them.
    ///
    /// # Errors
    /// Same as for [`Self::install`].
    pub fn install_programs(&self, programs: &Path, directory: &str) -> Result<(), NodeError> {
        ["winddown", "winddownd", "winddown-shim"].iter().try_for_each(|name| {
            let (program, path) = (programs.join(name), format!("{directory}/{name}"));
            let target = self.written_path(&path);
            let linked = target
                .parent()
                .map_or(Ok(()), fs::create_dir_all)
                .and_then(|()| fs::hard_link(&program, &target));
            linked.or_else(|_| self.install(&program, &path))
        })
    }

    /// Fails if the node has other programs of winddown than those of this directory.
    ///
    /// # Errors
    /// The first that differs, or an error of the operating system.
    pub(crate) fn has_programs(&self, programs: &Path) -> Result<(), NodeError> {
        ["winddown", "winddownd", "winddown-shim"].iter().try_for_each(|name| {
            let at = format!("/usr/bin/{name}");
            let (ours, path) = (programs.join(name), self.written_path(&at));
            // Seen through the overlay of a node that is on, a shared file is on another device.
            let kept = in_root(&self.layout.written(self.dir.path()), &at);
            let id = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
            let is_shared = || Ok::<_, io::Error>(id(&ours)? == id(&kept)?);
            let is_ours =
                || Ok(is_shared().unwrap_or(false) || fs::read(&ours)? == fs::read(&path)?);
            let wrong = match is_ours() {
                Ok(true) => return Ok(()),
                Ok(false) => io::Error::other(format!("it is not {}", ours.display())),
                Err(error) => error,
            };
            Err(NodeError::File { path, source: wrong })
        })
    }

    /// Copies a file of the host into the node and makes it executable.
    ///
    /// # Errors
    /// [`NodeError::Start`] or [`NodeError::Command`] if it cannot be copied.
    pub fn install(&self, host: &Path, path: &str) -> Result<(), NodeError> {
        // Copied by a separate process: a descriptor that is open for writing in this process would be inherited by
        // whatever another test starts at that moment, and then the program could not be run ("text file busy").
        let target = self.written_path(path);
        let output = std::process::Command::new("install")
            .args(["-D", "--mode=0755", "--"])
            .args([host, &target])
            .output()
            .map_err(|source| NodeError::Start { program: "install".to_owned(), source })?;
        if output.status.success() {
            return Ok(());
        }
        Err(NodeError::Command {
            command: format!("install {} {}", host.display(), target.display()),
            status: output.status,
            stdout: String::new(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Gives the node, which is off and shares the host's kernel, a folder of the host as [`SHARED`] from its next boot
    /// on. Locks on files there count between nodes.
    ///
    /// # Errors
    /// [`NodeError::File`].
    pub fn share(&self, folder: &Path) -> Result<(), NodeError> {
        let path = self.dir.path().join("shared");
        std::os::unix::fs::symlink(folder, &path).map_err(|source| NodeError::File { path, source })
    }

    /// The node's console output since it was created.
    #[must_use]
    pub fn console(&self) -> String {
        fs::read(self.console_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Whether the node has its own kernel, so that its processes, sockets and control groups are invisible to the
    /// host.
    pub fn has_own_kernel(&self) -> bool {
        self.base.has_kernel()
    }

    pub(crate) fn shares_kernel(&self, what: &'static str) -> Result<(), NodeError> {
        match self.has_own_kernel() {
            true => Err(NodeError::OwnKernel { what }),
            false => Ok(()),
        }
    }

    /// The serial line of a running node with its own kernel, and the path of its root on the host.
    fn line(&self) -> Option<(Arc<Line>, PathBuf)> {
        let machine = self.machine.as_ref()?;
        Some((Arc::clone(machine.line()?), machine.root()?))
    }

    fn console_file(&self) -> PathBuf {
        self.dir.path().join("console")
    }

    async fn timed_out(&self, what: &str, limit: Duration) -> NodeError {
        let seen = self.journal(&["--lines=60"]).await.unwrap_or_default();
        NodeError::TimedOut { what: what.to_owned(), limit, seen }
    }

    fn boot_error(&mut self, ended: Option<ExitStatus>) -> NodeError {
        self.kill();
        let console = self.console();
        let tail = console.lines().rev().take(20).collect::<Vec<_>>();
        let console = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        match ended {
            Some(status) => NodeError::Died { status, console },
            None => NodeError::TimedOut {
                what: "the node to boot".to_owned(),
                limit: if self.base.has_kernel() { KERNEL_BOOT } else { BOOT },
                seen: console,
            },
        }
    }

    /// The path at which a file of the node is written: never in the base that nodes share.
    pub(crate) fn written_path(&self, path: &str) -> PathBuf {
        let root = self.machine.as_ref().and_then(Machine::root);
        in_root(&root.unwrap_or_else(|| self.layout.written(self.dir.path())), path)
    }

    /// The path on the host of a file of the node, which may be on or off. `path` is absolute and contains no symbolic
    /// link. While the node is on, this path can be used to connect to a socket.
    #[must_use]
    pub fn host_path(&self, path: &str) -> PathBuf {
        match self.machine.as_ref().and_then(Machine::root) {
            Some(root) => in_root(&root, path),
            None => self.layout.find(&self.base, self.dir.path(), path),
        }
    }
}

/// The standard output of a command that must succeed.
fn must_succeed(argv: &[&str], output: Output) -> Result<String, NodeError> {
    let Output { status, stdout, stderr } = output;
    match status.success() {
        true => Ok(stdout),
        false => Err(NodeError::Command { command: argv.join(" "), status, stdout, stderr }),
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_journal();
        }
        self.kill();
    }
}

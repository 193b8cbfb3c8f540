//! Supervises one command.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::time::Instant;
use winddown_host::kernel;
use winddown_shared::{WallClock, WallTime};

use super::log::Stream;
use super::output::{ContainerOutput, LAST_CHUNKS, OutputPipe};
use super::{exit, tree};
use crate::members::PROCS;
use crate::order::Order;
use crate::procfs::{self, CONTAINER_MARK, POD_MARK};
use crate::record::{self, ProcessIdentity, StartedRecord};
use crate::step::refused;

/// Supervises the container whose attempt directory is `dir`.
pub(crate) fn container(dir: &Path, wall: &WallClock) -> ExitCode {
    match start_container(dir, wall) {
        Ok((order, mut running)) => {
            announce(&format!("started {} {}", running.main.pid, running.main.start_time));
            let status = running.supervise(None);
            running.end_container(dir, &order, status);
            ExitCode::SUCCESS
        }
        Err(why) => {
            announce(&format!("failed {}", why.replace('\n', " ")));
            ExitCode::FAILURE
        }
    }
}

/// Runs one command for the agent, which holds the other end of stdin: when that closes, the command and its
/// descendants are killed. Exits with the command's exit code. If it cannot run the command, it kills itself: each exit
/// code may be the command's own.
pub(crate) fn hook(wall: &WallClock) -> ExitCode {
    let started = isolate().and_then(|signals| {
        let order = read_line_order()?;
        let (child, out) = spawn_launcher(&order)?;
        let running = Running::new(child, out, &order, signals, wall)?;
        Ok((order, running))
    });
    let handed_over = started.and_then(|(order, mut running)| {
        running.hand_over(&order)?;
        Ok((order, running))
    });
    let (order, mut running) = match handed_over {
        Ok(running) => running,
        Err(why) => {
            let _ = writeln!(io::stderr(), "{why}");
            let _ = nix::sys::signal::raise(Signal::SIGKILL);
            return ExitCode::FAILURE;
        }
    };
    let stdin = io::stdin();
    let status = running.supervise(Some(stdin.as_fd()));
    tree::end_all(&order.proc_root, &[]);
    let code = status.map_or(137, |s| exit::code(s).0);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// A command under supervision.
struct Running<'a> {
    child: Child,
    main: ProcessIdentity,
    started_at: WallTime,
    started: Instant,
    signals: SignalFd,
    /// Whether process 1 has sent SIGTERM.
    is_cut_short: bool,
    /// None if its output is not kept.
    output: Option<ContainerOutput<'a>>,
    wall: &'a WallClock,
}

fn start_container<'a>(dir: &Path, wall: &'a WallClock) -> Result<(Order, Running<'a>), String> {
    let signals = isolate()?;
    let mut json = Vec::new();
    io::stdin().lock().read_to_end(&mut json).map_err(|e| format!("cannot read the order: {e}"))?;
    let order: Order =
        serde_json::from_slice(&json).map_err(|e| format!("the order is not complete: {e}"))?;
    exit::reserve(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let (child, out) = spawn_launcher(&order)?;
    let mut running = Running::new(child, out, &order, signals, wall)?;
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let supervisor = ProcessIdentity { pid: me, start_time: start_time(&order.proc_root, me)? };
    let started = StartedRecord {
        boot_id: procfs::boot_id(&order.proc_root),
        supervisor,
        main: running.main,
        started_at: running.started_at,
    };
    // From here on readers of the directory know the pid; only then may the command run.
    record::write(&dir.join(record::STARTED), &started, false)
        .map_err(|e| format!("{e}: {}", e.source))?;
    running.hand_over(&order)?;
    Ok((order, running))
}

/// Isolates this process: immune to stray signals, and the parent of every orphan below it.
fn isolate() -> Result<SignalFd, String> {
    let mut blocked = SigSet::all();
    for fault in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL] {
        blocked.remove(fault);
    }
    blocked.thread_block().map_err(refused("cannot block signals"))?;
    nix::sys::prctl::set_child_subreaper(true).map_err(refused("cannot become subreaper"))?;
    // EPERM: it is a process group leader already, which is just as good.
    let _ = nix::unistd::setsid();
    let _ = std::env::set_current_dir("/");
    let mut heard = SigSet::empty();
    heard.add(Signal::SIGCHLD);
    heard.add(Signal::SIGTERM);
    SignalFd::with_flags(&heard, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(refused("cannot listen for SIGCHLD"))
}

/// Whether process 1 sent SIGTERM: the machine goes down, and there is no agent to stop the pods. Process 1 sends it to
/// the container's processes as well. SIGTERM from other processes is ignored.
fn is_farewell(signal: u32, sender: u32) -> bool {
    i32::try_from(signal) == Ok(Signal::SIGTERM as i32) && sender == 1
}

/// Reads a hook's order, which is one line because the pipe stays open.
fn read_line_order() -> Result<Order, String> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(|e| e.to_string())?;
    serde_json::from_str(&line).map_err(|e| e.to_string())
}

fn spawn_launcher(order: &Order) -> Result<(Child, Vec<OutputPipe>), String> {
    let Some((program, args)) = order.launcher.split_first() else {
        return Err("the order names no launcher".to_owned());
    };
    let mut command = Command::new(program);
    // From its first moment on, it must be found as the container's and know its parent.
    let marks = order.command.env.iter().filter(|(n, _)| n == POD_MARK || n == CONTAINER_MARK);
    command.args(args).arg(std::process::id().to_string());
    command.env_clear().envs(marks.map(|(n, v)| (n, v))).stdin(Stdio::piped());
    let mut sources = Vec::new();
    if order.log.is_some() {
        let pipe = || io::pipe().map_err(|e| format!("cannot make a pipe: {e}"));
        let ((out_read, out_write), (err_read, err_write)) = (pipe()?, pipe()?);
        command.stdout(out_write).stderr(err_write);
        sources.push(OutputPipe::new(out_read.into(), Stream::Out)?);
        sources.push(OutputPipe::new(err_read.into(), Stream::Err)?);
    }
    let child = command.spawn().map_err(|e| format!("cannot start {program}: {e}"))?;
    // Before the start is recorded: systemd removes empty cgroups of a unit whose process was killed, and an attempt
    // that was not started is retried without counting.
    for cgroup in &order.command.cgroups {
        let procs = cgroup.join(PROCS);
        std::fs::write(&procs, child.id().to_string())
            .map_err(|e| format!("cannot enter {}: {e}", procs.display()))?;
    }
    Ok((child, sources))
}

fn start_time(proc_root: &Path, pid: i32) -> Result<u64, String> {
    match procfs::stat(proc_root, pid) {
        Ok(Some(stat)) => Ok(stat.start_time),
        Ok(None) => Err(format!("process {pid} is not in {}", proc_root.display())),
        Err(e) => Err(format!("{}/{pid}/stat: {e}", proc_root.display())),
    }
}

/// Writes one line to the agent, which may be gone.
fn announce(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

impl<'a> Running<'a> {
    fn new(
        child: Child,
        sources: Vec<OutputPipe>,
        order: &Order,
        signals: SignalFd,
        wall: &'a WallClock,
    ) -> Result<Self, String> {
        let pid = i32::try_from(child.id()).map_err(|e| e.to_string())?;
        Ok(Self {
            main: ProcessIdentity { pid, start_time: start_time(&order.proc_root, pid)? },
            child,
            started_at: wall.now(),
            started: Instant::now(),
            signals,
            is_cut_short: false,
            output: order.log.clone().map(|log| ContainerOutput::new(sources, log, wall)),
            wall,
        })
    }

    /// Sends the launcher its command, and closes its stdin.
    fn hand_over(&mut self, order: &Order) -> Result<(), String> {
        let json = serde_json::to_vec(&order.command).map_err(|e| e.to_string())?;
        let Some(mut pipe) = self.child.stdin.take() else {
            return Err("the launcher has no stdin".to_owned());
        };
        pipe.write_all(&json).map_err(|e| format!("the launcher did not read its order: {e}"))
    }

    /// Copies output until the main process has exited, or until `leash` closes, which kills it.
    fn supervise(&mut self, leash: Option<std::os::fd::BorrowedFd<'_>>) -> Option<WaitStatus> {
        let main = Pid::from_raw(self.main.pid);
        loop {
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            fds.extend(leash.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
            let sources = self.output.iter().flat_map(|output| &output.sources);
            fds.extend(sources.map(|s| PollFd::new(&s.pipe, PollFlags::IN)));
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let streams_from = 1 + usize::from(leash.is_some());
            if ready[streams_from..].contains(&true)
                && let Some(output) = &mut self.output
            {
                output.copy(1, |_| {});
            }
            if leash.is_some() && ready[1] {
                let _ = nix::sys::signal::kill(main, Signal::SIGKILL);
                return None;
            }
            if ready[0] {
                while let Ok(Some(signal)) = self.signals.read_signal() {
                    self.is_cut_short |= is_farewell(signal.ssi_signo, signal.ssi_pid);
                }
                if let Some(status) = tree::reap(main) {
                    return Some(status);
                }
            }
        }
    }

    fn end_container(mut self, dir: &Path, order: &Order, status: Option<WaitStatus>) {
        let (finished_at, ran) = (self.wall.now(), self.started.elapsed());
        // The output before the exit, bounded: a descendant may write forever.
        let log_tail = self.output.as_mut().map(|output| {
            output.copy(LAST_CHUNKS, |_| {});
            output.tail()
        });
        let log_tail = log_tail.unwrap_or_default();
        let started_at = self.started_at;
        let is_cut_short = self.is_cut_short;
        let seen =
            exit::ObservedExit { status, is_cut_short, started_at, finished_at, ran, log_tail };
        let record = exit::describe(dir, order, seen);
        // If even the reserved space is not enough, the agent reports an unknown exit.
        let written = exit::write(dir, record);
        tree::end_all(&order.proc_root, &order.command.cgroups);
        if let Some(output) = &mut self.output {
            output.copy(LAST_CHUNKS, |_| {});
            output.finish(|_| {});
        }
        // Nothing of the container runs any more: the agent may continue while the disk is busy. If this cannot be
        // written, the agent searches for leftovers and finds none.
        let _ = writeln!(io::stderr(), "{}", record::ENDED);
        if let Ok(null) = kernel::open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
        if let Ok(file) = written {
            let _ = file.sync_all();
            let _ = record::sync_dir(dir);
        }
    }
}

//! etcd and the kube-apiserver, as processes that end with this one.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use winddown_node_tests::Process;

/// A program that was started.
pub(crate) struct Running {
    name: &'static str,
    folder: PathBuf,
    process: Option<Process>,
    ended: Arc<AtomicBool>,
}

/// A port that nobody uses at this moment.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Starts a program whose output goes to `<folder>/<name>.log`. The kernel kills it when this process
/// ends, however it ends.
pub(crate) fn start(
    folder: &Path,
    name: &'static str,
    program: &Path,
    arguments: &[String],
) -> Running {
    let ended = Arc::new(AtomicBool::new(false));
    let says_so = Arc::clone(&ended);
    let log = File::create(folder.join(format!("{name}.log"))).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
    command.current_dir(folder).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let (started, begun) = mpsc::channel();
    // The kernel's promise is bound to the thread that starts the program, so that one stays.
    let keeper = move || {
        let child = command.spawn();
        let _ = started.send(child.as_ref().map(Child::id).map_err(ToString::to_string));
        if let Ok(mut child) = child {
            let _ = child.wait();
        }
        says_so.store(true, Ordering::Release);
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(keeper).unwrap();
    // `setpriv` becomes the program.
    let process = match begun.recv().unwrap() {
        Ok(pid) => Process::of(pid),
        Err(error) => panic!("{} cannot be started: {error}", program.display()),
    };
    Running { name, folder: folder.to_path_buf(), process, ended }
}

impl Running {
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Its process, if it has not ended.
    pub(crate) fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    /// The end of its log, for the message of a failed start.
    pub(crate) fn tail(&self) -> String {
        let path = self.folder.join(format!("{}.log", self.name));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        format!("--- {}\n{}\n", self.name, lines[lines.len().saturating_sub(25)..].join("\n"))
    }
}

/// A folder under the build's temporary one for what is called so, and nothing left there of earlier runs.
pub(crate) fn folder(name: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("real-apiserver");
    for entry in std::fs::read_dir(&all).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        if !Path::new("/proc").join(&name).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let folder = all.join(std::process::id().to_string()).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// How long a start may take on a machine that does other things, too.
pub(crate) const START: Duration = Duration::from_secs(180);

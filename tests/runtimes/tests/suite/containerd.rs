//! A containerd of its own, with its own directories and socket, and images made by hand: nothing is
//! downloaded.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use futures_util::future::BoxFuture;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;
use winddown_cri::PodSlices;
use winddown_host::service_units::UnitError;
use winddown_node_tests::SYSTEMD_CGROUPS;

use crate::bed::{ACT, eventually};

/// The image that every container of the tests runs.
pub(crate) const IMAGE: &str = "winddown.test/act:1";
/// containerd's own image for sandboxes, which it would otherwise download.
const PAUSE: &str = "registry.k8s.io/pause:3.6";
/// Where control groups are.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Programs of the image that the tests use.
const APPLETS: [&str; 9] = ["sh", "sleep", "echo", "cat", "id", "ls", "touch", "grep", "mount"];

/// A running containerd. Dropping it ends it and everything it runs.
pub(crate) struct Containerd {
    dir: TempDir,
    child: Option<Child>,
}

impl Containerd {
    /// None if this machine cannot run one; `why` it cannot.
    pub(crate) fn missing() -> Option<&'static str> {
        let has = |name: &str| {
            let path = std::env::var("PATH").unwrap_or_default();
            path.split(':').chain(["/usr/sbin", "/sbin"]).any(|d| Path::new(d).join(name).exists())
        };
        if !nix::unistd::geteuid().is_root() {
            return Some("needs root");
        }
        if !(has("containerd") && has("runc") && has("ctr")) {
            return Some("needs the packages containerd and runc");
        }
        if !Path::new("/bin/busybox").exists() {
            return Some("needs the package busybox-static");
        }
        None
    }

    pub(crate) async fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("winddown-cri-").tempdir().unwrap();
        fs::write(dir.path().join("config.toml"), config(dir.path())).unwrap();
        let mut containerd = Self { dir, child: None };
        containerd.resume().await;
        for image in [PAUSE, IMAGE] {
            containerd.import(image);
        }
        containerd
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("containerd.sock")
    }

    /// The parent of its pods' cgroups, which go with it.
    pub(crate) fn cgroup_parent(&self) -> String {
        let name = self.dir.path().file_name().unwrap().to_str().unwrap();
        name.replace('-', "_")
    }

    /// The group that comes of it: a slice where systemd manages control groups.
    pub(crate) fn cgroup(&self) -> String {
        let ending = if systemd_manages_cgroups() { ".slice" } else { "" };
        format!("{}{ending}", self.cgroup_parent())
    }

    /// Its directories. Version 1 has a hierarchy for each controller.
    pub(crate) fn cgroup_dirs(&self) -> Vec<PathBuf> {
        let hierarchies = fs::read_dir(CGROUPS).unwrap().flatten().map(|entry| entry.path());
        let hierarchies = hierarchies.chain([PathBuf::from(CGROUPS)]);
        hierarchies.map(|hierarchy| hierarchy.join(self.cgroup())).collect()
    }

    /// The names of its pods' slices that systemd has; none where systemd does not manage control groups.
    pub(crate) fn slices_of_pods(&self) -> Vec<String> {
        if !systemd_manages_cgroups() {
            return Vec::new();
        }
        let mut command = Command::new("systemctl");
        command.args(["list-units", "--all", "--type=slice", "--plain", "--no-legend"]);
        let listed = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let names = listed.lines().filter_map(|line| line.split_whitespace().next());
        let parent = self.cgroup_parent();
        let is_pods = |name: &&str| name.starts_with(&parent) && name.contains("-pod");
        names.filter(is_pods).map(str::to_owned).collect()
    }

    /// The weights in control groups of version 2 of the slices with these endings.
    pub(crate) fn weights<const N: usize>(&self, endings: [&str; N]) -> [String; N] {
        let parent = self.cgroup_parent();
        endings.map(|ending| {
            let mut group = PathBuf::from(CGROUPS).join(self.cgroup());
            let mut name = parent.clone();
            for level in ending.split('-').skip(1) {
                name = format!("{name}-{level}");
                group.push(format!("{name}.slice"));
            }
            fs::read_to_string(group.join("cpu.weight")).unwrap_or_default().trim().to_owned()
        })
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        self.child.as_ref().map(|child| Pid::from_raw(child.id().try_into().unwrap()))
    }

    /// Starts it, again if it was killed.
    pub(crate) async fn resume(&mut self) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("containerd.log"))
            .unwrap();
        let mut command = Command::new("containerd");
        command.arg("--config").arg(self.dir.path().join("config.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        self.child = Some(command.spawn().unwrap());
        eventually("containerd answers", || self.ctr(&["version"]).is_some()).await;
    }

    /// Suspends it. Until the last of its threads has stopped, it answers.
    pub(crate) fn suspend(&self) {
        let pid = self.pid().unwrap();
        kill(pid, Signal::SIGSTOP).unwrap();
        let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    }

    /// Suspends its shims too, as `systemctl kill` does: no one reaps what has exited.
    pub(crate) fn suspend_with_shims(&self) {
        self.suspend();
        for shim in self.pids_of("containerd-shim") {
            kill(Pid::from_raw(shim), Signal::SIGSTOP).unwrap();
        }
    }

    /// Lets it go on that was suspended.
    pub(crate) fn go_on(&self) {
        for shim in self.pids_of("containerd-shim") {
            kill(Pid::from_raw(shim), Signal::SIGCONT).unwrap();
        }
        kill(self.pid().unwrap(), Signal::SIGCONT).unwrap();
    }

    /// SIGKILL; what it runs goes on.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Ids of all containers and sandboxes it knows.
    pub(crate) fn containers(&self) -> Vec<String> {
        let listed = self.ctr(&["-n", "k8s.io", "containers", "list", "-q"]).unwrap_or_default();
        listed.lines().map(str::to_owned).collect()
    }

    /// Pids of what it runs whose command line contains `words`.
    pub(crate) fn pids_of(&self, words: &str) -> Vec<i32> {
        let line = |pid: &i32| {
            let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let all = processes(&self.dir.path().display().to_string());
        all.into_iter().filter(|pid| line(pid).contains(words)).collect()
    }

    fn ctr(&self, args: &[&str]) -> Option<String> {
        let mut command = Command::new("ctr");
        let output = command.arg("--address").arg(self.socket()).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn import(&self, name: &str) {
        let archive = self.dir.path().join("image.tar");
        make_image(self.dir.path(), &archive, name);
        let path = archive.display().to_string();
        self.ctr(&["-n", "k8s.io", "images", "import", &path]).unwrap();
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(pid, Signal::SIGCONT);
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The shims and what they run outlive containerd; each names its directory.
        let path = self.dir.path().display().to_string();
        for _ in 0..5 {
            let left = processes(&path);
            left.into_iter().for_each(end_process);
        }
        unmount_below(self.dir.path());
        if systemd_manages_cgroups() {
            // What is in it goes with it. Nothing of it runs any more.
            let _ = Command::new("systemctl").args(["stop", &self.cgroup()]).output();
        }
        self.cgroup_dirs().iter().for_each(|dir| remove_cgroups(dir));
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.path().join("containerd.log"));
            let log = log.unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            eprintln!("containerd's last words:\n{}", tail.join("\n"));
        }
    }
}

/// Whether systemd is process 1, with control groups of version 2 only. Everything in them is then systemd's.
pub(crate) fn systemd_manages_cgroups() -> bool {
    let has_controllers = Path::new(CGROUPS).join("cgroup.controllers").exists();
    has_controllers && Path::new("/run/systemd/system").exists()
}

/// systemd, as its command line tools ask it.
#[derive(Debug)]
pub(crate) struct Systemd;

impl Systemd {
    async fn ask(program: &'static str, args: Vec<String>) -> Result<(), UnitError> {
        let asked = move || Command::new(program).args(args).output();
        let output = tokio::task::spawn_blocking(asked).await.unwrap().unwrap();
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            Ok(())
        } else {
            Err(UnitError::Refused { call: program, why })
        }
    }
}

impl PodSlices for Systemd {
    fn make(
        &self,
        slice: String,
        description: String,
        cpu_weight: u64,
    ) -> BoxFuture<'_, Result<(), UnitError>> {
        let name = "org.freedesktop.systemd1";
        let words = ["call", name, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"];
        let words = words.into_iter().chain(["StartTransientUnit", "ssa(sv)a(sa(sv))"]);
        let mut args: Vec<String> = words.map(str::to_owned).collect();
        args.extend([slice, "fail".to_owned(), "2".to_owned()]);
        args.extend(["Description".to_owned(), "s".to_owned(), description]);
        args.extend(["CPUWeight", "t", &cpu_weight.to_string(), "0"].map(str::to_owned));
        Box::pin(Self::ask("busctl", args))
    }

    fn weigh(&self, slice: String, cpu_weight: u64) -> BoxFuture<'_, Result<(), UnitError>> {
        let args = ["set-property", "--runtime", &slice, &format!("CPUWeight={cpu_weight}")];
        Box::pin(Self::ask("systemctl", args.map(str::to_owned).into()))
    }

    fn stop(&self, slice: String) -> BoxFuture<'_, Result<(), UnitError>> {
        Box::pin(Self::ask("systemctl", ["stop", "--no-block", &slice].map(str::to_owned).into()))
    }
}

/// Kills a process and waits until it is gone.
fn end_process(pid: i32) {
    let Some(raw) = rustix::process::Pid::from_raw(pid) else { return };
    let Ok(fd) = pidfd_open(raw, PidfdFlags::empty()) else { return };
    let _ = pidfd_send_signal(&fd, rustix::process::Signal::KILL);
    let limit = Timespec { tv_sec: 2, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit));
}

fn remove_cgroups(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            remove_cgroups(&entry.path());
        }
    }
    let _ = fs::remove_dir(dir);
}

/// Shims of this containerd with all they have started.
fn processes(path: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids: Vec<i32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    let read = |pid: i32, file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let is_shim = |pid: &i32| {
        let line = String::from_utf8_lossy(&read(*pid, "cmdline")).into_owned();
        line.contains("containerd-shim") && line.contains(path)
    };
    let mut found: Vec<i32> = pids.iter().copied().filter(is_shim).collect();
    let parent = |pid: i32| -> Option<i32> {
        let stat = String::from_utf8_lossy(&read(pid, "stat")).into_owned();
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    loop {
        let is_child = |pid: &&i32| parent(**pid).is_some_and(|p| found.contains(&p));
        let more: Vec<i32> =
            pids.iter().filter(is_child).filter(|p| !found.contains(p)).copied().collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Takes away every mount below a directory.
pub(crate) fn unmount_below(dir: &Path) {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = text.lines().filter_map(|line| line.split(' ').nth(4));
    let mut points: Vec<&Path> = points.map(Path::new).filter(|p| p.starts_with(dir)).collect();
    points.sort_by_key(|p| std::cmp::Reverse(p.components().count()));
    for point in points {
        let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
    }
}

fn config(dir: &Path) -> String {
    let dir = dir.display();
    let cgroups = if systemd_manages_cgroups() { SYSTEMD_CGROUPS } else { "" };
    format!(
        "version = 2\nroot = \"{dir}/root\"\nstate = \"{dir}/state\"\n\
         [grpc]\n  address = \"{dir}/containerd.sock\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\n  restrict_oom_score_adj = true\n\
         disable_apparmor = true\n  sandbox_image = \"{PAUSE}\"\n\
         stream_server_port = \"0\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"{dir}/cni/bin\"\n  \
         conf_dir = \"{dir}/cni/conf\"\n{cgroups}"
    )
}

/// An image as `docker save` writes it, with one layer of busybox.
fn make_image(work: &Path, archive: &Path, name: &str) {
    let root = work.join("layer");
    let image = work.join("image");
    for dir in [&root, &image] {
        let _ = fs::remove_dir_all(dir);
        fs::create_dir_all(dir).unwrap();
    }
    for dir in ["bin", "etc", "tmp", "proc", "sys", "dev"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for applet in APPLETS {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    let act = root.join("bin/act");
    fs::write(&act, ACT).unwrap();
    fs::set_permissions(&act, fs::Permissions::from_mode(0o755)).unwrap();
    let layer = image.join("layer.tar");
    tar(&root, &layer);
    let sum = Command::new("sha256sum").arg(&layer).output().unwrap().stdout;
    let sum = String::from_utf8(sum).unwrap();
    let sum = sum.split(' ').next().unwrap();
    let command = if name == PAUSE { r#"["/bin/sleep","1000000"]"# } else { r#"["/bin/sh"]"# };
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"Entrypoint":{command},"Env":["PATH=/bin"]}},"rootfs":{{"type":"layers","diff_ids":["sha256:{sum}"]}}}}"#
    );
    fs::write(image.join("config.json"), config).unwrap();
    let manifest =
        format!(r#"[{{"Config":"config.json","RepoTags":["{name}"],"Layers":["layer.tar"]}}]"#);
    fs::write(image.join("manifest.json"), manifest).unwrap();
    tar(&image, archive);
}

fn tar(dir: &Path, archive: &Path) {
    let mut command = Command::new("tar");
    let status = command.arg("-C").arg(dir).arg("-cf").arg(archive).arg(".").status().unwrap();
    assert!(status.success());
}

//! The messages to the service manager, received by a socket in its place. The environment belongs
//! to a process, so this binary runs itself again to send them.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of tests are tests too")]

use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use winddown_systemd::{LOCK_NAME, LockStore as _, Notifier};

const LIMIT: Duration = Duration::from_secs(20);
/// Set for the second process, to select its part.
const PART: &str = "WINDDOWN_TEST_PART";

/// Whether this is the second process, started to play `part`.
fn plays(part: &str) -> bool {
    std::env::var(PART).is_ok_and(|played| played == part)
}

/// Runs this binary again for the test `name` as `part`, through a shell that ends in `exec`.
fn again(name: &str, part: &str, shell: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", shell])
        .arg(std::env::current_exe().expect("this binary"))
        .args(["--exact", name, "--nocapture"])
        .env(PART, part)
        .env_remove("LISTEN_PID")
        .stdout(Stdio::piped());
    command
}

fn finish(child: Child) {
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Receives one datagram, and the descriptors sent with it.
fn receive(socket: &UnixDatagram) -> (String, Vec<OwnedFd>) {
    let mut text = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let received = recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
    let length = received.expect("a datagram").bytes;
    let descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors,
        _ => panic!("something else than descriptors"),
    });
    let descriptors = descriptors.collect();
    (String::from_utf8(text[..length].to_vec()).expect("text"), descriptors)
}

fn is_open(fd: i32) -> bool {
    Path::new(&format!("/proc/self/fd/{fd}")).exists()
}

#[tokio::test]
async fn everything_said_arrives_as_sd_notify_has_it() {
    if plays("talker") {
        return talk().await;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a time limit");
    let talker = again(
        "everything_said_arrives_as_sd_notify_has_it",
        "talker",
        r#"export WATCHDOG_PID=$$; exec "$0" "$@""#,
    )
    .env("NOTIFY_SOCKET", &path)
    .env("WATCHDOG_USEC", "3000000")
    .spawn()
    .expect("this binary");

    let expect = |text: &str| {
        let (received, descriptors) = receive(&socket);
        assert_eq!((received.as_str(), descriptors.len()), (text, 0));
    };
    expect("READY=1\n");
    expect("STATUS=waiting for pods (2 left)\n");
    let (reloading, _) = receive(&socket);
    let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("with the time");
    assert!(time.trim_end().parse::<u64>().is_ok_and(|micros| micros > 0), "{time}");
    expect("WATCHDOG=1\n");
    expect("EXTEND_TIMEOUT_USEC=1500000\n");
    expect("EXTEND_TIMEOUT_USEC=4294967295\n");
    expect("STOPPING=1\n");

    let (stored, copies) = receive(&socket);
    assert_eq!(stored, "FDSTORE=1\nFDNAME=winddown-inhibitor\nFDPOLL=0\n");
    assert_eq!(copies.len(), 1);
    expect("FDSTOREREMOVE=1\nFDNAME=winddown-inhibitor\n");
    expect("STATUS=the store is empty\n");
    finish(talker);
}

async fn talk() {
    let notifier = Notifier::from_env();
    assert!(notifier.is_enabled());
    assert_eq!(notifier.watchdog_interval(), Some(Duration::from_millis(1500)));
    notifier.ready();
    notifier.status("waiting for pods\n(2 left)");
    notifier.reloading();
    notifier.watchdog_ping();
    for time in [Duration::from_millis(1500), Duration::MAX] {
        notifier.extend_timeout(time, std::future::ready(())).await;
    }
    notifier.stopping();
    let (_reader, writer) = io::pipe().expect("a pipe");
    notifier.put(writer.as_fd()).expect("it is taken");
    notifier.clear();
    notifier.status("the store is empty");
}

/// A hundred ending containers keep the service manager busy for half a second, and a release cannot wait for that.
#[test]
fn a_service_manager_that_reads_nothing_holds_up_no_release() {
    if plays("releaser") {
        let notifier = Notifier::from_env();
        let (mut reader, writer) = lock();
        notifier.put(writer.as_fd()).expect("it is taken");
        drop(writer);
        assert!(!closed(&mut reader), "a crash releases nothing");
        notifier.clear();
        assert!(closed(&mut reader), "it is released on return");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let _deaf = UnixDatagram::bind(&path).expect("a socket");
    let name = "a_service_manager_that_reads_nothing_holds_up_no_release";
    let releaser = again(name, "releaser", r#"exec "$0" "$@""#).env("NOTIFY_SOCKET", &path).spawn();
    finish(releaser.expect("this binary"));
}

/// A lock as logind gives it, and the end by which its release is seen.
fn lock() -> (io::PipeReader, io::PipeWriter) {
    let (reader, writer) = io::pipe().expect("a pipe");
    nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
        .expect("a pipe that does not block");
    (reader, writer)
}

fn closed(lock: &mut io::PipeReader) -> bool {
    matches!(io::Read::read(lock, &mut [0]), Ok(0))
}

/// What the service manager got of one process it hands to the next.
#[test]
fn a_lock_outlives_the_process_that_stored_it_and_the_next_one_releases_it() {
    let name = "a_lock_outlives_the_process_that_stored_it_and_the_next_one_releases_it";
    if plays("first") {
        let writer = io::stdin().as_fd().try_clone_to_owned().expect("the lock");
        Notifier::from_env().put(writer.as_fd()).expect("it is taken");
        return;
    }
    for part in ["second", "third"] {
        if plays(part) {
            let notifier = Notifier::from_env();
            let lock = notifier.take_inherited_lock().expect("it is in order");
            drop(lock.expect("a lock"));
            // The second one is killed before it releases anything.
            if part == "third" {
                notifier.clear();
            }
            return;
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a time limit");
    let (mut reader, writer) = lock();
    let first = again(name, "first", r#"exec "$0" "$@""#)
        .env("NOTIFY_SOCKET", &path)
        .stdin(OwnedFd::from(writer))
        .spawn();
    finish(first.expect("this binary"));
    let (_, mut copies) = receive(&socket);
    assert!(!closed(&mut reader), "it outlives the process");

    let copy = copies.pop().expect("a copy");
    let mut inherit = |part| {
        let shell = r#"export LISTEN_PID=$$; exec "$0" "$@" 3<&0 0</dev/null"#;
        let heir = again(name, part, shell)
            .env("NOTIFY_SOCKET", &path)
            .env("LISTEN_FDS", "1")
            .env("LISTEN_FDNAMES", LOCK_NAME)
            .stdin(copy.try_clone().expect("another copy"))
            .spawn();
        finish(heir.expect("this binary"));
        closed(&mut reader)
    };
    assert!(!inherit("second"), "it outlives the next process, too");
    assert!(inherit("third"), "what is left in the store holds nothing");
}

#[tokio::test]
async fn without_a_service_manager_nothing_is_said_and_nothing_fails() {
    if plays("loner") {
        let notifier = Notifier::from_env();
        assert!(!notifier.is_enabled());
        assert_eq!(notifier.watchdog_interval(), None);
        notifier.ready();
        notifier.status("nobody hears this");
        notifier.reloading();
        let (_reader, writer) = io::pipe().expect("a pipe");
        notifier.put(writer.as_fd()).expect("a no-op");
        notifier.clear();
        assert!(notifier.take_inherited_lock().expect("nothing").is_none());
        return;
    }
    let name = "without_a_service_manager_nothing_is_said_and_nothing_fails";
    let loner = again(name, "loner", r#"exec "$0" "$@""#)
        .env_remove("NOTIFY_SOCKET")
        .env("WATCHDOG_USEC", "3000000")
        .spawn();
    finish(loner.expect("this binary"));
}

#[test]
fn an_inherited_lock_is_taken_over_once_and_leaves_no_second_copy_behind() {
    if plays("heir") {
        return inherit();
    }
    let directory = tempfile::tempdir().expect("a directory");
    let fifo = directory.path().join("1.ref");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
    let name = "an_inherited_lock_is_taken_over_once_and_leaves_no_second_copy_behind";
    let shell = r#"export LISTEN_PID=$$; exec "$0" "$@" 3<>/dev/null 4<>"$FIFO""#;
    let heir = again(name, "heir", shell)
        .env("FIFO", &fifo)
        .env("LISTEN_FDS", "2")
        .env("LISTEN_FDNAMES", format!("other:{LOCK_NAME}"))
        .spawn();
    finish(heir.expect("this binary"));
}

fn inherit() {
    let fifo = std::env::var_os("FIFO").expect("its name");
    let copies = || {
        let all = fs::read_dir("/proc/self/fd").expect("procfs");
        all.filter(|fd| {
            let fd = fd.as_ref().expect("an entry").path();
            fs::read_link(fd).is_ok_and(|target| target.as_os_str() == fifo)
        })
        .count()
    };
    assert_eq!(copies(), 1, "as systemd hands it down");
    let notifier = Notifier::disabled();
    let lock = notifier.take_inherited_lock().expect("it is in order").expect("a lock");
    assert_eq!(copies(), 1, "ours, and not the one it came as");
    assert!(is_open(3), "what has another name is not touched");
    assert!(notifier.take_inherited_lock().expect("nothing").is_none());
    drop(lock);
    assert_eq!(copies(), 0);
}

#[test]
fn a_descriptor_with_the_locks_name_that_is_no_fifo_is_not_taken_for_a_lock() {
    if plays("deceived") {
        let notifier = Notifier::disabled();
        assert!(notifier.take_inherited_lock().expect("it is in order").is_none());
        return;
    }
    let name = "a_descriptor_with_the_locks_name_that_is_no_fifo_is_not_taken_for_a_lock";
    let shell = r#"export LISTEN_PID=$$; exec "$0" "$@" 3<>/dev/null"#;
    let deceived = again(name, "deceived", shell)
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", LOCK_NAME)
        .spawn();
    finish(deceived.expect("this binary"));
}

#[test]
fn an_environment_that_contradicts_itself_is_an_error_that_names_it() {
    if plays("confused") {
        let error = Notifier::disabled().take_inherited_lock().expect_err("one name for two");
        assert_eq!(
            error.to_string(),
            "LISTEN_FDS, LISTEN_FDNAMES: not as sd_listen_fds(3) describes them"
        );
        return;
    }
    let name = "an_environment_that_contradicts_itself_is_an_error_that_names_it";
    let shell = r#"export LISTEN_PID=$$; exec "$0" "$@" 3<>/dev/null 4<>/dev/null"#;
    let confused = again(name, "confused", shell)
        .env("LISTEN_FDS", "2")
        .env("LISTEN_FDNAMES", LOCK_NAME)
        .spawn();
    finish(confused.expect("this binary"));
}

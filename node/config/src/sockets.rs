//! The sockets of the container runtimes on this machine.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use winddown_host::in_root;

/// The usual places: of crictl, and of the distributions that bring a container runtime of their own.
const USUAL: [&str; 6] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
];

/// Returns the addresses (`unix://` and a path) of the container runtimes at the usual places below `root`. On a machine
/// that runs, as `live` says, those that take a connection; if none does, or in an image, those whose socket is there.
/// Links to one socket are one. Never waits.
pub fn runtime_endpoints(root: &Path, live: bool) -> Vec<String> {
    let mut known = BTreeSet::new();
    let mut there: Vec<(&str, PathBuf)> = Vec::new();
    for usual in USUAL {
        if let Ok(real) = in_root(root, usual).canonicalize()
            && known.insert(real.clone())
        {
            there.push((usual, real));
        }
    }
    if live && there.iter().any(|(_, real)| answers(real)) {
        there.retain(|(_, real)| answers(real));
    }
    there.into_iter().map(|(usual, _)| with_scheme(usual)).collect()
}

/// Whether a process takes connections at the Unix socket `path`. Never waits.
pub fn answers(path: &Path) -> bool {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let Ok(guest) = socket(AddressFamily::Unix, SockType::Stream, flags, None) else {
        return false;
    };
    let Ok(address) = UnixAddr::new(path) else { return false };
    // A full queue of connections belongs to a process that is busy.
    matches!(connect(guest.as_raw_fd(), &address), Ok(()) | Err(Errno::EAGAIN))
}

/// Returns the address of a container runtime with its scheme, which kubelets also take without.
pub fn with_scheme(address: &str) -> String {
    if address.starts_with('/') { format!("unix://{address}") } else { address.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_runtime_is_the_one_that_answers_and_in_an_image_the_one_that_is_there() {
        let root = tempfile::tempdir().unwrap();
        let place = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        let found = |live| runtime_endpoints(root.path(), live);
        let (containerd, crio) =
            ("unix:///run/containerd/containerd.sock", "unix:///run/crio/crio.sock");
        assert_eq!(found(true), [""; 0]);
        drop(UnixListener::bind(place("run/containerd/containerd.sock")).unwrap());
        assert_eq!(found(true), [containerd], "it may come back");
        let listens = UnixListener::bind(place("run/crio/crio.sock")).unwrap();
        assert_eq!(found(true), [crio], "only that one answers");
        assert_eq!(found(false), [containerd, crio]);
        drop(listens);
        assert_eq!(found(true), [containerd, crio]);
        symlink("/nowhere", place("run/cri-dockerd.sock")).unwrap();
        let k3s = place("run/k3s/containerd/containerd.sock");
        symlink("/run/containerd/containerd.sock", k3s).unwrap();
        assert_eq!(found(false), [containerd, crio], "links to one socket are one");
    }
}

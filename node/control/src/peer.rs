//! The identity and rights of a client.

use std::net::IpAddr;
use std::path::Path;

use tokio::net::UnixStream;
use tokio::net::unix::UCred;
use winddown_host::{Users, kernel};

/// The client that made a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process on this machine, through the control socket.
    Local {
        /// The user ID at the time of the connection.
        uid: u32,
        /// The process ID at the time of the connection, if the kernel reports it.
        pid: Option<i32>,
        /// Whether the client may change the node's state.
        may_change: bool,
    },
    /// A client on the network, with its address. It may read metrics and health only.
    Network(IpAddr),
}

impl Peer {
    /// Identifies the process behind `stream`, as the kernel saw it when it connected.
    ///
    /// Root, the agent's own user and the members of `group` may change the node's state. Without a group only the user
    /// ID counts, whatever group the socket's file has. A client whose groups cannot be read is not a member.
    pub(super) fn of(stream: &UnixStream, group: Option<u32>) -> std::io::Result<Self> {
        let cred = stream.peer_cred()?;
        Ok(Self::with(&cred, group, rustix::process::geteuid().as_raw(), Path::new("/proc")))
    }

    fn with(cred: &UCred, group: Option<u32>, own_uid: u32, proc_root: &Path) -> Self {
        let (uid, pid) = (cred.uid(), cred.pid());
        let is_in =
            |gid| cred.gid() == gid || pid.is_some_and(|pid| is_member(proc_root, pid, uid, gid));
        let may_change = uid == 0 || uid == own_uid || group.is_some_and(is_in);
        Self::Local { uid, pid, may_change }
    }

    /// Whether the client may change the node's state.
    pub fn may_change(self) -> bool {
        matches!(self, Self::Local { may_change: true, .. })
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local { uid, pid: Some(pid), .. } => write!(f, "uid {uid}, pid {pid}"),
            Self::Local { uid, pid: None, .. } => write!(f, "uid {uid}"),
            Self::Network(address) => write!(f, "{address}"),
        }
    }
}

/// Whether the process has `gid` among its supplementary groups.
///
/// The kernel's credentials contain only the primary group. The process ID may have been reused since the connection
/// was made, so the process must still run entirely as the same user; at worst it is then another process of that user
/// with that membership.
fn is_member(proc_root: &Path, pid: i32, uid: u32, gid: u32) -> bool {
    let file = proc_root.join(pid.to_string()).join("status");
    kernel::read_to_string(file).is_ok_and(|status| groups_allow(&status, uid, gid))
}

fn groups_allow(status: &str, uid: u32, gid: u32) -> bool {
    let same_user = Users::in_status(status).is_some_and(|users| users.are_all(uid));
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let mut groups = groups.into_iter().flat_map(str::split_whitespace);
    same_user && groups.any(|word| word.parse() == Ok(gid))
}

#[cfg(test)]
mod tests {
    use super::groups_allow;

    const STATUS: &str = "Name:\tcat\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\n\
                          Groups:\t4 27 990 \nNStgid:\t7\n";

    #[test]
    fn a_member_of_the_sockets_group_may_change_state() {
        assert!(groups_allow(STATUS, 1000, 990));
        assert!(groups_allow(STATUS, 1000, 4));
    }

    #[test]
    fn another_group_or_another_user_behind_the_same_pid_may_not() {
        assert!(!groups_allow(STATUS, 1000, 99));
        assert!(!groups_allow(STATUS, 1001, 990));
        let setuid = STATUS.replace("Uid:\t1000\t1000", "Uid:\t1000\t0");
        assert!(!groups_allow(&setuid, 1000, 990));
        assert!(!groups_allow("", 1000, 990));
    }
}

//! Switches to the user and the groups that a container runs as.

use std::io;

use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use winddown_host::regular;

use crate::order::ExecCommand;

/// The list of the host's users. Only this file is read: a directory service may hang during boot.
const PASSWD: &str = "/etc/passwd";
/// The group of a user who has none on this host. By convention it owns nothing.
const NO_GROUP: u32 = 65534;

/// Switches to the command's user and groups.
///
/// An agent that is root always drops its own groups: its group 0 owns the host's files and sockets.
///
/// # Errors
/// The kernel refuses; the error names the field that required the change.
pub(crate) fn take(command: &ExecCommand) -> Result<(), (String, io::Error)> {
    let failed = |what: String| move |error: nix::Error| (what, io::Error::from(error));
    let groups: Vec<Gid> = command.groups.iter().copied().map(Gid::from_raw).collect();
    if Uid::effective().is_root() || !groups.is_empty() {
        setgroups(&groups).map_err(failed("supplementalGroups".to_owned()))?;
    }
    if let Some(gid) = command.gid {
        setgid(Gid::from_raw(gid)).map_err(failed(format!("runAsGroup {gid}")))?;
    } else if let Some(uid) = command.uid {
        let gid = group_of(
            &regular::read(PASSWD.as_ref(), 64 * regular::MAX_CONFIGURATION_BYTES)
                .unwrap_or_default(),
            uid,
        );
        let what = format!("group {gid} of runAsUser {uid}");
        setgid(Gid::from_raw(gid)).map_err(failed(what))?;
    }
    if let Some(uid) = command.uid {
        setuid(Uid::from_raw(uid)).map_err(failed(format!("runAsUser {uid}")))?;
    }
    Ok(())
}

/// Returns the primary group of a user from `passwd`. Group 0 is only for root.
fn group_of(passwd: &[u8], uid: u32) -> u32 {
    if uid == 0 {
        return 0;
    }
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u32>().ok();
    let mut lines = passwd.split(|&byte| byte == b'\n');
    let group = lines.find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':').skip(2);
        let is_it = number(fields.next()?)? == uid;
        is_it.then(|| number(fields.next()?)).flatten()
    });
    group.filter(|&gid| gid != 0).unwrap_or(NO_GROUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_group_of_the_host_or_one_that_owns_nothing_and_never_roots() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\nbroken\n\nsync:x:4:0::/:/bin/sync\n\
            web:x:1000:1001:,\xff,:/home/web:/bin/sh\nodd:x:1002:x::/:\n+::::::\n";
        for (uid, gid) in [
            (0, 0),
            (1000, 1001),
            (4, NO_GROUP),
            (1002, NO_GROUP),
            (27, NO_GROUP),
            (65534, NO_GROUP),
        ] {
            assert_eq!(group_of(passwd, uid), gid, "{uid}");
        }
        assert_eq!(group_of(b"", 1000), NO_GROUP);
        assert_eq!(group_of(b"root:x:0:7::/:", 0), 0);
    }
}

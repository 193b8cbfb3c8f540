//! Switches to the user and the groups that a container runs as.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;

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
        let gid = group_of(&passwd(), uid);
        let what = format!("group {gid} of runAsUser {uid}");
        setgid(Gid::from_raw(gid)).map_err(failed(what))?;
    }
    if let Some(uid) = command.uid {
        setuid(Uid::from_raw(uid)).map_err(failed(format!("runAsUser {uid}")))?;
    }
    Ok(())
}

/// The home directory of the user who runs this process; `/` for one who has none, as in a container.
pub(crate) fn home() -> OsString {
    OsString::from_vec(home_of(&passwd(), Uid::effective().as_raw()))
}

fn passwd() -> Vec<u8> {
    regular::read(PASSWD.as_ref(), 64 * regular::MAX_CONFIGURATION_BYTES).unwrap_or_default()
}

/// Returns the primary group of a user from `passwd`. Group 0 is only for root.
fn group_of(passwd: &[u8], uid: u32) -> u32 {
    if uid == 0 {
        return 0;
    }
    let group = entry_of(passwd, uid).and_then(|mut fields| number(fields.next()?));
    group.filter(|&gid| gid != 0).unwrap_or(NO_GROUP)
}

/// Returns the home directory of a user from `passwd`.
fn home_of(passwd: &[u8], uid: u32) -> Vec<u8> {
    let home = entry_of(passwd, uid).and_then(|mut fields| fields.nth(2));
    home.filter(|home| home.starts_with(b"/")).unwrap_or(b"/").to_vec()
}

/// Returns the fields of a user's first line in `passwd`, from the group on.
fn entry_of(passwd: &[u8], uid: u32) -> Option<impl Iterator<Item = &[u8]>> {
    passwd.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':').skip(2);
        (number(fields.next()?)? == uid).then_some(fields)
    })
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_group_and_the_home_of_the_host_or_a_group_that_owns_nothing_and_never_roots()
    {
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
        for (uid, home) in
            [(0, "/root"), (1000, "/home/web"), (4, "/"), (1002, "/"), (27, "/"), (65534, "/")]
        {
            assert_eq!(home_of(passwd, uid), home.as_bytes(), "{uid}");
        }
        assert_eq!(home_of(b"a:x:7:7::home:/bin/sh", 7), b"/");
        assert_eq!(group_of(b"", 1000), NO_GROUP);
        assert_eq!(group_of(b"root:x:0:7::/:", 0), 0);
    }
}

//! Finds users other than root who may write what the agent runs as root.

use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::file::Role;

/// A file or directory through which users other than root can decide what runs on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OthersMayWrite {
    /// A manifest, the directory of manifests, or an ancestor of it.
    pub path: PathBuf,
    /// Who may write to it besides root.
    pub who: Writers,
}

/// Users other than root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Every user of the node.
    Everybody,
    /// A group. That includes group 0, which processes without a group of their own have.
    Group(u32),
    /// The owner.
    User(u32),
}

/// Finds what users other than root and the agent's own may write in and above `directory`. Symbolic links are
/// followed. Files that cannot be checked are left out: reading them reports that. Blocking.
///
/// # Errors
/// The directory cannot be listed.
pub fn others_may_write(directory: &Path) -> io::Result<Vec<OthersMayWrite>> {
    let own = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    let mut look = |path: &Path, is_above: bool| {
        let who = fs::metadata(path).ok().and_then(|facts| writers(&facts, own, is_above));
        found.extend(who.map(|who| OthersMayWrite { path: path.to_owned(), who }));
    };
    let real = directory.canonicalize()?;
    real.ancestors().skip(1).for_each(|above| look(above, true));
    look(&real, false);
    let mut names = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.retain(|name| Role::of(name) == Role::Manifest);
    names.sort();
    names.iter().for_each(|name| look(&directory.join(name), false));
    Ok(found)
}

/// Returns who besides root and `own` may write. In a sticky directory above, users can replace only their own files.
fn writers(facts: &Metadata, own: u32, is_above: bool) -> Option<Writers> {
    let mode = facts.mode();
    let is_sticky = is_above && mode & 0o1000 != 0;
    match () {
        () if mode & 0o002 != 0 && !is_sticky => Some(Writers::Everybody),
        () if facts.uid() != 0 && facts.uid() != own => Some(Writers::User(facts.uid())),
        () if mode & 0o020 != 0 && !is_sticky => Some(Writers::Group(facts.gid())),
        () => None,
    }
}

impl fmt::Display for OthersMayWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = winddown_shared::display::clean(&self.path.to_string_lossy()).into_owned();
        match self.who {
            Writers::Everybody => write!(f, "{path}: every user may write to it"),
            Writers::Group(gid) => write!(f, "{path}: group {gid} may write to it"),
            Writers::User(uid) => write!(f, "{path}: it belongs to user {uid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn directory() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let pods = dir.path().canonicalize().unwrap().join("pods");
        fs::create_dir(&pods).unwrap();
        mode(&pods, 0o755);
        for name in ["a.yaml", "b.yaml", "notes.txt"] {
            fs::write(pods.join(name), "").unwrap();
            mode(&pods.join(name), 0o644);
        }
        (dir, pods)
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn said(pods: &Path) -> Vec<String> {
        let found = others_may_write(pods).unwrap();
        let parent = pods.parent().unwrap();
        found.iter().map(|one| one.to_string().replace(parent.to_str().unwrap(), "DIR")).collect()
    }

    #[test]
    fn what_only_root_and_the_agent_may_write_is_fine() {
        let (_dir, pods) = directory();
        assert_eq!(said(&pods), [""; 0]);
        // /tmp is above, world-writable and sticky; a file that is not a manifest is not run.
        mode(&pods.join("notes.txt"), 0o666);
        assert_eq!(said(&pods), [""; 0]);
        assert!(others_may_write(&pods.join("none")).is_err());
    }

    #[test]
    fn a_file_its_directory_and_the_one_above_are_found() {
        let (dir, pods) = directory();
        let gid = fs::metadata(&pods).unwrap().gid();
        mode(&pods.join("a.yaml"), 0o666);
        mode(&pods.join("b.yaml"), 0o664);
        mode(&pods, 0o1777);
        mode(dir.path(), 0o770);
        let wanted = [
            format!("DIR: group {gid} may write to it"),
            "DIR/pods: every user may write to it".to_owned(),
            "DIR/pods/a.yaml: every user may write to it".to_owned(),
            format!("DIR/pods/b.yaml: group {gid} may write to it"),
        ];
        assert_eq!(said(&pods), wanted);
    }

    #[test]
    fn what_a_link_leads_to_counts_and_so_does_its_owner() {
        let (dir, pods) = directory();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        mode(&elsewhere, 0o646);
        fs::remove_file(pods.join("a.yaml")).unwrap();
        symlink(&elsewhere, pods.join("a.yaml")).unwrap();
        assert_eq!(said(&pods), ["DIR/pods/a.yaml: every user may write to it"]);
        if rustix::process::geteuid().is_root() {
            chown(pods.join("b.yaml"), Some(65534), None).unwrap();
            assert_eq!(said(&pods)[1], "DIR/pods/b.yaml: it belongs to user 65534");
        }
    }
}

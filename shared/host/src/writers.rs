//! Finds users other than root who may change what root reads or runs.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::shell_word::path_word;

/// Maximum number of links in a path, the same as the kernel's.
const MOST_LINKS: usize = 40;

/// A file, directory or link through which users other than root can decide what root reads or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OthersMayWrite {
    /// The path itself, a directory above it, or a link on the way.
    pub path: PathBuf,
    /// Who may write to it besides root.
    pub who: Writers,
}

/// Users other than root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Writers {
    /// Every user of the node.
    Everybody,
    /// A group. That includes group 0, which processes without a group of their own have.
    Group(u32),
    /// The owner.
    User(u32),
    /// Those who may create what does not exist yet in a sticky directory, which they cannot replace afterwards.
    FirstToCreate {
        /// More is to be created below it.
        is_directory: bool,
    },
    /// A pod: it lies in a directory of the pod's (`pods/UID`), where the files of its containers and volumes are root's
    /// too.
    Pod,
}

/// A file that users other than root can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OthersMayRead {
    /// The file.
    pub path: PathBuf,
    /// The group that may read it; `None` means every user.
    pub group: Option<u32>,
}

/// Users and groups whose writing is as good as root's, beside root itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trusted {
    /// User IDs.
    pub users: Vec<u32>,
    /// Group IDs.
    pub groups: Vec<u32>,
}

impl Trusted {
    /// These, root, and this process's user.
    fn with_root(&self) -> Self {
        let mut all = self.clone();
        all.users.extend([0, rustix::process::geteuid().as_raw()]);
        all
    }
}

/// Finds who, besides root and this process's user, may change what `path` is or contains: through the file, each
/// directory above it, and each link on the way with the directories above what it leads to. `root` stands for `/`, and
/// so do links that begin with `/`; nothing above it is looked at. Blocking.
///
/// The walk ends where nothing exists: those who may write to the last directory, sticky or not, can create the rest.
///
/// # Errors
/// Part of the path cannot be looked at, or it has more than 40 links.
pub fn others_may_write(root: &Path, path: &Path) -> io::Result<Vec<OthersMayWrite>> {
    others_may_write_besides(&Trusted::default(), root, path)
}

/// Like [`others_may_write`], but `trusted` counts as root too.
///
/// # Errors
/// As [`others_may_write`].
pub fn others_may_write_besides(
    trusted: &Trusted,
    root: &Path,
    path: &Path,
) -> io::Result<Vec<OthersMayWrite>> {
    let trusted = trusted.with_root();
    let mut found: Vec<OthersMayWrite> = Vec::new();
    walk(root, path, |path, facts, part| {
        let known = found.iter().any(|one| one.path == path);
        let is_of_pod = !matches!(part, PathPart::Above) && path.ancestors().any(is_pods_directory);
        let who = if is_of_pod { Some(Writers::Pod) } else { writers(facts, &trusted, part) };
        let who = who.filter(|_| !known);
        found.extend(who.map(|who| OthersMayWrite { path: path.to_owned(), who }));
    })?;
    Ok(found)
}

/// Finds who, besides root, this process's user and `trusted`, may change the content of a file that is open: meanwhile its
/// name may lead to another one. `path` is where it was found.
///
/// # Errors
/// The file cannot be looked at.
pub fn others_may_write_file(
    trusted: &Trusted,
    path: &Path,
    file: &File,
) -> io::Result<Option<OthersMayWrite>> {
    let trusted = trusted.with_root();
    let who = writers(&file.metadata()?, &trusted, PathPart::Last);
    Ok(who.map(|who| OthersMayWrite { path: path.to_owned(), who }))
}

/// Where `path` leads below a root that stands for `/`. An absolute link of an image does not lead to this machine's files;
/// what follows one that leads nowhere is left as it is. Blocking.
pub fn in_root(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    if root == Path::new("/") {
        return root.join(path);
    }
    // What cannot be looked at is not to be read either.
    let as_it_is = |_| root.join(path.strip_prefix("/").unwrap_or(path));
    walk(root, path, |_, _, _| {}).unwrap_or_else(as_it_is)
}

/// Like [`in_root`], but where a link itself is. Blocking.
pub fn link_in_root(root: &Path, path: &Path) -> PathBuf {
    in_root(root, path.parent().unwrap_or(path)).join(path.file_name().unwrap_or_default())
}

/// Refuses a program that root is about to run if others may write it, or what leads to it. Blocking.
///
/// # Errors
/// Others may write it; the error says who, and what to do. Also if it does not exist, or cannot be looked at.
pub fn refuse_if_others_may_write(program: &Path) -> io::Result<()> {
    fs::metadata(program)?;
    match others_may_write(Path::new("/"), program)?.first() {
        None => Ok(()),
        Some(found) => {
            let what = format!(
                "{found}, so it is not run as root; to accept it as it is: {}",
                found.fix_command()
            );
            Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
        }
    }
}

/// Finds out whether users other than root and the file's owner may read the file at `path`: by its own mode, and
/// because they may pass each directory on the way. Blocking. `None` also if nothing is there.
///
/// # Errors
/// As [`others_may_write`].
pub fn others_may_read(root: &Path, path: &Path) -> io::Result<Option<OthersMayRead>> {
    let (mut above, mut last) = (Vec::new(), None);
    walk(root, path, |path, facts, part| match part {
        PathPart::Above if facts.is_symlink() => {}
        PathPart::Above => above.push((facts.mode(), facts.gid())),
        PathPart::Last => last = Some((path.to_owned(), facts.mode(), facts.gid())),
        PathPart::Missing { .. } => {}
    })?;
    let Some((path, mode, gid)) = last else { return Ok(None) };
    let pass = |mode: u32, own: u32, group: Option<u32>| match group {
        Some(gid) if own == gid => mode & 0o010 != 0,
        _ => mode & 0o001 != 0,
    };
    let reach = |group| above.iter().all(|(mode, own)| pass(*mode, *own, group));
    Ok(if mode & 0o004 != 0 && reach(None) {
        Some(OthersMayRead { path, group: None })
    } else if mode & 0o040 != 0 && gid != 0 && reach(Some(gid)) {
        Some(OthersMayRead { path, group: Some(gid) })
    } else {
        None
    })
}

#[derive(Clone, Copy)]
enum PathPart {
    /// A directory or a link on the way.
    Above,
    /// What is at its end.
    Last,
    /// The first name that does not exist. The facts are those of its directory.
    Missing { is_directory: bool },
}

/// Calls `look` for `root`, then for each directory and link on the way to `path`, and for what is at its end or missing.
fn walk(
    root: &Path,
    path: &Path,
    mut look: impl FnMut(&Path, &Metadata, PathPart),
) -> io::Result<PathBuf> {
    let mut here = root.to_owned();
    let mut ahead = names(path);
    let part = |ahead: &VecDeque<OsString>| match ahead.is_empty() {
        true => PathPart::Last,
        false => PathPart::Above,
    };
    look(&here, &fs::metadata(&here)?, part(&ahead));
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            if here != root {
                here.pop();
            }
            continue;
        }
        let next = here.join(&name);
        let facts = match fs::symlink_metadata(&next) {
            Ok(facts) => facts,
            // Below a file there is nothing either.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                let missing = PathPart::Missing { is_directory: !ahead.is_empty() };
                look(&next, &fs::metadata(&here)?, missing);
                return Ok(ahead.iter().fold(next, |path, name| path.join(name)));
            }
            Err(error) => return Err(error),
        };
        if facts.is_symlink() {
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::other("too many symbolic links"));
            }
            // Its mode means nothing; its owner can replace it even in a sticky directory.
            look(&next, &facts, PathPart::Above);
            let target = fs::read_link(&next)?;
            if target.is_absolute() {
                here = root.to_owned();
            }
            for name in names(&target).into_iter().rev() {
                ahead.push_front(name);
            }
            continue;
        }
        look(&next, &facts, part(&ahead));
        here = next;
    }
    Ok(here)
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

/// Whether this is the directory that a kubelet or an agent keeps for one pod: `pods/UID`.
fn is_pods_directory(path: &Path) -> bool {
    /// The UIDs of static pods have no hyphens.
    const SHORTEST_UID: usize = 32;
    let is_in_pods = path.parent().and_then(Path::file_name).is_some_and(|name| name == "pods");
    let uid = path.file_name().unwrap_or_default().as_encoded_bytes();
    let is_uid = uid.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
    is_in_pods && is_uid && uid.len() >= SHORTEST_UID
}

/// Returns who besides `trusted` may write. In a sticky directory above, users can replace only their own files, and create
/// what is missing.
fn writers(facts: &Metadata, trusted: &Trusted, part: PathPart) -> Option<Writers> {
    let mode = if facts.is_symlink() { 0 } else { facts.mode() };
    let is_sticky = mode & 0o1000 != 0 && !matches!(part, PathPart::Last);
    if let PathPart::Missing { is_directory } = part {
        let others =
            mode & 0o002 != 0 || mode & 0o020 != 0 && !trusted.groups.contains(&facts.gid());
        // Of another directory it was said that others may write to it.
        return (is_sticky && others).then_some(Writers::FirstToCreate { is_directory });
    }
    match () {
        () if mode & 0o002 != 0 && !is_sticky => Some(Writers::Everybody),
        () if !trusted.users.contains(&facts.uid()) => Some(Writers::User(facts.uid())),
        () if mode & 0o020 != 0 && !is_sticky && !trusted.groups.contains(&facts.gid()) => {
            Some(Writers::Group(facts.gid()))
        }
        () => None,
    }
}

impl OthersMayWrite {
    /// Returns the command that leaves root alone to write it, for a shell.
    pub fn fix_command(&self) -> String {
        let path = path_word(&self.path);
        match self.who {
            // What belongs to a user may have any mode, and a link's mode means nothing.
            Writers::User(_) if self.path.is_symlink() => format!("chown -h root:root {path}"),
            Writers::User(_) => format!("chown root:root {path} && chmod go-w {path}"),
            Writers::Everybody | Writers::Group(_) => format!("chmod go-w {path}"),
            // Without the last bit of /tmp, other programs would fail.
            Writers::FirstToCreate { is_directory: true } => format!("mkdir -m 755 {path}"),
            Writers::FirstToCreate { is_directory: false } => {
                format!("install -m 600 /dev/null {path}")
            }
            // The file stays the pod's: root may trust a copy, and the setting has to name that.
            Writers::Pod => format!("install -m 600 {path} /etc/winddown/"),
        }
    }
}

impl OthersMayRead {
    /// Returns the command after which its owner alone may read it, for a shell.
    pub fn fix_command(&self) -> String {
        format!("chmod go-rwx {}", path_word(&self.path))
    }
}

/// For people. The path is shown as it is: print it through `winddown_shared::display::clean`.
impl fmt::Display for OthersMayWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.who {
            Writers::Everybody => write!(f, "{path}: every user may write to it"),
            Writers::Group(gid) => write!(f, "{path}: group {gid} may write to it"),
            Writers::User(uid) => write!(f, "{path}: it belongs to user {uid}"),
            Writers::Pod => write!(f, "{path}: it belongs to a pod"),
            Writers::FirstToCreate { .. } => {
                write!(f, "{path}: it does not exist, and other users may create it")
            }
        }
    }
}

/// For people. The path is shown as it is: print it through `winddown_shared::display::clean`.
impl fmt::Display for OthersMayRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.group {
            None => write!(f, "{path}: every user may read it"),
            Some(gid) => write!(f, "{path}: group {gid} may read it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::super::regular;
    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// A root with `etc/winddown/config.yaml` in it, which only its owner may write.
    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/winddown")).unwrap();
        fs::write(root.path().join("etc/winddown/config.yaml"), "").unwrap();
        for path in ["", "etc", "etc/winddown"] {
            mode(&root.path().join(path), 0o755);
        }
        mode(&root.path().join("etc/winddown/config.yaml"), 0o644);
        root
    }

    fn said(root: &Path, path: &str) -> Vec<String> {
        let found = others_may_write(root, Path::new(path)).unwrap();
        let root = root.to_str().unwrap();
        found.iter().map(|one| one.to_string().replace(root, "")).collect()
    }

    const CONFIG: &str = "/etc/winddown/config.yaml";

    #[test]
    fn what_only_root_and_the_agent_may_write_is_fine_and_so_is_a_sticky_directory_above() {
        let root = root();
        assert_eq!(said(root.path(), CONFIG), [""; 0]);
        mode(&root.path().join("etc"), 0o1777);
        assert_eq!(said(root.path(), CONFIG), [""; 0]);
    }

    #[test]
    fn the_file_its_directory_and_each_one_above_are_found() {
        let root = root();
        let gid = fs::metadata(root.path()).unwrap().gid();
        mode(root.path(), 0o775);
        mode(&root.path().join("etc"), 0o777);
        mode(&root.path().join("etc/winddown/config.yaml"), 0o646);
        let wanted = [
            format!(": group {gid} may write to it"),
            "/etc: every user may write to it".to_owned(),
            format!("{CONFIG}: every user may write to it"),
        ];
        assert_eq!(said(root.path(), CONFIG), wanted);
        // The last part is what is written to: there, a sticky bit protects nothing.
        mode(&root.path().join("etc/winddown"), 0o1777);
        assert_eq!(
            said(root.path(), "/etc/winddown")[2],
            "/etc/winddown: every user may write to it"
        );
    }

    /// A container's /etc/hosts is root's there, mode 644, and the container writes it.
    #[test]
    fn what_lies_in_a_pods_directory_is_the_pods_whosever_it_is() {
        let root = root();
        let pods = ["var/lib/kubelet/pods/0f8fad5b-d9cb-469f-a165-70867728950e", "etc/pods/9a7"];
        for pod in pods {
            fs::create_dir_all(root.path().join(pod)).unwrap();
            fs::write(root.path().join(pod).join("etc-hosts"), "").unwrap();
        }
        symlink(format!("/{}/etc-hosts", pods[0]), root.path().join("etc/link")).unwrap();
        let wanted = [format!("/{}/etc-hosts: it belongs to a pod", pods[0])];
        assert_eq!(said(root.path(), &format!("{}/etc-hosts", pods[0])), wanted);
        assert_eq!(said(root.path(), "/etc/link"), wanted);
        assert_eq!(said(root.path(), &format!("{}/etc-hosts", pods[1])), [""; 0], "no UID");
    }

    #[test]
    fn the_directories_above_what_a_link_leads_to_count_and_so_does_the_owner_of_the_link() {
        let root = root();
        let (etc, opt) = (root.path().join("etc"), root.path().join("opt/shared"));
        fs::create_dir_all(&opt).unwrap();
        fs::write(opt.join("real.yaml"), "").unwrap();
        mode(&opt.join("real.yaml"), 0o644);
        mode(&opt, 0o777);
        fs::remove_file(etc.join("winddown/config.yaml")).unwrap();
        symlink("/opt/link.yaml", etc.join("winddown/config.yaml")).unwrap();
        symlink("shared/../shared/real.yaml", root.path().join("opt/link.yaml")).unwrap();
        assert_eq!(said(root.path(), CONFIG), ["/opt/shared: every user may write to it"]);
        mode(&opt, 0o755);
        assert_eq!(said(root.path(), CONFIG), [""; 0]);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(root.path().join("opt/link.yaml"), Some(65534), None)
                .unwrap();
            chown(&opt, Some(65533), None).unwrap();
            let wanted = [
                "/opt/link.yaml: it belongs to user 65534",
                "/opt/shared: it belongs to user 65533",
            ];
            assert_eq!(said(root.path(), CONFIG), wanted);
        }
    }

    #[test]
    fn what_is_not_there_can_be_made_by_those_who_may_write_its_directory() {
        let root = root();
        mode(&root.path().join("etc/winddown"), 0o1777);
        let created = "it does not exist, and other users may create it";
        for missing in ["/etc/winddown/none", "/etc/winddown/token"] {
            // In a directory like /tmp they cannot replace it once it is there.
            let path = missing.replace("none", "none/token");
            assert_eq!(said(root.path(), &path), [format!("{missing}: {created}")]);
            let found = others_may_write(root.path(), Path::new(&path)).unwrap();
            let fix = found[0].fix_command();
            let made = std::process::Command::new("sh").args(["-c", &fix]).status().unwrap();
            assert!(made.success(), "{fix}");
            assert_eq!(said(root.path(), missing), [""; 0], "{fix}");
        }
        mode(&root.path().join("etc/winddown"), 0o777);
        fs::remove_dir(root.path().join("etc/winddown/none")).unwrap();
        assert_eq!(
            said(root.path(), "/etc/winddown/none/token"),
            ["/etc/winddown: every user may write to it"]
        );
    }

    #[test]
    fn an_open_file_is_judged_whatever_its_name_leads_to_by_now() {
        let root = root();
        let path = root.path().join(CONFIG.trim_start_matches('/'));
        mode(&path, 0o666);
        let file = regular::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        mode(&path, 0o644);
        let judged = |file: &File| others_may_write_file(&Trusted::default(), &path, file).unwrap();
        assert_eq!(judged(&file).map(|found| found.who), Some(Writers::Everybody));
        assert_eq!(judged(&regular::open(&path).unwrap()), None);
    }

    #[test]
    fn a_program_that_does_not_exist_is_not_run() {
        let root = root();
        let program = root.path().join("etc/hook");
        let error = refuse_if_others_may_write(&program).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_trusted_user_and_a_trusted_group_hide_nobody_else() {
        let root = root();
        let file = root.path().join("etc/winddown/config.yaml");
        let said = |users: &[u32], groups: &[u32]| {
            let trusted = Trusted { users: users.into(), groups: groups.into() };
            let found = others_may_write_besides(&trusted, root.path(), Path::new(CONFIG)).unwrap();
            found.iter().map(|one| one.who).collect::<Vec<_>>()
        };
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(1000), Some(1001)).unwrap();
            mode(&file, 0o664);
            assert_eq!(said(&[], &[]), [Writers::User(1000)]);
            assert_eq!(said(&[1000], &[]), [Writers::Group(1001)]);
            assert_eq!(said(&[1000], &[1001]), []);
        }
        mode(&file, 0o666);
        assert_eq!(said(&[1000], &[1001]), [Writers::Everybody]);
    }

    #[test]
    fn a_key_is_readable_only_where_its_directories_let_others_pass() {
        let root = root();
        let (dir, file) = (root.path().join("etc/winddown"), root.path().join("etc/winddown/key"));
        fs::write(&file, "").unwrap();
        let who = || {
            let found = others_may_read(root.path(), Path::new("/etc/winddown/key")).unwrap();
            found.map(|found| found.group)
        };
        let table = [(0o755, 0o600, None), (0o755, 0o604, Some(None)), (0o750, 0o604, None)];
        for (above, of_file, expected) in table {
            mode(&dir, above);
            mode(&file, of_file);
            assert_eq!(who(), expected, "{above:o} {of_file:o}");
        }
        assert_eq!(others_may_read(root.path(), Path::new("/etc/none")).unwrap(), None);
        if rustix::process::geteuid().is_root() {
            chown(&file, None, Some(7)).unwrap();
            mode(&file, 0o640);
            assert_eq!(who(), None, "the group may not pass");
            chown(&dir, None, Some(7)).unwrap();
            assert_eq!(who(), Some(Some(7)));
        }
    }

    #[test]
    fn the_command_that_mends_it_mends_it() {
        let root = root();
        let odd = root.path().join("etc/it's odd");
        fs::write(&odd, "").unwrap();
        mode(&odd, 0o666);
        let path = Path::new("/etc/it's odd");
        let run = |command: &str| {
            let ran = std::process::Command::new("sh").args(["-c", command]).status().unwrap();
            assert!(ran.success(), "{command}");
        };
        run(&others_may_write(root.path(), path).unwrap()[0].fix_command());
        assert_eq!(others_may_write(root.path(), path).unwrap(), []);
        run(&others_may_read(root.path(), path).unwrap().unwrap().fix_command());
        assert_eq!(others_may_read(root.path(), path).unwrap(), None);
    }

    #[test]
    fn a_circle_of_links_is_an_error() {
        let root = root();
        symlink("b", root.path().join("a")).unwrap();
        symlink("a", root.path().join("b")).unwrap();
        assert!(others_may_write(root.path(), Path::new("a")).is_err());
    }
}

//! Finds out who besides root, and who runs the command, decides what the agent will run and believe.

use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};
use winddown_host::{OthersMayWrite, Trusted, others_may_write_besides, others_may_write_file};

use super::assets::{Asset, AssetKind, CopySource, LOGS};
use super::error::InstallError;
use super::report::InstallReport;
use super::untrusted::{Untrusted, shown};

/// Returns the user who runs this command, also through sudo, with the group that is theirs alone: they could replace
/// the running program as well.
pub fn caller() -> Trusted {
    let own = Uid::effective();
    // sudo sets it itself. For anybody but root it is only a claim.
    let before = std::env::var("SUDO_UID").ok().filter(|_| own.is_root());
    let before = before.and_then(|uid| uid.parse().ok()).map(Uid::from_raw);
    let users = [Some(own), before].into_iter().flatten();
    let (mut trusted, mut names) = (Trusted::default(), Vec::new());
    for uid in users {
        trusted.users.push(uid.as_raw());
        names.extend(User::from_uid(uid).ok().flatten().map(|user| (user.name, user.gid)));
    }
    let is_private = |name: &str, gid: Gid| {
        let group = Group::from_gid(gid).ok().flatten();
        group.is_some_and(|group| group.name == name && group.mem.iter().all(|one| one == name))
    };
    // Every process without a group of its own has group 0.
    names.retain(|(name, gid)| gid.as_raw() != 0 && is_private(name, *gid));
    trusted.groups = names.into_iter().map(|(_, gid)| gid.as_raw()).collect();
    trusted
}

/// Finds who else may write a file that is copied: a program, or the initial configuration. The file that was opened
/// counts, and what its name leads to by now.
pub(super) fn source(
    trusted: &Trusted,
    source: &CopySource,
) -> Result<Vec<Untrusted>, InstallError> {
    let whole = std::path::absolute(&source.path);
    let whole = whole.map_err(InstallError::file("find", &source.path))?;
    let mend = "unpack winddown into a directory that only root can write, and run it from there";
    let mut found = look(trusted, Path::new("/"), &whole, |_| mend.to_owned())?;
    let of_file = others_may_write_file(trusted, &whole, &source.file)
        .map_err(InstallError::file("find out who may write", &whole))?;
    let of_file = of_file.filter(|one| found.iter().all(|known| known.found.path != one.path));
    found.extend(of_file.map(|found| Untrusted { found, mend: mend.to_owned() }));
    Ok(found)
}

/// Finds who else may write what is installed, and what is there already at its place.
pub(super) fn items(
    trusted: &Trusted,
    root: &Path,
    items: &[Asset],
) -> Result<Vec<Untrusted>, InstallError> {
    // Nobody believes a log, and the log daemon's group may write the directory above on some distributions.
    places(trusted, root, items.iter().filter(|item| item.path != LOGS).map(place))
}

fn place(item: &Asset) -> &Path {
    let path = Path::new(&item.path);
    match item.kind {
        // A link's own place counts; where it leads is ours, or /dev/null.
        AssetKind::Link { .. } => path.parent().unwrap_or(path),
        AssetKind::Directory { .. } | AssetKind::File { .. } => path,
    }
}

/// Finds who else may write these places below `root`, or put another directory in its place.
pub(super) fn places<'a>(
    trusted: &Trusted,
    root: &Path,
    places: impl Iterator<Item = &'a Path>,
) -> Result<Vec<Untrusted>, InstallError> {
    let root = std::path::absolute(root).map_err(InstallError::file("find", root))?;
    let of_root = std::iter::once((Path::new("/"), &*root));
    let mut all: Vec<Untrusted> = Vec::new();
    for (root, path) in of_root.chain(places.map(|path| (&*root, path))) {
        let found = look(trusted, root, path, |found| {
            format!("to accept it as it is: {}", found.fix_command())
        })?;
        for one in found {
            if !all.iter().any(|known| known.found.path == one.found.path) {
                all.push(one);
            }
        }
    }
    Ok(all)
}

fn look(
    trusted: &Trusted,
    root: &Path,
    path: &Path,
    mend: impl Fn(&OthersMayWrite) -> String,
) -> Result<Vec<Untrusted>, InstallError> {
    let found = others_may_write_besides(trusted, root, path)
        .map_err(InstallError::file("find out who may write", path))?;
    Ok(found.into_iter().map(|found| Untrusted { mend: mend(&found), found }).collect())
}

/// Refuses what others may write; with `force`, notes it.
pub(super) fn refuse(
    found: Vec<Untrusted>,
    force: bool,
    report: &mut InstallReport,
) -> Result<(), InstallError> {
    if !force && !found.is_empty() {
        return Err(InstallError::OthersMayWrite(found));
    }
    let trusted = |one: Untrusted| format!("trusted because of --force: {}", shown(&one.found));
    report.notes.extend(found.into_iter().map(trusted));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::super::{InstallOptions, Runtime, UninstallOptions, install_on, uninstall_on};
    use super::*;

    /// An empty image and, in a directory like /tmp, the three programs.
    struct Bed {
        root: tempfile::TempDir,
        shared: tempfile::TempDir,
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    impl Bed {
        fn new() -> Self {
            let bed =
                Self { root: tempfile::tempdir().unwrap(), shared: tempfile::tempdir().unwrap() };
            for name in super::super::PROGRAMS {
                bed.file(&bed.shared.path().join(name));
            }
            mode(bed.shared.path(), 0o1777);
            bed
        }

        fn file(&self, path: &Path) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, super::super::BUILD_MARK).unwrap();
            mode(path, 0o755);
        }

        fn options(&self) -> InstallOptions {
            InstallOptions {
                root: self.root.path().to_owned(),
                runtime: Runtime::Process,
                ..InstallOptions::new(self.shared.path())
            }
        }

        /// The paths that were refused, without the directories of this test, and the error.
        fn refused(&self, options: &InstallOptions) -> (Vec<PathBuf>, String) {
            let error = install_on(options, None).unwrap_err();
            assert!(!self.root.path().join("etc/systemd").exists(), "something was changed");
            let InstallError::OthersMayWrite(found) = &error else { panic!("{error}") };
            let tops = [self.root.path(), self.shared.path()];
            let paths = found.iter().map(|one| &one.found.path).map(|path| {
                tops.iter().find_map(|top| path.strip_prefix(top).ok()).unwrap_or(path).to_owned()
            });
            (paths.collect(), error.to_string())
        }
    }

    #[test]
    fn a_program_that_another_user_put_beside_ours_is_refused() {
        let bed = Bed::new();
        let daemon = bed.shared.path().join("winddownd");
        // /tmp itself is no reason: there, nobody can replace a file of root's.
        install_on(&bed.options(), None).unwrap();

        let bed = Bed { root: tempfile::tempdir().unwrap(), ..bed };
        mode(&daemon, 0o757);
        let (paths, said) = bed.refused(&bed.options());
        assert_eq!(paths, [Path::new("winddownd")]);
        assert!(said.contains("/winddownd: every user may write to it\n"), "{said}");
        assert!(said.contains("directory that only root can write"), "{said}");
        mode(&daemon, 0o755);
        if rustix::process::geteuid().is_root() {
            chown(&daemon, Some(65534), None).unwrap();
            let (_, said) = bed.refused(&bed.options());
            assert!(said.contains("/winddownd: it belongs to user 65534\n"), "{said}");
            // Who runs the command through sudo could replace the running program as well.
            let mut options = bed.options();
            options.trusted.users.push(65534);
            install_on(&options, None).unwrap();
        }
    }

    #[test]
    fn a_file_that_was_opened_is_judged_when_its_name_is_gone_or_leads_to_another() {
        let bed = Bed::new();
        let path = bed.shared.path().join("winddownd");
        mode(&path, 0o666);
        let opened = CopySource {
            path: path.clone(),
            file: Arc::new(winddown_host::regular::open(&path).unwrap()),
        };
        fs::remove_file(&path).unwrap();
        let found = || source(&Trusted::default(), &opened).unwrap();
        assert_eq!(found().len(), 1, "it is gone");
        bed.file(&path);
        assert_eq!(found()[0].found.who, winddown_host::Writers::Everybody, "another is there");
    }

    #[test]
    fn what_others_could_swap_on_the_way_is_refused_too() {
        let bed = Bed::new();
        let shim = bed.shared.path().join("winddown-shim");
        fs::remove_file(&shim).unwrap();
        let elsewhere = bed.shared.path().join("elsewhere");
        bed.file(&elsewhere.join("shim"));
        symlink("elsewhere/shim", &shim).unwrap();
        mode(&elsewhere, 0o777);
        assert_eq!(bed.refused(&bed.options()).0, [Path::new("elsewhere")]);
    }

    #[test]
    fn a_place_that_others_may_write_is_refused_unless_forced_and_then_said() {
        let bed = Bed::new();
        let at = |path: &str| bed.root.path().join(path);
        bed.file(&at("etc/winddown/config.yaml"));
        fs::remove_file(at("etc/winddown/config.yaml")).unwrap();
        for place in ["etc/winddown", "opt/bin", "var/lib/winddown", "var/log"] {
            fs::create_dir_all(at(place)).unwrap();
            mode(&at(place), 0o777);
        }
        let options = InstallOptions { bin_dir: Some("/opt/bin".into()), ..bed.options() };
        let (mut paths, said) = bed.refused(&options);
        paths.sort();
        // Not /var/log: nobody believes a log.
        assert_eq!(paths, ["etc/winddown", "opt/bin", "var/lib/winddown"].map(Path::new));
        let mend = format!("chmod go-w {}", at("etc/winddown").display());
        assert!(said.contains(&mend), "{said}");
        let report = install_on(&InstallOptions { force: true, ..options }, None).unwrap();
        let trusted = report.notes.iter().filter(|note| note.starts_with("trusted because"));
        assert_eq!(trusted.count(), 3, "{report}");
    }

    #[test]
    fn a_configuration_that_others_may_write_is_not_taken_over() {
        let bed = Bed::new();
        let given = bed.shared.path().join("given.yaml");
        fs::write(&given, winddown_config::default_yaml()).unwrap();
        mode(&given, 0o666);
        let options = InstallOptions { config: Some(given), ..bed.options() };
        assert_eq!(bed.refused(&options).0, [Path::new("given.yaml")]);
    }

    /// They could name any file in the list of what is removed, and swap a directory for a link to this machine's.
    #[test]
    fn an_image_that_others_may_write_or_replace_is_refused_unless_forced() {
        for place in ["", "image", "image/etc/systemd", "image/var/lib/winddown"] {
            let bed = Bed::new();
            let root = bed.root.path().join("image");
            fs::create_dir(&root).unwrap();
            let options = InstallOptions { root: root.clone(), ..bed.options() };
            install_on(&options, None).unwrap();
            mode(&bed.root.path().join(place), 0o777);
            let error = install_on(&options, None).unwrap_err();
            assert!(matches!(error, InstallError::OthersMayWrite(_)), "{error}");
            let removal = UninstallOptions { root, purge: true, ..UninstallOptions::default() };
            let error = uninstall_on(&removal, None).unwrap_err();
            assert!(
                matches!(&error, InstallError::OthersMayWrite(all) if all.len() == 1),
                "{error}"
            );
            assert!(options.root.join("etc/systemd/system/winddown.service").exists(), "{place}");
            let forced = UninstallOptions { force: true, ..removal };
            let report = uninstall_on(&forced, None).unwrap().to_string();
            assert!(report.contains("trusted because of --force: "), "{report}");
        }
    }

    #[test]
    fn a_file_that_is_larger_than_any_program_is_not_read_to_its_end() {
        let bed = Bed::new();
        for place in [bed.shared.path().join("winddownd"), bed.root.path().join("usr/bin/winddown")]
        {
            bed.file(&place);
            fs::File::options().write(true).open(&place).unwrap().set_len(1 << 40).unwrap();
            let error = install_on(&bed.options(), None).unwrap_err();
            let said = winddown_shared::error_chain(&error);
            assert!(said.contains("file too large"), "{said}");
            fs::remove_file(&place).unwrap();
            bed.file(&bed.shared.path().join("winddownd"));
        }
    }
}

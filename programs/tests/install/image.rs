//! An empty machine in a directory.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use winddown_install::{
    Host, HostError, InstallError, InstallOptions, InstallReport, UninstallOptions, install_on,
    uninstall_on,
};

/// Without the leading slash, as the other paths here.
pub(crate) const UNIT: &str = "etc/systemd/system/winddown.service";
pub(crate) const WANTS: &str = "etc/systemd/system/multi-user.target.wants/winddown.service";
pub(crate) const LOGIND: &str = "etc/systemd/logind.conf.d/zz-winddown.conf";

/// A configuration with a budget of 100 s, from which systemd's stop timeout is derived.
pub(crate) const LONG: &str = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\n\
                    shutdownGracePeriod: 100s\n";

pub(crate) const PROGRAMS: [&str; 3] = ["winddown", "winddown-shim", "winddownd"];

/// An empty machine and programs to install.
pub(crate) struct Image {
    pub(crate) root: TempDir,
    pub(crate) source: TempDir,
}

impl Image {
    pub(crate) fn new() -> Self {
        let image =
            Self { root: tempfile::tempdir().unwrap(), source: tempfile::tempdir().unwrap() };
        image.programs("first");
        image
    }

    pub(crate) fn programs(&self, content: &str) {
        for name in PROGRAMS {
            let program = format!("{content}{}", winddown_install::BUILD_MARK);
            fs::write(self.source.path().join(name), program).unwrap();
        }
    }

    /// Gives the machine the unit of a package.
    pub(crate) fn package(&self) {
        let unit = self.path("usr/lib/systemd/system/winddown.service");
        fs::create_dir_all(unit.parent().unwrap()).unwrap();
        fs::write(&unit, "packaged").unwrap();
    }

    pub(crate) fn options(&self) -> InstallOptions {
        let mut options = InstallOptions::new(self.source.path());
        options.root = self.root.path().to_owned();
        options
    }

    pub(crate) fn install(&self) -> Result<InstallReport, InstallError> {
        install_on(&self.options(), None)
    }

    pub(crate) fn uninstall(&self, purge: bool) -> InstallReport {
        uninstall_on(&self.removal(purge), None).unwrap()
    }

    pub(crate) fn removal(&self, purge: bool) -> UninstallOptions {
        UninstallOptions { root: self.root.path().to_owned(), purge, ..Default::default() }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Every file, link and directory with its mode.
    pub(crate) fn tree(&self) -> Vec<String> {
        let mut all = BTreeSet::new();
        walk(self.root.path(), self.root.path(), &mut all);
        all.into_iter().collect()
    }
}

fn walk(root: &Path, dir: &Path, all: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if meta.is_symlink() {
            all.insert(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
        } else if meta.is_dir() {
            all.insert(format!("{name}/ {:o}", meta.permissions().mode() & 0o7777));
            walk(root, &path, all);
        } else {
            all.insert(format!("{name} {:o}", meta.permissions().mode() & 0o7777));
        }
    }
}

/// Records what it is asked to run, and says whether pods run below the agent.
#[derive(Default)]
pub(crate) struct Recorder(pub(crate) RefCell<Vec<String>>, pub(crate) bool);

/// A machine on which logind lists these locks of kubelets.
pub(crate) struct Locks(pub(crate) Option<bool>);

impl Host for Locks {
    fn run(&self, _: &str, _: &[&str]) -> Result<(), HostError> {
        Ok(())
    }

    fn kubelet_holds_lock(&self) -> Option<bool> {
        self.0
    }

    fn has_processes(&self, _: &Path) -> Option<bool> {
        Some(false)
    }
}

impl Host for Recorder {
    fn run(&self, program: &str, args: &[&str]) -> Result<(), HostError> {
        self.0.borrow_mut().push(format!("{program} {}", args.join(" ")));
        Ok(())
    }

    fn kubelet_holds_lock(&self) -> Option<bool> {
        None
    }

    fn has_processes(&self, state: &Path) -> Option<bool> {
        Some(self.1 && state == Path::new("/var/lib/winddown"))
    }
}

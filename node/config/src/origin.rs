//! Where a configuration comes from: its file, or what stands in for it while that is not there or cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use winddown_host::{Durability, in_root, path_word, regular, replace_private};
use winddown_shared::error_chain;

use super::{Config, ConfigError, DEFAULT_FILE, Warning};

/// The copy of the configuration that was last in force on this machine. It has this place whatever `stateDirectory`
/// says: once the configuration is gone, nothing else says where to look.
pub const LAST_IN_FORCE: &str = "/var/lib/winddown/last-config.yaml";

/// What a configuration that stands in for the file at the default path says of itself.
pub const LAST_IS_USED: &str = "using the last configuration in effect";

/// Where a configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Its file.
    File,
    /// The copy of what was last in force: the file at the default path is not there any more, or cannot be used.
    LastInForce,
    /// The defaults: there is no file at the default path, and never was one with which an agent started.
    Defaults,
}

/// A configuration, and where it comes from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration, with its paths as they are written.
    pub config: Config,
    /// The warnings about its text.
    pub warnings: Vec<Warning>,
    /// Where it comes from.
    pub origin: Origin,
    /// The file that was read; with [`Origin::Defaults`], the one that is not there.
    pub file: PathBuf,
    /// What was read.
    pub text: Vec<u8>,
    /// Why the file at the default path, which is there, is not used; only with [`Origin::LastInForce`].
    pub refused: Option<String>,
}

/// Loads the configuration file `named`, or without one the file at the default path below `root`. If that is not
/// there or cannot be used, what was last in force counts: a node whose configuration is lost must not become another
/// node, and one with a typo must not lose its agent, and with it all pods their time. On a machine where nothing was in
/// force, a missing file stands for the defaults. Blocking.
///
/// # Errors
/// The file cannot be read or is invalid, and nothing stands in for it.
pub fn load(root: &Path, named: Option<&Path>) -> Result<Loaded, ConfigError> {
    let file = named.map_or_else(|| in_root(root, DEFAULT_FILE), Path::to_owned);
    let error = match read(&file, Origin::File) {
        Err(error) if named.is_none() => error,
        loaded => return loaded,
    };
    match read(&in_root(root, LAST_IN_FORCE), Origin::LastInForce) {
        Ok(last) if error.is_missing() => Ok(last),
        Ok(last) => Ok(Loaded { refused: Some(error_chain(&error)), ..last }),
        Err(_) if !error.is_missing() => Err(error),
        Err(of_copy) if of_copy.is_missing() => {
            let (config, warnings, text) = (Config::default(), Vec::new(), Vec::new());
            Ok(Loaded { config, warnings, origin: Origin::Defaults, file, text, refused: None })
        }
        Err(of_copy) => Err(of_copy),
    }
}

/// The command that puts back the configuration `file`, which is gone, from the copy of what was last in force on its
/// machine. `None` if that is not the file at the default path, or there is no such copy. Blocking.
pub(super) fn put_back(file: &Path) -> Option<String> {
    let root = root_above(file, DEFAULT_FILE)?;
    in_root(root, LAST_IN_FORCE).is_file().then(|| copy_back(root))
}

fn copy_back(root: &Path) -> String {
    let (from, to) =
        (path_word(in_root(root, LAST_IN_FORCE)), path_word(in_root(root, DEFAULT_FILE)));
    format!("`cp {from} {to}`")
}

/// The root below which `file` is at this place.
fn root_above<'a>(file: &'a Path, place: &str) -> Option<&'a Path> {
    let root = file.ancestors().nth(Path::new(place).components().count() - 1)?;
    (in_root(root, place) == file).then_some(root)
}

fn read(file: &Path, origin: Origin) -> Result<Loaded, ConfigError> {
    let failed = |source| ConfigError::Read { path: file.to_owned(), source };
    let text = regular::open(file).and_then(winddown_yaml::read).map_err(failed)?;
    let (config, warnings) = Config::parse(file, &text)?;
    Ok(Loaded { config, warnings, origin, file: file.to_owned(), text, refused: None })
}

// === impl Loaded ===

impl Loaded {
    /// Says what is in effect in place of the file at the default path; `None` if the file was read.
    pub fn stands_in(&self) -> Option<String> {
        let file = self.file.display();
        match (self.origin, &self.refused) {
            (Origin::File, _) => None,
            (Origin::LastInForce, Some(why)) => Some(format!(
                "{DEFAULT_FILE} cannot be used: {LAST_IS_USED}, kept in {file}; correct it, \
                 then `systemctl reload winddown`: {why}"
            )),
            (Origin::LastInForce, None) => {
                let root = root_above(&self.file, LAST_IN_FORCE);
                let back = root.map(|root| format!("; {} puts it back", copy_back(root)));
                let back = back.unwrap_or_default();
                Some(format!("{DEFAULT_FILE} does not exist: {LAST_IS_USED}, kept in {file}{back}"))
            }
            (Origin::Defaults, _) => {
                Some(format!("{file} does not exist: the defaults are in effect"))
            }
        }
    }

    /// Returns what was last in force, below `root`, in place of the file at the default path, which this machine does not let
    /// an agent use, as `why` says. `None` if something else was read, or there is no other configuration. Blocking.
    #[must_use]
    pub fn last_instead(&self, root: &Path, why: &str) -> Option<Self> {
        if !self.is_default_file(root) {
            return None;
        }
        let last = read(&in_root(root, LAST_IN_FORCE), Origin::LastInForce).ok()?;
        (last.text != self.text).then(|| Self { refused: Some(why.to_owned()), ..last })
    }

    /// Keeps what was read as what was last in force, below `root`, if it comes from the file at the default path. Once
    /// an agent has started with it. Blocking.
    ///
    /// # Errors
    /// The copy cannot be written; an old one is kept.
    pub fn keep(&self, root: &Path) -> io::Result<()> {
        let copy = in_root(root, LAST_IN_FORCE);
        if !self.is_default_file(root) {
            return Ok(());
        }
        let most = regular::MAX_CONFIGURATION_BYTES;
        if regular::read(&copy, most).is_ok_and(|old| old == self.text) {
            return Ok(());
        }
        if let Some(directory) = copy.parent() {
            std::fs::create_dir_all(directory)?;
        }
        replace_private(&copy, Durability::PowerCut, &self.text)
    }

    /// Whether it comes from the file at the default path below `root`.
    fn is_default_file(&self, root: &Path) -> bool {
        self.origin == Origin::File && self.file == in_root(root, DEFAULT_FILE)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Mode;

    const COMPANION: &str =
        "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nmode: companion\n";

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_companion_whose_configuration_is_lost_stays_a_companion() {
        let root = tempfile::tempdir().unwrap();
        let load = || load(root.path(), None);
        let first = load().unwrap();
        assert_eq!((first.origin, first.config.node.mode), (Origin::Defaults, Mode::Standalone));
        first.keep(root.path()).unwrap();
        assert_eq!(load().unwrap().origin, Origin::Defaults, "defaults are nobody's choice");

        put(root.path(), DEFAULT_FILE, COMPANION);
        let there = load().unwrap();
        assert_eq!((there.origin, there.stands_in()), (Origin::File, None));
        there.keep(root.path()).unwrap();
        fs::remove_file(&there.file).unwrap();
        let lost = load().unwrap();
        assert_eq!((lost.origin, lost.config.node.mode), (Origin::LastInForce, Mode::Companion));
        let said = lost.stands_in().unwrap();
        assert!(said.contains("using the last configuration in effect"), "{said}");
        let (copy, file) = (root.path().join(&LAST_IN_FORCE[1..]), there.file.clone());
        let back = format!("`cp {} {}`", copy.display(), file.display());
        assert!(said.contains(&back), "{said}");
        let named = super::load(root.path(), Some(&file)).unwrap_err();
        for said in [said, named.hint()] {
            assert!(said.contains(&back), "{said}");
            assert!(!said.contains("config default"), "that would make it another node: {said}");
        }

        put(root.path(), DEFAULT_FILE, &COMPANION.replace("companion", "standalone"));
        let back = load().unwrap();
        assert_eq!((back.origin, back.config.node.mode), (Origin::File, Mode::Standalone));
    }

    /// It cost the node its lock, and every pod its grace at the next shutdown.
    #[test]
    fn a_file_that_is_wrong_leaves_the_last_one_in_effect_and_without_one_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let load = || load(root.path(), None);
        let wrong = COMPANION.replace("mode: companion", "mode: standalone\nmaxPodz: 7");
        put(root.path(), DEFAULT_FILE, &wrong);
        let error = load().unwrap_err();
        assert!(error.to_string().contains("maxPodz"), "nothing was in effect before: {error}");
        put(root.path(), LAST_IN_FORCE, &wrong);
        let error = load().unwrap_err();
        assert!(error.to_string().contains("etc/winddown/config.yaml"), "{error}");

        put(root.path(), LAST_IN_FORCE, COMPANION);
        let stood_in = load().unwrap();
        let mode = stood_in.config.node.mode;
        assert_eq!((stood_in.origin, mode), (Origin::LastInForce, Mode::Companion));
        let said = stood_in.stands_in().unwrap();
        assert!(said.contains("maxPodz") && said.contains("last configuration"), "{said}");
        assert!(!said.contains("does not exist") && !said.contains("`cp "), "{said}");
        stood_in.keep(root.path()).unwrap();
        let kept = root.path().join(&LAST_IN_FORCE[1..]);
        let kept = regular::read_to_string(&kept, 1024).unwrap();
        assert_eq!(kept, COMPANION);
        let named = root.path().join(&DEFAULT_FILE[1..]);
        super::load(root.path(), Some(&named)).unwrap_err();
    }

    #[test]
    fn the_configuration_of_an_image_is_where_its_own_links_lead() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "/data/config.yaml", COMPANION);
        fs::create_dir(root.path().join("etc")).unwrap();
        std::os::unix::fs::symlink("/data", root.path().join("etc/winddown")).unwrap();
        let there = load(root.path(), None).unwrap();
        assert_eq!((there.origin, there.config.node.mode), (Origin::File, Mode::Companion));
    }

    #[test]
    fn a_damaged_copy_is_an_error_and_not_another_configuration() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), LAST_IN_FORCE, "mode: ");
        let error = load(root.path(), None).unwrap_err();
        assert!(error.to_string().contains("last-config.yaml"), "{error}");
    }

    #[test]
    fn a_file_that_was_named_is_neither_kept_nor_stood_in_for() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "/named.yaml", COMPANION);
        let named = root.path().join("named.yaml");
        load(root.path(), Some(&named)).unwrap().keep(root.path()).unwrap();
        assert!(!root.path().join("var").exists());
        put(root.path(), LAST_IN_FORCE, COMPANION);
        fs::remove_file(&named).unwrap();
        let missing = load(root.path(), Some(&named)).unwrap_err();
        assert!(missing.is_missing());
        assert!(missing.hint().contains("winddown config default"), "{}", missing.hint());
    }
}

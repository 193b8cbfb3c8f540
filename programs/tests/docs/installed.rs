//! The pages as a package and the tarball have them: links, paths and commands lead somewhere where they are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use winddown_cli::man;
use winddown_node_tests::packages::{is_here, text_of};

use super::page::{self, Page};
use super::{every_line_can_be_typed, every_link_leads_somewhere, markdown, read_sources, root};

/// What packages and tarball hold, below `package` and `tarball`; none if it cannot be laid out here.
fn stage(test: &str) -> Option<tempfile::TempDir> {
    if !is_here("strip") {
        let why = format!("SKIPPED: {test}: there is no strip (apt-get install binutils)");
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{why}");
        println!("{why}");
        return None;
    }
    let into = tempfile::tempdir().expect("a directory");
    let program = PathBuf::from(assert_cmd::cargo::cargo_bin!("winddown"));
    let mut build = Command::new(root().join("programs/packaging/build.sh"));
    build.arg("--programs").arg(program.parent().expect("a folder"));
    build.arg("--out").arg(into.path()).args(["--fast", "stage"]);
    text_of(&mut build).expect("laid out");
    Some(into)
}

#[test]
fn every_installed_page_names_what_is_installed() {
    let Some(stage) = stage("every_installed_page_names_what_is_installed") else { return };
    let (package, tarball) = (stage.path().join("package"), stage.path().join("tarball"));
    let doc = package.join("usr/share/doc/winddown");
    for (form, pages) in [(&package, &doc), (&tarball, &tarball)] {
        let links = every_link_leads_somewhere(&markdown(form));
        assert!(links > 100, "{}: {links}", form.display());
        let pages: Vec<Page> = page::files(pages).iter().map(|file| Page::read(file)).collect();
        let typed = every_line_can_be_typed(&pages);
        assert!(typed > 30, "{}: {typed}", form.display());
    }

    let catalog = package.join("usr/lib/systemd/catalog/winddown.catalog");
    let texts = markdown(&package).into_iter().chain(files(&package.join("usr/share/winddown")));
    let texts = texts.chain([catalog]).map(|file| (file.display().to_string(), text(&file)));
    let manual =
        man::pages().into_iter().map(|page| (page.file_name(), page.text.replace("\\-", "-")));
    let mut named = 0;
    for (file, text) in texts.chain(manual) {
        for path in paths(&text) {
            let at = format!("{file}: {path}");
            // A page of the package is read anywhere.
            assert!(!is_of_the_repository(&path), "{at} is not there");
            let of_sources = path.ends_with(".rs") && path.contains("/src/");
            assert!(!of_sources || root().join(&path).exists(), "{at} is no file of the sources");
            // A URL of a file begins with two more.
            let path = path.trim_start_matches("//");
            let places = ["/usr/share/winddown/", "/usr/share/doc/winddown/"];
            if places.iter().any(|place| path.starts_with(place)) {
                let there = package.join(path.trim_start_matches('/'));
                assert!(there.exists(), "{at} is not installed");
                named += 1;
            }
        }
    }
    assert!(named > 20, "{named}");
    let mut named = 0;
    for file in markdown(&tarball).into_iter().chain(files(&tarball.join("kubernetes"))) {
        for path in paths(&text(&file)).into_iter().filter(|path| is_of_the_repository(path)) {
            assert!(tarball.join(&path).exists(), "{}: {path} is not there", file.display());
            named += 1;
        }
    }
    assert!(named > 10, "{named}");

    // What the programs tell people to type.
    let mut said = String::new();
    for part in ["programs", "programs/doctor", "programs/install", "programs/render"] {
        read_sources(&root().join(part).join("src"), &mut said);
    }
    let ours: Vec<&str> = said.split("/usr/share/winddown/").skip(1).collect();
    assert!(ours.len() >= 3, "{}", ours.len());
    for rest in ours {
        let path = rest.split(|c: char| !is_of_path(c)).next().unwrap_or_default();
        let there = package.join("usr/share/winddown").join(path.trim_end_matches('.'));
        assert!(there.exists(), "{} is not installed", there.display());
    }
}

/// The text of a file, without where links lead; empty if it is none.
fn text(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let (first, others) = text.split_once("](").unwrap_or((&text, ""));
    let others = others.split("](").map(|rest| rest.split_once(')').map_or("", |(_, rest)| rest));
    std::iter::once(first).chain(others).collect()
}

/// The words that are paths with a directory.
fn paths(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !is_of_path(c)).filter(|word| word.contains('/'));
    let words = words.map(|word| word.trim_end_matches(['.', '/']).to_owned());
    words.filter(|word| !word.is_empty() && !word.starts_with('.')).collect()
}

/// Whether the path leads from the repository's root to something that is used on nodes.
fn is_of_the_repository(path: &str) -> bool {
    let used = [
        "cluster/rbac",
        "docs/",
        "docs/examples/",
        "programs/packaging/ansible",
        "programs/packaging/kubernetes",
        "programs/packaging/monitoring",
    ];
    let is_data = [".json", ".yaml"].iter().any(|ending| path.ends_with(ending));
    (is_data || used.iter().any(|used| path.starts_with(used))) && root().join(path).exists()
}

fn is_of_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/._-".contains(c)
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

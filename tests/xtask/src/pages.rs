//! The pages as a package or the tarball has them: links and paths lead where things are installed.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

/// Where what pages name is installed.
pub(crate) struct Layout {
    /// What comes before a path that a page names: it is absolute, or relative to the tarball's folder.
    root: &'static str,
    /// A path in the repository, and where it is installed, relative to the root.
    places: &'static [(&'static str, &'static str)],
}

/// The deb and the rpm. Not all below doc: images of nodes are often made without that.
pub(crate) const PACKAGE: Layout = Layout {
    root: "/",
    places: &[
        ("README.md", "usr/share/doc/winddown/README.md"),
        ("CHANGELOG.md", "usr/share/doc/winddown/CHANGELOG.md"),
        (".github/SECURITY.md", "usr/share/doc/winddown/SECURITY.md"),
        ("docs/examples", "usr/share/winddown/examples"),
        ("docs", "usr/share/doc/winddown/docs"),
        ("cluster/rbac", "usr/share/winddown/rbac"),
        ("programs/packaging/ansible", "usr/share/winddown/ansible"),
        ("programs/packaging/kubernetes", "usr/share/winddown/kubernetes"),
        ("programs/packaging/monitoring", "usr/share/winddown/monitoring"),
    ],
};

/// The tarball.
pub(crate) const TARBALL: Layout = Layout {
    root: "",
    places: &[
        ("README.md", "README.md"),
        ("CHANGELOG.md", "CHANGELOG.md"),
        (".github/SECURITY.md", "SECURITY.md"),
        ("docs", "docs"),
        ("cluster/rbac", "rbac"),
        ("programs/packaging/ansible", "ansible"),
        ("programs/packaging/kubernetes", "kubernetes"),
        ("programs/packaging/monitoring", "monitoring"),
    ],
};

/// Writes the pages, and the files that they name, below `into`.
pub(crate) fn write(repository: &Path, layout: &Layout, into: &Path) -> Result<()> {
    for (from, to) in layout.places {
        copy(repository, layout, Path::new(from), &into.join(to))?;
    }
    Ok(())
}

fn copy(repository: &Path, layout: &Layout, path: &Path, to: &Path) -> Result<()> {
    if layout.installed(path).is_some_and(|place| !to.ends_with(place)) {
        // It has a place of its own.
        return Ok(());
    }
    let from = repository.join(path);
    let at = || format!("cannot copy {} to {}", from.display(), to.display());
    if from.is_dir() {
        for entry in fs::read_dir(&from).with_context(at)? {
            let name = entry.with_context(at)?.file_name();
            copy(repository, layout, &path.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    fs::create_dir_all(to.parent().unwrap_or(to)).with_context(at)?;
    // With its mode.
    fs::copy(&from, to).with_context(at)?;
    let text = match path.extension().and_then(|ending| ending.to_str()) {
        Some("md") => {
            let text = fs::read_to_string(&from).with_context(at)?;
            layout.links(&text, path, &|target| repository.join(target).exists())
        }
        Some("yaml") if path.ends_with("kustomization.yaml") => {
            layout.resources(&fs::read_to_string(&from).with_context(at)?, path)
        }
        // Manifests name each other in comments.
        Some("yaml") => layout.paths(&fs::read_to_string(&from).with_context(at)?),
        _ => return Ok(()),
    };
    fs::write(to, text).with_context(at)
}

// === impl Layout ===

impl Layout {
    /// Where a path of the repository is installed, relative to the root.
    fn installed(&self, path: &Path) -> Option<PathBuf> {
        self.places.iter().find_map(|(from, to)| {
            let rest = path.strip_prefix(from).ok()?;
            Some(if rest.as_os_str().is_empty() { to.into() } else { Path::new(to).join(rest) })
        })
    }

    /// Returns the text of `page` with links that lead to what is installed. A link to what is not becomes its text.
    fn links(&self, text: &str, page: &Path, exists: &dyn Fn(&Path) -> bool) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("](") {
            out.push_str(&self.paths(before));
            let Some((link, behind)) = after.split_once(')') else { break };
            let (file, heading) =
                link.split_once('#').map_or((link, String::new()), |(f, h)| (f, format!("#{h}")));
            let target = normal(&page.parent().unwrap_or(page).join(file));
            match self.installed(&target) {
                _ if file.is_empty() || file.contains("://") || !exists(&target) => {
                    out.push_str(&format!("]({link})"));
                }
                Some(to) => {
                    let from = self.installed(page).unwrap_or_else(|| page.to_owned());
                    let to = relative(from.parent().unwrap_or(&from), &to);
                    out.push_str(&format!("]({}{heading})", to.display()));
                }
                None => unlink(&mut out),
            }
            rest = behind;
        }
        out.push_str(&self.paths(rest));
        out
    }

    /// Returns the text of a kustomization, whose entries that are paths lead to what is installed.
    fn resources(&self, text: &str, file: &Path) -> String {
        let directory = |path: &Path| path.parent().unwrap_or(path).to_owned();
        let entry = |line: &str| {
            let target = normal(&directory(file).join(line.strip_prefix("- ")?));
            let to = relative(&directory(&self.installed(file)?), &self.installed(&target)?);
            Some(format!("- {}", to.display()))
        };
        let lines = text.lines().map(|line| entry(line).unwrap_or_else(|| self.paths(line)) + "\n");
        lines.collect()
    }

    /// Returns the text with the paths of directories of the repository as they are installed.
    fn paths(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (from, to) in self.places.iter().filter(|(from, _)| !from.ends_with(".md")) {
            // `docs` alone is a word.
            let is_name = |next: Option<char>| match next {
                Some('/') => true,
                next => from.contains('/') && !next.is_some_and(is_of_path),
            };
            let mut done = String::new();
            let mut rest = out.as_str();
            while let Some(at) = rest.find(from) {
                let (before, after) = (&rest[..at], &rest[at + from.len()..]);
                let begins = !before
                    .chars()
                    .next_back()
                    .or(done.chars().next_back())
                    .is_some_and(is_of_path);
                done.push_str(before);
                match begins && is_name(after.chars().next()) {
                    true => done.push_str(&format!("{}{to}", self.root)),
                    false => done.push_str(from),
                }
                rest = after;
            }
            done.push_str(rest);
            out = done;
        }
        out
    }
}

fn is_of_path(c: char) -> bool {
    c.is_alphanumeric() || "/._-".contains(c)
}

/// Takes away the bracket that opens the text at the end.
fn unlink(out: &mut String) {
    let mut depth = 0_usize;
    let open = out.char_indices().rev().find(|(_, c)| {
        match c {
            ']' => depth += 1,
            '[' if depth == 0 => return true,
            '[' => depth -= 1,
            _ => {}
        }
        false
    });
    if let Some((at, _)) = open {
        out.remove(at);
    }
}

/// Without `..`, as far as there is something before it.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            Component::ParentDir if done.file_name().is_some() => drop(done.pop()),
            Component::CurDir => {}
            part => done.push(part),
        }
        done
    })
}

/// The way from a directory to a path, both relative to the same root.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(layout: &Layout, page: &str, text: &str) -> String {
        let missing = ["nowhere.md", "docs/nowhere.md"];
        layout
            .links(text, Path::new(page), &|path| !missing.iter().any(|one| path == Path::new(one)))
    }

    #[test]
    fn links_lead_to_what_is_installed_and_the_others_become_their_text() {
        for (at, text, package, tarball) in [
            ("README.md", "[a](docs/a.md#b)", "[a](docs/a.md#b)", "[a](docs/a.md#b)"),
            ("README.md", "[`x[0]` y](tests/README.md) z", "`x[0]` y z", "`x[0]` y z"),
            (
                "docs/how-to/a.md",
                "![e](../examples/nut/README.md)",
                "![e](../../../../winddown/examples/nut/README.md)",
                "![e](../examples/nut/README.md)",
            ),
            (
                "docs/examples/nut/README.md",
                "[d](../../a.md)",
                "[d](../../../doc/winddown/docs/a.md)",
                "[d](../../a.md)",
            ),
            (
                "docs/a.md",
                "[r](../cluster/rbac/x.yaml)",
                "[r](../../../winddown/rbac/x.yaml)",
                "[r](../rbac/x.yaml)",
            ),
            (
                "docs/a.md",
                "[h](#h) [u](https://a/b) x[0](nowhere.md)",
                "[h](#h) [u](https://a/b) x[0](nowhere.md)",
                "[h](#h) [u](https://a/b) x[0](nowhere.md)",
            ),
        ] {
            assert_eq!(page(&PACKAGE, at, text), package);
            assert_eq!(page(&TARBALL, at, text), tarball);
        }
    }

    #[test]
    fn a_kustomization_names_what_is_installed() {
        let file = Path::new("programs/packaging/kubernetes/kustomization.yaml");
        let text = "# cluster/rbac/a.yaml\nresources:\n- ../../../cluster/rbac\n- companion.yaml\n";
        let wanted =
            |root| format!("# {root}rbac/a.yaml\nresources:\n- ../rbac\n- companion.yaml\n");
        assert_eq!(PACKAGE.resources(text, file), wanted("/usr/share/winddown/"));
        assert_eq!(TARBALL.resources(text, file), wanted(""));
    }

    #[test]
    fn paths_of_the_repository_become_those_of_a_node() {
        let text = "-f cluster/rbac/a.yaml -f docs/examples/b, `programs/packaging/monitoring` has examples";
        let package = "-f /usr/share/winddown/rbac/a.yaml -f /usr/share/winddown/examples/b, \
                       `/usr/share/winddown/monitoring` has examples";
        let tarball = "-f rbac/a.yaml -f docs/examples/b, `monitoring` has examples";
        assert_eq!(page(&PACKAGE, "docs/a.md", text), package);
        assert_eq!(page(&TARBALL, "docs/a.md", text), tarball);
    }
}

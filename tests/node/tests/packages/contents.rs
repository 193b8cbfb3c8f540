//! What is in the packages, judged from outside and by other people's tools.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use winddown_node_tests::packages::{Packages, are_here, text_of};
use winddown_node_tests::programs;
use winddown_node_tests::scenario::TestResult;

/// What a package cannot do without.
const EXPECTED: [&str; 27] = [
    "/usr/bin/winddown",
    "/usr/bin/winddown-shim",
    "/usr/bin/winddownd",
    "/usr/lib/systemd/catalog/winddown.catalog",
    "/usr/lib/systemd/system/cri-containerd-.scope.d/50-winddown.conf",
    "/usr/lib/systemd/system/crio-.scope.d/50-winddown.conf",
    "/usr/lib/systemd/system/winddown-order.target",
    "/usr/lib/systemd/system/winddown-survivors.slice",
    "/usr/lib/systemd/system/winddown.service",
    "/usr/lib/systemd/system/winddown.service.d/10-process-runtime.conf",
    "/usr/lib/systemd/system/winddown.slice",
    "/usr/lib/sysusers.d/winddown.conf",
    "/usr/lib/tmpfiles.d/winddown.conf",
    "/usr/share/bash-completion/completions/winddown",
    "/usr/share/doc/winddown/docs/tutorials/quick-start.md",
    "/usr/share/doc/winddown/licences.txt",
    "/usr/share/doc/winddown/winddown.cdx.json",
    "/usr/share/man/man1/winddown.1.gz",
    "/usr/share/man/man5/winddown.yaml.5.gz",
    "/usr/share/man/man8/winddown.service.8.gz",
    "/usr/share/man/man8/winddownd.8.gz",
    "/usr/share/winddown/examples/node/web-1.yaml",
    "/usr/share/doc/winddown/SECURITY.md",
    "/usr/share/winddown/config.yaml",
    "/usr/share/winddown/kubernetes/companion.yaml",
    "/usr/share/winddown/monitoring/rules.yaml",
    "/usr/share/winddown/rbac/companion-mode.yaml",
];

const TOOLS: [(&str, &str); 6] = [
    ("strip", "binutils"),
    ("dpkg-deb", "dpkg"),
    ("lintian", "lintian"),
    ("rpm", "rpm"),
    ("rpm2cpio", "rpm2cpio"),
    ("cpio", "cpio"),
];

#[tokio::test]
async fn both_packages_hold_what_install_writes_and_their_judges_are_content() -> TestResult {
    let test = "both_packages_hold_what_install_writes_and_their_judges_are_content";
    if !are_here(test, &TOOLS)? {
        return Ok(());
    }
    let packages = Packages::make("1", &["deb", "rpm"]).await?;
    let dir = tempfile::tempdir()?;
    let [deb, rpm] = ["deb", "rpm"].map(|name| dir.path().join(name));
    let unpack = "mkdir \"$2\" && cd \"$2\" && rpm2cpio \"$1\" | cpio -id --quiet";
    text_of(Command::new("dpkg-deb").arg("--extract").arg(packages.deb()?).arg(&deb))?;
    text_of(Command::new("sh").args(["-ec", unpack, "sh"]).arg(packages.rpm()?).arg(&rpm))?;

    for path in EXPECTED {
        let [of_deb, of_rpm] = [&deb, &rpm].map(|root| fs::read(root.join(&path[1..])));
        let (of_deb, of_rpm) = (of_deb.map_err(named(path))?, of_rpm.map_err(named(path))?);
        assert!(!of_deb.is_empty() && of_deb == of_rpm, "{path} differs between deb and rpm");
    }
    let [of_deb, of_rpm] = [&deb, &rpm].map(|root| root.join("etc/winddown/config.yaml").exists());
    assert_eq!([of_deb, of_rpm], [false, true], "dpkg would ask, rpm keeps what was changed");
    same_as_installed(&programs().await?.join("winddown"), &deb)?;
    bill_is_of_this_program(&deb)?;

    let judged = text_of(Command::new("lintian").arg("--allow-root").arg(packages.deb()?))?;
    assert_eq!(judged, "", "lintian has something to say");
    scriptlets_are_shell(&packages.rpm()?, dir.path())?;
    let configured = text_of(Command::new("rpm").args(["-qpc"]).arg(packages.rpm()?))?;
    assert_eq!(configured.trim(), "/etc/winddown/config.yaml", "what rpm keeps at an upgrade");
    let listed = text_of(Command::new("rpm").args(["-qpl"]).arg(packages.rpm()?))?;
    let listed: BTreeSet<&str> = listed.lines().collect();
    assert!(EXPECTED.iter().all(|path| listed.contains(path)), "{listed:#?}");
    Ok(())
}

#[tokio::test]
async fn the_same_program_gives_the_same_packages_byte_by_byte() -> TestResult {
    let test = "the_same_program_gives_the_same_packages_byte_by_byte";
    if !are_here(test, &TOOLS)? {
        return Ok(());
    }
    let first = Packages::make("1", &["deb", "rpm"]).await?;
    let second = Packages::make("1", &["deb", "rpm"]).await?;
    assert!(fs::read(first.deb()?)? == fs::read(second.deb()?)?, "the two .deb differ");
    assert!(fs::read(first.rpm()?)? == fs::read(second.rpm()?)?, "the two .rpm differ");
    Ok(())
}

/// Every file of an installation is in the package, in /usr/lib where packages keep such files, with
/// the same text.
fn same_as_installed(program: &Path, package: &Path) -> TestResult {
    let installed = tempfile::tempdir()?;
    let mut install = Command::new(program);
    install
        .args(["install", "--runtime", "process", "--no-enable", "--root"])
        .arg(installed.path());
    text_of(&mut install)?;
    let mut compared = 0;
    for folder in ["systemd/system", "sysusers.d", "tmpfiles.d"] {
        let (here, there) = (installed.path().join("etc"), package.join("usr/lib"));
        for file in files(&here.join(folder))? {
            let path = file.strip_prefix(&here)?;
            let packaged = fs::read_to_string(there.join(path)).map_err(named(path.display()))?;
            assert_eq!(packaged, fs::read_to_string(&file)?, "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared >= 4, "only {compared} files were compared");
    let default = fs::read(installed.path().join("etc/winddown/config.yaml"))?;
    assert_eq!(fs::read(package.join("usr/share/winddown/config.yaml"))?, default);
    Ok(())
}

fn bill_is_of_this_program(package: &Path) -> TestResult {
    let bill = fs::read(package.join("usr/share/doc/winddown/winddown.cdx.json"))?;
    let bill: serde_json::Value = serde_json::from_slice(&bill)?;
    assert_eq!(bill["metadata"]["component"]["name"], "winddown");
    let licences = package.join("usr/share/doc/winddown/licences.txt");
    let licences = fs::read_to_string(licences)?;
    for component in bill["components"].as_array().ok_or("no components")? {
        let [name, version] = ["name", "version"].map(|key| component[key].as_str().unwrap_or(""));
        let ours = component["hashes"].is_null();
        assert!(ours || licences.contains(&format!("\n{name} {version}: ")), "{name} {version}");
    }
    Ok(())
}

/// Each scriptlet alone is a script that a shell can read.
fn scriptlets_are_shell(rpm: &Path, dir: &Path) -> TestResult {
    for tag in ["POSTIN", "PREUN", "POSTUN"] {
        let format = format!("%{{{tag}}}");
        let text = text_of(Command::new("rpm").args(["-qp", "--queryformat", &format]).arg(rpm))?;
        assert!(text.contains("winddown"), "{tag}: {text}");
        let file = dir.join(tag);
        fs::write(&file, text)?;
        text_of(Command::new("sh").arg("-n").arg(&file))?;
    }
    Ok(())
}

fn files(folder: &Path) -> TestResult<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(named(folder.display()))? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

fn named(path: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("{path}: {error}")
}

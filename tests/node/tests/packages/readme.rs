//! A bare Debian node, driven only by what README.md and docs/ say to type, and saying what they show.
//!
//! Blocks marked `console,ignore,node` are typed in the node, page by page in the order in which they are read;
//! those marked `console,ignore,build` in the repository; of those marked `console,ignore,slow`, `make demo-node` is
//! typed and what runs this test, or takes hours, has to be a target. A command may not fail unless its comment names
//! the exit code. What a page shows may leave lines out (`…`), and lengths and times may be others.

use std::path::Path;
use std::process::Command;

use winddown_node_tests::packages::{Packages, are_here, programs_are_here, repository, text_of};
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::typed::{HOME, Typed, enter_all, prepare};
use winddown_node_tests::{Flavour, Node, base_or_skip, in_long_form, of_this_test, programs};

use crate::page::{self, Block, Page};

/// Room that no check finds small.
pub(super) const DISK: u64 = 4 << 30;

const TOOLS: [(&str, &str); 2] = [("dpkg-deb", "dpkg"), ("strip", "binutils")];

#[tokio::test]
async fn a_bare_node_with_the_package_does_what_readme_says() -> TestResult {
    let test = "a_bare_node_with_the_package_does_what_readme_says";
    if !programs_are_here(test, &TOOLS)? {
        return Ok(());
    }
    let mut typed = typed("node")?;
    typed.retain(|command| command.at.starts_with("README.md"));
    enter_on_a_bare_node(test, &typed, 8).await
}

#[tokio::test]
async fn a_bare_node_does_what_readme_and_docs_say() -> TestResult {
    let test = "a_bare_node_does_what_readme_and_docs_say";
    if !are_here(test, &TOOLS)? {
        return Ok(());
    }
    enter_on_a_bare_node(test, &typed("node")?, 20).await
}

/// Types commands, `least` or more, in a node that has the package where the pages say.
async fn enter_on_a_bare_node(test: &str, typed: &[Typed], least: usize) -> TestResult {
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(()) };
    assert!(typed.len() >= least, "only {} commands", typed.len());
    let deb = Packages::the_deb().await?;
    let mut node = Node::create(&base).await?;
    // Else the agent judges how full the disk of the machine is that tests it.
    node.add_disk(DISK).await?;
    node.start().await?;
    prepare(&node)?;
    put_package(&node, &deb, typed)?;
    save_files(&node)?;
    enter_all(&mut node, typed).await
}

#[tokio::test]
async fn what_is_typed_in_the_repository_says_what_the_pages_say() -> TestResult {
    // Built once, and not while a command is waited for.
    programs().await?;
    type_in_the_repository(|line| !line.starts_with("cargo "))
}

#[tokio::test]
async fn what_cargo_runs_in_the_repository_says_what_the_pages_say() -> TestResult {
    let test = "what_cargo_runs_in_the_repository_says_what_the_pages_say";
    if !in_long_form(test, "builds crates with features of its own") {
        return Ok(());
    }
    type_in_the_repository(|line| line.starts_with("cargo "))
}

/// Types those commands of the pages in the repository.
fn type_in_the_repository(is_wanted: impl Fn(&str) -> bool) -> TestResult {
    let mut typed = typed("build")?;
    typed.sort_by(|a, b| (&a.line, b.shown.len()).cmp(&(&b.line, a.shown.len())));
    // Two pages may begin with the same command.
    typed.dedup_by(|later, first| later.line == first.line);
    typed.retain(|command| is_wanted(&command.line));
    assert!(!typed.is_empty());
    for command in typed {
        println!("{} $ {}", command.at, command.line);
        let output = as_a_reader("sh").args(["-c", &command.line]).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        command
            .judge(output.status.code(), &said)
            .map_err(|e| format!("{}: {e}{error}", command.at))?;
    }
    Ok(())
}

#[test]
fn what_takes_long_is_a_target_of_make() -> TestResult {
    let typed = typed("slow")?;
    assert!(typed.len() >= 4, "only {} commands", typed.len());
    for command in &typed {
        let words = command.line.split(" # ").next().unwrap_or_default();
        let Some(targets) = words.strip_prefix("make ") else { continue };
        let mut make = as_a_reader("make");
        make.arg("--dry-run").args(targets.split_whitespace());
        text_of(&mut make).map_err(|error| format!("{}: {error}", command.at))?;
    }
    Ok(())
}

#[tokio::test]
async fn make_demo_node_demonstrates_a_power_off() -> TestResult {
    let test = "make_demo_node_demonstrates_a_power_off";
    if !in_long_form(test, "builds the programs of nodes once more")
        || base_or_skip(test, Flavour::Plain).await?.is_none()
    {
        return Ok(());
    }
    let typed = typed("slow")?;
    assert!(typed.iter().any(|command| command.line.starts_with("make demo-node")));
    text_of(as_a_reader("make").arg("demo-node"))?;
    Ok(())
}

/// A program that a reader starts in the repository: a make that runs this test is none of the reader's.
fn as_a_reader(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(repository()).env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    for name in of_this_test() {
        command.env_remove(name);
    }
    command
}

/// All commands of blocks that are ignored for this reason, in the order in which the pages are read.
pub(super) fn typed(reason: &str) -> TestResult<Vec<Typed>> {
    let mut all = Vec::new();
    for file in page::files(repository()) {
        let name = file.strip_prefix(repository())?.display().to_string();
        let page = Page::read(&file);
        for block in page.blocks.iter().filter(|b| b.words() == ["console", "ignore", reason]) {
            all.extend(commands(&name, block));
        }
    }
    Ok(all)
}

/// The commands of a block.
pub(super) fn commands(page: &str, block: &Block) -> Vec<Typed> {
    winddown_node_tests::typed::commands(page, block.line, &block.lines)
}

/// Puts the package where the pages say it is, under the name they give it.
fn put_package(node: &Node, deb: &Path, typed: &[Typed]) -> TestResult {
    let words = typed.iter().flat_map(|command| command.line.split_whitespace());
    let mut names: Vec<&str> = words.filter(|word| word.ends_with(".deb")).collect();
    names.dedup();
    assert!(!names.is_empty(), "no page says where the package is");
    // The architecture is this machine's.
    let version = |name: &str| name.rsplit('/').next()?.rsplit_once('_').map(|(v, _)| v.to_owned());
    for name in names {
        let made = deb.file_name().and_then(|name| version(name.to_str()?));
        assert_eq!(version(name), made, "the pages name the package of another version");
        let path = if name.starts_with('/') { name.to_owned() } else { format!("{HOME}/{name}") };
        node.install(deb, &path)?;
    }
    Ok(())
}

/// Saves what the pages show as a file: its name is the comment in the first line.
pub(super) fn save_files(node: &Node) -> TestResult {
    for file in page::files(repository()) {
        for block in Page::read(&file).blocks.iter().filter(|block| block.words() == ["yaml"]) {
            let name = block.lines.first().and_then(|line| line.strip_prefix("# "));
            if let Some(name) = name.filter(|name| name.ends_with(".yaml")) {
                node.write(&format!("{HOME}/{name}"), block.lines.join("\n"), 0o644)?;
            }
        }
    }
    Ok(())
}

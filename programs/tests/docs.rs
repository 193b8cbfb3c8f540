//! README.md and docs/: every example is run, or says why it is not; command lines, configurations,
//! log lines and links are those of this version.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::expect_used, clippy::panic, reason = "clippy does not see that helpers are tests")]

#[path = "docs/by_hand.rs"]
mod by_hand;
#[path = "docs/claims.rs"]
mod claims;
mod found_by_name;
#[path = "docs/installed.rs"]
mod installed;
#[path = "docs/page.rs"]
mod page;
#[path = "docs/printed.rs"]
#[allow(dead_code, reason = "the tests that type them read the rest")]
mod printed;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use by_hand::{is_generated, words_by_hand};
use clap::Parser;
use clap::error::ErrorKind::{ArgumentConflict, InvalidSubcommand, UnknownArgument};
use found_by_name::search_path;
use page::{Block, Page};
use winddown_cli::Cli;

/// Why a block of commands is not run here. `build` and `node`: tests/node/tests/packages/readme.rs runs it,
/// in the repository or in a node; `beside`: with_a_kubelet.rs beside it; `kubelet`, `runtime`, `server`: walkthroughs.rs beside it; `tools`: tools.rs there; `guard`,
/// `rack`: tests/node/tests; `cluster`: tests/cluster, beside a real kubelet; `slow`: targets of make. tests/README.md has them all.
const REASONS: [&str; 12] = [
    "beside", "build", "cluster", "guard", "kubelet", "node", "rack", "reboot", "runtime",
    "server", "slow", "tools",
];

fn root() -> PathBuf {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_directory.parent().expect("the repository").to_owned()
}

/// The folder of each package of the workspace.
fn members() -> Vec<PathBuf> {
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let (_, members) = workspace.split_once("members = [").expect("its members");
    let (members, _) = members.split_once(']').expect("their end");
    members.split('"').skip(1).step_by(2).map(|member| root().join(member)).collect()
}

fn pages() -> Vec<Page> {
    let files = page::files(&root());
    assert!(files.len() > 20);
    files.iter().map(|file| Page::read(file)).collect()
}

fn winddown(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("winddown"));
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command.env_remove("WINDDOWN_SOCKET").env_remove("WINDDOWN_CONFIG");
    // Never the login manager of the machine that runs the tests.
    command.env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus").env("PATH", search_path());
    command
}

#[test]
fn every_example_that_can_be_run_here_says_what_the_page_says() {
    // Examples are typed in the repository's root.
    std::env::set_current_dir(root()).expect("the repository");
    let cases = trycmd::TestCases::new();
    cases
        .register_bin("winddown", assert_cmd::cargo::cargo_bin!("winddown"))
        .env("PATH", search_path().to_string_lossy())
        .env("NO_COLOR", "1")
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .case("README.md")
        .case("docs/*.md")
        .case("docs/*/*.md");
}

#[test]
fn every_block_is_run_or_says_why_not() {
    let (mut run, mut reasoned) = (0, 0);
    for page in pages() {
        for block in &page.blocks {
            let at = format!("{}:{}", page.name, block.line);
            match block.words().as_slice() {
                // trycmd does not see indented examples, i.e. those in a list.
                ["console"] if !block.indented => run += 1,
                ["console", "ignore", reason] => {
                    assert!(REASONS.contains(reason), "{at}: {reason} is no reason");
                    let files = format!("programs/tests/data/kubelets/{}", block.heading);
                    let laid_out = root().join(files.to_lowercase()).is_dir();
                    assert!(*reason != "kubelet" || laid_out, "{at}: no test types it");
                    reasoned += 1;
                }
                ["yaml" | "rust"] => {}
                ["text" | "json"] => {
                    let command = block.lines.iter().find(|line| line.starts_with("$ "));
                    assert_eq!(command, None, "{at}: is not run; write console");
                }
                words => panic!(
                    "{at}: `{}`: write console (it is run), console,ignore,REASON, yaml, rust, json \
                     or text",
                    words.join(",")
                ),
            }
        }
    }
    assert!(run >= 5 && reasoned >= 5, "{run} blocks are run, {reasoned} are not");
}

#[test]
fn every_command_line_can_be_typed() {
    let typed = every_line_can_be_typed(&pages());
    assert!(typed > 30, "{typed}");
}

/// Reads the commands of the pages as the program would; returns how many there are.
fn every_line_can_be_typed(pages: &[Page]) -> usize {
    let mut typed = 0;
    for page in pages {
        for block in &page.blocks {
            if !matches!(block.words().first(), Some(&"console")) {
                continue;
            }
            for line in commands(block) {
                let words = page::words(&line);
                // Variables for the command come before it.
                let variable = |word: &&str| word.contains('=') && !word.starts_with('-');
                // Command substitutions are always times.
                let filled = |word: &'_ String| match word.starts_with("$(date") {
                    true => "2026-11-20T12:00:00Z".to_owned(),
                    false => word.clone(),
                };
                let words: Vec<String> = words.iter().map(filled).collect();
                let words: Vec<&str> =
                    words.iter().map(String::as_str).skip_while(variable).collect();
                let command = match words.as_slice() {
                    ["sudo", rest @ ..] => rest,
                    all => all,
                };
                let Some(program) = command.first() else { continue };
                if !(*program == "winddown" || program.ends_with("/winddown")) {
                    continue;
                }
                typed += 1;
                if let Err(error) = Cli::try_parse_from(command) {
                    assert_eq!(
                        error.exit_code(),
                        0,
                        "{}:{}: {line}: {error}",
                        page.name,
                        block.line
                    );
                }
            }
        }
    }
    typed
}

/// The placeholders that a reader replaces.
const PLACEHOLDERS: [&str; 3] = ["NAME", "DIR", "FILE"];

#[test]
fn every_command_in_a_sentence_can_be_typed() {
    let mut typed = 0;
    for page in pages() {
        for piece in page.code().filter(|piece| piece.starts_with("winddown ")) {
            let words = page::words(piece);
            if words.iter().any(|word| PLACEHOLDERS.contains(&word.as_str())) {
                continue;
            }
            typed += 1;
            // A sentence may leave out a command's arguments, but not name ones that do not exist.
            let Err(error) = Cli::try_parse_from(&words) else { continue };
            let wrong = [UnknownArgument, InvalidSubcommand, ArgumentConflict];
            assert!(!wrong.contains(&error.kind()), "{}: `{piece}`: {error}", page.name);
        }
    }
    assert!(typed > 40, "{typed}");
}

#[test]
fn every_command_that_the_program_prints_can_be_typed() {
    let printed = printed::commands(&root());
    assert!(printed.len() > 150, "{}", printed.len());
    for printed::Printed { at, line, .. } in printed {
        let words = page::words(&line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let start = usize::from(words.first() == Some(&"sudo"));
        if words.get(start) != Some(&"winddown") {
            continue;
        }
        // Further commands are others', and an option that the program puts in is one of its own.
        let ends = ["|", "&&", ">", "{flag}"];
        let own = words[start..].iter().take_while(|word| !ends.contains(*word));
        let own: Vec<&str> = own.copied().filter(|word| *word != "…").collect();
        let Err(error) = Cli::try_parse_from(&own) else { continue };
        let wrong = [UnknownArgument, InvalidSubcommand, ArgumentConflict];
        assert!(!wrong.contains(&error.kind()), "{at}: `{line}`: {error}");
    }
}

#[test]
fn a_command_that_the_program_prints_stands_in_backticks_or_in_a_list() {
    use clap::CommandFactory as _;
    let subcommands: Vec<String> =
        Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    assert!(subcommands.len() > 10, "{subcommands:?}");
    let bare = printed::bare(&root(), &subcommands);
    assert!(bare.is_empty(), "{bare:#?}");
}

fn commands(block: &Block) -> Vec<String> {
    block.lines.iter().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}

#[test]
fn every_piece_of_yaml_is_accepted() {
    let directory = tempfile::tempdir().expect("a directory");
    let node =
        std::fs::read_to_string(root().join("docs/examples/node-config.yaml")).expect("text");
    let mut accepted = 0;
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.words() == ["yaml"]) {
            let text = block.lines.join("\n");
            if text.contains("scrape_configs:") {
                continue;
            }
            let at = format!("{}:{}", page.name, block.line);
            let file = directory.path().join("example.yaml");
            let path = file.to_string_lossy().into_owned();
            let mut command = if text.contains("kind: Pod") {
                // A program of the host, or an image that is pulled.
                let runtime = if text.contains("image: host") { "process" } else { "cri" };
                let config = node.replace("runtime: process", &format!("runtime: {runtime}"));
                let of_node = directory.path().join("config.yaml");
                std::fs::write(&of_node, config).expect("written");
                std::fs::write(&file, text).expect("written");
                winddown(&["plan", "shutdown", "-f", &path, "--config", &of_node.to_string_lossy()])
            } else {
                let head = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\n";
                let head = if text.contains("apiVersion:") { "" } else { head };
                std::fs::write(&file, format!("{head}{text}\n")).expect("written");
                winddown(&["config", "check", &path])
            };
            let output = command.output().expect("the program runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{at}: {said}");
            accepted += 1;
        }
    }
    assert!(accepted >= 5, "{accepted}");
}

/// Fields of a pod or an event that pages name with a value.
const OTHERS_FIELDS: [&str; 7] = [
    "automountServiceAccountToken",
    "hostNetwork",
    "operator",
    "reportingController",
    "restartPolicy",
    "runAsGroup",
    "supplementalGroupsPolicy",
];

#[test]
fn every_field_that_a_page_names_with_a_value_is_one_of_the_configuration() {
    let output = winddown(&["config", "schema"]).output().expect("the program runs");
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut fields = HashSet::new();
    names_of_properties(&schema, &mut fields);
    let mut named = 0;
    // The generated page is about fields of pods, and is checked against the API's types.
    for page in pages().iter().filter(|page| !is_generated(&page.name)) {
        for piece in page.code() {
            let Some((name, _)) = piece.split_once(": ") else { continue };
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphabetic()) {
                continue;
            }
            if name.starts_with(char::is_uppercase) || OTHERS_FIELDS.contains(&name) {
                continue;
            }
            assert!(fields.contains(name), "{}: `{piece}`: there is no such field", page.name);
            named += 1;
        }
    }
    assert!(named > 20, "{named}");
}

fn names_of_properties(schema: &serde_json::Value, names: &mut HashSet<String>) {
    if let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) {
        names.extend(properties.keys().cloned());
    }
    let below = schema.as_object().into_iter().flat_map(|object| object.values());
    for value in below.chain(schema.as_array().into_iter().flatten()) {
        names_of_properties(value, names);
    }
}

/// The messages quoted on the troubleshooting page, and the test that produces each. Without one, it is only checked
/// that the text occurs in the sources.
const TROUBLES: [(&str, Option<&str>); 14] = [
    ("a shutdown cannot be delayed on this node", None),
    ("logind gives less time than the configured grace needs; the plan must shrink", None),
    ("logind no longer lists our lock", None),
    ("logind has not announced this shutdown", None),
    ("ignored a shutdown signal", Some("tests/node/tests/shutdown/spoof.rs")),
    ("NodeShutdown", Some("node/src/tests.rs")),
    ("is waiting for room", None),
    ("The node was low on resource", Some("node/src/tests/pressure.rs")),
    ("cannot watch memory pressure: eviction relies on sampling", None),
    ("the container runtime is not ready", Some("programs/tests/mistakes/agent.txt")),
    ("cannot start container", Some("tests/runtimes/tests/suite/services.rs")),
    ("checking the manifests periodically", None),
    ("takes effect after", Some("programs/tests/mistakes/agent.txt")),
    ("the shutdown report is lost", None),
];

#[test]
fn the_log_lines_of_troubleshooting_are_those_of_the_program() {
    let mut source = String::new();
    let tests = root().join("tests");
    for folder in members().iter().filter(|folder| !folder.starts_with(&tests)) {
        read_sources(&folder.join("src"), &mut source);
    }
    let text =
        std::fs::read_to_string(root().join("docs/how-to/troubleshooting.md")).expect("the page");
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("|--"));
    let cells = rows.filter_map(|row| row.split(" | ").nth(1));
    let quoted: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert_eq!(quoted, TROUBLES.map(|(line, _)| line), "what the page quotes and the list here");
    for (line, test) in TROUBLES {
        assert!(source.contains(line), "nothing in the program says {line:?}");
        let Some(test) = test else { continue };
        let text = std::fs::read_to_string(root().join(test)).expect(test);
        assert!(text.contains(line), "{test} does not hear {line:?}");
    }
}

/// Reads the sources without their tests, with multi-line strings joined.
fn read_sources(directory: &Path, all: &mut String) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            read_sources(&path, all);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).expect("text");
            for (n, piece) in text.split("\\\n").enumerate() {
                all.push_str(if n > 0 { piece.trim_start() } else { piece });
            }
        }
    }
}

/// The maximum size of docs/, in words as `wc -w` counts them, including tables and blocks.
const WORDS: usize = 20_000;

/// The most pages of docs/.
const PAGES: usize = 30;

/// The most words, counted likewise, of the pages at the repository's top and of the one on its tests.
const WORDS_OF_PAGES: [(&str, usize); 4] = [
    ("README.md", 700),
    ("ARCHITECTURE.md", 1700),
    ("CONTRIBUTING.md", 1000),
    ("tests/README.md", 1200),
];

#[test]
fn the_pages_that_are_read_first_are_short() {
    for (page, most) in WORDS_OF_PAGES {
        let text = std::fs::read_to_string(root().join(page)).expect(page);
        let words = words_by_hand(&text);
        assert!(words <= most, "{page} has {words} words, and {most} at most");
    }
}

#[test]
fn at_most_30_pages_are_written_by_hand_with_less_than_20_000_words() {
    let mut pages = markdown(&root().join("docs"));
    // Examples are counted with the code.
    let examples = root().join("docs/examples");
    pages.retain(|page| !is_generated(&page.to_string_lossy()) && !page.starts_with(&examples));
    let text = |page: &PathBuf| std::fs::read_to_string(page).expect("text");
    let words: usize = pages.iter().map(|page| words_by_hand(&text(page))).sum();
    assert!(words < WORDS && pages.len() <= PAGES, "{words} words in {} pages", pages.len());
}

#[test]
fn a_lock_that_an_example_or_a_page_holds_outlives_a_crash() {
    let examples =
        members().into_iter().filter_map(|member| member.join("examples").read_dir().ok());
    let examples = examples.flatten().map(|entry| entry.expect("an entry").path());
    let files = markdown(&root()).into_iter().chain(examples.filter(|file| file.is_file()));
    let read = |file: PathBuf| std::fs::read_to_string(&file).map(|text| (file, text));
    let texts: Vec<_> = files.map(read).collect::<Result<_, _>>().expect("text");
    let with =
        |call| texts.iter().filter(move |(_, text)| text.contains(call)).map(|(file, _)| file);
    assert_eq!(with("InhibitorConfig::new(").next(), None, "use InhibitorConfig::of_service");
    assert!(with("InhibitorConfig::of_service(").count() >= 3);
}

#[test]
fn the_unit_of_an_agent_of_ones_own_is_restarted_and_keeps_its_lock_as_ours_does() {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).expect(file);
    let (ours, theirs) = (read("systemd/units/winddown.service"), read("node/README.md"));
    let settings = [
        "StartLimitIntervalSec=",
        "Type=",
        "Restart=",
        "RestartSec=",
        "WatchdogSec=",
        "FileDescriptorStoreMax=",
        "RuntimeDirectoryPreserve=",
    ];
    for setting in settings {
        let line = ours.lines().find(|line| line.starts_with(setting)).expect(setting);
        assert!(theirs.lines().any(|other| other == line), "node/README.md lacks {line}");
    }
}

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let links = every_link_leads_somewhere(&markdown(&root()));
    assert!(links > 100, "{links}");
}

/// Follows the links of the pages, except those to other sites; returns how many there are.
fn every_link_leads_somewhere(pages: &[PathBuf]) -> usize {
    let mut links = 0;
    for page in pages.iter().map(|file| Page::read(file)) {
        for link in page.links() {
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            if link.contains("://") {
                continue;
            }
            let target = match file {
                "" => PathBuf::from(&page.name),
                file => page.directory.join(file),
            };
            assert!(target.exists(), "{}: {link} leads nowhere", page.name);
            if !heading.is_empty() && target.extension().is_some_and(|ending| ending == "md") {
                let there = Page::read(&target).anchors();
                assert!(
                    there.iter().any(|one| one == heading),
                    "{}: {link}: no heading",
                    page.name
                );
            }
            links += 1;
        }
    }
    links
}

/// Returns the pages below `directory`, except in build and hidden directories.
fn markdown(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
    {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(markdown(&path));
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    found
}

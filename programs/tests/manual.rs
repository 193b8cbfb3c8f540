//! Man pages and completions, as man(1) and the shells read them.

#![allow(clippy::expect_used, clippy::panic, reason = "clippy does not see that helpers are tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use winddown_cli::{Exit, definition, man};
use winddown_config::{Config, default_yaml};

fn program() -> &'static Path {
    assert_cmd::cargo::cargo_bin!("winddown")
}

/// Whether `tool` is installed; without it the test is skipped.
fn has(tool: &str, test: &str) -> bool {
    let found = Command::new("/bin/sh").args(["-c", &format!("command -v {tool}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return true;
    }
    println!("SKIPPED: {test}: {tool} is not installed");
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{tool} is missing");
    false
}

/// Returns the output of a command on both streams.
fn said(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn every_page_is_rendered_without_a_warning() {
    let test = "every_page_is_rendered_without_a_warning";
    if !has("man", test) || !has("groff", test) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let written = Command::new(program()).args(["man", "--dir"]).arg(dir.path()).status();
    assert!(written.expect("it runs").success());
    for page in man::pages() {
        let file = dir.path().join(format!("man{}", page.section)).join(page.file_name());
        assert_eq!(std::fs::read_to_string(&file).expect("written"), page.text);
        let groff = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(&file).output();
        let warned = String::from_utf8_lossy(&groff.expect("it runs").stderr).into_owned();
        assert_eq!(warned, "", "{}", page.file_name());
        let man = Command::new("man")
            .args(["--warnings", "-E", "UTF-8", "-l"])
            .arg(&file)
            .env("MANROFFSEQ", "")
            .env("MANWIDTH", "80")
            .output()
            .expect("it runs");
        assert_eq!(String::from_utf8_lossy(&man.stderr), "", "{}", page.file_name());
        let text = String::from_utf8_lossy(&man.stdout).into_owned();
        assert!(text.contains("NAME") && text.contains(&page.name), "{text}");
        // Text that shows if something was escaped twice or not at all.
        for wrong in ["\\f", "\\(", "[u", ".PP", ".TP"] {
            assert!(!text.contains(wrong), "{}: {wrong}", page.file_name());
        }
    }
}

#[test]
fn pages_are_ascii_and_the_same_each_time() {
    for (page, again) in man::pages().iter().zip(man::pages()) {
        assert!(page.text.is_ascii() && page.text.ends_with('\n'), "{}", page.name);
        assert_eq!(page.text, again.text);
    }
}

#[test]
fn every_command_has_a_page_and_every_page_names_the_exit_codes_or_the_page_that_does() {
    let names: Vec<String> = man::pages().into_iter().map(|page| page.file_name()).collect();
    let shown = definition();
    for command in shown.get_subcommands() {
        assert!(names.contains(&format!("winddown-{}.1", command.get_name())), "{names:?}");
        for below in command.get_subcommands() {
            let name = format!("winddown-{}-{}.1", command.get_name(), below.get_name());
            assert!(names.contains(&name), "{name}");
        }
    }
    assert!(
        !names.iter().any(|name| name.contains("shim.1") || name.contains("agent")),
        "{names:?}"
    );
    let first = man::pages().into_iter().find(|page| page.name == "winddown").expect("a page");
    let codes = first.text.split(".SH \"EXIT STATUS\"").nth(1).expect("a section");
    for code in (0..=Exit::Problems as u8).chain([Exit::ConfigMissing as u8]) {
        assert!(codes.contains(&format!("\\fB{code}\\fR")), "{code}");
    }
}

#[test]
fn the_daemons_page_has_the_options_and_exit_codes_of_its_help_and_no_others() {
    let daemon = assert_cmd::cargo::cargo_bin!("winddownd");
    let help = said(Command::new(daemon).arg("--help"));
    let pages = man::pages();
    let page = pages.iter().find(|page| page.name == "winddownd").expect("a page");
    let words = |text: &str| -> BTreeSet<String> {
        let text = text.replace("\\-", "-").replace("\\fR", " ").replace("\\fB", " ");
        let words = text.split(|c: char| c.is_whitespace() || "],.".contains(c));
        words.filter(|word| word.starts_with("--")).map(ToOwned::to_owned).collect()
    };
    assert_eq!(words(&page.text), words(&help), "{help}");
    for code in [0, 1, 2, 9, 78] {
        assert!(help.contains(&format!("\n  {code}  ")), "{code}");
        assert!(page.text.contains(&format!("\\fB{code}\\fR\n")), "{code}");
    }
}

#[test]
fn the_page_of_the_configuration_has_every_field_that_is_printed() {
    let pages = man::pages();
    let page = pages.iter().find(|page| page.name == "winddown.yaml").expect("a page");
    let printed = Config::default().to_json();
    for field in printed.as_object().expect("an object").keys() {
        assert!(page.text.contains(&format!("\\fB{field}\\fR\n")), "{field}");
        assert!(default_yaml().contains(&format!("\n{field}:")), "{field}");
    }
}

#[test]
fn a_page_is_found_by_the_words_of_its_command() {
    let shown = |words: &[&str]| {
        let output = Command::new(program()).arg("man").args(words).output().expect("it runs");
        assert!(output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let kill = shown(&["winddown-kill"]);
    assert!(kill.contains("winddown\\-kill"), "{kill}");
    assert_eq!(shown(&["kill"]), kill);
    assert_eq!(shown(&["plan", "shutdown"]), shown(&["winddown-plan-shutdown"]));
    assert_eq!(shown(&[]), shown(&["winddown"]));
}

#[test]
fn a_page_that_is_not_there_is_told_with_those_that_are() {
    let output = Command::new(program()).args(["man", "winddown.conf"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("winddown.yaml") && said.contains("winddown-status"), "{said}");
}

/// Writes the script for `shell` to a file.
fn script(shell: &str, dir: &Path) -> String {
    let output = Command::new(program()).args(["completions", shell]).output().expect("it runs");
    assert!(output.status.success());
    let file = dir.join(format!("_winddown.{shell}"));
    std::fs::write(&file, output.stdout).expect("written");
    file.display().to_string()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = script("bash", dir.path());
    let complete = |words: &str, current: &str, before: &str| {
        let ask = format!(
            "set -u; source {script}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _winddown winddown '{current}' '{before}'; echo \"${{COMPREPLY[*]}}\""
        );
        said(Command::new("bash").args(["--norc", "-c", &ask]))
    };
    assert_eq!(complete("winddown sta", "sta", "winddown"), "status\n");
    assert_eq!(complete("winddown plan pre", "pre", "plan"), "preemption\n");
    assert_eq!(complete("winddown status --wa", "--wa", "status"), "--watch\n");
    assert!(complete("winddown schema plan-s", "plan-s", "schema").contains("plan-shutdown"));
    assert_eq!(complete("winddown sh", "sh", "winddown"), "\n", "hidden commands are not offered");
}

#[test]
fn zsh_takes_the_script_and_knows_the_commands() {
    if !has("zsh", "zsh_takes_the_script_and_knows_the_commands") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = script("zsh", dir.path());
    let ask = format!(
        "autoload -Uz compinit && compinit -D -u && source {script} && (( $+functions[_winddown] )) \
         && echo ${{_comps[winddown]}} && functions _winddown_commands"
    );
    let text = said(Command::new("zsh").args(["-f", "-c", &ask]));
    assert!(text.starts_with("_winddown\n"), "{text}");
    assert!(text.contains("'status:Show the node") && !text.contains("shim"), "{text}");
}

#[test]
fn fish_completes_commands_with_what_they_do() {
    if !has("fish", "fish_completes_commands_with_what_they_do") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = script("fish", dir.path());
    let ask = format!("source {script}; complete -C 'winddown sta'; complete -C 'winddown sh'");
    let text = said(Command::new("fish").args(["--no-config", "-c", &ask]).env("HOME", dir.path()));
    assert!(text.starts_with("status\tShow the node"), "{text}");
    assert!(!text.contains("shim"), "{text}");
}

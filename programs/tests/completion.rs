//! Completion of pods in real shells, with a real agent.

#![allow(clippy::expect_used, clippy::panic, reason = "clippy does not see that helpers are tests")]

use std::process::Command;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::{Bed, LIMIT, manifest};

const BASH: &str = r#"
source <(winddown completions bash)
COMP_WORDS=(winddown kill we) COMP_CWORD=2
_winddown winddown we kill
printf '%s\n' "${COMPREPLY[@]}"
"#;

const FISH: &str = "winddown completions fish | source; complete -C 'winddown kill we'";

/// Its completion needs a terminal, and a person who types.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; autoload -U compinit; compinit -u -D; source <(winddown completions zsh); echo re''ady"
zpty -r -m shell out "*ready*"
zpty -w -n shell $'winddown kill we\t'
zpty -r -m shell out "*web-n1*"
print -r -- "$out"
zpty -d shell
"#;

#[test]
fn each_shell_completes_the_name_of_a_pod() {
    let test = "each_shell_completes_the_name_of_a_pod";
    let bed = Bed::start("", &[("web", manifest("web", "", "command: [sleep, '1000']"))]);
    let begun = Instant::now();
    loop {
        let pods = bed.ask(&["complete", "pods"]).output().expect("the program runs");
        if pods.stdout == b"web-n1\n" {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "{pods:?}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let program = assert_cmd::cargo::cargo_bin!("winddown");
    let directory = program.parent().expect("a directory").display().to_string();
    let path = std::env::var("PATH").expect("a path");
    for (shell, options, script) in [
        ("bash", ["--norc", "-c"], BASH),
        ("fish", ["--no-config", "-c"], FISH),
        ("zsh", ["-f", "-c"], ZSH),
    ] {
        let output = Command::new(shell)
            .args(options)
            .arg(script)
            .env("PATH", format!("{directory}:{path}"))
            .env("WINDDOWN_SOCKET", bed.socket())
            .output();
        let Ok(output) = output else {
            println!("SKIPPED: {test}: no {shell}");
            continue;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("web-n1"), "{shell}: {output:?}");
    }
}

//! `winddown completions`, and `winddown complete`, which the scripts call for the names of pods and the like.
//!
//! clap generates the scripts for commands, options and fixed values.

use std::collections::BTreeSet;

use clap_complete::Shell;
use winddown_control::Client;
use winddown_eviction::Signal;

use super::values::DEFAULT_NAMESPACE;
use super::{
    CommandError, CompleteArgs, CompletionKind, CompletionsArgs, Exit, GlobalArgs, Output,
    definition,
};

/// What the shells complete and call.
const PROGRAM: &str = "winddown";

/// Commands whose arguments are pods.
const OF_PODS: [&str; 6] = ["describe", "kill", "logs", "release", "restart", "status"];

/// Replaces clap's function of this name, which goes on as `_winddown_words`.
const BASH: &str = r#"
_winddown() {
    local objects=""
    case "$3" in
        --id) objects=reports ;;
        --signal) objects=signals ;;
        -c | --container) objects=containers ;;
        -o | --output | -n | --namespace | --grace | --uid | --tail | --socket | --config | --color) ;;
        *)
            if [[ "$COMP_CWORD" -gt 1 && "$2" != -* ]]; then
                case "${COMP_WORDS[1]}" in
                    PODS) objects=pods ;;
                esac
            fi
            ;;
    esac
    if [[ -z "$objects" ]]; then
        _winddown_words "$@"
        return
    fi
    local names
    names=$("$1" complete "$objects" 2>/dev/null)
    COMPREPLY=($(compgen -W "$names" -- "$2"))
}
"#;

const ZSH: &str = r#"
_winddown_objects() {
    local -a objects
    objects=(${(f)"$($service complete ${@[-1]} 2>/dev/null)"})
    compadd -a objects
}
"#;

pub(super) fn print(args: &CompletionsArgs, out: &mut Output) -> Result<Exit, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), PROGRAM, &mut script);
    let script = String::from_utf8(script).map_err(anyhow::Error::new)?;
    out.bytes(with_objects(args.shell, &script).as_bytes())?;
    Ok(Exit::Success)
}

/// The script with the names of what there is on the node.
fn with_objects(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            let script = script.replacen("_winddown() {", "_winddown_words() {", 1);
            let ours = BASH.trim_start().replace("PODS", &OF_PODS.join(" | "));
            format!("{ours}\n{script}")
        }
        Shell::Zsh => {
            let lines = script.lines().map(|line| {
                let kind = match line {
                    _ if line.contains(":SIGNAL:_default") => "signals",
                    _ if line.contains(":ID:_default") => "reports",
                    _ if line.contains("--container=") || line.contains("'-c+[") => "containers",
                    _ if line.starts_with("':pod -- ") || line.starts_with("'*::pods -- ") => {
                        "pods"
                    }
                    _ => return line.to_owned(),
                };
                line.replace(":_default'", &format!(":_winddown_objects {kind}'"))
            });
            let script = lines.collect::<Vec<_>>().join("\n");
            let head = "autoload -U is-at-least\n";
            script.replacen(head, &format!("{head}{ZSH}"), 1) + "\n"
        }
        Shell::Fish => {
            let pods = OF_PODS.map(|command| {
                format!(
                    "complete -c {PROGRAM} -n \"__fish_seen_subcommand_from {command}\" -f \
                     -a \"({PROGRAM} complete pods 2>/dev/null)\"\n"
                )
            });
            let values = [("signal", "signals"), ("id", "reports"), ("container", "containers")];
            let commands = ["eviction", "report", "logs"];
            let values = commands.iter().zip(values).map(|(command, (option, kind))| {
                format!(
                    "complete -c {PROGRAM} -n \"__fish_seen_subcommand_from {command}\" -l {option} -x \
                     -a \"({PROGRAM} complete {kind} 2>/dev/null)\"\n"
                )
            });
            pods.into_iter().chain(values).fold(script.to_owned(), |all, line| all + &line)
        }
        _ => script.to_owned(),
    }
}

/// Prints what there is of a kind, one a line.
pub(super) async fn complete(
    global: &GlobalArgs,
    args: &CompleteArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let names: BTreeSet<String> = match args.kind {
        CompletionKind::Signals => {
            Signal::ALL.iter().map(|signal| signal.as_str().to_owned()).collect()
        }
        CompletionKind::Reports => {
            client.reports().await?.reports.into_iter().map(|report| report.id).collect()
        }
        CompletionKind::Pods => {
            let pods = client.status().await?.pods.into_iter();
            pods.map(|pod| match pod.namespace.as_str() {
                DEFAULT_NAMESPACE => pod.name,
                namespace => format!("{namespace}/{}", pod.name),
            })
            .collect()
        }
        CompletionKind::Containers => {
            let pods = client.status().await?.pods.into_iter();
            pods.flat_map(|pod| pod.containers).map(|container| container.name).collect()
        }
    };
    // A name that a shell could take for something else is not offered.
    let is_word = |name: &&String| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-./_:".contains(&byte))
    };
    for name in names.iter().filter(is_word) {
        out.line(name)?;
    }
    Ok(Exit::Success)
}

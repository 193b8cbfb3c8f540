//! Tips for commands and options of kubectl, systemctl and docker that winddown does not have.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};

use super::Cli;

/// Adds the tip that clap, which only compares spellings, cannot give. `arguments` excludes the program's name.
///
/// `program` is this program as a shell finds it, if not by its name.
pub(super) fn explain(
    mut error: clap::Error,
    arguments: &[String],
    program: Option<&str>,
) -> clap::Error {
    let commands = Cli::command();
    let below = arguments.iter().find(|word| commands.find_subcommand(word).is_some());
    let below = below.map_or("", String::as_str);
    let wrong = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidValue if below == "completions" => return without_similar_shell(error),
        _ => return error,
    };
    if wrong == ContextKind::InvalidArg {
        without_another_meaning(&mut error, commands, arguments);
    }
    let Some(ContextValue::String(word)) = error.get(wrong) else { return error };
    if arguments.first().is_some_and(|first| first == "help") {
        let word = word.clone();
        return like_the_command(error, &word);
    }
    match instead(below, word) {
        Some(tip) => with_tip(error, winddown_render::by_path(tip, program).into_owned()),
        None => error,
    }
}

/// Removes what clap guesses of an unknown option: that it is a value, which it cannot be here, and in the usage options
/// that nobody typed.
fn without_another_meaning(
    error: &mut clap::Error,
    mut named: clap::Command,
    arguments: &[String],
) {
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().contains(" as a value, "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    named.build();
    for word in arguments {
        if let Some(below) = named.find_subcommand(word).cloned() {
            named = below;
        }
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(named.render_usage()));
}

/// Another shell's script is of no use, however similar its name.
fn without_similar_shell(mut error: clap::Error) -> clap::Error {
    error.remove(ContextKind::SuggestedValue);
    error
}

/// Adds to an unknown word behind `help` what clap would suggest if it were the command.
fn like_the_command(mut error: clap::Error, word: &str) -> clap::Error {
    let similar = Cli::try_parse_from(["winddown", word])
        .err()
        .and_then(|as_command| as_command.get(ContextKind::SuggestedSubcommand).cloned());
    if let Some(similar) = similar {
        error.insert(ContextKind::SuggestedSubcommand, similar);
    }
    error
}

/// Returns a tip for `word`, an unknown command or an unknown argument of the command `below`.
// Over the limit because it is a table: one row per word of another program.
fn instead(below: &str, word: &str) -> Option<&'static str> {
    Some(match (below, word) {
        ("", "get" | "list" | "ls" | "ps" | "pods" | "top") => {
            "`winddown status` shows the node and its pods"
        }
        ("", "inspect") => "`winddown describe POD` shows all that is known of a pod",
        ("", "exec" | "attach" | "ssh") => {
            "winddown runs no commands in containers: use crictl, or nsenter for a process of the host"
        }
        ("", "events" | "history") => {
            "`winddown status` shows the last decisions, `journalctl -u winddown -p notice` all of them"
        }
        ("", "log" | "journal") => {
            "`winddown logs POD` shows a pod's output, `journalctl -u winddown` the agent's"
        }
        ("", "delete" | "evict" | "rm" | "stop") => {
            "`winddown kill POD` terminates a pod, `winddown drain` all; `systemctl stop winddown` stops the agent alone"
        }
        ("", "cordon") => "`winddown drain` keeps new pods out, and terminates those that run",
        ("", "apply" | "create") => {
            "copy the manifest into /etc/winddown/pods: the pod starts by itself"
        }
        ("", "daemon" | "run" | "serve" | "start") => {
            "`systemctl start winddown` starts the agent; a pod starts when its manifest is in /etc/winddown/pods"
        }
        ("", "reload") => "`systemctl reload winddown` has the agent read its configuration again",
        ("", "enable") => "`systemctl enable --now winddown` starts the agent now and at boot",
        ("", "disable") => {
            "`systemctl disable --now winddown` stops the agent and keeps it from starting at boot; the pods keep running"
        }
        ("", "halt" | "poweroff" | "reboot" | "shutdown") => {
            "`systemctl reboot` reboots; `winddown plan shutdown` shows what that does to the pods"
        }
        ("", "check" | "health" | "test" | "validate" | "verify") => {
            "`winddown doctor` checks the node, `winddown config check` the configuration"
        }
        ("plan", "drain" | "halt" | "poweroff" | "reboot" | "undrain") => {
            "`winddown plan shutdown` shows the same plan"
        }
        ("config", "edit" | "get" | "set") => {
            "edit /etc/winddown/config.yaml, then `winddown config check` and `systemctl reload winddown`"
        }
        ("config", "-f" | "--file") => {
            "`winddown config check FILE` takes the file without an option"
        }
        ("wait", "lock" | "protected" | "drained" | "report") => {
            "name it with `--for`, as in `winddown wait --for=lock`"
        }
        ("describe", "-o" | "--output") => "`winddown status -o json` is the form for programs",
        ("status", "--wide" | "-w") => "`winddown status -o wide` has more columns",
        (
            "status" | "plan" | "doctor" | "report" | "drain" | "undrain" | "drill" | "kill"
            | "release" | "version",
            "--json",
        ) => "`-o json` is the form for programs",
        ("report", "--html") => "`winddown report -o html > FILE` writes the page",
        ("", "-v" | "--verbose") => {
            "`winddown --version` prints the version; `winddown status -o wide` shows more"
        }
        ("", "update" | "upgrade") => {
            "install the new package, or run `winddown install` of the new version: the pods keep running"
        }
        ("install", "--enable") => "the unit is enabled unless `--no-enable` is given",
        ("install" | "uninstall", "-y" | "--yes" | "--assume-yes") => {
            "it asks nothing: leave it out; `--dry-run` shows what it would do"
        }
        ("uninstall", "--companion" | "--runtime") => {
            "it removes what is installed: leave the option out"
        }
        (_, "--no-pager") => "winddown uses no pager",
        ("kill", "--all" | "-A") => "`winddown drain` terminates all pods, in order",
        ("logs", "-n") => {
            "`--tail N` prints the last N lines; for a namespace, write NAMESPACE/POD"
        }
        ("kill" | "describe" | "logs" | "restart" | "release", "-n" | "--namespace") => {
            "write NAMESPACE/POD"
        }
        ("kill" | "describe" | "logs" | "restart" | "release", word) if !word.starts_with('-') => {
            "one pod at a time, NAME or NAMESPACE/NAME, without the word `pod`"
        }
        ("plan", "-n" | "--namespace" | "-A") => {
            "a plan is about all pods of the node: leave the namespace out"
        }
        ("logs", "--lines" | "--since" | "--until") => {
            "`--tail N` prints the last N lines, `--timestamps` with their times"
        }
        ("logs", "--previous-run" | "--boot" | "-b") => {
            "`-p` prints the output of the previous run"
        }
        ("doctor", word) if !word.starts_with('-') => {
            "`winddown doctor` makes all checks: leave the name out"
        }
        ("config", "validate" | "test" | "verify") => "`winddown config check` checks the file",
        ("status", "-A" | "--all-namespaces") => {
            "`winddown status` shows the pods of all namespaces"
        }
        ("doctor", "--fix") => "doctor changes nothing: run the commands listed under `fix`",
        ("doctor", "-q" | "--quiet") => {
            "the exit code says as much: 0, 7 for warnings, 8 for problems"
        }
        ("drill", "-f" | "--file") => "`winddown drill DIR` takes the manifests without an option",
        ("kill", "-9" | "--force" | "--now") => {
            "`winddown kill POD --grace 1s` is the shortest there is"
        }
        (
            "drain",
            "--force" | "--ignore-daemonsets" | "--delete-emptydir-data" | "--pod-selector",
        ) => "a drain terminates every pod; `--timeout 60s` bounds it",
        ("drain", "--dry-run") => "`winddown plan shutdown` shows what a drain does, too",
        ("drain", "--grace-period") => {
            "each pod gets its own grace; `--timeout 60s` bounds them all"
        }
        ("drain" | "undrain", word) if !word.starts_with('-') => {
            "it is always about this node: leave the name out"
        }
        ("report", "-n" | "--lines" | "--since" | "--until") => {
            "`winddown report --list` shows all that are kept, and when each began"
        }
        ("report", "-f" | "--follow") => {
            "`--file FILE` reads a report from a file; `winddown status --watch` follows a shutdown"
        }
        ("report", word) if !word.starts_with('-') => {
            "`winddown report` shows the last run, `--list` all, `--id ID` one of them"
        }
        _ => return None,
    })
}

fn with_tip(mut error: clap::Error, tip: String) -> clap::Error {
    for similar in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg] {
        error.remove(similar);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

#[cfg(test)]
mod tests {

    use clap::Parser as _;

    use super::{Cli, explain};

    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(&words).map(drop).unwrap_err();
        explain(error, &words[1..], None).to_string()
    }

    #[test]
    fn where_a_shell_does_not_find_the_program_a_tip_names_it_by_its_path() {
        let words = ["winddown".to_owned(), "cordon".to_owned()];
        let error = Cli::try_parse_from(&words).map(drop).unwrap_err();
        let said = explain(error, &words[1..], Some("/opt/x/winddown")).to_string();
        assert!(said.contains("tip: `/opt/x/winddown drain`"), "{said}");
    }

    #[test]
    fn commands_of_other_tools_have_a_tip_and_no_word_that_only_looks_alike() {
        for line in [
            "get pods",
            "delete pod web",
            "log web",
            "exec web",
            "kill --all",
            "kill -n shop web",
            "status --json",
            "doctor lock",
            "config validate",
            "logs --lines 5 web",
            "status --no-pager",
            "reload",
            "plan reboot",
            "config set a b",
            "doctor --quiet",
            "drain --dry-run",
            "report -n 5",
            "report --since yesterday",
            "report -f",
            "report --html",
            "install --enable",
            "install --yes",
            "uninstall --companion",
            "logs --since 1h web",
            "doctor --json",
            "describe pod web",
            "-v",
            "upgrade",
            "plan shutdown -n shop",
            "config check -f c.yaml",
            "wait lock",
            "drain --pod-selector app=web",
            "describe web -o yaml",
            "logs -n 20 web",
        ] {
            let said = said(&format!("winddown {line}"));
            assert_eq!(said.matches("tip: ").count(), 1, "{line}: {said}");
            assert!(!said.contains("similar"), "{line}: {said}");
        }
    }

    #[test]
    fn an_option_that_is_not_there_is_not_taken_for_a_value() {
        for line in ["status -l app=x", "kill --signal=9 web", "logs --colour web"] {
            let said = said(&format!("winddown {line}"));
            assert!(!said.contains("as a value"), "{said}");
        }
    }

    #[test]
    fn the_usage_after_a_wrong_option_is_the_commands_own() {
        for (line, usage) in [
            ("--socket /s drain --force", "Usage: winddown drain [OPTIONS]\n"),
            ("kill --force web", "Usage: winddown kill [OPTIONS] <POD>\n"),
            ("plan shutdown -n shop", "Usage: winddown plan shutdown [OPTIONS]\n"),
        ] {
            let said = said(&format!("winddown {line}"));
            assert!(said.contains(usage), "{said}");
        }
    }

    #[test]
    fn an_option_with_two_meanings_is_answered_with_both() {
        let said = said("winddown logs -n 20");
        assert!(said.contains("`--tail N`") && said.contains("NAMESPACE/POD"), "{said}");
    }

    #[test]
    fn an_argument_is_explained_by_its_command() {
        let this_node = "this node: leave the name out";
        assert!(said("winddown drain node-1").contains(this_node));
        assert!(said("winddown --socket /s drain node-1").contains(this_node));
        assert!(!said("winddown kill web node-1").contains(this_node));
    }

    #[test]
    fn disable_is_not_answered_with_enable() {
        assert!(said("winddown disable").contains("`systemctl disable --now winddown`"));
        assert!(said("winddown enable").contains("`systemctl enable --now winddown`"));
    }

    #[test]
    fn a_script_for_another_shell_is_not_suggested() {
        let said = said("winddown completions tcsh");
        assert!(said.contains("bash") && !said.contains("similar"), "{said}");
    }

    #[test]
    fn help_for_a_misspelt_command_names_the_command() {
        assert!(said("winddown help rrport").contains("'report'"));
    }

    #[test]
    fn what_is_only_misspelt_keeps_the_tip_of_its_spelling() {
        assert!(said("winddown statsu").contains("a similar subcommand exists: 'status'"));
        assert!(said("winddown uncordon").contains("'undrain'"));
    }
}

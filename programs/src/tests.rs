mod cases;
mod commands;
mod control_planes;
mod doctor;
mod eviction;
mod preemption;
mod room;
mod world;

pub(super) use world::Sink;

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use unicode_width::UnicodeWidthStr;

use super::exit::CommandError;
use super::values::{duration, grace, is_name, pod_name};
use super::{Cli, ColorChoice, Command, ConfigCommand, Exit, PlanCommand};
use winddown_control::ClientError;
use winddown_control::api::{ErrorBody, ErrorCode};

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn the_definition_of_the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_help_fits_an_80_column_screen_and_shows_examples() {
    let mut command = Cli::command().term_width(80);
    command.build();
    let mut pages = vec![("winddown".to_owned(), command.clone())];
    while let Some((path, mut page)) = pages.pop() {
        let help = page.render_long_help().to_string();
        let after = page.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().chain(after.lines()) {
            assert!(line.width() <= 80, "{path}: {line}");
        }
        let leaf = page.get_subcommands().next().is_none();
        let hidden = page.is_hide_set() || path.contains(" help");
        let told = ["version", "shim"].iter().any(|plain| path.ends_with(plain)) || hidden;
        assert!(!leaf || told || help.contains("Examples:"), "{path} has no examples:\n{help}");
        pages.extend(
            page.get_subcommands().map(|sub| (format!("{path} {}", sub.get_name()), sub.clone())),
        );
    }
}

#[test]
fn the_exit_codes_in_the_help_are_the_ones_we_use() {
    let help = Cli::command().render_long_help().to_string();
    let codes = [
        (Exit::Success, "0  done"),
        (Exit::Failure, "1  failed"),
        (Exit::Usage, "2  the command line is wrong"),
        (Exit::ConfigInvalid, "3  the configuration or a manifest is invalid"),
        (Exit::AgentUnreachable, "4  the agent cannot be reached"),
        (Exit::PodsLeft, "5  pods were left running or needed SIGKILL, or a drain was cancelled"),
        (Exit::Refused, "6  refused"),
        (Exit::Warnings, "7  doctor found warnings"),
        (Exit::Problems, "8  doctor found problems"),
        (Exit::ConfigMissing, "10  the configuration that config check was to check is not there"),
    ];
    for (exit, line) in codes {
        assert!(help.contains(line), "{line}");
        assert!(line.starts_with(&(exit as u8).to_string()), "{line}");
    }
}

#[test]
fn every_command_of_the_design_can_be_typed() {
    for line in [
        "winddown agent --config /c.yaml",
        "winddown status",
        "winddown status -o wide --watch",
        "winddown --socket /s status -o yaml",
        "winddown plan shutdown",
        "winddown plan start -f /dir -o yaml",
        "winddown report --start",
        "winddown report --start --file /a.json -o json",
        "winddown plan shutdown -f /dir --config /c.yaml",
        "winddown plan shutdown -f - -o json",
        "winddown drill",
        "winddown drill docs/examples/node --delay 5s --keep --twice",
        "winddown report --boot -1 -o json",
        "winddown report -b 0 --check",
        "winddown report --list",
        "winddown doctor",
        "winddown doctor --root /mnt -o json",
        "winddown drain --timeout 2m",
        "winddown drain --deadline 90s --reason battery",
        "winddown drain --deadline 2026-11-20T12:00:00Z",
        "winddown drain --deadline 2026-11-20T13:00:00+01:00 -o json",
        "winddown undrain",
        "winddown kill web --grace 5s",
        "winddown kill shop/web --uid u",
        "winddown release batch/backup -o json",
        "winddown install --root /mnt --runtime cri --dry-run",
        "winddown uninstall --purge",
        "winddown config check /c.yaml",
        "winddown config show --running",
        "winddown config default",
        "winddown completions zsh",
        "winddown version -o json",
        "winddown status --color never",
    ] {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn what_is_typed_wrong_is_refused_with_code_2() {
    for line in [
        "winddown stat",
        "winddown status -o xml",
        "winddown report --boot 1",
        "winddown report --list --boot 0",
        "winddown report --start --boot 0",
        "winddown kill",
        "winddown kill Web",
        "winddown kill a/b/c",
        "winddown kill web --grace 500ms",
        "winddown drain --timeout 30",
        "winddown drain --deadline 30",
        "winddown drain --deadline 0s",
        "winddown drain --deadline 2026-11-20",
        "winddown drain --deadline 2026-11-20T12:00:00",
        "winddown drain --deadline 1m --timeout 1m",
        "winddown undrain --deadline 1m",
        "winddown install --start --no-enable",
        "winddown install --runtime docker",
        "winddown plan weather",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
    }
    let help = parse("winddown --help").expect_err("help is an error to clap");
    assert_eq!(help.kind(), ErrorKind::DisplayHelp);
    assert_eq!(help.exit_code(), 0);
}

#[test]
fn the_help_of_kill_and_restart_promises_no_start_to_a_pod_that_never_restarts() {
    for name in ["kill", "restart"] {
        let mut all = Cli::command();
        let help = all.find_subcommand_mut(name).unwrap().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("unless its restartPolicy is Never"), "{name}: {help}");
    }
}

#[test]
fn options_reach_the_command_with_their_meaning() {
    let cli = parse("winddown kill shop/web --grace 1m30s --color always").unwrap();
    assert_eq!(cli.global.color, ColorChoice::Always);
    let Command::Kill(args) = cli.command else { panic!("not kill") };
    assert_eq!((args.pod.namespace.as_str(), args.pod.name.as_str()), ("shop", "web"));
    assert_eq!(args.grace, Some(Duration::from_secs(90)));
    let cli = parse("winddown config --config /c.yaml check").unwrap();
    assert_eq!(cli.global.config.as_deref(), Some(std::path::Path::new("/c.yaml")));
    let Command::Config(args) = cli.command else { panic!("not config") };
    assert!(matches!(args.command, ConfigCommand::Check { file: None }));
    let cli = parse("winddown plan shutdown -f -").unwrap();
    let Command::Plan(args) = cli.command else { panic!("not plan") };
    let PlanCommand::Shutdown(args) = args.command else { panic!("not a shutdown") };
    assert_eq!(args.file.as_deref(), Some(std::path::Path::new("-")));
    let cli = parse("winddown shim --state /x -- sh -c true").unwrap();
    let Command::Shim(args) = cli.command else { panic!("not shim") };
    assert_eq!(args.args, ["--state", "/x", "--", "sh", "-c", "true"]);
}

#[test]
fn durations_are_go_and_systemd_style_and_never_ambiguous() {
    for (text, millis) in [
        ("30s", 30_000),
        ("1m30s", 90_000),
        ("1min 30s", 90_000),
        ("1500ms", 1500),
        ("0", 0),
        ("2h", 7_200_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for (text, said) in [
        ("30", "the unit is missing: write 30s for seconds"),
        ("1M", "months and years have no fixed length: use days (d) or hours (h)"),
        ("2 years", "months and years have no fixed length: use days (d) or hours (h)"),
    ] {
        assert_eq!(duration(text), Err(said.to_owned()), "{text}");
    }
    for text in ["", "s", "-5s", "1.5.5s", "soon", "1 30s", "1m30"] {
        let error = duration(text).expect_err(text);
        assert!(error.contains("write for example 30s"), "{text}: {error}");
    }
    assert_eq!(grace("500ms"), Err("at least 1s is needed".to_owned()));
    assert_eq!(grace("365d"), Ok(winddown_shared::LONGEST_NOTICE));
    assert_eq!(grace("100000h"), Err("at most 365d is possible".to_owned()));
    assert_eq!(grace("1500ms"), Err("only whole seconds are possible: write 1s".to_owned()));
}

#[test]
fn a_negative_value_is_refused_as_a_value_and_not_as_an_option() {
    for (line, next) in [
        ("drill --delay -5s", "for example 30s"),
        ("drill --settle -5s", "for example 30s"),
        ("drain --timeout -5s", "for example 30s"),
        ("drain --deadline -5s", "for example 30s"),
        ("plan shutdown --deadline -5s", "for example 30s"),
        ("kill web --grace -5s", "for example 30s"),
        ("restart web --grace -5s", "for example 30s"),
        ("wait --for=lock --timeout -5s", "for example 30s"),
        ("logs --tail -1 web", "leave it out for all"),
        ("logs --tail=x web", "leave it out for all"),
    ] {
        let said = parse(&format!("winddown {line}")).expect_err(line).to_string();
        assert!(said.contains("invalid value") && said.contains(next), "{line}: {said}");
    }
}

#[test]
fn a_pods_name_is_checked_before_the_agent_is_asked() {
    assert_eq!(pod_name("web").map(|pod| pod.namespace), Ok("default".to_owned()));
    assert!(is_name("a-1.b") && is_name(&"a".repeat(253)));
    for bad in ["", "-a", "a-", "A", "a_b", "a b", "a\x1b", "../x", &"a".repeat(254)] {
        assert!(!is_name(bad), "{bad:?}");
        assert!(pod_name(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn each_failure_to_ask_the_agent_has_its_exit_code() {
    let socket = || std::path::PathBuf::from("/s");
    let said = |code| ClientError::Agent {
        status: 0,
        body: ErrorBody { code, error: "no".to_owned(), hint: "h".to_owned() },
    };
    let table = [
        (ClientError::Missing { socket: socket() }, Exit::AgentUnreachable),
        (ClientError::NotListening { socket: socket() }, Exit::AgentUnreachable),
        (ClientError::NotASocket { socket: socket(), what: "a file" }, Exit::AgentUnreachable),
        (ClientError::Silent { socket: socket(), after: Duration::ZERO }, Exit::AgentUnreachable),
        (ClientError::Closed { socket: socket() }, Exit::AgentUnreachable),
        (ClientError::Denied { socket: socket(), group: None }, Exit::Refused),
        (said(ErrorCode::Forbidden), Exit::Refused),
        (said(ErrorCode::Conflict), Exit::Refused),
        (said(ErrorCode::Unavailable), Exit::AgentUnreachable),
        (said(ErrorCode::NotFound), Exit::Failure),
        (said(ErrorCode::Internal), Exit::Failure),
    ];
    for (error, exit) in table {
        let shown = format!("{error:?}");
        assert_eq!(CommandError::from(error).exit, exit, "{shown}");
    }
}

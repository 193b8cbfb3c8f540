//! `winddown drain`.

use std::time::Duration;

use tokio::time::{Instant, interval_at};

use winddown_shared::display::{clean, pod_count, seconds};

use super::values::TimeArgument;
use super::{CommandError, DrainArgs, Exit, GlobalArgs, Output, TextFormat};
use winddown_control::Client;
use winddown_control::api::{DrainEvent, DrainRequest, Envelope, NoticeBody, WithdrawAnswer};
use winddown_render::{PODS_UNKNOWN, group_title};

const REPORT_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(
    global: &GlobalArgs,
    args: &DrainArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let mut lines = match args.deadline {
        Some(TimeArgument::At(at)) if at < winddown_host::machine::wall_clock().now() => {
            let what = format!("--deadline {at}: already past");
            return Err(CommandError::message(Exit::Usage, what)
                .with_hint("give a duration such as 90s, or a time that is still to come"));
        }
        Some(when) => client.give_notice(&notice(when, args)).await?,
        None => {
            let timeout_seconds = args.timeout.map(|timeout| timeout.as_secs());
            let text = args.reason.clone().unwrap_or_default();
            client.drain(&DrainRequest { timeout_seconds, text, by: None }).await?
        }
    };
    let start = Instant::now();
    let mut tick = interval_at(start + REPORT_INTERVAL, REPORT_INTERVAL);
    let mut tally = Tally::default();
    loop {
        let event = tokio::select! {
            event = lines.next::<DrainEvent>() => event?,
            _ = tick.tick() => {
                let past = seconds(start.elapsed().as_secs_f64().floor());
                out.progress_over(&format!("{past}, {} remaining", pod_count(tally.left())));
                continue;
            }
        };
        let Some(event) = event else { return Err(lines.closed().into()) };
        out.progress_over("");
        tally.count(&event);
        match args.output {
            TextFormat::Json => out.json_line(&Envelope::new(&event))?,
            TextFormat::Yaml => out.yaml_document(&Envelope::new(&event))?,
            TextFormat::Text => {
                if let Some(line) = format_event(&event) {
                    out.line(&line)?;
                }
            }
        }
        if let Some(exit) = exit_of(&event) {
            return Ok(exit);
        }
    }
}

/// The exit code after the last event; none for an earlier one. A pod that stays was never to end, so it is not left.
fn exit_of(event: &DrainEvent) -> Option<Exit> {
    let DrainEvent::Finished { forced, still_running, pods_unknown, cancelled, .. } = event else {
        return None;
    };
    let clean = *forced == 0 && *still_running == 0 && !pods_unknown && !cancelled;
    Some(if clean { Exit::Success } else { Exit::PodsLeft })
}

/// Runs `winddown undrain`.
pub(super) async fn undrain(
    global: &GlobalArgs,
    form: TextFormat,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let answer = Client::new(&global.socket).withdraw_notice().await?;
    match form {
        TextFormat::Json => out.json_line(&Envelope::new(&answer))?,
        TextFormat::Yaml => out.yaml(&Envelope::new(&answer))?,
        TextFormat::Text => out.line(&describe(&answer))?,
    }
    Ok(exit_after(&answer))
}

/// The exit code of a withdrawal: it has failed if it ends with this agent.
fn exit_after(answer: &WithdrawAnswer) -> Exit {
    match (answer.admission_closed, &answer.warning) {
        (true, _) => Exit::Refused,
        (false, Some(_)) => Exit::Failure,
        (false, None) => Exit::Success,
    }
}

fn describe(answer: &WithdrawAnswer) -> String {
    let warning = answer.warning.as_deref().map(|why| format!("\n! {}", clean(why)));
    format!("{}{}", outcome(answer), warning.unwrap_or_default())
}

fn outcome(answer: &WithdrawAnswer) -> String {
    let notice = if answer.withdrawn { "the deadline is withdrawn" } else { "no deadline was set" };
    if answer.admission_closed {
        let why = clean(&answer.message);
        return format!("{notice}; pods are still not admitted: {why}");
    }
    match (answer.withdrawn, answer.opened) {
        (true, _) => format!("{notice}; pods are admitted, and static pods restart"),
        (false, true) => "the drain is over; pods are admitted, and static pods restart".to_owned(),
        (false, false) => format!("the node is not drained, and {notice}; nothing has changed"),
    }
}

/// Builds the notice. Fractions of a second are rounded down: an earlier deadline is safe.
fn notice(when: TimeArgument, args: &DrainArgs) -> NoticeBody {
    let text = args.reason.clone().unwrap_or_default();
    match when {
        TimeArgument::In(after) => {
            NoticeBody { in_seconds: Some(after.as_secs()), text, ..NoticeBody::default() }
        }
        TimeArgument::At(at) => NoticeBody { deadline: Some(at), text, ..NoticeBody::default() },
    }
}

#[derive(Default)]
struct Tally {
    pods: usize,
    over: usize,
}

impl Tally {
    fn count(&mut self, event: &DrainEvent) {
        match event {
            DrainEvent::Started { pods, .. } => self.pods = *pods,
            DrainEvent::PodTerminated { .. }
            | DrainEvent::PodStillRunning { .. }
            | DrainEvent::PodNotDrained { .. } => self.over += 1,
            _ => {}
        }
    }

    fn left(&self) -> usize {
        self.pods.saturating_sub(self.over)
    }
}

fn format_event(event: &DrainEvent) -> Option<String> {
    Some(match event {
        DrainEvent::Started { pods: 0, seconds: limit, pods_unknown: true, .. } => {
            format!("{PODS_UNKNOWN}; at most {}", seconds(*limit))
        }
        DrainEvent::Started { pods: 0, .. } => "no pods to terminate".to_owned(),
        DrainEvent::Started { groups, pods: count, seconds: limit, .. } => {
            let groups =
                if *groups == 1 { "1 group".to_owned() } else { format!("{groups} groups") };
            format!("{} in {groups}, at most {}", pod_count(*count), seconds(*limit))
        }
        DrainEvent::Warning { message } => format!("! {}", clean(message)),
        DrainEvent::GroupStarted { priority, name, pods: count, seconds: limit } => {
            let group = group_title(name.as_deref(), *priority);
            format!("{group}: {}, at most {}", pod_count(*count), seconds(*limit))
        }
        DrainEvent::PodTerminated { namespace, name, took_seconds, forced } => {
            let how = if *forced { ", SIGKILL was needed" } else { "" };
            let pod = format!("{namespace}/{name}");
            format!("  {} terminated in {}{how}", clean(&pod), seconds(*took_seconds))
        }
        DrainEvent::PodStillRunning { namespace, name, message } => {
            let why = if message.is_empty() { String::new() } else { format!(": {message}") };
            format!("  {} still runs{}", clean(&format!("{namespace}/{name}")), clean(&why))
        }
        DrainEvent::PodNotDrained { namespace, name, message } => {
            format!("  {} stays: {}", clean(&format!("{namespace}/{name}")), clean(message))
        }
        DrainEvent::GroupFinished { priority, name, took_seconds, still_running } => {
            let (group, took) = (group_title(name.as_deref(), *priority), seconds(*took_seconds));
            match still_running {
                0 => format!("{group}: all terminated in {took}"),
                left => format!("{group}: {} still running after {took}", pod_count(*left)),
            }
        }
        DrainEvent::Finished {
            terminated,
            forced,
            still_running,
            took_seconds,
            pods_unknown,
            cancelled,
        } => {
            let how = if *cancelled { "cancelled: " } else { "" };
            let mut line =
                format!("{how}{} terminated in {}", pod_count(*terminated), seconds(*took_seconds));
            if *forced > 0 {
                line.push_str(&format!(", {forced} needed SIGKILL"));
            }
            if *still_running > 0 {
                line.push_str(&format!(", {still_running} still running"));
            }
            if *pods_unknown {
                line.push_str("; the container runtime did not list its other pods");
            }
            line
        }
        DrainEvent::Unknown => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn finished(still_running: usize, cancelled: bool) -> DrainEvent {
        let (terminated, forced, took_seconds, pods_unknown) = (1, 0, 3.0, false);
        DrainEvent::Finished {
            terminated,
            forced,
            still_running,
            took_seconds,
            pods_unknown,
            cancelled,
        }
    }

    fn stays() -> DrainEvent {
        let (namespace, name) = ("kube-system".to_owned(), "etcd".to_owned());
        DrainEvent::PodNotDrained { namespace, name, message: "its kubelet runs it".into() }
    }

    #[test]
    fn a_pod_that_stays_is_named_and_a_drain_that_was_cancelled_says_so() {
        let mut tally = Tally { pods: 2, over: 0 };
        tally.count(&stays());
        assert_eq!(tally.left(), 1);
        let said = format_event(&stays()).unwrap();
        assert_eq!(said, "  kube-system/etcd stays: its kubelet runs it");
        let said = "1 pod terminated in 3s, 2 still running";
        assert_eq!(format_event(&finished(2, false)).unwrap(), said);
        assert_eq!(format_event(&finished(2, true)).unwrap(), format!("cancelled: {said}"));
    }

    #[test]
    fn a_drain_that_leaves_only_pods_that_stay_exits_with_0_as_its_help_says() {
        assert_eq!(exit_of(&stays()), None);
        assert_eq!(exit_of(&finished(0, false)), Some(Exit::Success));
        assert_eq!(exit_of(&finished(1, false)), Some(Exit::PodsLeft));
        assert_eq!(exit_of(&finished(0, true)), Some(Exit::PodsLeft));
        let mut commands = crate::Cli::command();
        let drain = commands.find_subcommand_mut("drain").unwrap();
        let help = drain.render_long_help().to_string();
        for code in ["0 all pods terminated in time,", "5 some were left", "or it was cancelled"] {
            assert!(help.contains(code), "{code} is not in\n{help}");
        }
    }

    #[test]
    fn a_withdrawal_that_the_next_agent_will_not_know_has_failed() {
        let after = |admission_closed, warning: Option<&str>| {
            let warning = warning.map(str::to_owned);
            let message = String::new();
            let answer = WithdrawAnswer {
                withdrawn: false,
                opened: true,
                admission_closed,
                message,
                warning,
            };
            exit_after(&answer)
        };
        assert_eq!(after(false, None), Exit::Success);
        assert_eq!(after(false, Some("this cannot be stored")), Exit::Failure);
        assert_eq!(after(true, Some("this cannot be stored")), Exit::Refused);
    }

    #[test]
    fn a_withdrawal_is_told_as_what_it_has_changed() {
        let said = |withdrawn, opened, closed: &str| {
            describe(&WithdrawAnswer {
                withdrawn,
                opened,
                admission_closed: !closed.is_empty(),
                message: closed.to_owned(),
                warning: None,
            })
        };
        let back = "pods are admitted, and static pods restart";
        assert_eq!(said(true, true, ""), format!("the deadline is withdrawn; {back}"));
        assert_eq!(said(false, true, ""), format!("the drain is over; {back}"));
        assert_eq!(
            said(false, false, ""),
            "the node is not drained, and no deadline was set; nothing has changed"
        );
        assert_eq!(
            said(false, false, "the node is shutting down"),
            "no deadline was set; pods are still not admitted: the node is shutting down"
        );
    }
}

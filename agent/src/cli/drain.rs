//! `winddown drain`.

use std::time::Duration;

use tokio::time::{Instant, interval_at};

use super::{CommandError, DrainArgs, Exit, GlobalArgs, Output, TextFormat};
use crate::api::{DrainEvent, DrainRequest};
use crate::control::{Client, ClientError};
use crate::render::{clean, seconds};

const TICK: Duration = Duration::from_secs(1);

pub(super) async fn run(
    global: &GlobalArgs,
    args: &DrainArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let request = DrainRequest { timeout_seconds: args.timeout.map(|timeout| timeout.as_secs()) };
    let mut lines = client.drain(&request).await?;
    let start = Instant::now();
    let mut tick = interval_at(start + TICK, TICK);
    let mut tally = Tally::default();
    loop {
        let event = tokio::select! {
            event = lines.next::<DrainEvent>() => event?,
            _ = tick.tick() => {
                let past = seconds(start.elapsed().as_secs_f64().floor());
                out.progress_over(&format!("{past}, {} still to end", pods(tally.left())));
                continue;
            }
        };
        let Some(event) = event else {
            return Err(ClientError::Closed { socket: global.socket.clone() }.into());
        };
        out.progress_over("");
        tally.count(&event);
        match args.output {
            TextFormat::Json => out.json_line(&event)?,
            TextFormat::Text => {
                if let Some(line) = told_as(&event) {
                    out.line(&line)?;
                }
            }
        }
        if let DrainEvent::Finished { forced, left, .. } = event {
            let clean = forced == 0 && left == 0;
            return Ok(if clean { Exit::Success } else { Exit::PodsLeft });
        }
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
            DrainEvent::PodEnded { .. } | DrainEvent::PodLeft { .. } => self.over += 1,
            _ => {}
        }
    }

    fn left(&self) -> usize {
        self.pods.saturating_sub(self.over)
    }
}

fn pods(count: usize) -> String {
    if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") }
}

fn told_as(event: &DrainEvent) -> Option<String> {
    Some(match event {
        DrainEvent::Started { pods: 0, .. } => "no pods to end".to_owned(),
        DrainEvent::Started { groups, pods: count, seconds: limit } => {
            let groups =
                if *groups == 1 { "1 group".to_owned() } else { format!("{groups} groups") };
            format!("{} in {groups}, at most {}", pods(*count), seconds(*limit))
        }
        DrainEvent::GroupStarted { priority, pods: count, seconds: limit } => {
            format!("priority {priority}+: {}, at most {}", pods(*count), seconds(*limit))
        }
        DrainEvent::PodEnded { namespace, name, took_seconds, forced } => {
            let how = if *forced { ", SIGKILL was needed" } else { "" };
            let pod = format!("{namespace}/{name}");
            format!("  {} ended in {}{how}", clean(&pod), seconds(*took_seconds))
        }
        DrainEvent::PodLeft { namespace, name, message } => {
            format!("  {} still runs: {}", clean(&format!("{namespace}/{name}")), clean(message))
        }
        DrainEvent::GroupEnded { priority, took_seconds, left: 0 } => {
            format!("priority {priority}+: all ended in {}", seconds(*took_seconds))
        }
        DrainEvent::GroupEnded { priority, took_seconds, left } => {
            format!("priority {priority}+: {} left after {}", pods(*left), seconds(*took_seconds))
        }
        DrainEvent::Finished { ended, forced, left, took_seconds } => {
            let mut line = format!("{} ended in {}", pods(*ended), seconds(*took_seconds));
            if *forced > 0 {
                line.push_str(&format!(", {forced} needed SIGKILL"));
            }
            if *left > 0 {
                line.push_str(&format!(", {left} still running"));
            }
            line
        }
        DrainEvent::Unknown => return None,
    })
}

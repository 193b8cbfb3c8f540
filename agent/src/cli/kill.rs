//! `winddown kill`.

use std::time::Duration;

use tokio::time::{Instant, interval_at};

use super::{CommandError, Exit, GlobalArgs, KillArgs, Output, TextFormat};
use crate::api::{KillAnswer, KillBody};
use crate::control::Client;
use crate::render::{clean, seconds};

const TICK: Duration = Duration::from_secs(1);

pub(super) async fn run(
    global: &GlobalArgs,
    args: &KillArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let body = KillBody {
        grace_seconds: args.grace.map(|grace| grace.as_secs()),
        uid: args.uid.clone(),
    };
    let pod = format!("{}/{}", args.pod.namespace, args.pod.name);
    let answer = {
        let asked = client.kill(&args.pod.namespace, &args.pod.name, &body);
        let mut asked = std::pin::pin!(asked);
        let start = Instant::now();
        let mut tick = interval_at(start + TICK, TICK);
        let mut told = false;
        loop {
            tokio::select! {
                answer = &mut asked => break answer,
                _ = tick.tick() => {
                    let line = format!("{pod}: waiting for it to end, {}", seconds_since(start));
                    if out.progress_terminal {
                        out.progress_over(&line);
                    } else if !told {
                        out.progress(&line);
                    }
                    told = true;
                }
            }
        }
    };
    out.progress_over("");
    let answer = answer?;
    match args.output {
        TextFormat::Json => out.json(&answer)?,
        TextFormat::Text => out.line(&told_as(&answer))?,
    }
    Ok(if answer.still_running { Exit::PodsLeft } else { Exit::Success })
}

fn seconds_since(start: Instant) -> String {
    seconds(start.elapsed().as_secs_f64().floor())
}

fn told_as(answer: &KillAnswer) -> String {
    let KillAnswer { namespace, name, took_seconds, forced, still_running, message, .. } = answer;
    let (pod, took) = (clean(&format!("{namespace}/{name}")).into_owned(), seconds(*took_seconds));
    if *still_running {
        let why = if message.is_empty() { "no reason given" } else { message };
        return format!("{pod}: still runs after {took} ({}); the kill goes on", clean(why));
    }
    if forced.is_empty() {
        return format!("{pod}: ended in {took}");
    }
    format!("{pod}: ended in {took}, SIGKILL for {}", clean(&forced.join(", ")))
}

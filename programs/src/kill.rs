//! `winddown kill`.

use winddown_shared::display::{clean, seconds};

use super::values::PodArgument;
use super::{CommandError, Exit, GlobalArgs, KillArgs, Output, RestartArgs, TextFormat, ask};
use winddown_control::Client;
use winddown_control::api::{Envelope, KillAnswer, KillBody};

pub(super) async fn run(
    global: &GlobalArgs,
    args: &KillArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let body = KillBody {
        grace_seconds: args.grace.map(|grace| grace.as_secs()),
        uid: args.uid.clone(),
        restart: false,
    };
    let answer = killed(&client, &args.pod, &body, out).await?;
    match args.output {
        TextFormat::Json => out.json(&Envelope::new(&answer))?,
        TextFormat::Yaml => out.yaml(&Envelope::new(&answer))?,
        TextFormat::Text => out.line(&describe(&answer))?,
    }
    let by_itself = answer.forced.is_empty() && !answer.still_running;
    Ok(if by_itself { Exit::Success } else { Exit::PodsLeft })
}

/// Terminates one pod, and waits until it is gone.
async fn killed(
    client: &Client,
    pod: &PodArgument,
    body: &KillBody,
    out: &mut Output,
) -> Result<KillAnswer, CommandError> {
    let waiting_for = format!("{}/{}: waiting for it to terminate", pod.namespace, pod.name);
    let asked = client.kill(&pod.namespace, &pod.name, body);
    Ok(ask::patiently(out, &waiting_for, asked).await?)
}

/// Runs `winddown restart`.
pub(super) async fn restart(
    global: &GlobalArgs,
    args: &RestartArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let grace_seconds = args.grace.map(|grace| grace.as_secs());
    let body = KillBody { grace_seconds, restart: true, ..KillBody::default() };
    let answer = killed(&client, &args.pod, &body, out).await?;
    let restarted = match (answer.still_running, answer.completed) {
        (true, _) => "",
        (false, true) => "; it has completed, so it does not start again",
        (false, false) => "; its source starts it again",
    };
    out.line(&format!("{}{restarted}", describe(&answer)))?;
    Ok(if answer.still_running { Exit::PodsLeft } else { Exit::Success })
}

fn describe(answer: &KillAnswer) -> String {
    let KillAnswer { namespace, name, took_seconds, forced, still_running, message, .. } = answer;
    let (pod, took) = (clean(&format!("{namespace}/{name}")).into_owned(), seconds(*took_seconds));
    if *still_running {
        let why = if message.is_empty() { "no reason given" } else { message };
        return format!("{pod}: still runs after {took} ({}); the kill continues", clean(why));
    }
    if forced.is_empty() {
        if answer.already_terminated {
            return format!("{pod}: already terminated");
        }
        return format!("{pod}: terminated in {took}");
    }
    format!("{pod}: terminated in {took}, SIGKILL for {}", clean(&forced.join(", ")))
}

//! `winddown kill`.

use winddown_shared::display::{clean, seconds};

use super::{CommandError, Exit, GlobalArgs, KillArgs, Output, TextFormat, ask};
use winddown_control::Client;
use winddown_control::api::{Envelope, KillAnswer, KillBody};

pub(super) async fn run(
    global: &GlobalArgs,
    args: &KillArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let body =
        KillBody { grace_seconds: args.grace.map(|grace| grace.as_secs()), uid: args.uid.clone() };
    let pod = format!("{}/{}", args.pod.namespace, args.pod.name);
    let waiting_for = format!("{pod}: waiting for it to end");
    let asked = client.kill(&args.pod.namespace, &args.pod.name, &body);
    let answer = ask::patiently(out, &waiting_for, asked).await?;
    match args.output {
        TextFormat::Json => out.json(&Envelope::new(&answer))?,
        TextFormat::Yaml => out.yaml(&Envelope::new(&answer))?,
        TextFormat::Text => out.line(&describe(&answer))?,
    }
    let by_itself = answer.forced.is_empty() && !answer.still_running;
    Ok(if by_itself { Exit::Success } else { Exit::PodsLeft })
}

fn describe(answer: &KillAnswer) -> String {
    let KillAnswer { namespace, name, took_seconds, forced, still_running, message, .. } = answer;
    let (pod, took) = (clean(&format!("{namespace}/{name}")).into_owned(), seconds(*took_seconds));
    if *still_running {
        let why = if message.is_empty() { "no reason given" } else { message };
        return format!("{pod}: still runs after {took} ({}); the kill goes on", clean(why));
    }
    if forced.is_empty() {
        if answer.already_terminated {
            return format!("{pod}: already ended");
        }
        return format!("{pod}: ended in {took}");
    }
    format!("{pod}: ended in {took}, SIGKILL for {}", clean(&forced.join(", ")))
}

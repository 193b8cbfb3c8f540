//! `winddown release`.

use winddown_shared::display::clean;

use super::{CommandError, Exit, GlobalArgs, Output, ReleaseArgs, TextFormat, ask, status};
use winddown_control::Client;
use winddown_control::api::{Envelope, ReleaseAnswer};

pub(super) async fn run(
    global: &GlobalArgs,
    args: &ReleaseArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let asked = client.release(&args.pod.namespace, &args.pod.name);
    let answer = ask::patiently(out, status::WAITING, asked).await?;
    match args.output {
        TextFormat::Json => out.json(&Envelope::new(&answer))?,
        TextFormat::Yaml => out.yaml(&Envelope::new(&answer))?,
        TextFormat::Text => out.line(&describe(&answer))?,
    }
    Ok(Exit::Success)
}

fn describe(answer: &ReleaseAnswer) -> String {
    let ReleaseAnswer { namespace, name, still_blocked_by, .. } = answer;
    let others = match still_blocked_by.is_empty() {
        true => String::new(),
        false => format!("; {} still do", still_blocked_by.join(", ")),
    };
    clean(&format!("{namespace}/{name}: blocks shutdowns no longer{others}")).into_owned()
}

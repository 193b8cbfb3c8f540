//! `winddown status`.

use super::values::PodArgument;
use super::{CommandError, Exit, GlobalArgs, Output, OutputFormat, StatusArgs, ask, watch};
use winddown_control::Client;
use winddown_control::api::{ApiAnswer, Envelope, PodStatus, Status};
use winddown_render::View;

/// The message while the agent does not answer.
pub(super) const WAITING: &str = "waiting for the agent's answer";

pub(super) async fn run(
    global: &GlobalArgs,
    args: &StatusArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let wanted = named(args)?;
    if args.watch {
        return watch::run(&client, args.output, out).await;
    }
    let mut status = ask::patiently(out, WAITING, client.status()).await?;
    select(&mut status, args, &wanted)?;
    print(&status, args.output, winddown_render::status, out)?;
    Ok(Exit::Success)
}

/// Leaves the pods that the command names, and what is known of them.
fn select(
    status: &mut Status,
    args: &StatusArgs,
    wanted: &[PodArgument],
) -> Result<(), CommandError> {
    let mut named = Vec::new();
    for pod in wanted {
        let (namespace, name) = match status.rejected_pod(&pod.namespace, &pod.name) {
            Some(pod) => (&pod.namespace, &pod.name),
            None => find(status, pod).map(|pod| (&pod.namespace, &pod.name))?,
        };
        named.push((namespace.clone(), name.clone()));
    }
    let is_wanted = |namespace: &str, name: &str| {
        let is_named = |pod: &(String, String)| pod.0 == namespace && pod.1 == name;
        let of_namespace = args.namespace.as_ref().is_none_or(|one| one == namespace);
        if named.is_empty() { of_namespace } else { named.iter().any(is_named) }
    };
    status.pods.retain(|pod| is_wanted(&pod.namespace, &pod.name));
    status.rejected.retain(|pod| is_wanted(&pod.namespace, &pod.name));
    let is_about =
        |pod: &str| pod.split_once('/').is_none_or(|(namespace, name)| is_wanted(namespace, name));
    status.decisions.retain(|decision| is_about(&decision.pod));
    Ok(())
}

/// The pods of the command line, those without a namespace in that of `-n`.
fn named(args: &StatusArgs) -> Result<Vec<PodArgument>, CommandError> {
    let Some(of_all) = &args.namespace else { return Ok(args.pods.clone()) };
    let named = args.pods.iter().map(|pod| {
        let PodArgument { namespace, name, .. } = pod;
        if pod.is_qualified && namespace != of_all {
            let what = format!("-n {of_all} and {namespace}/{name} name different namespaces");
            return Err(CommandError::message(Exit::Usage, what).with_hint("leave out one of them"));
        }
        Ok(PodArgument { namespace: of_all.clone(), ..pod.clone() })
    });
    named.collect()
}

/// The pod of this name.
pub(super) fn find<'s>(
    status: &'s Status,
    wanted: &PodArgument,
) -> Result<&'s PodStatus, CommandError> {
    let PodArgument { namespace, name, .. } = wanted;
    status.pod(namespace, name).ok_or_else(|| status.no_pod(namespace, name).into())
}

/// Prints an answer of the agent in any form.
pub(super) fn print<A: ApiAnswer + serde::Serialize>(
    answer: &A,
    form: OutputFormat,
    text: impl FnOnce(&A, &View) -> String,
    out: &mut Output,
) -> Result<(), CommandError> {
    match form {
        OutputFormat::Json => out.json(&Envelope::new(answer)),
        OutputFormat::Yaml => out.yaml(&Envelope::new(answer)),
        OutputFormat::Text | OutputFormat::Wide => out.text(&text(answer, &view(form, out))),
    }
}

pub(super) fn view(form: OutputFormat, out: &Output) -> View {
    let wide = form == OutputFormat::Wide;
    View { width: out.size().map(|(columns, _)| columns), color: out.color, wide }
}

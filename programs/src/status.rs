//! `winddown status`.

use super::values::PodArgument;
use super::{CommandError, Exit, GlobalArgs, Output, OutputFormat, StatusArgs, ask, watch};
use winddown_control::Client;
use winddown_control::api::{ApiAnswer, Envelope, PodStatus, RejectedPod, Status};
use winddown_render::View;
use winddown_shared::display::clean;

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
    for pod in wanted {
        if rejected(status, pod).is_none() {
            find(status, pod)?;
        }
    }
    let is_wanted = |namespace: &str, name: &str| {
        let is_named = |pod: &PodArgument| pod.namespace == namespace && pod.name == name;
        let of_namespace = args.namespace.as_ref().is_none_or(|one| one == namespace);
        if wanted.is_empty() { of_namespace } else { wanted.iter().any(is_named) }
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

/// The pod of this name; without the node's name at its end, too, which manifests do not have.
pub(super) fn find<'s>(
    status: &'s Status,
    wanted: &PodArgument,
) -> Result<&'s PodStatus, CommandError> {
    let PodArgument { namespace, name, .. } = wanted;
    let is_it = |pod: &&PodStatus| pod.namespace == *namespace && pod.name == *name;
    if let Some(pod) = status.pods.iter().find(is_it) {
        return Ok(pod);
    }
    if let Some(pod) = rejected(status, wanted) {
        let (reason, message) = (clean(&pod.reason), clean(&pod.message));
        let what = format!("{namespace}/{name} was rejected, {reason}: {message}");
        return Err(CommandError::message(Exit::Failure, what)
            .with_hint("`winddown status` says what to do about it"));
    }
    Err(status.no_pod(namespace, name).into())
}

fn rejected<'s>(status: &'s Status, wanted: &PodArgument) -> Option<&'s RejectedPod> {
    let is_it = |pod: &&RejectedPod| pod.namespace == wanted.namespace && pod.name == wanted.name;
    status.rejected.iter().find(is_it)
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

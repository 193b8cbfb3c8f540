//! `winddown describe`.

use winddown_control::Client;

use super::{CommandError, DescribeArgs, Exit, GlobalArgs, Output, OutputFormat, ask, status};

pub(super) async fn run(
    global: &GlobalArgs,
    args: &DescribeArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let node = ask::patiently(out, status::WAITING, client.status()).await?;
    let view = status::view(OutputFormat::Text, out);
    if let Some(pod) = node.rejected_pod(&args.pod.namespace, &args.pod.name) {
        out.text(&winddown_render::describe_rejected(&node, pod, &view))?;
        return Ok(Exit::Success);
    }
    let pod = status::find(&node, &args.pod)?;
    let plan = ask::patiently(out, status::WAITING, client.shutdown_plan(None)).await?;
    out.text(&winddown_render::describe(&node, pod, &plan, &view))?;
    Ok(Exit::Success)
}

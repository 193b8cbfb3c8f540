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
    let pod = status::find(&node, &args.pod)?;
    let plan = ask::patiently(out, status::WAITING, client.shutdown_plan(None)).await?;
    let view = status::view(OutputFormat::Text, out);
    out.text(&winddown_render::describe(&node, pod, &plan, &view))?;
    Ok(Exit::Success)
}

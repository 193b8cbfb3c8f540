//! `winddown plan preemption` without cases: what the running agent says of its own node.

use std::io::Read;
use std::path::Path;

use super::args::PlanPreemptionArgs;
use super::{CommandError, Exit, GlobalArgs, Output, ask, plan, status};
use winddown_control::Client;
use winddown_preemption::Strategy;
use winddown_yaml::MAX_BYTES;

pub(super) fn run(
    global: &GlobalArgs,
    args: &PlanPreemptionArgs,
    manifest: Option<&Path>,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let manifest = manifest.map(read).transpose()?;
    let strategy = args.strategy.map(|strategy| Strategy::from(strategy).as_str());
    let client = Client::new(&global.socket);
    ask::block_on(async {
        let asked = client.preemption_plan(manifest, strategy);
        let plan = ask::patiently(out, status::WAITING, asked).await?;
        plan::show(&plan, args.output, args.explain, winddown_render::preemption, out)?;
        Ok(Exit::Success)
    })
}

/// The manifest as it lies there; the agent reads it, by its own node's name.
fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    // Enough for the agent to see that it is too large, and to say so.
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().lock().take(limit).read_to_end(&mut text),
        false => std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut text)),
    };
    read.map_err(|error| CommandError::unreadable(path, error))?;
    Ok(text)
}

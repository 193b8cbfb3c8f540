//! `winddown plan preemption` without cases, answered by the running agent for its own node.

use std::io::Read;
use std::path::Path;

use super::args::PlanPreemptionArgs;
use super::plan::{self, pods};
use super::{CommandError, Exit, GlobalArgs, Output, ask, config, status};
use winddown_control::Client;
use winddown_preemption::Strategy;

pub(super) fn run(
    global: &GlobalArgs,
    args: &PlanPreemptionArgs,
    manifest: Option<(&Path, Box<dyn Read>)>,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let manifest = manifest.map(|manifest| read(global, manifest)).transpose()?;
    let strategy = args.strategy.map(|strategy| Strategy::from(strategy).as_str());
    let client = Client::new(&global.socket);
    ask::block_on(async {
        let asked = client.preemption_plan(manifest, strategy);
        let plan = ask::patiently(out, status::WAITING, asked).await?;
        plan::show(&plan, args.output, args.explain, winddown_render::preemption, out)?;
        Ok(Exit::Success)
    })
}

/// Checks the manifest and returns its bytes; the agent parses it again with its own node name.
fn read(
    global: &GlobalArgs,
    (path, open): (&Path, Box<dyn Read>),
) -> Result<Vec<u8>, CommandError> {
    let config = config::loaded(global)?.config;
    let node = pods::node_name(&config, &winddown_host::machine::node_name())?;
    let bytes = pods::bytes(path, open)?;
    pods::checked(path, &bytes, &node)?;
    Ok(bytes)
}

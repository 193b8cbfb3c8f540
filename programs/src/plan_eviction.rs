//! `winddown plan eviction`.

use super::args::PlanEvictionArgs;
use super::plan::{self, PlanInput};
use super::{CommandError, Exit, GlobalArgs, Output, ask, cases, status};
use winddown_control::Client;
use winddown_eviction::Signal;

pub(super) fn run(
    global: &GlobalArgs,
    args: &PlanEvictionArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let Some(file) = args.file.as_deref() else { return ask_agent(global, args, out) };
    let PlanInput::Cases(cases) = plan::input(file)? else {
        let what = format!("{}: no cases; a manifest does not say what a pod uses", file.display());
        return Err(CommandError::message(Exit::Usage, what).with_hint(
            "`winddown plan eviction` asks the running agent, which measures its pods",
        ));
    };
    cases::eviction((file, cases), args.explain, args.output, out)
}

/// Asks the agent which resource is short, or nearest to its threshold, and which pods would be evicted for it.
fn ask_agent(
    global: &GlobalArgs,
    args: &PlanEvictionArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    ask::block_on(async {
        let asked = client.eviction_plan(args.signal.map(Signal::as_str));
        let plan = ask::patiently(out, status::WAITING, asked).await?;
        plan::show(&plan, args.output, args.explain, winddown_render::eviction, out)?;
        Ok(Exit::Success)
    })
}

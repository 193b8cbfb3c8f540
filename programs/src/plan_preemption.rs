//! `winddown plan preemption`.

use winddown_preemption::PlanOptions;

use super::args::PlanPreemptionArgs;
use super::plan::{self, PlanInput};
use super::{CommandError, Exit, GlobalArgs, Output, cases, plan_room};

pub(super) fn run(
    global: &GlobalArgs,
    args: &PlanPreemptionArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let Some(file) = args.file.as_deref() else {
        return plan_room::run(global, args, None, out);
    };
    let cases = match plan::input(file)? {
        PlanInput::Cases(cases) => cases,
        PlanInput::Manifests(open) => return plan_room::run(global, args, Some((file, open)), out),
    };
    let strategy = args.strategy.unwrap_or_default().into();
    let options = PlanOptions { strategy, explain: args.explain };
    cases::preemption((file, cases), &options, args.output, out)
}

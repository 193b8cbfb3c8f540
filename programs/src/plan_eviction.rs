//! `winddown plan eviction`.

use serde::Deserialize;

use winddown_shared::display::clean;

use super::args::{PlanEvictionArgs, TextFormat};
use super::plan::{self, PlanInput};
use super::{CommandError, Exit, GlobalArgs, Output, ask, cases, status};
use winddown_control::Client;
use winddown_eviction::{Signal, plan_json_line};

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
    let key = cases::CaseKey("\"signal\"");
    let answer = |case: &str| plan_json_line(case, args.explain).map_err(CommandError::failure);
    cases::answer_each((file, cases), key, out, answer, |answer, out| {
        print(answer, args.output, out)
    })
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

#[derive(Deserialize)]
struct EvictionAnswer {
    #[serde(default)]
    id: serde_json::Value,
    order: Vec<String>,
    #[serde(default)]
    pods: Option<Vec<Pod>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    namespace: String,
    name: String,
    priority: i32,
    usage: Option<i64>,
    request: i64,
    exceeds_request: Option<bool>,
    verdict: String,
}

fn print(answer: &str, form: TextFormat, out: &mut Output) -> Result<(), CommandError> {
    if form == TextFormat::Json {
        return out.line(answer);
    }
    if form == TextFormat::Yaml {
        return cases::document(answer, out);
    }
    let read: EvictionAnswer = serde_json::from_str(answer).map_err(anyhow::Error::new)?;
    let title = cases::title(&read.id);
    out.line(&format!("{title}: {}", clean(&read.order.join(", "))))?;
    for pod in read.pods.iter().flatten() {
        out.line(&format!("  {}", pod.line()))?;
    }
    Ok(())
}

// === impl Pod ===

impl Pod {
    fn line(&self) -> String {
        let name = format!("{}/{}", clean(&self.namespace), clean(&self.name));
        let usage = self.usage.map_or_else(|| "-".to_owned(), |usage| usage.to_string());
        let (priority, request) = (self.priority, self.request);
        let text = match (self.verdict.as_str(), self.exceeds_request) {
            ("chosen", Some(true)) => "ends: it uses more than it asked for",
            ("chosen", _) => "ends: it comes first of those that can",
            ("critical", _) => "stays: the node cannot do without it",
            ("notMeasured", _) => "stays: what it uses is not known",
            _ => "stays: one pod at a time",
        };
        format!("{name:<30} priority {priority:>10}  uses {usage:>14} of {request:>14}  {text}")
    }
}

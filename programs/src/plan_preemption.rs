//! `winddown plan preemption`.

use serde::Deserialize;

use winddown_preemption::{PlanOptions, plan_json_line};
use winddown_shared::display::clean;

use super::args::{PlanPreemptionArgs, TextFormat};
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
    let key = cases::CaseKey("\"requirements\"");
    let strategy = args.strategy.unwrap_or_default().into();
    let options = PlanOptions { strategy, explain: args.explain };
    let answer = |case: &str| plan_json_line(case, &options).map_err(CommandError::failure);
    cases::answer_each((file, cases), key, out, answer, |answer, out| {
        print(answer, args.output, out)
    })
}

#[derive(Deserialize)]
struct PreemptionAnswer {
    #[serde(default)]
    id: serde_json::Value,
    victims: Vec<String>,
    error: Option<String>,
    #[serde(default)]
    candidates: Vec<Candidate>,
}

#[derive(Deserialize)]
struct Candidate {
    name: String,
    namespace: String,
    qos: String,
    priority: Option<i32>,
    distance: f64,
    terminating: bool,
    text: String,
}

fn print(answer: &str, form: TextFormat, out: &mut Output) -> Result<(), CommandError> {
    if form == TextFormat::Json {
        return out.line(answer);
    }
    if form == TextFormat::Yaml {
        return cases::document(answer, out);
    }
    let read: PreemptionAnswer = serde_json::from_str(answer).map_err(anyhow::Error::new)?;
    let title = cases::title(&read.id);
    let what = match (&read.error, &read.victims[..]) {
        (Some(error), _) => error.clone(),
        (None, []) => "no pod has to end".to_owned(),
        (None, victims) => victims.join(", "),
    };
    out.line(&format!("{title}: {}", clean(&what)))?;
    for candidate in &read.candidates {
        out.line(&format!("  {}", candidate.line()))?;
    }
    Ok(())
}

// === impl Candidate ===

impl Candidate {
    fn line(&self) -> String {
        let Self { qos, distance, .. } = self;
        let name = format!("{}/{}", clean(&self.namespace), clean(&self.name));
        let priority = self.priority.map_or_else(|| "-".to_owned(), |p| p.to_string());
        let ending = if self.terminating { ", ending already" } else { "" };
        let text = clean(&self.text);
        format!("{name:<30} {qos:<10} {priority:>10} {distance:>6.3}  {text}{ending}")
    }
}

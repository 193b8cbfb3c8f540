//! Commands without a process around them: what they print, and what they find.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;

use crate::{
    Cli, CommandError, DoctorArgs, DrillArgs, Exit, GlobalArgs, InstallArgs, Offline, Output,
    PlanPreemptionArgs, UninstallArgs, dispatch,
};
use winddown_control::api::{ConfigView, PlannedGroup, ReportEntry, ReportList, ShutdownPlan};
use winddown_doctor::{Diagnosis, Finding};

/// What a command printed and how it ended.
pub(super) struct Ran {
    pub(super) out: String,
    pub(super) err: String,
    pub(super) exit: Exit,
}

pub(super) fn run(line: &str) -> Ran {
    run_with(line, &World::default())
}

pub(super) fn run_with(line: &str, world: &World) -> Ran {
    let (out, err) = (Sink::default(), Sink::default());
    let mut output = Output::plain(out.clone(), err.clone());
    let cli = Cli::try_parse_from(line.split_whitespace()).expect(line);
    let result = dispatch(&cli, world, &mut output);
    let exit = output.finish(result);
    Ran { out: out.text(), err: err.text(), exit }
}

#[derive(Clone, Default)]
pub(crate) struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a command finds without an agent.
#[derive(Default)]
pub(super) struct World {
    pub(super) reports: Vec<ReportEntry>,
    pub(super) outcome: &'static str,
    pub(super) config_error: bool,
    pub(super) findings: Vec<Finding>,
    pub(super) notice: Option<(&'static str, Duration)>,
}

impl Offline for World {
    fn drill(&self, _: &GlobalArgs, _: &DrillArgs, _: &mut Output) -> Result<Exit, CommandError> {
        Ok(Exit::PodsLeft)
    }

    fn install(
        &self,
        _: &GlobalArgs,
        _: &InstallArgs,
        _: &mut Output,
    ) -> Result<Exit, CommandError> {
        Ok(Exit::Success)
    }

    fn uninstall(
        &self,
        _: &GlobalArgs,
        _: &UninstallArgs,
        _: &mut Output,
    ) -> Result<Exit, CommandError> {
        Ok(Exit::Success)
    }

    fn diagnose(&self, _: &GlobalArgs, _: &DoctorArgs) -> Result<Diagnosis, CommandError> {
        Ok(Diagnosis::new("node1", self.findings.clone()))
    }

    fn plan(
        &self,
        _: &GlobalArgs,
        _: &Path,
        within: Option<Duration>,
    ) -> Result<ShutdownPlan, CommandError> {
        let mut plan = ShutdownPlan::new(30.0);
        if let Some(within) = within {
            plan.warnings.push(format!("web gets {}s", within.as_secs()));
        }
        plan.groups.push(PlannedGroup::default());
        Ok(plan)
    }

    fn notice(&self, _: &GlobalArgs) -> Option<(&'static str, Duration)> {
        self.notice
    }

    fn plan_line(&self, line: &str) -> Result<String, CommandError> {
        let case: serde_json::Value = serde_json::from_str(line).map_err(anyhow::Error::new)?;
        let Some(pods) = case["pods"].as_array() else {
            return Err(CommandError::message(Exit::Failure, "pods: missing"));
        };
        let pods: Vec<_> = pods
            .iter()
            .map(|pod| serde_json::json!({ "name": pod["metadata"]["name"], "graceSeconds": 3 }))
            .collect();
        Ok(serde_json::json!({
            "id": case["id"],
            "groups": [{ "priority": 0, "shutdownGracePeriodSeconds": 20, "pods": pods }],
        })
        .to_string())
    }

    fn eviction_case(&self, case: &str, explain: bool) -> Result<String, CommandError> {
        let case: serde_json::Value = serde_json::from_str(case).map_err(anyhow::Error::new)?;
        let Some(pods) = case["pods"].as_array() else {
            return Err(CommandError::message(Exit::Failure, "pods: missing"));
        };
        let names: Vec<_> = pods.iter().map(|pod| pod["metadata"]["name"].clone()).collect();
        let explained = |name: &serde_json::Value| {
            serde_json::json!({
                "namespace": "default", "name": name, "priority": 5, "usage": 2_097_152,
                "request": 1_048_576, "exceedsRequest": true, "verdict": "chosen",
            })
        };
        let pods: Option<Vec<_>> = explain.then(|| names.iter().map(explained).collect());
        Ok(serde_json::json!({ "id": case["id"], "order": names, "pods": pods }).to_string())
    }

    fn preemption_case(
        &self,
        case: &str,
        args: &PlanPreemptionArgs,
    ) -> Result<String, CommandError> {
        let case: serde_json::Value = serde_json::from_str(case).map_err(anyhow::Error::new)?;
        let candidates = args.explain.then(|| {
            serde_json::json!([{
                "name": "a", "namespace": "default", "qos": "Burstable", "priority": 0,
                "distance": 0.25, "terminating": true, "text": "victim 1",
            }])
        });
        Ok(serde_json::json!({
            "id": case["id"], "victims": ["a"], "error": null,
            "candidates": candidates.unwrap_or_else(|| serde_json::json!([])),
        })
        .to_string())
    }

    fn reports(&self, _: &GlobalArgs) -> Result<ReportList, CommandError> {
        Ok(ReportList { reports: self.reports.clone(), problems: vec!["x.json: empty".to_owned()] })
    }

    fn report(&self, _: &GlobalArgs, id: &str) -> Result<serde_json::Value, CommandError> {
        Ok(serde_json::json!({ "id": id, "outcome": self.outcome }))
    }

    fn report_text(&self, report: &serde_json::Value, _: bool) -> Result<String, CommandError> {
        Ok(format!("report {}\n", report["id"]))
    }

    fn report_svg(&self, report: &serde_json::Value) -> Result<String, CommandError> {
        Ok(format!("<svg id={}/>\n", report["id"]))
    }

    fn report_html(&self, report: &serde_json::Value) -> Result<String, CommandError> {
        Ok(format!("<!DOCTYPE html><p>{}</p>\n", report["id"]))
    }

    fn load_config(&self, file: Option<&Path>) -> Result<ConfigView, CommandError> {
        if self.config_error {
            let error = "config.yaml:3: shutdownGracePeriod: not a duration\n\
                         config.yaml:4: maxPods: must be at least 1";
            return Err(CommandError::message(Exit::ConfigInvalid, error));
        }
        Ok(ConfigView {
            file: file.map(|file| file.display().to_string()).unwrap_or_default(),
            yaml: "kind: Configuration\n".to_owned(),
            warnings: vec!["cgroupDriver is not used".to_owned()],
        })
    }

    fn default_config(&self) -> String {
        "# defaults\n".to_owned()
    }
}

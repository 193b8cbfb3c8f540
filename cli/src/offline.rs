//! The seam to what a command does without a running agent.

use std::path::Path;
use std::time::Duration;

use winddown_control::api::{ConfigView, ReportList, ShutdownPlan};
use winddown_doctor::Diagnosis;

use super::{
    CommandError, DoctorArgs, DrillArgs, Exit, GlobalArgs, InstallArgs, Output, PlanPreemptionArgs,
    UninstallArgs,
};

/// What the commands do that is not asked of a running agent. [`Commands`](crate::commands::Commands) implements it.
///
/// The methods are synchronous: one that needs a runtime builds its own, of the kind it needs.
pub trait Offline {
    /// Rehearses a shutdown and shows its progress and its report.
    ///
    /// # Errors
    /// The rehearsal could not be set up.
    fn drill(
        &self,
        global: &GlobalArgs,
        args: &DrillArgs,
        out: &mut Output,
    ) -> Result<Exit, CommandError>;

    /// Puts units, drop-ins, configuration and directories in place.
    ///
    /// # Errors
    /// Something could not be put in place; what was put stays.
    fn install(
        &self,
        global: &GlobalArgs,
        args: &InstallArgs,
        out: &mut Output,
    ) -> Result<Exit, CommandError>;

    /// Takes away what install put in place.
    ///
    /// # Errors
    /// Something could not be taken away.
    fn uninstall(
        &self,
        global: &GlobalArgs,
        args: &UninstallArgs,
        out: &mut Output,
    ) -> Result<Exit, CommandError>;

    /// Looks at the node, or at an image of one, and judges what is seen. What hangs is a finding.
    ///
    /// # Errors
    /// Nothing could be looked at, since no runtime could be had.
    fn diagnose(&self, global: &GlobalArgs, args: &DoctorArgs) -> Result<Diagnosis, CommandError>;

    /// Plans the shutdown of the pods described in `manifests`, a file or a directory, under the
    /// configuration `global` names, for a node that is gone in `within` if that is given.
    ///
    /// # Errors
    /// The configuration or a manifest is invalid ([`Exit::ConfigInvalid`]).
    fn plan(
        &self,
        global: &GlobalArgs,
        manifests: &Path,
        within: Option<Duration>,
    ) -> Result<ShutdownPlan, CommandError>;

    /// Which cloud the configuration takes notices from, and the least time that one leaves; none where
    /// no cloud is configured or the configuration cannot be read.
    fn notice(&self, global: &GlobalArgs) -> Option<(&'static str, Duration)>;

    /// Plans one JSON line (`config` and `pods` in, `id` and `groups` out).
    ///
    /// # Errors
    /// The line does not have that shape.
    fn plan_line(&self, line: &str) -> Result<String, CommandError>;

    /// Chooses victims for one case (`preemptor`, `pods` and `requirements` in; `id`, `victims` and
    /// `error` out, on one line).
    ///
    /// # Errors
    /// The text is not such a case.
    fn preemption_case(
        &self,
        case: &str,
        args: &PlanPreemptionArgs,
    ) -> Result<String, CommandError>;

    /// Ranks the pods of one case (`signal`, `pods` and `stats` in; `id` and `order` out, on one line),
    /// with the figures if `explain`.
    ///
    /// # Errors
    /// The text is not such a case.
    fn eviction_case(&self, case: &str, explain: bool) -> Result<String, CommandError>;

    /// The reports kept on disk, for when no agent answers.
    ///
    /// # Errors
    /// The state directory cannot be read.
    fn reports(&self, global: &GlobalArgs) -> Result<ReportList, CommandError>;

    /// One report kept on disk, as JSON; `latest` names the newest.
    ///
    /// # Errors
    /// There is no such report, or it cannot be read.
    fn report(&self, global: &GlobalArgs, id: &str) -> Result<serde_json::Value, CommandError>;

    /// A report as text for people.
    ///
    /// # Errors
    /// The report is of a shape this version does not know.
    fn report_text(&self, report: &serde_json::Value, color: bool) -> Result<String, CommandError>;

    /// A report as an SVG picture.
    ///
    /// # Errors
    /// The report is of a shape this version does not know.
    fn report_svg(&self, report: &serde_json::Value) -> Result<String, CommandError>;

    /// A report as a page for a browser.
    ///
    /// # Errors
    /// The report is of a shape this version does not know.
    fn report_html(&self, report: &serde_json::Value) -> Result<String, CommandError>;

    /// Reads and validates a configuration file; the default one when `file` is none.
    ///
    /// # Errors
    /// It is missing, unreadable or invalid ([`Exit::ConfigInvalid`]).
    fn load_config(&self, file: Option<&Path>) -> Result<ConfigView, CommandError>;

    /// The default configuration as commented YAML.
    fn default_config(&self) -> String;
}

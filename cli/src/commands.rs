//! The commands that need no running agent, joined to what carries them out.

mod pods;

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use winddown_render::report;
use winddown_shutdown::{
    Outcome, Policy, ReportStore, ShutdownReport, plan, plan_json_line, plan_within,
};

use crate::drill::{self, DrillOptions};
use crate::{
    CommandError, DoctorArgs, DrillArgs, Exit, GlobalArgs, InstallArgs, Offline, Output,
    PlanPreemptionArgs, RuntimeChoice, UninstallArgs,
};
use winddown_config::{Config, ConfigError, DEFAULT_FILE, default_yaml};
use winddown_control::ApiError;
use winddown_control::api::{ConfigView, ReportList, ShutdownPlan};
use winddown_doctor::Diagnosis;
use winddown_install::{InstallOptions, UninstallOptions};
use winddown_node::{plan_view, policy_of, reports};

/// How long each look of the doctor may take.
const LOOK: Duration = Duration::from_secs(3);

/// A plan without groups is no proof that there is nothing to end.
const OFF: &str = "graceful shutdown is off: a shutdown would end all pods at once; set \
                   shutdownGracePeriod to protect them";

/// How long threads that wait for a disk may take when the process ends.
const LAST_THREADS: Duration = Duration::from_millis(500);

/// What commands do without asking a running agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Commands;

impl Offline for Commands {
    fn drill(
        &self,
        global: &GlobalArgs,
        args: &DrillArgs,
        out: &mut Output,
    ) -> Result<Exit, CommandError> {
        winddown_logging::start_at("error");
        let config = match &global.config {
            Some(file) => load(file)?,
            None => drill::default_config(args.directory.as_deref()).map_err(invalid)?,
        };
        let options = DrillOptions {
            directory: args.directory.clone(),
            config,
            delay: args.delay,
            keep: args.keep,
            form: args.output,
        };
        match on_runtime(drill::run(options, out))? {
            Ok(Outcome::Clean) => Ok(Exit::Success),
            Ok(_) => Ok(Exit::PodsLeft),
            Err(drill::DrillError::Output(error)) => Err(error),
            Err(error) => Err(CommandError::new(Exit::Failure, error)),
        }
    }

    fn install(
        &self,
        _global: &GlobalArgs,
        args: &InstallArgs,
        out: &mut Output,
    ) -> Result<Exit, CommandError> {
        let chosen = match args.runtime {
            None if !args.companion => {
                Some(winddown_install::choose(&args.root, args.from.as_deref()).map_err(failure)?)
            }
            _ => None,
        };
        let runtime = match args.runtime {
            Some(RuntimeChoice::Process) => winddown_install::Runtime::Process,
            Some(RuntimeChoice::Systemd) => winddown_install::Runtime::Systemd,
            Some(RuntimeChoice::Cri) => winddown_install::Runtime::Cri,
            None => chosen.map(|choice| choice.runtime).unwrap_or_default(),
        };
        let options = InstallOptions {
            root: args.root.clone(),
            runtime,
            config: args.from.clone(),
            companion: args.companion.then(|| winddown_install::Companion {
                kubelet: args.kubelet.clone(),
                kubeconfig: args.kubeconfig.clone(),
                endpoint: args.container_runtime_endpoint.clone(),
            }),
            bin_dir: args.bin_dir.clone(),
            enable: !args.no_enable,
            start: args.start,
            dry_run: args.dry_run,
            force: args.force,
            ..InstallOptions::new(own_directory()?)
        };
        let mut report = winddown_install::install(&options).map_err(failure)?;
        report.notes.extend(chosen.map(|choice| choice.to_string()));
        out.text(&report.to_string())?;
        Ok(Exit::Success)
    }

    fn uninstall(
        &self,
        _global: &GlobalArgs,
        args: &UninstallArgs,
        out: &mut Output,
    ) -> Result<Exit, CommandError> {
        let options = UninstallOptions {
            root: args.root.clone(),
            purge: args.purge,
            force: args.force,
            dry_run: args.dry_run,
        };
        let report = winddown_install::uninstall(&options).map_err(failure)?;
        out.text(&report.to_string())?;
        Ok(Exit::Success)
    }

    fn diagnose(&self, global: &GlobalArgs, args: &DoctorArgs) -> Result<Diagnosis, CommandError> {
        let place = winddown_doctor::Place {
            live: winddown_install::same_directory(&args.root, Path::new("/")),
            root: args.root.clone(),
            config: global.config.clone(),
            socket: global.socket.clone(),
            bus: winddown_systemd::Bus::System,
            patience: LOOK,
            wall: winddown_machine::host::wall_clock(),
        };
        // One look each needs no second thread; what hangs has threads of its own.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
        let facts = runtime.block_on(winddown_doctor::collect(&place));
        runtime.shutdown_timeout(LAST_THREADS);
        Ok(Diagnosis::new(facts.node.clone(), winddown_doctor::findings(&facts)))
    }

    fn plan(
        &self,
        global: &GlobalArgs,
        manifests: &Path,
        within: Option<Duration>,
    ) -> Result<ShutdownPlan, CommandError> {
        let (config, notes) = configured(global)?;
        let policy: Policy = policy_of(&config.shutdown);
        let pods = pods::read(manifests, &config)?;
        let planned = match within {
            Some(within) => plan_within(&pods, &policy, &[], within),
            None => plan(&pods, &policy, None),
        };
        let mut view = plan_view(&planned, None);
        view.within_seconds = within.map(|within| within.as_secs_f64());
        if !policy.is_enabled() {
            view.warnings.extend(notes.iter().map(ToString::to_string));
            view.warnings.push(OFF.to_owned());
        }
        Ok(view)
    }

    fn notice(&self, global: &GlobalArgs) -> Option<(&'static str, Duration)> {
        let (config, _) = configured(global).ok()?;
        config.notices.cloud.map(|cloud| (cloud.as_str(), cloud.notice()))
    }

    fn plan_line(&self, line: &str) -> Result<String, CommandError> {
        plan_json_line(line).map_err(failure)
    }

    fn preemption_case(
        &self,
        case: &str,
        args: &PlanPreemptionArgs,
    ) -> Result<String, CommandError> {
        let strategy = args.strategy.unwrap_or_default().into();
        let options = winddown_preemption::PlanOptions { strategy, explain: args.explain };
        winddown_preemption::plan_json_line(case, &options).map_err(failure)
    }

    fn eviction_case(&self, case: &str, explain: bool) -> Result<String, CommandError> {
        winddown_eviction::plan_json_line(case, explain).map_err(failure)
    }

    fn reports(&self, global: &GlobalArgs) -> Result<ReportList, CommandError> {
        reports::list(&store(global)?).map_err(refused)
    }

    fn report(&self, global: &GlobalArgs, id: &str) -> Result<serde_json::Value, CommandError> {
        reports::find(&store(global)?, id).map_err(refused)
    }

    fn report_text(&self, report: &serde_json::Value, color: bool) -> Result<String, CommandError> {
        Ok(report::text(&typed(report)?, color))
    }

    fn report_svg(&self, report: &serde_json::Value) -> Result<String, CommandError> {
        Ok(report::svg(&typed(report)?))
    }

    fn report_html(&self, report: &serde_json::Value) -> Result<String, CommandError> {
        Ok(report::html(&typed(report)?))
    }

    fn load_config(&self, file: Option<&Path>) -> Result<ConfigView, CommandError> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let (config, warnings) = Config::load(path).map_err(invalid)?;
        Ok(ConfigView {
            file: path.display().to_string(),
            yaml: config.to_yaml(),
            warnings: warnings.iter().map(ToString::to_string).collect(),
        })
    }

    fn default_config(&self) -> String {
        default_yaml().to_owned()
    }
}

/// Runs a command that is a whole agent.
fn on_runtime<T>(work: impl Future<Output = T>) -> Result<T, CommandError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(failure)?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_THREADS);
    Ok(result)
}

fn load(file: &Path) -> Result<Config, CommandError> {
    Config::load(file).map(|(config, _)| config).map_err(invalid)
}

/// The configuration that was named, or the one at its usual place, or the defaults where there is none.
/// With what was noticed in it.
fn configured(
    global: &GlobalArgs,
) -> Result<(Config, Vec<winddown_config::Warning>), CommandError> {
    if let Some(file) = &global.config {
        return Config::load(file).map_err(invalid);
    }
    match Config::load(Path::new(DEFAULT_FILE)) {
        Ok(read) => Ok(read),
        Err(error) if error.is_missing() => Ok((Config::default(), Vec::new())),
        Err(error) => Err(invalid(error)),
    }
}

fn store(global: &GlobalArgs) -> Result<ReportStore, CommandError> {
    Ok(reports::store(&configured(global)?.0))
}

fn typed(report: &serde_json::Value) -> Result<ShutdownReport, CommandError> {
    let read = ShutdownReport::deserialize(report);
    read.map_err(|error| failure(anyhow::Error::new(error).context("not a report of this version")))
}

/// Where the running program lies, whose programs get installed. The kernel knows best; in a chroot without
/// `/proc`, as installers have, the name it was started by has to do.
fn own_directory() -> Result<std::path::PathBuf, CommandError> {
    let started_as = || {
        let name = std::env::args_os().next()?;
        winddown_install::find_program(&name, &std::env::var_os("PATH").unwrap_or_default())
    };
    let program = std::env::current_exe().or_else(|error| started_as().ok_or(error));
    let program = program.map_err(|error| {
        let what = "where this program lies: start it by its path";
        failure(anyhow::Error::new(error).context(what))
    })?;
    Ok(program.parent().unwrap_or(Path::new("/")).to_owned())
}

fn failure(error: impl Into<anyhow::Error>) -> CommandError {
    CommandError::new(Exit::Failure, error)
}

fn invalid(error: ConfigError) -> CommandError {
    let hint = error.hint();
    CommandError::new(Exit::ConfigInvalid, error).with_hint(hint)
}

fn refused(error: ApiError) -> CommandError {
    let hint = error.hint.clone();
    CommandError::new(Exit::Failure, error).with_hint(hint)
}

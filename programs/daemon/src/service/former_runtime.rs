//! Keeps the runtime whose pods run. An agent with another runtime would not know them: they would run on without one that
//! terminates them, and beside a second instance of each.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use winddown_cri::CriConfig;
use winddown_runtimes::{process, systemd};
use winddown_shared::WallClock;

use winddown_config::{Config, Mode, RuntimeKind};
use winddown_node::Configuration;

use super::StartError;

const RUNTIMES: [RuntimeKind; 3] = [RuntimeKind::Process, RuntimeKind::Systemd, RuntimeKind::Cri];

/// Returns the configuration with the runtime whose pods run, and with a warning if that is another than the configured
/// one, or if another's pods run as well. Beside a kubelet, which runs the pods, as it is.
///
/// # Errors
/// Whether pods of another runtime run cannot be seen: either runtime might start them a second time.
pub(super) fn kept(
    configuration: Configuration,
    wall: &WallClock,
) -> Result<Configuration, StartError> {
    let config = &configuration.config;
    let configured = config.node.runtime;
    if config.node.mode == Mode::Companion {
        return Ok(configuration);
    }
    let seen = |kind| has_running(kind, config, wall);
    let (kept, warning) = match choose(configured, seen).map_err(|(runtime, source)| {
        let records = records(config, runtime);
        StartError::FormerRuntime { runtime, records, source }
    })? {
        Choice::Configured => return Ok(configuration),
        Choice::Former(former) => (former, at_restart("runtime", configured)),
        Choice::Both(former) => (configured, beside(configured, former)),
    };
    tracing::warn!(runtime = %kept, "pods of a runtime that is not the configured one run: {warning}");
    let mut config = Config::clone(config);
    config.node.runtime = kept;
    let Configuration { mut warnings, mut at_restart, .. } = configuration.clone();
    warnings.push(warning);
    if kept != configured {
        at_restart.push("runtime".to_owned());
    }
    Ok(Configuration { config: Arc::new(config), warnings, at_restart, ..configuration })
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Configured,
    /// Only this one's pods run.
    Former(RuntimeKind),
    /// The configured one's pods run, and this one's.
    Both(RuntimeKind),
}

/// Chooses the configured runtime if its pods run, whatever is known of the others, and otherwise one whose pods run.
///
/// # Errors
/// The runtime whose pods may run, and why that cannot be seen.
fn choose(
    configured: RuntimeKind,
    has_running: impl Fn(RuntimeKind) -> io::Result<bool>,
) -> Result<Choice, (RuntimeKind, io::Error)> {
    let (mut former, mut unknown) = (None, None);
    for kind in RUNTIMES.into_iter().filter(|kind| *kind != configured) {
        match has_running(kind) {
            Ok(false) => {}
            Ok(true) => former = former.or(Some(kind)),
            Err(error) => unknown = Some((kind, error)),
        }
    }
    match (has_running(configured), former, unknown) {
        (Ok(true), Some(former), _) => Ok(Choice::Both(former)),
        (Ok(true), None, _) => Ok(Choice::Configured),
        (_, Some(former), _) => Ok(Choice::Former(former)),
        (_, None, Some(unknown)) => Err(unknown),
        // Opening the configured runtime meets what kept it from being seen.
        (_, None, None) => Ok(Choice::Configured),
    }
}

/// The directory of what this runtime keeps.
pub(super) fn records(config: &Config, kind: RuntimeKind) -> PathBuf {
    config.access.state_directory.join(kind.to_string())
}

/// Whether pods of this runtime run. Blocks.
fn has_running(kind: RuntimeKind, config: &Config, wall: &WallClock) -> io::Result<bool> {
    let directory = records(config, kind);
    // Without records its agent has never started a pod.
    if !directory.join("pods").try_exists()? {
        return Ok(false);
    }
    let proc = Path::new("/proc");
    match kind {
        RuntimeKind::Process => process::has_running(proc, &directory),
        RuntimeKind::Systemd => systemd::has_running(proc),
        RuntimeKind::Cri => {
            let endpoint = &*config.node.container_runtime_endpoint;
            let logs = &config.access.pod_logs_dir;
            winddown_cri::has_running(&CriConfig::new(endpoint, directory, logs, wall.clone()))
        }
    }
}

fn beside(configured: RuntimeKind, former: RuntimeKind) -> String {
    format!(
        "pods of `runtime: {former}` run as well, and no agent terminates them: set that runtime, \
         `systemctl restart winddown`, `winddown drain`, then set `runtime: {configured}` again, \
         `systemctl restart winddown`, `winddown undrain`"
    )
}

/// Says when the change of a field takes effect that a reload does not apply; `runtime` is that of the new configuration.
pub(super) fn at_restart(field: &str, runtime: RuntimeKind) -> String {
    let then = match field {
        // Runtimes have different units, and a restart would leave the pods of the old runtime to the new one.
        "runtime" => format!(
            "`winddown drain`, `winddown install --runtime {runtime}`, `systemctl restart winddown`, `winddown undrain`"
        ),
        _ => "`systemctl restart winddown`".to_owned(),
    };
    format!("{field} was changed, which takes effect after {then}")
}

#[cfg(test)]
mod tests {
    use RuntimeKind::{Cri, Process, Systemd};

    use super::*;

    fn choice(configured: RuntimeKind, seen: [Option<bool>; 3]) -> Option<Choice> {
        let unseen = || io::Error::other("not to be seen");
        let seen = |kind| {
            let at = RUNTIMES.iter().position(|one| *one == kind).unwrap_or_default();
            seen[at].ok_or_else(unseen)
        };
        choose(configured, seen).ok()
    }

    #[test]
    fn the_runtime_whose_pods_run_is_kept_and_what_is_unknown_starts_no_pod() {
        use Choice::{Both, Configured, Former};
        let (runs, none, unknown) = (Some(true), Some(false), None);
        for (configured, [process, systemd, cri], wanted) in [
            (Process, [none, none, none], Some(Configured)),
            (Process, [none, runs, none], Some(Former(Systemd))),
            (Process, [none, runs, unknown], Some(Former(Systemd))),
            (Process, [unknown, runs, none], Some(Former(Systemd))),
            // Its own pods run: nothing is started a second time.
            (Process, [runs, unknown, unknown], Some(Configured)),
            (Process, [runs, runs, none], Some(Both(Systemd))),
            (Systemd, [runs, runs, none], Some(Both(Process))),
            (Process, [none, unknown, none], None),
            (Cri, [unknown, none, unknown], None),
            (Cri, [none, none, unknown], Some(Configured)),
        ] {
            let found = choice(configured, [process, systemd, cri]);
            assert_eq!(found, wanted, "{configured} {process:?} {systemd:?} {cri:?}");
        }
    }
}

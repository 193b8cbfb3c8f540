//! The number of the first run of a container that the runtime knows. It may have forgotten earlier runs, as CRI-O does
//! when the machine boots; then it would append to their logs if the numbers began at 0 again.

use winddown_engine::files;
use winddown_host::if_exists;
use winddown_shared::{Pod, RuntimeError};

use super::super::config::CriConfig;
use super::super::{CriContext, blocking, caused, dirs, garbage};
use super::{StartError, config_error};

/// One more than the number of the container's newest log, as the kubelet counts; 0 without a log.
pub(super) async fn of(
    context: &CriContext,
    pod: &Pod,
    container: &str,
) -> Result<u32, StartError> {
    let (config, pod, container) = (context.config.clone(), pod.clone(), container.to_owned());
    blocking(move || after_logs(&config, &pod, &container)).await.map_err(config_error)
}

/// Also removes the logs before the newest, which nothing else would remove while the pod is there. Blocking.
fn after_logs(config: &CriConfig, pod: &Pod, container: &str) -> Result<u32, RuntimeError> {
    let logs = dirs::logs_of(config, pod);
    let directory = logs.join(container);
    let runs = if_exists(files::logged_runs(&directory))
        .map_err(|e| caused(format!("cannot read {}", directory.display()), e))?;
    let mut runs = runs.unwrap_or_default();
    let Some(newest) = runs.pop() else { return Ok(0) };
    for run in runs {
        garbage::remove_files(config, pod.uid(), &logs, (container, run));
    }
    Ok(newest.saturating_add(1))
}

//! Turns a container's spec into the order for its supervisor.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1 as api;
use winddown_engine::container_plan::{self, SpecContainer};
use winddown_engine::environment::{command_line, environment};
use winddown_engine::oom_score::oom_score_adj;
use winddown_engine::termination_notices;
use winddown_host::kernel;
use winddown_shared::{Pod, RuntimeError};
use winddown_shim::order::{ExecCommand, LogTarget, MessageSource, Order};
use winddown_shim::procfs::{CONTAINER_MARK, POD_MARK};
use winddown_shim::record;

use super::ProgramContext;

/// The variable that names the file for the container's termination message: without a mount namespace the container
/// has no `/dev/termination-log` of its own.
pub(crate) const TERMINATION_LOG_VARIABLE: &str = "WINDDOWN_TERMINATION_LOG";

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the command of a container, without the files of an attempt.
///
/// # Errors
/// A variable's source is unknown; [`RuntimeError::NotYet`] if it refers to the node's address and the node has none.
/// Or the variables and the command line are too long.
pub(crate) fn command<D>(
    context: &ProgramContext<D>,
    pod: &Pod,
    SpecContainer { container, field, .. }: &SpecContainer<'_>,
) -> Result<ExecCommand, RuntimeError> {
    let config = &context.config;
    let own = environment(pod, container, &config.node).map_err(|error| error.of(field))?;
    let words = command_line(container, &own).map_err(|error| error.of(field))?;
    // As container runtimes do; the launcher, which knows the user, adds `HOME`.
    let host = kernel::read_to_string(config.proc_root.join("sys/kernel/hostname"));
    let host = host.map(|host| ("HOSTNAME".to_owned(), host.trim().to_owned()));
    let mut env = vec![("PATH".to_owned(), DEFAULT_PATH.to_owned())];
    env.extend(host);
    env.retain(|(name, _)| !own.iter().any(|(n, _)| n == name));
    env.extend(own);
    env.push((POD_MARK.to_owned(), pod.uid().to_string()));
    env.push((CONTAINER_MARK.to_owned(), container.name.clone()));
    let notice = context.termination_notices.file(pod.uid());
    env.extend(
        notice.map(|file| (termination_notices::VARIABLE.to_owned(), file.display().to_string())),
    );
    let security = container.security_context.as_ref();
    let of_pod = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let id = |own: Option<i64>, pods: Option<i64>| own.or(pods).and_then(|n| u32::try_from(n).ok());
    let groups = of_pod.and_then(|s| s.supplemental_groups.as_deref()).unwrap_or_default();
    Ok(ExecCommand {
        argv: words.concat(),
        env,
        cwd: container.working_dir.as_deref().filter(|d| !d.is_empty()).map(PathBuf::from),
        uid: id(security.and_then(|s| s.run_as_user), of_pod.and_then(|s| s.run_as_user)),
        gid: id(security.and_then(|s| s.run_as_group), of_pod.and_then(|s| s.run_as_group)),
        groups: groups.iter().filter_map(|&g| u32::try_from(g).ok()).collect(),
        no_new_privs: security.and_then(|s| s.allow_privilege_escalation) == Some(false),
        oom_score_adj: Some(oom_score_adj(pod, container, config.node.memory_bytes)),
        input: None,
        cgroups: Vec::new(),
        error_file: None,
    })
}

/// Returns the whole order for one attempt.
pub(crate) fn order<D>(
    context: &ProgramContext<D>,
    pod: &Pod,
    found: &SpecContainer<'_>,
    dir: &Path,
    log: PathBuf,
    cgroups: Vec<PathBuf>,
) -> Result<Order, RuntimeError> {
    let config = &context.config;
    let mut command = command(context, pod, found)?;
    let message = message_source(dir, &found.container);
    command.env.push((TERMINATION_LOG_VARIABLE.to_owned(), message.file.display().to_string()));
    command.error_file = Some(dir.join(record::START_ERROR));
    command.cgroups = cgroups;
    Ok(Order {
        launcher: config.shim.again("launch"),
        command,
        log: Some(LogTarget {
            path: log,
            max_bytes: config.log_max_bytes,
            max_files: config.log_max_files,
        }),
        message: Some(message),
        proc_root: config.proc_root.clone(),
    })
}

/// Returns where the termination message of the attempt in `dir` comes from.
pub(crate) fn message_source(dir: &Path, container: &api::Container) -> MessageSource {
    let fall_back_to_log =
        container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    MessageSource { file: dir.join(record::TERMINATION_LOG), fall_back_to_log }
}

/// Returns the stop signal of a container: `lifecycle.stopSignal` (KEP-4960), or SIGTERM.
pub(crate) fn stop_signal(pod: Option<&Pod>, name: &str) -> rustix::process::Signal {
    let found = pod.and_then(|pod| container_plan::find(pod, name));
    let named = found.as_ref().and_then(|f| f.container.lifecycle.as_ref()?.stop_signal.as_deref());
    named.and_then(parse_signal).unwrap_or(rustix::process::Signal::TERM)
}

/// Parses a signal's name as Kubernetes writes it (`SIGUSR1`).
pub(crate) fn parse_signal(name: &str) -> Option<rustix::process::Signal> {
    let signal: nix::sys::signal::Signal = name.parse().ok()?;
    rustix::process::Signal::from_named_raw(signal as i32)
}

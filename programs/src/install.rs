//! `winddown install` and `winddown uninstall`.

use std::path::{Path, PathBuf};

use winddown_install::{Companion, InstallError, InstallOptions, Runtime, UninstallOptions};

use super::exit::AS_ROOT;
use super::{CommandError, Exit, GlobalArgs, InstallArgs, Output, RuntimeChoice, UninstallArgs};

/// Installs the programs, units, drop-ins, configuration and directories. On a failure, what was already installed
/// stays.
pub(super) fn install(
    global: &GlobalArgs,
    args: &InstallArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    // The environment may name the configuration of other commands.
    let named = global.config.as_ref();
    if named.is_some_and(|file| std::env::var_os("WINDDOWN_CONFIG").is_none_or(|of| of != *file)) {
        let what = "--config: an installation reads no configuration of an agent";
        let hint = "to start with that configuration: `winddown install --from FILE`";
        return Err(CommandError::message(Exit::Usage, what).with_hint(hint));
    }
    if args.start && !winddown_install::same_directory(&args.root, Path::new("/")) {
        let what = format!("--start: nothing can be started in {}", args.root.display());
        let hint = "without --start; the agent is started as the image boots";
        return Err(CommandError::message(Exit::Usage, what).with_hint(hint));
    }
    check_root(&args.root)?;
    let chosen = match args.runtime {
        None if !args.companion => {
            Some(winddown_install::choose(&args.root, args.from.as_deref()).map_err(failed)?)
        }
        _ => None,
    };
    let runtime = match args.runtime {
        Some(RuntimeChoice::Process) => Runtime::Process,
        Some(RuntimeChoice::Systemd) => Runtime::Systemd,
        Some(RuntimeChoice::Cri) => Runtime::Cri,
        None => chosen.as_ref().map(|choice| choice.runtime).unwrap_or_default(),
    };
    let options = InstallOptions {
        root: args.root.clone(),
        runtime,
        config: args.from.clone(),
        companion: args.companion.then(|| Companion {
            kubelet: args.kubelet.clone(),
            kubeconfig: args.kubeconfig.clone(),
            endpoint: args.container_runtime_endpoint.clone(),
        }),
        bin_dir: args.bin_dir.clone(),
        enable: !args.no_enable,
        start: args.start,
        dry_run: args.dry_run,
        force: args.force,
        trusted: winddown_install::caller(),
        ..InstallOptions::new(own_directory()?)
    };
    let mut report = winddown_install::install(&options).map_err(failed)?;
    report.notes.extend(chosen.map(|choice| choice.to_string()));
    out.text(&report.to_string())?;
    Ok(Exit::Success)
}

/// Removes what `install` created.
pub(super) fn uninstall(args: &UninstallArgs, out: &mut Output) -> Result<Exit, CommandError> {
    check_root(&args.root)?;
    let options = UninstallOptions {
        root: args.root.clone(),
        purge: args.purge,
        force: args.force,
        dry_run: args.dry_run,
    };
    let report = winddown_install::uninstall(&options).map_err(failed)?;
    out.text(&report.to_string())?;
    Ok(Exit::Success)
}

fn failed(error: InstallError) -> CommandError {
    let exit = match &error {
        error if error.is_denied() => Exit::Refused,
        error if error.is_of_configuration() => Exit::ConfigInvalid,
        _ => Exit::Failure,
    };
    let hint = if error.is_denied() { AS_ROOT.to_owned() } else { error.hint() };
    CommandError::new(exit, error).with_hint(hint)
}

/// Checks that the root exists, because a mistyped directory would otherwise count as an empty one.
fn check_root(root: &Path) -> Result<(), CommandError> {
    std::fs::metadata(root).map(drop).map_err(|error| CommandError::unreadable(root, error))
}

/// Returns the directory of the running program, from which the programs are installed. Without `/proc`, as in an
/// installer's chroot, it is derived from the name by which the program was started.
fn own_directory() -> Result<PathBuf, CommandError> {
    let started_as = || {
        let name = std::env::args_os().next()?;
        winddown_install::find_program(&name, &std::env::var_os("PATH").unwrap_or_default())
    };
    let program = std::env::current_exe().or_else(|error| started_as().ok_or(error));
    let program = program.map_err(|error| {
        let what = "it is not known where this program lies";
        CommandError::failure(anyhow::Error::new(error).context(what))
            .with_hint("start it by its path")
    })?;
    Ok(program.parent().unwrap_or(Path::new("/")).to_owned())
}

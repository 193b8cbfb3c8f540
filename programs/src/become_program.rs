//! Commands from when winddown was a single program. Units of an older version, and agents not restarted since the
//! upgrade, still use them.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use winddown_control::DEFAULT_SOCKET;

use super::{AgentArgs, CommandError, Exit, GlobalArgs, ShimArgs};

/// Replaces this process with `winddownd`.
pub(super) fn agent(global: &GlobalArgs, args: &AgentArgs) -> Result<Exit, CommandError> {
    // Do not pass on the commands' default socket: the agent takes its socket from the configuration.
    let socket = Some(&global.socket).filter(|path| **path != Path::new(DEFAULT_SOCKET)).cloned();
    let mut arguments = Vec::new();
    for (option, value) in
        [("--socket", &socket), ("--config", &global.config), ("--root", &args.root)]
    {
        if let Some(value) = value {
            arguments.extend([OsStr::new(option), value.as_os_str()]);
        }
    }
    program("winddownd", &arguments).map(|never| match never {})
}

/// Replaces this process with `winddown-shim`.
pub(super) fn shim(args: &ShimArgs) -> Result<Exit, CommandError> {
    program("winddown-shim", &args.args).map(|never| match never {})
}

/// Replaces this process with the program `name` from the directory of this one. It stays the same process to a service
/// manager.
fn program(name: &str, arguments: &[impl AsRef<OsStr>]) -> Result<Infallible, CommandError> {
    let path = std::env::current_exe()?.with_file_name(name);
    let error = Command::new(&path).arg0(name).args(arguments).exec();
    let error = anyhow::Error::new(error).context(format!("{}: cannot be run", path.display()));
    let hint = "`winddown install` puts all of winddown's programs in place";
    Err(CommandError::new(Exit::Failure, error).with_hint(hint))
}

//! A command that runs before a pod is asked to stop.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, join, select};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::{Instant, timeout};
use winddown_host::refuse_if_others_may_write;
use winddown_shared::{PodRef, millis};

#[cfg(test)]
mod tests;

/// The number of bytes that are kept of a command's output.
const MAX_OUTPUT_BYTES: usize = 4 << 10;
/// How long to keep reading the output after the command has exited.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_millis(50);

/// The command that runs before a pod is asked to stop, and its timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRule {
    /// The program and its arguments, run without a shell.
    pub command: Vec<String>,
    /// The time after which the command is killed and the pod is asked to stop.
    pub timeout: Duration,
}

/// A pod that is about to be asked to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookCall {
    /// The pod.
    pub pod: PodRef,
    /// The cause: a signal, `memoryPressure`, or a limit of the pod's own.
    pub cause: &'static str,
    /// The message that the pod's status will have.
    pub message: Arc<str>,
}

/// The run of the hook before an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EvictionHookRun {
    /// How long the eviction waited for the hook, in ms.
    pub took_ms: u64,
    /// Why the hook failed; absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The first 4 KiB of its output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// Runs the configured hook before a pod is asked to stop.
pub trait Hook: Send + Sync + 'static {
    /// Runs the hook for one pod, for at most [`HookRule::timeout`]. Dropping the future kills the hook.
    fn run(&self, rule: Arc<HookRule>, call: HookCall) -> BoxFuture<'static, EvictionHookRun>;
}

/// Runs hooks as commands on this machine. A program that others than root may write is not run. Their environment describes the pod: `WINDDOWN_POD_NAMESPACE`,
/// `WINDDOWN_POD_NAME`, `WINDDOWN_POD_UID`, `WINDDOWN_SIGNAL`, `WINDDOWN_MESSAGE`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HookCommand;

/// Kills a command's process group on drop.
struct Group(Option<Pid>);

// === impl HookRule ===

impl Default for HookRule {
    /// No command, and a timeout of two seconds.
    fn default() -> Self {
        Self { command: Vec::new(), timeout: Duration::from_secs(2) }
    }
}

// === impl HookCommand ===

impl Hook for HookCommand {
    fn run(&self, rule: Arc<HookRule>, call: HookCall) -> BoxFuture<'static, EvictionHookRun> {
        async move {
            let begun = Instant::now();
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let ran = run(&rule, &call, &mut out, &mut err);
            let error = match timeout(rule.timeout, ran).await {
                Ok(Ok(status)) if status.success() => None,
                Ok(Ok(status)) => Some(format!("it failed: {status}")),
                Ok(Err(error)) => Some(format!("it could not be run: {error}")),
                Err(_) => Some(format!("it was killed after {:?}", rule.timeout)),
            };
            out.append(&mut err);
            out.truncate(MAX_OUTPUT_BYTES);
            EvictionHookRun {
                took_ms: millis(begun.elapsed()),
                error,
                output: String::from_utf8_lossy(&out).trim_end().to_owned(),
            }
        }
        .boxed()
    }
}

/// Runs the command until it exits, then kills the rest of its process group.
async fn run(
    rule: &HookRule,
    call: &HookCall,
    out: &mut Vec<u8>,
    err: &mut Vec<u8>,
) -> io::Result<ExitStatus> {
    let Some((program, arguments)) = rule.command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let path = PathBuf::from(program);
    let trusted = tokio::task::spawn_blocking(move || refuse_if_others_may_write(&path));
    trusted.await.map_err(io::Error::other)??;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("WINDDOWN_POD_NAMESPACE", &*call.pod.namespace)
        .env("WINDDOWN_POD_NAME", &*call.pod.name)
        .env("WINDDOWN_POD_UID", call.pod.uid.as_str())
        .env("WINDDOWN_SIGNAL", call.cause)
        .env("WINDDOWN_MESSAGE", &*call.message)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn()?;
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let _group = Group(pid);
    let said = pin!(join(first_of(child.stdout.take(), out), first_of(child.stderr.take(), err)));
    match select(pin!(child.wait()), said).await {
        Either::Left((status, said)) => {
            // Processes that the command started may hold the pipes open.
            let _ = timeout(LAST_OUTPUT_TIMEOUT, said).await;
            status
        }
        Either::Right((_, status)) => status.await,
    }
}

/// Reads a pipe to its end, and keeps the beginning.
async fn first_of(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    let mut read = [0; 1024];
    while let Ok(length @ 1..) = pipe.read(&mut read).await {
        let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len());
        kept.extend(read.iter().take(length.min(room)));
    }
}

// === impl Group ===

impl Drop for Group {
    fn drop(&mut self) {
        let Some(pid) = self.0 else { return };
        // Fails if the group has no process left.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
}

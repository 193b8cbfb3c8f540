//! A command that runs before a pod is asked to end.

use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, join, select};
use rustix::process::{Pid, Signal};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::{Instant, timeout};
use winddown_shared::PodLabel;

#[cfg(test)]
mod tests;

/// So much of what a command writes is kept, in bytes.
const OUTPUT: usize = 4 << 10;
/// How long to read on once a command has exited.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// What runs before a pod is asked to end, and for how long that may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRule {
    /// The program and its arguments. No shell sees them.
    pub command: Vec<String>,
    /// It is killed after this time, and the pod is asked to end.
    pub timeout: Duration,
}

/// A pod that is about to be asked to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCall {
    /// Which.
    pub pod: PodLabel,
    /// The cause: a signal, `memoryPressure`, or a limit of the pod's own.
    pub cause: &'static str,
    /// What the pod's status will say.
    pub message: Arc<str>,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookRun {
    /// How long the pod's end waited for it, in ms.
    pub took_ms: u64,
    /// Why it did not succeed; none if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The first 4 KiB of what it wrote, both outputs together, errors last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// Runs what is configured before a pod is asked to end.
pub trait Hook: Send + Sync + 'static {
    /// Runs it for one pod, at most [`HookRule::timeout`] long. Dropping the future kills it.
    fn run(&self, rule: Arc<HookRule>, call: HookCall) -> BoxFuture<'static, HookRun>;
}

/// Runs commands of this machine, with the pod in their environment: `WINDDOWN_POD_NAMESPACE`, `WINDDOWN_POD_NAME`,
/// `WINDDOWN_POD_UID`, `WINDDOWN_SIGNAL`, `WINDDOWN_MESSAGE`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HookCommand;

/// Kills a command and what it has started, unless that has ended.
struct Group(Option<Pid>);

// === impl HookRule ===

impl Default for HookRule {
    /// Two seconds, and nothing to run.
    fn default() -> Self {
        Self { command: Vec::new(), timeout: Duration::from_secs(2) }
    }
}

// === impl HookCommand ===

impl Hook for HookCommand {
    fn run(&self, rule: Arc<HookRule>, call: HookCall) -> BoxFuture<'static, HookRun> {
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
            out.truncate(OUTPUT);
            HookRun {
                took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
                error,
                output: String::from_utf8_lossy(&out).trim_end().to_owned(),
            }
        }
        .boxed()
    }
}

/// Runs the command until it exits; what it has started is killed then.
async fn run(
    rule: &HookRule,
    call: &HookCall,
    out: &mut Vec<u8>,
    err: &mut Vec<u8>,
) -> io::Result<ExitStatus> {
    let Some((program, arguments)) = rule.command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
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
            // What it has started may hold the pipes open.
            let _ = timeout(LAST_WORDS, said).await;
            status
        }
        Either::Right((_, status)) => status.await,
    }
}

/// Reads until the end, and keeps the beginning.
async fn first_of(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    let mut read = [0; 1024];
    while let Ok(length @ 1..) = pipe.read(&mut read).await {
        let room = OUTPUT.saturating_sub(kept.len());
        kept.extend(read.iter().take(length.min(room)));
    }
}

// === impl Group ===

impl Drop for Group {
    fn drop(&mut self) {
        let Some(pid) = self.0 else { return };
        // It is gone if nothing of it is left.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
}

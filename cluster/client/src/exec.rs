//! Credentials from a command: the `exec` user of a kubeconfig.
//!
//! kube's own implementation blocks while the command runs, and lets it use the agent's terminal. Here
//! the command has no terminal and [`COMMAND_TIMEOUT`] to answer, and its answer is kept until it expires.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use winddown_host::refuse_if_others_may_write;

use super::error::CredentialsError;
use super::files::{MACHINE, unless_hidden};
use super::material::{Assembly, FoundText};

#[cfg(test)]
mod tests;

pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long before its credentials expire the command is run again, so that no request uses expired ones.
const REFRESH_AHEAD: Duration = Duration::from_secs(10);

const MAX_ANSWER_BYTES: u64 = 1 << 20;
const LARGEST_COMPLAINT: u64 = 16 << 10;
const VERSIONS: [&str; 2] =
    ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// A command that supplies credentials.
#[derive(Clone, Debug)]
pub(super) struct ExecPlugin {
    /// The field of the kubeconfig, for messages.
    place: String,
    command: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    version: &'static str,
    /// The value of `KUBERNETES_EXEC_INFO`.
    info: String,
    hint: String,
    patience: Duration,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CredentialAnswer {
    api_version: String,
    kind: String,
    status: ExecCredentialStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecCredentialStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<Timestamp>,
}

struct CommandOutput {
    status: ExitStatus,
    out: Vec<u8>,
    err: Vec<u8>,
}

/// When the command has to be run again for credentials that expire at this time.
pub(super) fn renewal(expires: Timestamp) -> Timestamp {
    expires.checked_sub(REFRESH_AHEAD).unwrap_or(expires)
}

/// Returns the file that `command` stands for: its path, or the first file of that name in the directories of `PATH`.
pub(super) fn program(command: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return std::path::absolute(command).ok();
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&search).map(|dir| dir.join(command));
    files.find(|file| file.is_file())
}

// === impl ExecPlugin ===

impl ExecPlugin {
    /// Creates it from the user's `exec` field, which `place` names.
    pub(super) fn of(place: String, config: &ExecConfig) -> Result<Self, CredentialsError> {
        let wrong = |field: &str, problem: String| {
            Err(CredentialsError::contents(format!("{place}.{field}"), problem))
        };
        let Some(command) = config.command.clone().filter(|command| !command.is_empty()) else {
            return wrong(
                "command",
                "it is missing: name the command that gives credentials".into(),
            );
        };
        let asked = config.api_version.as_deref().unwrap_or_default();
        let Some(version) = VERSIONS.into_iter().find(|version| *version == asked) else {
            return wrong("apiVersion", format!("it is {asked:?}: write {}", VERSIONS[0]));
        };
        if config.interactive_mode == Some(ExecInteractiveMode::Always) {
            let problem = "the command needs a terminal, and a service has none: use one that runs \
                           unattended, with interactiveMode: Never";
            return wrong("interactiveMode", problem.into());
        }
        let mut info = json!({
            "apiVersion": version, "kind": "ExecCredential", "spec": { "interactive": false },
        });
        if let Some(cluster) = config.cluster.as_ref().filter(|_| config.provide_cluster_info) {
            info["spec"]["cluster"] = serde_json::to_value(cluster).unwrap_or_default();
        }
        let variable = |variable: &std::collections::HashMap<String, String>| {
            Some((variable.get("name")?.clone(), variable.get("value")?.clone()))
        };
        Ok(Self {
            command,
            args: config.args.clone().unwrap_or_default(),
            env: config.env.iter().flatten().filter_map(variable).collect(),
            version,
            info: info.to_string(),
            hint: config.install_hint.clone().unwrap_or_default(),
            patience: COMMAND_TIMEOUT,
            place,
        })
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        format!("{}: the command `{}`", self.place, self.line())
    }

    /// Runs the command, and adds its credentials to `assembly`. Returns when they expire. Dropping
    /// the future kills the command.
    pub(super) async fn run(
        &self,
        assembly: &mut Assembly,
    ) -> Result<Option<Timestamp>, CredentialsError> {
        let said = match tokio::time::timeout(self.patience, self.output()).await {
            Ok(said) => said?,
            Err(_) => {
                let problem = format!(
                    "no credentials within {:?}, so it was killed: run it by hand as the agent's \
                     user, without a terminal",
                    self.patience
                );
                return Err(self.failed(problem));
            }
        };
        if !said.status.success() {
            return Err(self.failed(format!(
                "it failed ({}){}",
                said.status,
                complaint(&said.err)
            )));
        }
        self.take(&said.out, assembly)
    }

    async fn output(&self) -> Result<CommandOutput, CredentialsError> {
        if let Some(program) = program(&self.command) {
            let trusted = tokio::task::spawn_blocking(move || {
                let refused = |error| unless_hidden(Path::new(MACHINE), &program, error);
                refuse_if_others_may_write(&program).map_err(refused)
            });
            let trusted = trusted.await.map_err(std::io::Error::other).flatten();
            trusted.map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => self.not_started(error),
                _ => self.failed(error.to_string()),
            })?;
        }
        let mut command = Command::new(&self.command);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", &self.info)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|source| self.not_started(source))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let failed = |source: std::io::Error| {
            CredentialsError::because(self.name(), "its answer cannot be read", source)
        };
        let (out, err, status) = tokio::try_join!(
            read(out, MAX_ANSWER_BYTES),
            read(err, LARGEST_COMPLAINT),
            child.wait()
        )
        .map_err(failed)?;
        Ok(CommandOutput { status, out, err })
    }

    fn take(
        &self,
        out: &[u8],
        assembly: &mut Assembly,
    ) -> Result<Option<Timestamp>, CredentialsError> {
        // The output is a secret, and a parser's error may quote it.
        let Ok(answer) = serde_json::from_slice::<CredentialAnswer>(out) else {
            return Err(self.failed("it wrote no ExecCredential as JSON to its standard output"));
        };
        if answer.kind != "ExecCredential" || answer.api_version != self.version {
            let problem = format!(
                "it answered with kind {:?} of {:?} instead of ExecCredential of {}: make both \
                 apiVersions the same",
                answer.kind, answer.api_version, self.version
            );
            return Err(self.failed(problem));
        }
        let status = answer.status;
        let found = |text: String| FoundText { place: self.name(), bytes: text.into_bytes() };
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        match (filled(status.client_certificate_data), filled(status.client_key_data)) {
            (Some(chain), Some(key)) => assembly.identity(&found(chain), &found(key))?,
            (None, None) => {}
            _ => {
                let problem = "it gave one of clientCertificateData and clientKeyData without the \
                               other";
                return Err(self.failed(problem));
            }
        }
        if let Some(token) = filled(status.token) {
            assembly.token(&found(token))?;
        }
        if !assembly.has_credentials() {
            return Err(self.failed("it gave neither a token nor a certificate"));
        }
        Ok(status.expiration_timestamp)
    }

    fn not_started(&self, source: std::io::Error) -> CredentialsError {
        let hint = if self.hint.is_empty() { "" } else { ". " };
        let problem = format!(
            "it cannot be started: install it, or write its whole path{hint}{}",
            self.hint.trim()
        );
        CredentialsError::because(self.name(), problem, source)
    }

    fn failed(&self, problem: impl Into<String>) -> CredentialsError {
        CredentialsError::contents(self.name(), problem)
    }

    /// The command without its folder, and its arguments.
    fn line(&self) -> String {
        let path = Path::new(&self.command);
        let name =
            path.file_name().map_or_else(|| self.command.clone().into(), |n| n.to_string_lossy());
        let words = std::iter::once(&*name).chain(self.args.iter().map(String::as_str));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Reads everything but keeps only `most` bytes: an unread pipe would block the command.
async fn read(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else { return Ok(kept) };
    (&mut pipe).take(most).read_to_end(&mut kept).await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    Ok(kept)
}

/// The last line that the command wrote to its standard error.
fn complaint(err: &[u8]) -> String {
    let text = String::from_utf8_lossy(err);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last.map(|line| format!(": {line}")).unwrap_or_default()
}

//! The actions of preStop and postStart hooks and of probes.

use std::io;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use winddown_shared::error_chain;

use crate::environment::probe_command;
use crate::probe_client::{HttpGet, ProbeEndpoint, ProbeHost};

/// The most of a command's output that an error shows, in bytes: its end.
const MAX_OUTPUT: usize = 256;

/// The action of a hook or a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Runs a command as the container would.
    Exec(Vec<String>),
    /// Waits.
    Sleep(Duration),
    /// Sends an HTTP GET request.
    Http(HttpGet),
    /// Opens a TCP connection.
    Tcp(ProbeEndpoint),
    /// Calls the gRPC health service.
    Grpc {
        /// Where it is.
        endpoint: ProbeEndpoint,
        /// The service to check; empty means the whole server.
        service: String,
    },
}

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// The command exited with a code other than 0.
    #[error("{command}: {how}")]
    Failed {
        /// The command.
        command: String,
        /// How it exited.
        how: String,
        /// Its output; may be empty.
        output: String,
    },
    /// The action took too long.
    #[error("no answer in time")]
    Timeout,
    /// The container does not answer, or not as expected.
    #[error("the container does not answer")]
    NoAnswer(#[source] io::Error),
    /// The action was not done, for a reason that says nothing about the container.
    #[error("{what}")]
    Unasked {
        /// What prevented it.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

// === impl ActionError ===

impl ActionError {
    /// A command exited with `code`, which is not 0, after it had written `output`.
    pub fn exited(command: &[String], code: i32, output: &[u8]) -> Self {
        let output = &output[output.len().saturating_sub(MAX_OUTPUT)..];
        let output = String::from_utf8_lossy(output).trim().to_owned();
        let how = match (code, &*output) {
            // The codes of a command that could not be started; the command may also have chosen them itself.
            (126..=128, "") => format!(
                "exit code {code}, without output: check that the container has this program and that it is \
                 executable"
            ),
            (_, "") => format!("exit code {code}"),
            (_, output) => format!("exit code {code}: {output}"),
        };
        Self::Failed { command: command.join(" "), how, output }
    }

    /// The kubelet's text for a failed probe: the output of the command, or why there was no answer.
    pub fn output(&self) -> String {
        match self {
            Self::Failed { how, output, .. } if output.is_empty() => how.clone(),
            Self::Failed { output, .. } => output.clone(),
            Self::NoAnswer(error) => error.to_string(),
            other => error_chain(other),
        }
    }
}

// === impl Action ===

impl Action {
    /// The action of a lifecycle handler; none if it has no known action.
    pub fn of_handler(
        handler: &k8s::LifecycleHandler,
        container: &k8s::Container,
        pod: &ProbeHost,
    ) -> Option<Self> {
        if let Some(sleep) = &handler.sleep {
            let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
            return Some(Self::Sleep(Duration::from_secs(seconds)));
        }
        let asked = (handler.exec.as_ref(), handler.http_get.as_ref(), handler.tcp_socket.as_ref());
        Self::of(asked, container, pod).map(|action| match action {
            Self::Http(get) => Self::Http(get.of_hook()),
            other => other,
        })
    }

    /// The action of a probe.
    pub fn of_probe(
        probe: &k8s::Probe,
        container: &k8s::Container,
        pod: &ProbeHost,
    ) -> Option<Self> {
        if let Some(grpc) = &probe.grpc {
            let endpoint = ProbeEndpoint::at(None, pod, u16::try_from(grpc.port).ok()?);
            let service = grpc.service.clone().unwrap_or_default();
            return Some(Self::Grpc { endpoint, service });
        }
        let asked = (probe.exec.as_ref(), probe.http_get.as_ref(), probe.tcp_socket.as_ref());
        // Of a hook, the kubelet takes each word as it is written.
        Some(match Self::of(asked, container, pod)? {
            Self::Exec(command) => Self::Exec(probe_command(container, &command).ok()?),
            other => other,
        })
    }

    fn of(
        (exec, http, tcp): (
            Option<&k8s::ExecAction>,
            Option<&k8s::HTTPGetAction>,
            Option<&k8s::TCPSocketAction>,
        ),
        container: &k8s::Container,
        pod: &ProbeHost,
    ) -> Option<Self> {
        if let Some(exec) = exec {
            return Some(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(http) = http {
            return HttpGet::of(http, container, pod).map(Self::Http);
        }
        ProbeEndpoint::of(tcp?, container, pod).map(Self::Tcp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(handler: &str, command: &[&str]) -> k8s::Container {
        let env = [
            ("PORT", serde_json::json!({"value": "5433"})),
            ("URL", serde_json::json!({"value": "http://[::1]:$(PORT)/$$x"})),
            ("IP", serde_json::json!({"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})),
        ];
        let env = env.map(|(name, mut variable)| {
            variable["name"] = name.into();
            variable
        });
        let exec = serde_json::json!({"exec": {"command": command}});
        let lifecycle = serde_json::json!({"preStop": exec});
        let mut object = serde_json::json!({"name": "main", "env": env});
        object[handler] = if handler == "lifecycle" { lifecycle } else { exec };
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_command_of_a_probe_sees_the_containers_variables_and_that_of_a_hook_does_not() {
        let written = ["sh", "-c", "get $(URL) $(IP)-$(NOPE) $$(PORT)", "$(PORT)"];
        let node = ProbeHost::Node(None);
        let probed = container("livenessProbe", &written);
        let probe = probed.liveness_probe.as_ref().unwrap();
        let replaced = ["sh", "-c", "get http://[::1]:5433/$x -$(NOPE) $(PORT)", "5433"];
        let exec = |words: [&str; 4]| Some(Action::Exec(words.map(str::to_owned).to_vec()));
        assert_eq!(Action::of_probe(probe, &probed, &node), exec(replaced));
        let hooked = container("lifecycle", &written);
        let hook = hooked.lifecycle.as_ref().unwrap().pre_stop.as_ref().unwrap();
        assert_eq!(Action::of_handler(hook, &hooked, &node), exec(written));
    }

    #[test]
    fn a_command_that_may_not_have_been_started_is_told_with_what_to_do() {
        let command = ["/bin/flush".to_owned(), "all".to_owned()];
        let told = |code, output: &[u8]| ActionError::exited(&command, code, output).to_string();
        assert_eq!(
            told(128, b""),
            "/bin/flush all: exit code 128, without output: check that the container has this program and \
             that it is executable"
        );
        assert_eq!(told(127, b"sh: no\n"), "/bin/flush all: exit code 127: sh: no");
        assert_eq!(told(1, b""), "/bin/flush all: exit code 1");
        let long = ["first ".repeat(99).as_bytes(), b"last"].concat();
        let told = told(1, &long);
        assert!(told.len() < 300 && told.ends_with(" first last"), "{told}");
    }
}

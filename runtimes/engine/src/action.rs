//! The actions of preStop and postStart hooks and of probes.

use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;

use crate::environment::probe_command;
use crate::probe_client::{HttpGet, ProbeEndpoint};

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

// === impl Action ===

impl Action {
    /// The action of a lifecycle handler; none if it has no known action.
    pub fn of_handler(handler: &k8s::LifecycleHandler, container: &k8s::Container) -> Option<Self> {
        if let Some(sleep) = &handler.sleep {
            let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
            return Some(Self::Sleep(Duration::from_secs(seconds)));
        }
        let asked = (handler.exec.as_ref(), handler.http_get.as_ref(), handler.tcp_socket.as_ref());
        Self::of(asked, container).map(|action| match action {
            Self::Http(get) => Self::Http(get.of_hook()),
            other => other,
        })
    }

    /// The action of a probe.
    pub fn of_probe(probe: &k8s::Probe, container: &k8s::Container) -> Option<Self> {
        if let Some(grpc) = &probe.grpc {
            let endpoint = ProbeEndpoint::at(None, u16::try_from(grpc.port).ok()?);
            let service = grpc.service.clone().unwrap_or_default();
            return Some(Self::Grpc { endpoint, service });
        }
        let asked = (probe.exec.as_ref(), probe.http_get.as_ref(), probe.tcp_socket.as_ref());
        // Of a hook, the kubelet takes each word as it is written.
        Some(match Self::of(asked, container)? {
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
    ) -> Option<Self> {
        if let Some(exec) = exec {
            return Some(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(http) = http {
            return HttpGet::of(http, container).map(Self::Http);
        }
        ProbeEndpoint::of(tcp?, container).map(Self::Tcp)
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
    fn the_command_of_a_probe_sees_the_variables_as_they_are_written_and_that_of_a_hook_does_not() {
        let written = ["sh", "-c", "get $(URL) $(IP)-$(NOPE) $$(PORT)", "$(PORT)"];
        let probed = container("livenessProbe", &written);
        let probe = probed.liveness_probe.as_ref().unwrap();
        let replaced = ["sh", "-c", "get http://[::1]:$(PORT)/$$x -$(NOPE) $(PORT)", "5433"];
        let exec = |words: [&str; 4]| Some(Action::Exec(words.map(str::to_owned).to_vec()));
        assert_eq!(Action::of_probe(probe, &probed), exec(replaced));
        let hooked = container("lifecycle", &written);
        let hook = hooked.lifecycle.as_ref().unwrap().pre_stop.as_ref().unwrap();
        assert_eq!(Action::of_handler(hook, &hooked), exec(written));
    }
}

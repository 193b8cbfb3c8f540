//! preStop and postStart handlers, and what probes ask.

use std::io;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tonic::transport::Endpoint as GrpcEndpoint;
use winddown_engine::environment::NodeFacts;
use winddown_engine::probe_client::{Endpoint, HttpGet};

use super::api::health;
use super::client::CallError;
use super::{Context, spec};

/// What a handler or a probe does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Runs a command in the container.
    Exec(Vec<String>),
    /// Waits.
    Sleep(Duration),
    /// Asks over HTTP.
    Http(HttpGet),
    /// Connects.
    Tcp(Endpoint),
    /// Asks the gRPC health service.
    Grpc {
        /// `http://host:port`.
        uri: String,
        /// The service asked about; empty is all of it.
        service: String,
    },
}

/// Why an action did not do its work.
#[derive(Debug, thiserror::Error)]
pub(super) enum ActionError {
    /// The command ended with another exit code than 0.
    #[error("{command}: {}", end_of_command(*.code, .output))]
    Failed { command: String, code: i32, output: String },
    /// It took too long.
    #[error("no answer in time")]
    Timeout,
    /// The container does not answer as it should.
    #[error("the container does not answer")]
    NoAnswer(#[source] io::Error),
    /// The runtime does not answer: this says nothing about the container.
    #[error("the container runtime does not answer")]
    Runtime(#[source] CallError),
}

impl Action {
    /// What a lifecycle handler asks for; none if it asks for nothing that is known.
    pub(super) fn of_handler(
        handler: &k8s::LifecycleHandler,
        container: &k8s::Container,
        node: &NodeFacts,
    ) -> Option<Self> {
        if let Some(sleep) = &handler.sleep {
            return Some(Self::Sleep(Duration::from_secs(
                u64::try_from(sleep.seconds).unwrap_or(0),
            )));
        }
        let asked = (handler.exec.as_ref(), handler.http_get.as_ref(), handler.tcp_socket.as_ref());
        Self::of(asked, container, node)
    }

    /// What a probe asks.
    pub(super) fn of_probe(
        probe: &k8s::Probe,
        container: &k8s::Container,
        node: &NodeFacts,
    ) -> Option<Self> {
        if let Some(grpc) = &probe.grpc {
            let host = node.address.map_or("127.0.0.1".to_owned(), |address| match address {
                std::net::IpAddr::V6(ip) => format!("[{ip}]"),
                std::net::IpAddr::V4(ip) => ip.to_string(),
            });
            let service = grpc.service.clone().unwrap_or_default();
            return Some(Self::Grpc { uri: format!("http://{host}:{}", grpc.port), service });
        }
        let asked = (probe.exec.as_ref(), probe.http_get.as_ref(), probe.tcp_socket.as_ref());
        Self::of(asked, container, node)
    }

    fn of(
        (exec, http, tcp): (
            Option<&k8s::ExecAction>,
            Option<&k8s::HTTPGetAction>,
            Option<&k8s::TCPSocketAction>,
        ),
        container: &k8s::Container,
        node: &NodeFacts,
    ) -> Option<Self> {
        if let Some(exec) = exec {
            return Some(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(http) = http {
            return HttpGet::of(http, container, node).map(Self::Http);
        }
        Endpoint::of(tcp?, container, node).map(Self::Tcp)
    }

    /// Does it, in `timeout`. Dropping the future gives it up; a command in a container goes on until
    /// `timeout` is over or the container ends.
    ///
    /// # Errors
    /// It failed, took too long, or the runtime does not answer.
    pub(super) async fn run(
        &self,
        context: &Context,
        id: &str,
        timeout: Duration,
    ) -> Result<(), ActionError> {
        let asked = async {
            match self {
                Self::Sleep(length) => {
                    tokio::time::sleep(*length).await;
                    Ok(())
                }
                Self::Http(get) => get.ask().await.map_err(ActionError::NoAnswer),
                Self::Tcp(endpoint) => endpoint.connect().await.map_err(ActionError::NoAnswer),
                Self::Grpc { uri, service } => ask_grpc(uri, service).await,
                // The runtime keeps the time of a command.
                Self::Exec(_) => Ok(()),
            }
        };
        if let Self::Exec(command) = self {
            return exec(context, id, command, timeout).await;
        }
        tokio::time::timeout(timeout, asked).await.map_err(|_| ActionError::Timeout)?
    }
}

/// What a pod's handlers and probes take for its address: that of the pod, if it has its own.
pub(super) fn address(
    context: &Context,
    pod: Option<&winddown_shared::Pod>,
    ips: &[String],
) -> NodeFacts {
    let mut facts = context.config.node.clone();
    if !pod.is_some_and(spec::is_on_host_network)
        && let Some(ip) = ips.first().and_then(|ip| ip.parse().ok())
    {
        facts.address = Some(ip);
    }
    facts
}

async fn exec(
    context: &Context,
    id: &str,
    command: &[String],
    timeout: Duration,
) -> Result<(), ActionError> {
    match context.client.exec_sync(id, command.to_vec(), timeout).await {
        Ok(answer) if answer.exit_code == 0 => Ok(()),
        Ok(answer) => Err(ActionError::Failed {
            command: command.join(" "),
            code: answer.exit_code,
            output: last_words(&answer.stdout, &answer.stderr),
        }),
        Err(error) if error.is_deadline_of_the_runtime() => Err(ActionError::Timeout),
        Err(error) => Err(ActionError::Runtime(error)),
    }
}

/// How a command ended, in words.
fn end_of_command(code: i32, output: &str) -> String {
    match (code, output) {
        // What a command that could not even be started is given; it may also have chosen it itself.
        (126..=128, "") => format!(
            "exit code {code}, and it said nothing: if it was not started, see that the container's image has \
             this program and that it may be run"
        ),
        (_, "") => format!("exit code {code}"),
        (_, output) => format!("exit code {code}: {output}"),
    }
}

/// The end of what a command said, for a message.
fn last_words(stdout: &[u8], stderr: &[u8]) -> String {
    let said = if stderr.is_empty() { stdout } else { stderr };
    let end = &said[said.len().saturating_sub(256)..];
    String::from_utf8_lossy(end).trim().to_owned()
}

async fn ask_grpc(uri: &str, service: &str) -> Result<(), ActionError> {
    let no = |error: tonic::Status| ActionError::NoAnswer(io::Error::other(error));
    let channel = GrpcEndpoint::from_shared(uri.to_owned())
        .map_err(|e| ActionError::NoAnswer(io::Error::other(e)))?
        .user_agent(concat!("kube-probe/winddown-", env!("CARGO_PKG_VERSION")))
        .map_err(|e| ActionError::NoAnswer(io::Error::other(e)))?
        .connect()
        .await
        .map_err(|e| ActionError::NoAnswer(io::Error::other(e)))?;
    let mut client = health::health_client::HealthClient::new(channel);
    let request = health::HealthCheckRequest { service: service.to_owned() };
    let answer = client.check(request).await.map_err(no)?.into_inner();
    match answer.status() {
        health::health_check_response::ServingStatus::Serving => Ok(()),
        other => {
            let what = format!("the service's status is {}", other.as_str_name());
            Err(ActionError::NoAnswer(io::Error::other(what)))
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tonic::{Request, Response, Status};

    use super::*;
    use health::health_check_response::ServingStatus;
    use winddown_runtimes_tests::health;

    /// Says of the service `well` that it serves, of all others that they do not.
    struct Service;

    #[tonic::async_trait]
    impl health::health_server::Health for Service {
        async fn check(
            &self,
            request: Request<health::HealthCheckRequest>,
        ) -> Result<Response<health::HealthCheckResponse>, Status> {
            let is_well = request.into_inner().service == "well";
            let status = if is_well { ServingStatus::Serving } else { ServingStatus::NotServing };
            Ok(Response::new(health::HealthCheckResponse { status: status.into() }))
        }
    }

    #[test]
    fn a_command_that_may_not_have_been_started_is_told_with_what_to_do() {
        let told = |code, output: &str| {
            let (command, output) = ("/bin/flush all".to_owned(), output.to_owned());
            ActionError::Failed { command, code, output }.to_string()
        };
        assert_eq!(
            told(128, ""),
            "/bin/flush all: exit code 128, and it said nothing: if it was not started, see that the \
             container's image has this program and that it may be run"
        );
        assert_eq!(told(127, "sh: no"), "/bin/flush all: exit code 127: sh: no");
        assert_eq!(told(1, ""), "/bin/flush all: exit code 1");
    }

    #[tokio::test]
    async fn a_grpc_probe_asks_the_health_service() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let service = health::health_server::HealthServer::new(Service);
        let incoming = futures_util::stream::unfold(listener, |listener| async move {
            Some((listener.accept().await.map(|(stream, _)| stream), listener))
        });
        let server = tonic::transport::Server::builder().add_service(service);
        let serving = tokio::spawn(server.serve_with_incoming(incoming));
        ask_grpc(&uri, "well").await.unwrap();
        let error = ask_grpc(&uri, "ill").await.unwrap_err();
        assert!(
            matches!(&error, ActionError::NoAnswer(e) if e.to_string().contains("NOT_SERVING"))
        );
        serving.abort();
        assert!(ask_grpc("http://127.0.0.1:1", "").await.is_err());
    }
}

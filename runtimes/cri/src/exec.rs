//! Runs commands in containers, and queries gRPC health services.

use std::io;
use std::time::Duration;

use tonic::transport::Endpoint as GrpcEndpoint;
use winddown_engine::action_error::ActionError;
use winddown_engine::probe_client::probe_user_agent;

use super::CriContext;
use super::api::health;
use super::client::CallError;

/// Runs a command in a container. The command continues until `timeout` or until the container exits, even if the
/// future is dropped.
///
/// # Errors
/// The command failed or took too long. Or the runtime does not run it or does not answer, which says nothing about the
/// container.
pub(super) async fn exec(
    context: &CriContext,
    id: &str,
    command: &[String],
    timeout: Duration,
) -> Result<(), ActionError> {
    match context.client.exec_sync(id, command.to_vec(), timeout).await {
        Ok(answer) if answer.exit_code == 0 => Ok(()),
        Ok(answer) => {
            // As a kubelet shows them: in which order they were written is not known.
            let output = [answer.stdout, answer.stderr].concat();
            Err(ActionError::exited(command, answer.exit_code, &output))
        }
        Err(error) if error.is_deadline_of_the_runtime() => Err(ActionError::Timeout),
        // For example because the container has no such program.
        Err(error @ CallError::Refused { .. }) => {
            Err(ActionError::Unasked { what: error.in_grpc_words(), source: None })
        }
        Err(error) => Err(ActionError::Unasked {
            what: "the container runtime does not answer".to_owned(),
            source: Some(Box::new(error)),
        }),
    }
}

/// Queries a gRPC health service as `program` (`NAME-VERSION`).
///
/// # Errors
/// The service does not answer, or reports that it is not serving.
pub(super) async fn ask_grpc(uri: &str, service: &str, program: &str) -> Result<(), ActionError> {
    let no = |error: tonic::Status| ActionError::NoAnswer(io::Error::other(error));
    let channel = GrpcEndpoint::from_shared(uri.to_owned())
        .map_err(|e| ActionError::NoAnswer(io::Error::other(e)))?
        .user_agent(probe_user_agent(program))
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

    /// Reports that the service `well` is serving, and all others are not.
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
        ask_grpc(&uri, "well", "agent").await.unwrap();
        let error = ask_grpc(&uri, "ill", "agent").await.unwrap_err();
        assert!(
            matches!(&error, ActionError::NoAnswer(e) if e.to_string().contains("NOT_SERVING"))
        );
        serving.abort();
        assert!(ask_grpc("http://127.0.0.1:1", "", "agent").await.is_err());
    }
}

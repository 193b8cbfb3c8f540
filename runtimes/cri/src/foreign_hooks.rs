//! The preStop hooks that another program recorded in its containers.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tokio::time::{sleep, timeout};
use winddown_engine::action::Action;
use winddown_engine::probe_client::ProbeHost;
use winddown_host::host_addresses;

use super::api::Container;
use super::begun_hooks::BegunHooks;
use super::client::CriClient;
use super::{api, labels, sandbox};

/// The most of the grace period that is left for the stop signal when a hook would use all of it.
const MAX_SIGNAL_TIME: Duration = Duration::from_secs(2);
/// The shortest time of a command: the runtime takes whole seconds, and none means no limit.
const MIN_COMMAND_TIMEOUT: Duration = Duration::from_secs(1);

/// What a hook has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HookEnd {
    /// It ran, or failed, or there is none.
    Ran,
    /// It could not be run.
    DidNotRun,
    /// It had begun before, and did not run again.
    BegunBefore,
}

/// What is left of the grace period for the stop signal when something before it would use all of it: a quarter, and at
/// most 2 s.
pub(super) fn signal_time(grace: Duration) -> Duration {
    MAX_SIGNAL_TIME.min(grace / 4)
}

/// A container's preStop hook; `None` if it has none.
pub(super) fn of(container: &Container) -> Option<k8s::LifecycleHandler> {
    let facts = labels::read_container(&container.labels, &container.annotations)?;
    facts.spec.lifecycle?.pre_stop
}

/// Runs the hook, which sends requests as `program`, within `grace`, less the time for the stop signal, unless it has
/// begun before.
pub(super) async fn run(
    client: &Arc<CriClient>,
    hooks: &BegunHooks,
    program: &str,
    container: &Container,
    hook: k8s::LifecycleHandler,
    grace: Duration,
) -> HookEnd {
    let within = grace.saturating_sub(signal_time(grace));
    let ran = match action(client, container, &hook).await {
        None | Some(Action::Grpc { .. }) => return HookEnd::DidNotRun,
        Some(Action::Sleep(pause)) => {
            sleep(pause.min(within)).await;
            return HookEnd::Ran;
        }
        _ if !hooks.begin(&container.id) => return HookEnd::BegunBefore,
        Some(Action::Exec(command)) => return exec(client, container, command, within).await,
        Some(Action::Http(request)) => {
            timeout(within, async { request.ask(program).await.map(drop) }).await
        }
        Some(Action::Tcp(endpoint)) => timeout(within, endpoint.connect()).await,
    };
    let why = match ran {
        Ok(Ok(())) => return HookEnd::Ran,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer in time".to_owned(),
    };
    let (pod, name) = labels::title(&container.labels);
    tracing::warn!(pod, container = name, "preStop hook: {why}");
    HookEnd::Ran
}

/// What the hook does. Only a request needs the pod's address, which the runtime knows.
async fn action(
    client: &Arc<CriClient>,
    container: &Container,
    hook: &k8s::LifecycleHandler,
) -> Option<Action> {
    let facts = labels::read_container(&container.labels, &container.annotations)?;
    let mut pod = ProbeHost::Unknown;
    if hook.http_get.is_some() || hook.tcp_socket.is_some() {
        let request = api::PodSandboxStatusRequest {
            pod_sandbox_id: container.pod_sandbox_id.clone(),
            verbose: false,
        };
        let status = client.pod_sandbox_status(request).await.ok()?.status;
        let node = host_addresses();
        // A pod on the host's network has no address of its own.
        if let Some(own) = sandbox::addresses(status.as_ref(), node.first()).into_iter().next() {
            pod = ProbeHost::Named(own);
        } else if sandbox::is_on_host_network(status.as_ref()) {
            pod = ProbeHost::Node(node.first().copied());
        }
    }
    Action::of_handler(hook, &facts.spec, &pod)
}

/// Runs a command in the container.
async fn exec(
    client: &Arc<CriClient>,
    container: &Container,
    command: Vec<String>,
    within: Duration,
) -> HookEnd {
    let (pod, name) = labels::title(&container.labels);
    let ran = match client.exec_sync(&container.id, command, within.max(MIN_COMMAND_TIMEOUT)).await
    {
        Ok(answer) if answer.exit_code == 0 => true,
        Ok(answer) => {
            tracing::info!(pod, container = name, "preStop hook: exit code {}", answer.exit_code);
            true
        }
        Err(error) => {
            tracing::warn!(pod, container = name, "preStop hook: {error}");
            error.is_deadline_of_the_runtime()
        }
    };
    if ran { HookEnd::Ran } else { HookEnd::DidNotRun }
}

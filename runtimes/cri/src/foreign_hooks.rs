//! The preStop hooks that another program recorded in its containers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use winddown_engine::action::Action;
use winddown_engine::action_error::ActionError;
use winddown_engine::probe_client::ProbeHost;
use winddown_host::host_addresses;
use winddown_shared::display::quoted;
use winddown_shared::{Grace, instant_after};

use super::api::Container;
use super::begun_hooks::BegunHooks;
use super::client::CriClient;
use super::{api, labels, sandbox};

/// The shortest time of a command: the runtime takes whole seconds, and none means no limit.
const MIN_COMMAND_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HookEnd {
    /// It ran, or failed, or there is none.
    Ran,
    DidNotRun,
    /// It had begun before, and did not run again.
    BegunBefore,
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
    let within = grace.saturating_sub(Grace::signal_time(grace));
    let asker = &*container.pod_sandbox_id;
    let Some((action, pod)) = action(client, container, &hook).await else {
        return HookEnd::DidNotRun;
    };
    let ran = match action {
        Action::Grpc { .. } => return HookEnd::DidNotRun,
        Action::Sleep(pause) => {
            sleep(pause.min(within)).await;
            return HookEnd::Ran;
        }
        _ if !hooks.begin(&container.id) => return HookEnd::BegunBefore,
        Action::Exec(command) => return exec(client, container, command, within).await,
        Action::Http(request) => {
            let until = instant_after(Instant::now(), within);
            timeout_at(until, async { request.ask(asker, &pod, program, until).await.map(drop) })
                .await
        }
        Action::Tcp(endpoint) => timeout(within, endpoint.connect(asker, &pod)).await,
    };
    let Err(error) = ran.unwrap_or(Err(ActionError::Timeout)) else { return HookEnd::Ran };
    let ((pod, name), why) = (labels::title(&container.labels), error.output());
    tracing::warn!(pod, container = name, "the preStop hook failed: {}", quoted(&why));
    match error {
        ActionError::Unasked { .. } => HookEnd::DidNotRun,
        ActionError::Failed { .. } | ActionError::Timeout | ActionError::NoAnswer(_) => {
            HookEnd::Ran
        }
    }
}

/// What the hook does, and where it connects. Only a request needs the pod's address, which the runtime knows.
async fn action(
    client: &Arc<CriClient>,
    container: &Container,
    hook: &k8s::LifecycleHandler,
) -> Option<(Action, ProbeHost)> {
    let facts = labels::read_container(&container.labels, &container.annotations)?;
    let mut pod = ProbeHost::Unknown;
    if hook.http_get.is_some() || hook.tcp_socket.is_some() {
        let request = api::PodSandboxStatusRequest {
            pod_sandbox_id: container.pod_sandbox_id.clone(),
            verbose: false,
        };
        let status = client.pod_sandbox_status(request).await.ok()?.status;
        pod = host(status.as_ref(), &host_addresses());
    }
    Some((Action::of_handler(hook, &facts.spec)?, pod))
}

/// Where the pod with this status of its sandbox is asked, on a node with these addresses.
fn host(status: Option<&api::PodSandboxStatus>, node: &[IpAddr]) -> ProbeHost {
    let own = sandbox::addresses(status, node.first());
    let own = own.first().map(String::as_str);
    ProbeHost::of_pod(sandbox::is_on_host_network(status), own, || node.first().copied())
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
            tracing::warn!(pod, container = name, "the preStop hook failed: {error}");
            error.is_deadline_of_the_runtime()
        }
    };
    if ran { HookEnd::Ran } else { HookEnd::DidNotRun }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// containerd's report of a pod on the host's network, CRI-O's, and one of a pod with an address of its own.
    #[test]
    fn the_hook_of_a_pod_on_the_hosts_network_asks_the_node() {
        use api::NamespaceMode::{Node, Pod};
        let node: IpAddr = [10, 0, 0, 7].into();
        for (network, ip, expected) in [
            (Node, "", ProbeHost::Node(Some(node))),
            (Node, "10.0.3.1", ProbeHost::Node(Some(node))),
            (Pod, "10.88.0.2", ProbeHost::Own("10.88.0.2".to_owned())),
            (Pod, "", ProbeHost::Unknown),
        ] {
            let options = api::NamespaceOption { network: network.into(), ..Default::default() };
            let namespaces = Some(api::Namespace { options: Some(options) });
            let status = api::PodSandboxStatus {
                linux: Some(api::LinuxPodSandboxStatus { namespaces }),
                network: Some(api::PodSandboxNetworkStatus {
                    ip: ip.to_owned(),
                    ..Default::default()
                }),
                ..api::PodSandboxStatus::default()
            };
            assert_eq!(host(Some(&status), &[node]), expected, "{network:?} {ip}");
        }
    }
}

//! Creates a pod's sandbox.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::OnceCell;
use winddown_host::regular;
use winddown_shared::{Pod, PodEventKind, RuntimeError};

use super::client::CallError;
use super::config::CgroupDriver;
use super::pod::{PodEntry, PodState, Sandbox};
use super::spec::{self, HostFacts};
use super::{CriContext, api, blocking, health, name_conflict};

/// The runtime's cgroup driver, determined once.
#[derive(Debug, Default)]
pub(crate) struct RuntimeCgroupDriver(OnceCell<Option<CgroupDriver>>);

/// Creates a new sandbox for the pod. Its attempt is one more than the highest so far.
///
/// # Errors
/// The runtime has no network for the pod yet, or the pod may run in a sandbox of others. Or the runtime refused or did
/// not answer; then it is not known whether the sandbox was created.
pub(super) async fn make(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
) -> Result<(), RuntimeError> {
    let health = context.health.borrow().clone();
    if health.reachable && !health.network_ready && !pod.is_on_host_network() {
        let error = format!("container runtime network not ready: {}", health.message);
        context.pods.record_event(entry, None, PodEventKind::NetworkNotReady { error });
        let what = format!(
            "pod {}: the container runtime's network is not ready ({}): install a CNI plugin and its \
             configuration, or write `hostNetwork: true`",
            pod.pod_ref(),
            health.message
        );
        return Err(RuntimeError::NotYet { what });
    }
    let after_others = name_conflict::after_sandboxes_of_others(context, pod).await?;
    let attempt = {
        let state = entry.lock();
        let own = state.own.all.iter().map(|s| s.attempt.saturating_add(1));
        own.max().unwrap_or(0).max(after_others)
    };
    let handler = runtime_handler(pod);
    let made = create(context, config(context, pod, attempt).await?, &handler).await;
    let id = made.map_err(|error| {
        entry.lock().own.unsure = true;
        health::note_unreachable(context, &error);
        if !entry.lock().stopping {
            context.pods.record_event(
                entry,
                None,
                PodEventKind::SandboxFailed { error: error.in_grpc_words() },
            );
        }
        error.during(format!("creating the sandbox of pod {}", pod.pod_ref()))
    })?;
    let (id, handler): (Arc<str>, Arc<str>) = (id.as_str().into(), handler.as_str().into());
    let alone = (after_others == 0).then(|| Arc::clone(&id));
    let sandbox = Sandbox { id, attempt, handler, ready: true, stopped: false };
    {
        let mut state = entry.lock();
        let all = state.own.all.iter().cloned().chain([sandbox]).collect();
        take(&mut state, all);
        state.own.alone = alone;
        let now = context.config.wall.now();
        state.started_at.get_or_insert(now);
    }
    Ok(())
}

/// Records the pod's sandboxes. The addresses are those of the newest: another one has others.
pub(super) fn take(state: &mut PodState, all: Vec<Sandbox>) {
    let newest = |all: &[Sandbox]| all.iter().max_by_key(|s| s.attempt).map(|s| Arc::clone(&s.id));
    if newest(&state.own.all) != newest(&all) {
        state.ips.clear();
    }
    state.own.all = all;
}

/// Creates the sandbox, or finds it if an earlier call has. Returns its ID.
async fn create(
    context: &Arc<CriContext>,
    config: api::PodSandboxConfig,
    handler: &str,
) -> Result<String, CallError> {
    let names = config.metadata.clone().unwrap_or_default();
    let request =
        api::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
    let call = || {
        let call = context.client.run_pod_sandbox(request.clone());
        async { Ok(call.await?.pod_sandbox_id) }
    };
    let found = || name_conflict::sandbox(context, &names.uid, names.attempt);
    name_conflict::create_or_find(call, found).await
}

/// Asks for the addresses of the pod's sandbox, unless they are known or the pod is on the host's network. One that has
/// lost its network is of no use any more, although it is ready.
///
/// # Errors
/// The runtime did not answer, or the sandbox is gone.
pub(super) async fn know_addresses(
    context: &CriContext,
    entry: &PodEntry,
    pod: &Pod,
) -> Result<(), RuntimeError> {
    if pod.is_on_host_network() {
        return Ok(());
    }
    let without = ask_addresses(context, entry).await.map_err(|error| {
        entry.lock().own.unsure = true;
        error.during(format!("asking for the address of pod {}", pod.pod_ref()))
    })?;
    if let Some(id) = without {
        tracing::warn!(pod = %pod.pod_ref(), sandbox = %id, "the pod's sandbox has no IP address");
        let mut state = entry.lock();
        state.own.all.iter_mut().filter(|s| s.id == id).for_each(|s| s.ready = false);
    }
    Ok(())
}

/// Asks for the addresses of the pod's sandbox, if it has one, unless they are known, or the pod is known to be on the host's
/// network, where it has none. Returns its ID if it has a network and no address in it.
///
/// # Errors
/// The runtime did not answer, or the sandbox is gone.
pub(super) async fn ask_addresses(
    context: &CriContext,
    entry: &PodEntry,
) -> Result<Option<Arc<str>>, CallError> {
    let id = {
        let state = entry.lock();
        let is_on_host = state.pod.as_ref().is_some_and(Pod::is_on_host_network);
        let is_wanted = state.ips.is_empty() && !is_on_host;
        let Some(sandbox) = state.own.sandbox().filter(|_| is_wanted) else { return Ok(None) };
        Arc::clone(&sandbox.id)
    };
    let request = api::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: false };
    let answer = context.client.pod_sandbox_status(request).await?;
    let node = context.config.node.addresses.first();
    {
        let mut state = entry.lock();
        state.ips = addresses(answer.status.as_ref(), node);
        state.own.is_on_host_network = is_on_host_network(answer.status.as_ref());
    }
    let network = answer.status.and_then(|status| status.network);
    Ok(network.is_some_and(|network| network.ip.is_empty()).then_some(id))
}

/// The configuration of the pod's sandbox, which the runtime also expects with each container.
///
/// # Errors
/// The node's files cannot be read, or the runtime does not answer what manages cgroups.
pub(super) async fn config(
    context: &Arc<CriContext>,
    pod: &Pod,
    attempt: u32,
) -> Result<api::PodSandboxConfig, RuntimeError> {
    let (path, upstream) =
        (context.config.dns.resolv_conf.clone(), context.config.dns.upstream_resolv_conf.clone());
    let has_own_network = !pod.is_on_host_network();
    let host = blocking(move || {
        // A node without this file resolves no names, and neither do its pods.
        let mut resolv_conf =
            regular::read_to_string(&path, regular::MAX_CONFIGURATION_BYTES).unwrap_or_default();
        if has_own_network
            && spec::asks_only_this_host(&resolv_conf)
            && let Ok(text) = regular::read_to_string(&upstream, regular::MAX_CONFIGURATION_BYTES)
        {
            resolv_conf = text;
        }
        Ok(HostFacts { resolv_conf })
    })
    .await?;
    let parent = match (&context.config.cgroups.parent, context.driver.get(context).await) {
        (Some(root), Ok(Some(driver))) => spec::cgroup_parent(root, driver, pod.uid(), pod.qos()),
        (_, Ok(_)) => String::new(),
        (_, Err(error)) => {
            health::note_unreachable(context, &error);
            return Err(error.during("asking the container runtime who manages cgroups"));
        }
    };
    Ok(spec::sandbox(&context.config, pod, &host, parent, attempt))
}

/// Whether a sandbox's status says that its pod is on the host's network.
pub(super) fn is_on_host_network(status: Option<&api::PodSandboxStatus>) -> bool {
    let linux = status.and_then(|status| status.linux.as_ref());
    let namespaces = linux.and_then(|linux| linux.namespaces.as_ref());
    let options = namespaces.and_then(|namespaces| namespaces.options.as_ref());
    options.is_some_and(|options| options.network() == api::NamespaceMode::Node)
}

/// The pod's addresses in a sandbox's status: the first of each family, because the API takes no second one. That of the
/// family of `node`, the node's configured address, comes first, or else IPv4, as with a kubelet.
pub(super) fn addresses(
    status: Option<&api::PodSandboxStatus>,
    node: Option<&IpAddr>,
) -> Vec<String> {
    let Some(network) = status.and_then(|s| s.network.as_ref()) else { return Vec::new() };
    let listed = network.additional_ips.iter().map(|more| &more.ip);
    let listed = std::iter::once(&network.ip).chain(listed);
    let known = listed.filter_map(|ip| Some(ip.parse::<IpAddr>().ok()?.to_canonical()));
    let known: Vec<IpAddr> = known.collect();
    let is_ipv6_first = node.is_some_and(IpAddr::is_ipv6);
    let of_family = |is_ipv6| known.iter().find(|ip| ip.is_ipv6() == is_ipv6);
    let both = [is_ipv6_first, !is_ipv6_first].into_iter().filter_map(of_family);
    both.map(IpAddr::to_string).collect()
}

fn runtime_handler(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|s| s.runtime_class_name.clone()).unwrap_or_default()
}

impl RuntimeCgroupDriver {
    /// The driver as configured, or as reported by the runtime; `None` if it does not report one.
    pub(super) async fn get(
        &self,
        context: &CriContext,
    ) -> Result<Option<CgroupDriver>, CallError> {
        self.0.get_or_try_init(|| ask(context)).await.copied()
    }
}

async fn ask(context: &CriContext) -> Result<Option<CgroupDriver>, CallError> {
    if let Some(driver) = context.config.cgroups.driver {
        return Ok(Some(driver));
    }
    match context.client.runtime_config(api::RuntimeConfigRequest {}).await {
        Ok(answer) => return Ok(answer.linux.map(|linux| cgroup_driver(linux.cgroup_driver()))),
        Err(error) if error.is_unimplemented() => {}
        Err(error) => return Err(error),
    }
    let answer = context.client.status(api::StatusRequest { verbose: true }).await?;
    Ok(answer.info.get("config").and_then(|json| of_containerd(json)))
}

fn cgroup_driver(driver: api::CgroupDriver) -> CgroupDriver {
    match driver {
        api::CgroupDriver::Systemd => CgroupDriver::Systemd,
        api::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
    }
}

/// The driver in the verbose status of containerd before 1.7, which contains its configuration.
fn of_containerd(json: &str) -> Option<CgroupDriver> {
    let config: serde_json::Value = serde_json::from_str(json).ok()?;
    let containerd = config.get("containerd")?;
    let name = containerd.get("defaultRuntimeName").and_then(|n| n.as_str()).unwrap_or("runc");
    let options = containerd.get("runtimes")?.get(name)?.get("options")?;
    // The option is omitted when it is false.
    match options.get("SystemdCgroup").and_then(serde_json::Value::as_bool) {
        Some(true) => Some(CgroupDriver::Systemd),
        _ => Some(CgroupDriver::Cgroupfs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_class_is_the_handler_of_the_sandbox() {
        let handler = |spec: serde_json::Value| {
            let meta = serde_json::json!({"name": "p", "namespace": "n", "uid": "u"});
            let object = serde_json::json!({"metadata": meta, "spec": spec});
            runtime_handler(&Pod::new(serde_json::from_value(object).unwrap()).unwrap())
        };
        let class = serde_json::json!({"containers": [], "runtimeClassName": "kata"});
        assert_eq!(handler(class), "kata");
        assert_eq!(handler(serde_json::json!({"containers": []})), "");
    }

    /// The API server refuses every status with two addresses of one family.
    #[test]
    fn a_pod_has_one_address_of_each_family_and_that_of_its_nodes_family_first() {
        let of = |node: &str, listed: &[&str]| {
            let mut listed = listed.iter().map(|&ip| ip.to_owned());
            let ip = listed.next().unwrap_or_default();
            let additional_ips = listed.map(|ip| api::PodIp { ip }).collect();
            let network = Some(api::PodSandboxNetworkStatus { ip, additional_ips });
            let status = api::PodSandboxStatus { network, ..Default::default() };
            addresses(Some(&status), node.parse().ok().as_ref())
        };
        for (node, listed, expected) in [
            ("", &["10.1.0.5", "10.2.0.5"][..], &["10.1.0.5"][..]),
            ("", &["fd00::5", "2001:db8::5", "10.1.0.5"], &["10.1.0.5", "fd00::5"]),
            ("10.0.0.1", &["fd00::5", "10.1.0.5"], &["10.1.0.5", "fd00::5"]),
            ("fd00::1", &["10.1.0.5", "fd00::5"], &["fd00::5", "10.1.0.5"]),
            ("fd00::1", &["10.1.0.5"], &["10.1.0.5"]),
            ("", &["::ffff:10.1.0.5", "FD00::0005"], &["10.1.0.5", "fd00::5"]),
            ("", &["", "nonsense"], &[]),
            ("", &[], &[]),
        ] {
            assert_eq!(of(node, listed), expected, "{node} {listed:?}");
        }
    }

    #[test]
    fn the_cgroup_driver_is_read_from_containerds_configuration() {
        let of = |options: &str| {
            let runtimes = format!(r#"{{"runc":{{"options":{options}}}}}"#);
            let json = format!(
                r#"{{"containerd":{{"defaultRuntimeName":"runc","runtimes":{runtimes}}}}}"#
            );
            of_containerd(&json)
        };
        assert_eq!(of(r#"{"SystemdCgroup":true}"#), Some(CgroupDriver::Systemd));
        assert_eq!(of(r#"{"SystemdCgroup":false}"#), Some(CgroupDriver::Cgroupfs));
        assert_eq!(of("{}"), Some(CgroupDriver::Cgroupfs));
        assert_eq!(of_containerd("{}"), None);
        assert_eq!(of_containerd("nonsense"), None);
    }
}

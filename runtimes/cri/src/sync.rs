//! Prepares what a pod needs before its containers are started: its volumes and its sandbox.

use std::sync::Arc;

use winddown_engine::unsupported::refused_or_ignored;
use winddown_engine::{stopping, sync};
use winddown_host::PodFiles;
use winddown_shared::{Pod, PodEventKind, RuntimeError, SyncedPod, error_chain};

use super::pod::{self, PodEntry};
use super::{CriContext, failed, garbage, sandbox, shares, start, stop, support, volumes};

/// Makes one pass over the pod.
pub(super) async fn sync(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
) -> Result<SyncedPod, RuntimeError> {
    take(entry, pod)?;
    stop::started(entry, context.config.times.change).await?;
    stop::know_what_runs(context, entry).await?;
    prepare(context, entry, pod).await?;
    // An earlier agent may have started what runs, and its probes need the address.
    sandbox::know_addresses(context, entry, pod).await?;
    if has_lost_its_sandbox(entry) {
        ensure_sandbox(context, entry, pod).await?;
    }
    let again_in = sync::pass(context, entry, pod).await?;
    garbage::prune(context, entry);
    let ignored = entry.lock().own.ignored.clone();
    let mut synced = SyncedPod::from(context.status(entry));
    (synced.again_in, synced.ignored) = (again_in, ignored);
    Ok(synced)
}

/// Records the pod's current object.
fn take(entry: &PodEntry, pod: &Pod) -> Result<(), RuntimeError> {
    let mut state = entry.lock();
    if !state.pod.as_ref().is_some_and(|known| known.is_same_object(pod)) {
        let unsupported = support::check_supported(pod);
        state.own.ignored = refused_or_ignored(unsupported, pod::has_started(&state))?;
        state.own.prepared = false;
    }
    state.want(pod);
    Ok(())
}

/// Creates directories and volumes, once per run of the agent and per change of the pod.
async fn prepare(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
) -> Result<(), RuntimeError> {
    if entry.lock().own.prepared {
        return Ok(());
    }
    let (config, owned) = (context.config.clone(), pod.clone());
    entry.with_files(PodFiles::Make, move || volumes::prepare(&config, &owned)).await?;
    entry.lock().own.prepared = true;
    Ok(())
}

/// Whether containers run without their sandbox, and so without their network and namespaces.
fn has_lost_its_sandbox(entry: &PodEntry) -> bool {
    let state = entry.lock();
    state.own.sandbox().is_none() && state.any_running()
}

/// Ensures that there is a sandbox to start containers in, whose addresses are known. Returns false if the pod is being
/// stopped.
///
/// The creation continues if the future is dropped. It counts as a start, so that a stop knows what
/// exists.
pub(super) async fn ensure_sandbox(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
) -> Result<bool, RuntimeError> {
    sandbox::know_addresses(context, entry, pod).await?;
    if entry.lock().own.sandbox().is_some() {
        return Ok(true);
    }
    if !entry.lock().own.all.is_empty() {
        context.pods.record_event(entry, None, PodEventKind::SandboxChanged);
    }
    // Containers in a sandbox that is no longer ready are of no use.
    stopping::stop_to_start_over(context, entry, stopping::grace_of(pod)).await?;
    // The network may have no second address or device for the new one. If it has, this is no obstacle.
    if let Err(error) = garbage::stop_sandboxes(context, entry).await {
        tracing::warn!(pod = %pod.pod_ref(), error = error_chain(&error), "cannot stop a former sandbox");
    }
    // Each new one may be of no use either.
    garbage::prune(context, entry);
    let Some(starting) = pod::Starting::begin(entry) else { return Ok(false) };
    let work = {
        let (context, entry, pod) = (Arc::clone(context), Arc::clone(entry), pod.clone());
        async move {
            let _starting = starting;
            let _turn = context.turn().await;
            if entry.lock().stopping {
                return Ok(false);
            }
            let (config, uid) = (context.config.clone(), entry.uid().clone());
            let work = move || volumes::remove_hosts(&config, &uid);
            let Some(()) = pod::make_files(&entry, work).await? else { return Ok(false) };
            let made = async {
                shares::prepare(&context, &entry, &pod).await;
                sandbox::make(&context, &entry, &pod).await?;
                shares::give(&context, &entry).await;
                sandbox::know_addresses(&context, &entry, &pod).await?;
                let is_usable = entry.lock().own.sandbox().is_some();
                is_usable.then_some(()).ok_or_else(|| no_address(&pod))
            };
            tokio::select! {
                made = made => made?,
                () = start::given_up(&context, &entry) => return Ok(false),
            }
            let (config, ips) = (context.config.clone(), entry.lock().ips.clone());
            let work = move || volumes::write_hosts(&config, &pod, &ips);
            Ok(pod::make_files(&entry, work).await?.is_some())
        }
    };
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(error) => {
            Err(failed(format!("creating the sandbox of pod {}: {error}", pod.pod_ref())))
        }
    }
}

fn no_address(pod: &Pod) -> RuntimeError {
    failed(format!(
        "pod {}: its new sandbox has no IP address: check the CNI plugin and its configuration",
        pod.pod_ref()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use std::time::Duration;

    use tokio::time::timeout;
    use winddown_engine::driver::Driver as _;
    use winddown_engine::probe_client::ProbeHost;
    use winddown_runtimes_tests::Fault;
    use winddown_shared::{CONFIG_SPEC_ANNOTATION, Grace, Runtime as _};

    use super::*;
    use crate::CriRuntime;
    use crate::scene::scene;

    /// It was said to run until one of them answered.
    #[tokio::test]
    async fn a_start_that_waits_for_the_hung_volumes_of_other_pods_holds_up_no_stop() {
        let dir = tempfile::tempdir().unwrap();
        let (_cri, _, runtime, pod) = scene(dir.path()).await;
        let entry = runtime.context.pods.get_or_new(pod.uid());
        take(&entry, &pod).unwrap();
        prepare(&runtime.context, &entry, &pod).await.unwrap();
        let hung: Vec<_> = (0..PodFiles::MOST_THREADS)
            .map(|_| {
                let (answers, hangs) = std::sync::mpsc::channel::<()>();
                tokio::spawn(PodFiles::Make.work(move || hangs.recv().is_err()));
                answers
            })
            .collect();
        tokio::task::yield_now().await;
        let stop = async {
            entry.wait_for(|state| (state.starting > 0).then_some(())).await;
            let stop = runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(Duration::ZERO));
            // The volumes hang until this is over.
            let stopped = timeout(Duration::from_secs(60), stop).await;
            drop(hung);
            stopped
        };
        let (_, stopped) = tokio::join!(ensure_sandbox(&runtime.context, &entry, &pod), stop);
        stopped.expect("while the volumes hang").unwrap();
    }

    /// They would ask the node, get no answer, and have the container restarted.
    #[tokio::test]
    async fn the_probes_of_an_adopted_container_wait_for_the_address_of_its_pod() {
        let dir = tempfile::tempdir().unwrap();
        let (cri, config, runtime, pod) = scene(dir.path()).await;
        runtime.sync_pod(&pod).await.unwrap();
        drop(runtime);
        let runtime = CriRuntime::open(config).await.unwrap();
        // Listings ask as well, and do not need the answer.
        cri.script("PodSandboxStatus", 1000, Fault::Error("too busy"));
        let host = || {
            let entry = runtime.context.pods.get(pod.uid()).unwrap();
            let state = entry.lock();
            let run = state.containers[0].run.as_ref().unwrap();
            (run.probe_state.probed, runtime.context.probe_host(&state))
        };
        runtime.sync_pod(&pod).await.unwrap_err();
        assert_eq!(host(), (false, ProbeHost::Unknown));
        cri.heal();
        runtime.sync_pod(&pod).await.unwrap();
        assert_eq!(host(), (true, ProbeHost::Own("10.88.0.2".to_owned())));
    }

    /// A stop may find it before its object is known, and its preStop hook names no host.
    #[tokio::test]
    async fn a_pod_on_the_hosts_network_that_is_only_found_is_asked_at_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let (_cri, mut config, runtime, pod) = scene(dir.path()).await;
        config.node.addresses = vec![[10, 0, 0, 7].into()];
        let mut object = pod.object().clone();
        object.spec.as_mut().unwrap().host_network = Some(true);
        runtime.sync_pod(&Pod::new(object).unwrap()).await.unwrap();
        drop(runtime);
        let runtime = CriRuntime::open(config).await.unwrap();
        runtime.list_pods().await.unwrap();
        let entry = runtime.context.pods.get(pod.uid()).unwrap();
        let node = ProbeHost::Node(Some([10, 0, 0, 7].into()));
        assert_eq!(runtime.context.probe_host(&entry.lock()), node);
    }

    #[tokio::test]
    async fn no_container_starts_before_its_pod_knows_the_address_of_the_new_sandbox() {
        let dir = tempfile::tempdir().unwrap();
        let (cri, _, runtime, pod) = scene(dir.path()).await;
        let hosts = dir.path().join("state/pods/u/etc-hosts");
        std::fs::create_dir_all(hosts.parent().unwrap()).unwrap();
        std::fs::write(&hosts, "of an earlier sandbox").unwrap();
        // Listings ask as well, and do not need the answer.
        cri.script("PodSandboxStatus", 1000, Fault::Error("too busy"));
        runtime.sync_pod(&pod).await.unwrap_err();
        assert!(cri.running().is_empty());
        cri.heal();
        runtime.sync_pod(&pod).await.unwrap();
        assert_eq!(cri.running(), ["web/main#0"]);
        let text = std::fs::read_to_string(&hosts).unwrap();
        assert!(text.ends_with("\n10.88.0.2\tweb\n"), "{text}");
    }

    /// Its first sandbox may fail, because the network is not there yet when the machine has booted. The one of the former
    /// spec is still listed then.
    #[tokio::test]
    async fn a_manifest_that_was_changed_runs_once_although_its_first_sandbox_fails() {
        let dir = tempfile::tempdir().unwrap();
        let (cri, config, runtime, pod) = scene(dir.path()).await;
        let marked = |mark: &str| {
            let mut object = pod.object().clone();
            object
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(CONFIG_SPEC_ANNOTATION.to_owned(), mark.to_owned());
            let spec = object.spec.as_mut().unwrap();
            spec.restart_policy = Some("Never".to_owned());
            spec.containers[0].command =
                Some(["act", "0", "0", "0", "0"].map(str::to_owned).into());
            Pod::new(object).unwrap()
        };
        let run = async |runtime: &CriRuntime, pod: &Pod| {
            let mut changes = runtime.changes();
            runtime.sync_pod(pod).await.unwrap();
            while !runtime.has_completed(pod) {
                tokio::time::timeout(Duration::from_secs(30), changes.recv())
                    .await
                    .unwrap()
                    .unwrap();
            }
        };
        let starts = || cri.calls().iter().filter(|c| c.starts_with("StartContainer")).count();
        run(&runtime, &marked("a")).await;
        drop(runtime);
        cri.kill_sandboxes();

        let runtime = CriRuntime::open(config).await.unwrap();
        cri.script("RunPodSandbox", 1, Fault::Error("no network"));
        runtime.sync_pod(&marked("b")).await.unwrap_err();
        run(&runtime, &marked("b")).await;
        assert_eq!(starts(), 2);
        runtime.list_pods().await.unwrap();
        runtime.sync_pod(&marked("b")).await.unwrap();
        assert_eq!(starts(), 2, "what the new spec did counts");
        run(&runtime, &marked("c")).await;
        assert_eq!(starts(), 3);
    }

    /// The network is about to be ready, and the pod is not at fault.
    #[tokio::test]
    async fn a_pod_that_lacks_only_the_network_is_tried_again_soon_and_when_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let (cri, config, runtime, pod) = scene(dir.path()).await;
        drop(runtime);
        cri.set_network_ready(false);
        let runtime = CriRuntime::open(config).await.unwrap();
        let mut health = runtime.health();
        health.wait_for(|health| health.reachable && !health.network_ready).await.unwrap();
        let mut changes = runtime.changes();
        let error = runtime.sync_pod(&pod).await.unwrap_err();
        assert!(matches!(error, RuntimeError::NotYet { .. }), "{error:?}");
        while changes.try_recv().is_ok() {}
        cri.set_network_ready(true);
        let told = tokio::time::timeout(Duration::from_secs(30), changes.recv()).await;
        assert_eq!(told.unwrap().unwrap(), *pod.uid());
        runtime.sync_pod(&pod).await.unwrap();
    }

    /// A network plug-in may wait for an address for minutes; each new try begins anew.
    #[tokio::test]
    async fn a_sandbox_may_take_longer_than_other_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (cri, mut config, runtime, pod) = scene(dir.path()).await;
        drop(runtime);
        config.times.change = Duration::from_secs(1);
        let runtime = CriRuntime::open(config).await.unwrap();
        cri.script("RunPodSandbox", 1, Fault::Slow(Duration::from_millis(1500)));
        runtime.sync_pod(&pod).await.unwrap();
        assert_eq!(cri.running(), ["web/main#0"]);
    }

    /// What ran in a sandbox that was lost has not done its work, whatever it exits with when it is stopped; and a sidecar
    /// serves it to the end.
    #[tokio::test]
    async fn what_ran_in_a_lost_sandbox_is_stopped_in_its_order_and_runs_again() {
        let dir = tempfile::tempdir().unwrap();
        let (cri, _, runtime, pod) = scene(dir.path()).await;
        let mut object = pod.object().clone();
        let spec = object.spec.as_mut().unwrap();
        spec.restart_policy = Some("OnFailure".to_owned());
        let mut proxy = spec.containers[0].clone();
        (proxy.name, proxy.restart_policy) = ("proxy".to_owned(), Some("Always".to_owned()));
        spec.init_containers = Some(vec![proxy]);
        let act = ["act", "never", "0", "0.3", "0"].map(str::to_owned);
        spec.containers[0].command = Some(act.into());
        let pod = Pod::new(object).unwrap();
        runtime.sync_pod(&pod).await.unwrap();
        cri.kill_sandboxes();
        runtime.list_pods().await.unwrap();
        runtime.sync_pod(&pod).await.unwrap();
        assert_eq!(cri.running(), ["web/proxy#1", "web/main#1"]);
        let stops = cri.calls().into_iter().filter(|call| call.starts_with("StopContainer"));
        assert_eq!(stops.collect::<Vec<_>>(), ["StopContainer main 30", "StopContainer proxy 30"]);
        assert!(!runtime.has_completed(&pod));
    }

    /// Its programs would take the address of the node for their own, and its probes would ask the node.
    #[tokio::test]
    async fn a_pod_whose_sandbox_has_no_address_any_more_gets_another_sandbox() {
        let dir = tempfile::tempdir().unwrap();
        let (cri, config, runtime, pod) = scene(dir.path()).await;
        runtime.sync_pod(&pod).await.unwrap();
        drop(runtime);
        cri.lose_networks();
        let runtime = CriRuntime::open(config).await.unwrap();
        runtime.sync_pod(&pod).await.unwrap();
        assert_eq!(cri.running(), ["web/main#1"]);
        let entry = runtime.context.pods.get(pod.uid()).unwrap();
        assert_eq!(entry.lock().ips, ["10.88.0.2"]);
    }

    #[tokio::test]
    async fn a_pod_on_the_hosts_network_costs_no_request_for_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let (cri, _, runtime, pod) = scene(dir.path()).await;
        let mut object = pod.object().clone();
        object.spec.as_mut().unwrap().host_network = Some(true);
        let pod = Pod::new(object).unwrap();
        runtime.sync_pod(&pod).await.unwrap();
        let entry = runtime.context.pods.get(pod.uid()).unwrap();
        entry.lock().ips.clear();
        cri.script("PodSandboxStatus", 1, Fault::Error("it was asked for"));
        assert_eq!(sandbox::ask_addresses(&runtime.context, &entry).await.unwrap(), None);
    }
}

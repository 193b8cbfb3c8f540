//! Follows the API server's view of this node's pods.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1 as api;
use kube::runtime::watcher::{self, Event};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use winddown_shared::PodUid;

use super::api::{EndPods, NodePods};
use super::found;
use super::known::ONLY_FOUND;
use super::local_node::{KubeletHost, NodeError};
use super::stop::StopCore;
use winddown_api_client::WatchBackoff;
use winddown_api_client::outage::Outage;
use winddown_api_client::refusal::{self, Refusal};
use winddown_shared::Backoff;

/// The longest wait before a failed watch is restarted once requests are answered again.
const MAX_RESTART_DELAY: Duration = Duration::from_millis(100);
/// How long the API server may take to tell the UID of this node's object.
const NODE_UID_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the first list of the API server waits for the container runtime to say which of its pods are a manifest's.
const FIRST_PROOF_TIMEOUT: Duration = Duration::from_secs(1);
/// How long hooks are waited for that a kubelet runs, if it runs any, which knows nothing of another pod's end.
const HOOKS_OF_UNAWARE: Duration = Duration::from_secs(5);
/// How long the API server may take to list the pods before it is asked whether it answers at all.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(1);
/// How much longer it may take if it does; together less than a runtime has for its first list (`runtime.rs`).
const SLOW_LIST_TIMEOUT: Duration = Duration::from_secs(3);
/// The same once a shutdown has begun, whose time it takes.
const SLOW_LIST_IN_SHUTDOWN: Duration = Duration::from_secs(1);
/// The shortest and the longest wait before the container runtime is asked again: container runtimes from before 2023
/// provide no events.
const FIND_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// The time after which it is asked again for pods of manifests that have no mirror pod.
const FIND_UNMIRRORED: Duration = Duration::from_secs(60);

/// The problem while requests fail.
const AWAY: &str = "the API server is unavailable: pods are shown as last known";

/// Keeps a [`KubeletRuntime`](super::KubeletRuntime) up to date.
pub struct KubeletFollower<N> {
    pub(super) core: Arc<StopCore<NodePods, N>>,
}

impl<N: KubeletHost> KubeletFollower<N> {
    /// Follows the API server until `cancel`. Never gives up; the last known state remains.
    pub async fn run(self, cancel: CancellationToken) {
        cancel.run_until_cancelled(self.core.follow()).await;
    }
}

impl<N> std::fmt::Debug for KubeletFollower<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Follower")
    }
}

impl<A, N> StopCore<A, N> {
    /// The current problem with the API server, if any, and what becomes of known pods at a shutdown.
    pub(super) fn trouble(&self) -> Option<String> {
        let away = || self.outage.fails().then(|| AWAY.to_owned());
        let trouble = self.known.trouble().or_else(away)?;
        if !self.known.has_pods() {
            return Some(trouble);
        }
        let then = match self.config.waits_for_api {
            false => "a shutdown terminates them through the container runtime",
            true => "a shutdown terminates only those of manifests (companionWithoutApi: wait)",
        };
        Some(format!("{trouble}; {then}"))
    }

    /// Whether a shutdown now would wait for an API server that cannot be used.
    pub(super) fn awaits_api_server(&self) -> bool {
        self.config.waits_for_api && self.trouble().is_some()
    }
}

impl<A: EndPods, N: KubeletHost> StopCore<A, N> {
    /// Follows the API server; the container runtime until the API server has listed the pods, and while pods are being
    /// stopped; and the kubelet's service. Never returns.
    pub(super) async fn follow(&self) {
        tokio::join!(
            self.follow_api(),
            self.follow_runtime(),
            self.follow_claims(),
            self.poller.keep_polling(&self.node, &self.known.started, &self.config.going_down),
            self.outage.keep_probing(&self.api),
            self.kubelet.keep(
                &self.node,
                self.config.going_down.clone(),
                self.config.may_stop_kubelet.clone(),
            ),
            self.restart_guard.end_again(&self.node, &self.poller, self.config.going_down.clone()),
            self.hold_unaware_kubelet(),
        );
    }

    async fn follow_api(&self) {
        let outage = Outage::new("watching the pods of this node");
        let mut backoff = WatchBackoff::EAGER;
        let mut unknown = Backoff::EAGER;
        let mut stream = self.api.watch();
        let mut listed = false;
        'follow: loop {
            let mut dirty = false;
            let mut next = stream.next().await;
            if self.ends_found_pods() {
                // Those pods are being stopped as they were found, and the kubelet is held: what the API server says of
                // them comes too late.
                self.stays_up().await;
                stream = self.api.watch();
                continue;
            }
            let was_listed = listed;
            // All events that are available at once are published together.
            let error = loop {
                match next {
                    Some(Ok(Event::InitDone)) if self.is_unknown_node().await => {
                        sleep(unknown.next_delay()).await;
                        stream = self.api.watch();
                        continue 'follow;
                    }
                    Some(Ok(event)) => {
                        // `Init` comes before the list and says nothing about the connection.
                        if !matches!(event, Event::Init) {
                            self.outage.worked();
                            self.known.set_refused(None);
                        }
                        if backoff.took(&event) {
                            outage.worked();
                        }
                        dirty |= self.take(event, &mut listed);
                    }
                    Some(Err(error)) => break Some(error),
                    None => return,
                }
                match stream.next().now_or_never() {
                    Some(more) => next = more,
                    None => break None,
                }
            };
            if !was_listed && listed {
                // Before it is known which of them are a manifest's, a shutdown would end the first pods in another order.
                let _ = timeout(FIRST_PROOF_TIMEOUT, self.prove()).await;
            }
            if dirty && listed {
                self.known.publish();
            }
            let Some(error) = error else { continue };
            outage.failed(&error);
            self.wait_after(&error, &mut backoff).await;
        }
    }

    /// Whether a first list without any pod says nothing, because the API server has no node of this name. Records that.
    async fn is_unknown_node(&self) -> bool {
        if self.known.is_listed() || self.known.lists_any() {
            return false;
        }
        let asked = timeout(NODE_UID_TIMEOUT, self.api.node_uid()).await;
        let is_unknown = matches!(asked, Ok(Err(refused)) if refused.refusal == Refusal::NotFound);
        if is_unknown {
            let why =
                format!("it has no node {}, as nodeName or the host's name says", self.config.node);
            self.outage.worked();
            self.known.set_refused(Some(why));
        }
        is_unknown
    }

    /// Records what a failure of the watch says of the API server, and waits until the watch may be restarted.
    async fn wait_after(&self, error: &watcher::Error, backoff: &mut WatchBackoff) {
        let wait = backoff.after_failure(error);
        match refusal::of_watch(error) {
            Some(Refusal::Expired) => return sleep(wait).await,
            Some(Refusal::NotAllowed) => {
                self.outage.worked();
                self.known.set_refused(Some(refusal::watch_text(error)));
                return sleep(wait).await;
            }
            _ => {}
        }
        self.known.set_refused(None);
        self.outage.failed(Instant::now());
        tokio::select! {
            () = sleep(wait) => {}
            // Another request was answered, and a caller may be waiting for the watch.
            () = self.outage.recovered() => sleep(wait.min(MAX_RESTART_DELAY)).await,
        }
    }

    /// Until the API server has listed the pods, follows those that the container runtime has; from then on, those of
    /// manifests of which the API server has no mirror pod. Never returns.
    async fn follow_runtime(&self) {
        let unlisted = async {
            self.list_is_overdue().await;
            let mut backoff = Backoff::new(FIND_AGAIN[0], FIND_AGAIN[1]);
            let mut going_down = self.config.going_down.clone();
            loop {
                self.find().await;
                let wait = match *going_down.borrow_and_update() {
                    true => FIND_AGAIN[0],
                    false => backoff.next_delay(),
                };
                tokio::select! {
                    () = sleep(wait) => {}
                    Ok(()) = going_down.changed() => {}
                }
            }
        };
        tokio::select! {
            biased;
            () = self.known.until_listed() => {}
            () = unlisted => {}
        }
        let mut going_down = self.config.going_down.clone();
        loop {
            self.find().await;
            tokio::select! {
                () = sleep(FIND_UNMIRRORED) => {}
                // Before a shutdown comes to those of manifests.
                Ok(()) = going_down.changed() => {}
            }
        }
    }

    /// Resolves when the API server's first list is waited for no longer. Only that tells the pods' priorities: a shutdown
    /// would terminate those that the container runtime lists in no order. Cancel-safe.
    async fn list_is_overdue(&self) {
        let _ = timeout(FIRST_LIST_TIMEOUT, self.outage.begun()).await;
        if self.outage.answers(&self.api).await != Some(true) || self.known.is_refused() {
            return;
        }
        let mut going_down = self.config.going_down.clone();
        let in_shutdown = async {
            // If the sender is gone, the agent is ending.
            let _ = going_down.wait_for(|is_down| *is_down).await;
            sleep(SLOW_LIST_IN_SHUTDOWN).await;
        };
        let _ = timeout(SLOW_LIST_TIMEOUT, in_shutdown).await;
    }

    /// Holds a kubelet that goes on restarting a pod whose end it should have known: it may not know of the others either.
    /// Never returns.
    async fn hold_unaware_kubelet(&self) {
        loop {
            self.restart_guard.unaware.notified().await;
            if !self.may_stop_containers() {
                continue;
            }
            // Its exit would cut them short, if it runs any.
            let _ = timeout(HOOKS_OF_UNAWARE, self.kubelets_hooks.closed()).await;
            if self.may_stop_containers() {
                self.kubelet.hold().await;
            }
        }
    }

    /// Asks the container runtime about pods that say they are mirror pods, whenever one does.
    async fn follow_claims(&self) {
        loop {
            self.known.claimed.notified().await;
            // What cannot be asked now is asked when such a pod changes, or is stopped.
            let _ = self.prove().await;
            // Whoever changes such a pod all the time is heard no more often than this.
            sleep(MAX_RESTART_DELAY).await;
        }
    }

    /// Finds out whether pods that say they are mirror pods are any.
    pub(super) async fn prove(&self) -> Result<(), NodeError> {
        if !self.known.has_open() {
            return Ok(());
        }
        let node_uid = timeout(NODE_UID_TIMEOUT, self.api.node_uid());
        let (found, node_uid) = tokio::join!(self.node.pods(), node_uid);
        // Without the API server the container runtime's word is enough.
        let node_uid = node_uid.ok().and_then(Result::ok);
        if self.known.judge(&found?, node_uid.as_deref()) && self.known.is_listed() {
            self.known.publish();
        }
        Ok(())
    }

    /// Asks the container runtime which pods it has.
    pub(super) async fn find(&self) {
        let is_first = self.known.desired().borrow().is_none();
        match self.node.pods().await {
            Ok(found) => {
                let objects = found.into_iter().map(|pod| found::object(pod, &self.config.node));
                if self.known.found(objects.collect()) {
                    self.known.publish();
                }
                let is_new = self.known.set_not_found(None) || is_first;
                if is_new && !self.known.is_listed() {
                    tracing::warn!("{ONLY_FOUND}");
                }
            }
            Err(why) => {
                if !self.known.is_listed() && self.known.set_not_found(Some(why.clone())) {
                    tracing::warn!("cannot list the container runtime's pods: {why}");
                }
            }
        }
    }

    /// Whether a shutdown is stopping pods that only the container runtime has described.
    fn ends_found_pods(&self) -> bool {
        self.is_going_down() && !self.known.is_listed() && self.known.has_found()
    }

    /// Resolves when no shutdown is under way. Cancel-safe.
    async fn stays_up(&self) {
        let mut going_down = self.config.going_down.clone();
        if going_down.wait_for(|is_down| !is_down).await.is_err() {
            // The agent is ending.
            std::future::pending::<()>().await;
        }
    }

    /// Handles one event. Returns whether the desired pods may have changed.
    fn take(&self, event: Event<api::Pod>, listed: &mut bool) -> bool {
        match event {
            Event::Init => {
                self.known.begin_list();
                false
            }
            Event::InitApply(object) => self.known.applied(object),
            Event::InitDone => {
                self.known.end_list();
                *listed = true;
                true
            }
            Event::Apply(object) => self.known.applied(object),
            Event::Delete(object) => {
                let Some(uid) = object.metadata.uid.clone().map(PodUid::new) else { return false };
                if self.known.look(&uid).is_none() {
                    return false;
                }
                // The deleted object has the final status of the containers.
                self.known.applied(object);
                self.known.gone(&uid)
            }
        }
    }
}

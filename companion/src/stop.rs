//! How a pod that a kubelet runs comes to its end.
//!
//! Three things go on beside each other, and the first that ends is the stop's end: asking the API
//! server, looking whether the pod is gone, and the way without the API server.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use winddown_shared::{Grace, Pod, PodStopped, PodUid, RuntimeError};

use super::api::EndPods;
use super::api_outage::ApiOutage;
use super::config::{CompanionConfig, WithoutApi};
use super::containers::{RunningContainers, Unasked};
use super::facts;
use super::known::Known;

mod asking;

use asking::Told;

/// How long the container runtime is given between two looks at a pod that should be gone.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// The kubelet hears of a deletion a moment after it was asked for, and kills as much later.
const KUBELET_LAG: Duration = Duration::from_millis(500);
/// The least that containers get of a grace that is over.
const LAST_GRACE: Duration = Duration::from_secs(1);

/// The pods of one node, and how they are ended.
pub(super) struct Core<A, C> {
    pub(super) api: A,
    pub(super) containers: C,
    pub(super) config: CompanionConfig,
    pub(super) known: Known,
    pub(super) outage: ApiOutage,
    /// It was said that the container runtime cannot be asked.
    unasked: AtomicBool,
}

// === impl Core ===

impl<A, C> Core<A, C> {
    pub(super) fn new(api: A, containers: C, config: CompanionConfig) -> Self {
        let known = Known::new(config.own_pod.clone());
        let outage = ApiOutage::new();
        Self { api, containers, config, known, outage, unasked: AtomicBool::new(false) }
    }

    fn is_going_down(&self) -> bool {
        (self.config.going_down)()
    }
}

impl<A: EndPods, C: RunningContainers> Core<A, C> {
    /// Ends the pod and resolves when none of its containers runs. Dropping the future abandons the
    /// wait: what the API server was asked for goes on.
    pub(super) async fn stop(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        let begun = Instant::now();
        let Some(pod) = self.known.look(uid).map(|view| view.pod).or_else(|| pod.cloned()) else {
            return self.known.listed().map(|()| PodStopped::default());
        };
        let before = facts::running(&pod);
        let inside = facts::runtime_uid(&pod);
        if pod.is_mirror() {
            self.stop_mirror(&pod, &inside, &grace).await?;
        } else {
            let told = Told::default();
            tokio::select! {
                biased;
                () = self.gone(uid, &inside) => {}
                () = self.without_api(&pod, &inside, grace.clone(), &told, begun) => {
                    self.known.stopped(uid);
                }
                never = self.ask(&pod, grace.clone(), &told) => match never {},
            }
        }
        let after = self.known.look(uid).map_or(pod, |view| view.pod);
        Ok(PodStopped {
            signalled_at: (!before.is_empty()).then_some(begun),
            stopped_at: Some(Instant::now()),
            containers: facts::stopped(&before, &after),
        })
    }

    /// Resolves when the API server says that the pod's containers have ended, and the container
    /// runtime agrees.
    async fn gone(&self, uid: &PodUid, inside: &PodUid) {
        let mut news = self.known.news(uid);
        let mut wait = LOOK_AGAIN[0];
        loop {
            // What changes from here on is not missed.
            if let Some(news) = &mut news {
                news.borrow_and_update();
            }
            let view = self.known.look(uid);
            if !view.is_none_or(|view| view.gone || facts::has_ended(&view.pod)) {
                wait = LOOK_AGAIN[0];
                match &mut news {
                    // The sender is dropped with the pod, which is then gone.
                    Some(news) => drop(news.changed().await),
                    None => pending().await,
                }
                continue;
            }
            match self.containers.running(inside).await {
                Ok(running) if running.is_empty() => return,
                Ok(running) => {
                    tracing::debug!(%uid, ?running, "the API server says that the pod has ended");
                    sleep(wait).await;
                    wait = (wait * 2).min(LOOK_AGAIN[1]);
                }
                Err(unasked) => return self.say_unasked(&unasked),
            }
        }
    }

    /// Resolves when the pod has ended without the API server's having said so.
    async fn without_api(
        &self,
        pod: &Pod,
        inside: &PodUid,
        mut grace: Grace,
        told: &Told,
        begun: Instant,
    ) {
        let whole = grace.remaining();
        tokio::select! {
            () = self.outage.given_up(begun, whole) => {}
            () = async {
                grace.over().await;
                sleep(KUBELET_LAG).await;
            } => {}
        }
        let mut stopped = false;
        let mut wait = LOOK_AGAIN[0];
        loop {
            let over = grace.remaining().is_zero();
            let accepted = told.is_accepted();
            let running = self.containers.running(inside).await;
            if running.is_ok_and(|running| running.is_empty())
                && (stopped || (accepted && self.outage.fails()))
            {
                return;
            }
            // A kubelet that has heard of it is at work until the grace is over.
            let late = over || (!accepted && self.outage.fails());
            if late && self.may_stop_containers() {
                stopped |= self.stop_containers(pod, inside, &grace, over).await;
            }
            sleep(wait).await;
            wait = (wait * 2).min(LOOK_AGAIN[1]);
        }
    }

    fn may_stop_containers(&self) -> bool {
        self.config.without_api == WithoutApi::StopContainers && self.is_going_down()
    }

    async fn stop_containers(&self, pod: &Pod, inside: &PodUid, grace: &Grace, over: bool) -> bool {
        let why = match over {
            true => "the kubelet has not ended the pod in time",
            false => "the API server is away",
        };
        tracing::warn!(pod = %pod.label(), "{why}: its containers are stopped through the runtime");
        let stopped = self.stop_within(inside, grace).await;
        if let Err(error) = &stopped {
            tracing::warn!(pod = %pod.label(), "its containers cannot be stopped: {error}");
        }
        stopped.is_ok()
    }

    /// Stops containers through the runtime; a grace that is shortened meanwhile is followed.
    async fn stop_within(&self, inside: &PodUid, grace: &Grace) -> Result<(), Unasked> {
        let mut grace = grace.clone();
        loop {
            let left = grace.remaining().max(LAST_GRACE);
            tokio::select! {
                stopped = self.containers.stop(inside, left) => return stopped,
                () = grace.changed() => {}
            }
        }
    }

    /// The pod of a manifest file: the API server's deletion of its picture ends nothing.
    async fn stop_mirror(
        &self,
        pod: &Pod,
        inside: &PodUid,
        grace: &Grace,
    ) -> Result<(), RuntimeError> {
        let left = |why: &str| RuntimeError::Failed {
            what: format!(
                "pod {} is left as it is: the kubelet runs it from a manifest file, {why}",
                pod.label()
            ),
            source: None,
        };
        if facts::has_ended(pod) {
            return Ok(());
        }
        if !self.is_going_down() {
            return Err(left("so only the removal of that file ends it while the node stays up"));
        }
        let failed = |error: Unasked| left(&format!("and the container runtime: {error}"));
        self.stop_within(inside, grace).await.map_err(failed)?;
        self.known.stopped(pod.uid());
        Ok(())
    }

    fn say_unasked(&self, error: &Unasked) {
        if !self.unasked.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the container runtime cannot be asked whether pods are gone, so what the API \
                 server says of them counts alone: {error}"
            );
        }
    }
}

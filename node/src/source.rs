//! Sources of pods, and the union of what they want.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_all;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use winddown_shared::{DesiredPods, Pod};
use winddown_static_pods::DesiredManifests;

use crate::links::next_change;

/// A source of pods: a directory of manifests, an API server, or one of your own. It publishes the whole set of desired
/// pods whenever that changes, and `None` until the set is known.
#[derive(Clone)]
pub struct PodSource {
    from: From,
    /// Whether a refused pod has failed for good, because its controller creates another.
    refused_for_good: bool,
}

#[derive(Clone)]
enum From {
    Manifests(watch::Receiver<Arc<DesiredManifests>>),
    Pods(watch::Receiver<Option<Arc<DesiredPods>>>),
}

impl std::convert::From<watch::Receiver<Arc<DesiredManifests>>> for PodSource {
    fn from(manifests: watch::Receiver<Arc<DesiredManifests>>) -> Self {
        Self { from: From::Manifests(manifests), refused_for_good: false }
    }
}

impl std::convert::From<watch::Receiver<Option<Arc<DesiredPods>>>> for PodSource {
    fn from(pods: watch::Receiver<Option<Arc<DesiredPods>>>) -> Self {
        Self { from: From::Pods(pods), refused_for_good: false }
    }
}

// === impl PodSource ===

impl PodSource {
    /// Makes refusals of this source's pods final: their controller creates others elsewhere. By default, a pod that was
    /// refused for the moment starts when that is over.
    #[must_use]
    pub fn refused_for_good(self) -> Self {
        Self { refused_for_good: true, ..self }
    }

    /// Whether this pod is from this source and a refusal of it is final.
    pub(crate) fn gives_up(&self, pod: &Pod) -> bool {
        let From::Pods(pods) = &self.from else { return false };
        let wants = |all: &DesiredPods| all.pods.iter().any(|own| own.uid() == pod.uid());
        self.refused_for_good && pods.borrow().as_deref().is_some_and(wants)
    }

    /// The state of the manifests directory, if the source is one.
    pub(crate) fn manifests(&self) -> Option<Arc<DesiredManifests>> {
        match &self.from {
            From::Manifests(manifests) => Some(Arc::clone(&manifests.borrow())),
            From::Pods(_) => None,
        }
    }

    /// Adds the desired pods to `all`. Returns false if they are not known yet.
    fn add_to(&mut self, all: &mut DesiredPods) -> bool {
        let (pods, waiting, complete, awaited) = match &mut self.from {
            From::Manifests(manifests) => {
                let now = manifests.borrow_and_update();
                if now.generation == 0 {
                    return false;
                }
                (now.pods.clone(), Vec::new(), now.complete, now.awaited)
            }
            From::Pods(pods) => match &*pods.borrow_and_update() {
                Some(now) => (now.pods.clone(), now.waiting.clone(), now.complete, now.awaited),
                None => return false,
            },
        };
        all.pods.extend(pods);
        all.waiting.extend(waiting);
        all.complete &= complete;
        all.awaited |= awaited;
        true
    }

    /// Resolves when the set has changed. Pending for ever once the source has ended: its last set stays.
    async fn changed(&mut self) {
        match &mut self.from {
            From::Manifests(manifests) => next_change(manifests).await,
            From::Pods(pods) => next_change(pods).await,
        }
    }
}

/// How long a source may be silent before the pods of the others are admitted without it.
const SILENT_SOURCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps `wanted` at the union of what `sources` want; `None` until all of them have reported, or at least one has and
/// [`SILENT_SOURCE_TIMEOUT`] is over. While a source is silent, the set is marked as incomplete.
pub(crate) async fn merge(
    mut sources: Vec<PodSource>,
    wanted: watch::Sender<Option<Arc<DesiredPods>>>,
) {
    if sources.is_empty() {
        wanted.send_replace(Some(Arc::new(DesiredPods::all(Vec::new()))));
        return std::future::pending().await;
    }
    let (until, mut is_late) = (Instant::now() + SILENT_SOURCE_TIMEOUT, false);
    loop {
        let mut all = DesiredPods::all(Vec::new());
        let spoken = sources.iter_mut().filter_map(|source| source.add_to(&mut all).then_some(()));
        let spoken = spoken.count();
        let silent = sources.len() - spoken;
        if silent == 0 || (is_late && spoken > 0) {
            all.complete &= silent == 0;
            all.awaited |= silent > 0;
            wanted.send_replace(Some(Arc::new(all)));
        }
        let changed = select_all(sources.iter_mut().map(|source| source.changed().boxed()));
        tokio::select! {
            _ = changed => {}
            () = sleep_until(until), if silent > 0 && !is_late => {
                is_late = true;
                tracing::warn!(
                    silent,
                    "a pod source has not reported yet; continuing without it"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use winddown_shared::testing::pod;

    use super::*;

    #[tokio::test]
    async fn sources_are_one_once_each_has_said_what_it_wants_and_none_is_lost_with_another() {
        let manifests = watch::Sender::new(Arc::new(DesiredManifests::default()));
        let own = watch::Sender::new(None);
        let sources = vec![manifests.subscribe().into(), own.subscribe().into()];
        let wanted = watch::Sender::new(None);
        let mut seen = wanted.subscribe();
        tokio::spawn(merge(sources, wanted));
        let names = |now: &Option<Arc<DesiredPods>>| {
            let now = now.as_ref()?;
            let names = now.pods.iter().map(|pod| pod.name().to_string()).collect::<Vec<_>>();
            Some((names.join(" "), now.complete))
        };

        own.send_replace(Some(Arc::new(DesiredPods::all(vec![pod("a")]))));
        tokio::task::yield_now().await;
        assert!(seen.borrow_and_update().is_none(), "the directory was not read yet");
        let pods = vec![pod("m")];
        let state = DesiredManifests { generation: 1, pods, ..DesiredManifests::default() };
        manifests.send_replace(Arc::new(state));
        let now = seen.wait_for(Option::is_some).await.unwrap().clone();
        assert_eq!(names(&now), Some(("m a".into(), false)));
        // The last set of a source that has ended stays.
        drop(manifests);
        own.send_replace(Some(Arc::new(DesiredPods::all(vec![pod("b")]))));
        seen.changed().await.unwrap();
        assert_eq!(names(&seen.borrow().clone()), Some(("m b".into(), false)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_is_silent_holds_the_pods_of_others_half_a_minute_and_no_longer() {
        let (own, silent) = (watch::Sender::new(None), watch::Sender::new(None));
        let wanted = watch::Sender::new(None);
        let mut seen = wanted.subscribe();
        let sources = vec![own.subscribe().into(), silent.subscribe().into()];
        tokio::spawn(merge(sources, wanted));
        let says = |name: &str| Some(Arc::new(DesiredPods::all(vec![pod(name)])));
        own.send_replace(says("a"));
        tokio::time::sleep(SILENT_SOURCE_TIMEOUT - Duration::from_secs(1)).await;
        assert!(seen.borrow().is_none());
        let now = seen.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        assert_eq!(
            (now.pods.len(), now.complete, now.awaited),
            (1, false, true),
            "nothing is terminated for want of it"
        );
        silent.send_replace(says("b"));
        let now = seen.wait_for(|now| now.as_ref().is_some_and(|now| now.complete)).await;
        let now = now.unwrap().clone().unwrap();
        assert_eq!((now.pods.len(), now.awaited), (2, false));
    }
}

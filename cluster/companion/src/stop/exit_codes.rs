//! How the containers of a stopped pod ended.

use super::*;

/// With this much left of its grace period a container was not killed: the API takes whole seconds.
const NOT_KILLED: Duration = Duration::from_secs(2);
/// How long the container runtime may take to say how the containers of a pod ended while the next group waits.
const EXITS_TIMEOUT: Duration = Duration::from_millis(200);
/// The exit code of a container that got SIGKILL.
const SIGKILLED: i32 = 137;

impl<A: EndPods, N: KubeletHost> StopCore<A, N> {
    /// Whether so much of the pod's grace period is left that no container was killed because of it.
    fn ended_early(&self, pod: &Pod, grace: &Grace) -> bool {
        let now = Instant::now();
        let ends = self.deletion_ends(pod).unwrap_or(now + grace.remaining());
        ends.min(now + grace.remaining()) >= now + NOT_KILLED
    }

    /// How the containers ended that ran before, as far as anyone knows. While the node goes down, the next group does not
    /// wait for that: the runtime is not asked if SIGKILL was not due yet, and otherwise not for long.
    pub(super) async fn how_they_ended(
        &self,
        pod: &Pod,
        runtime_uid: &PodUid,
        before: &[Arc<str>],
        grace: &Grace,
    ) -> Vec<StoppedContainer> {
        let (is_urgent, has_outlived) = (self.is_going_down(), grace.remaining().is_zero());
        let mut ended = facts::stopped(before, pod);
        if ended.len() == before.len() || (is_urgent && self.ended_early(pod, grace)) {
            return ended;
        }
        let within = if is_urgent { EXITS_TIMEOUT } else { Duration::MAX };
        let asked = timeout(within, self.node.exits(runtime_uid)).await;
        let seen = asked.ok().and_then(Result::ok).unwrap_or_default();
        for name in before {
            if ended.iter().any(|one| one.name == *name) {
                continue;
            }
            // The kernel reports an exit before the container runtime has handled it. What has outlived its grace was killed.
            let killed =
                || has_outlived.then(|| StoppedContainer::new(name.clone(), SIGKILLED, true));
            let exit = seen.iter().find(|one| one.name == *name).cloned();
            ended.extend(exit.or_else(killed));
        }
        ended
    }
}

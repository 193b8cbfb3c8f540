//! When a container that still waits, for other containers or for its preStop hook, is sent its stop signal.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use winddown_shared::Grace;

/// The longest time that a container has between the last call and SIGKILL, and the one that it has beyond the grace
/// period if that was all waited for (the kubelet's `minimumGracePeriodInSeconds`).
const LONGEST_LAST_CALL: Duration = Duration::from_secs(2);

/// When a container that still waits is sent its stop signal.
///
/// Where the node waits for the pod's room or has to be down in time, be it for a request that came during the stop,
/// SIGKILL comes at the end of the grace period, so the last call comes a quarter of it, at most 2 s, before that.
/// Otherwise it comes at the end of the grace period, as with the kubelet, and SIGKILL 2 s later; but once that grace
/// period is shortened, the node waits for its end.
#[derive(Clone, Copy)]
pub(super) struct LastCall {
    before_end: Duration,
    /// The end before which there is no last call, unless the node waits for it.
    whole_until: Instant,
}

impl LastCall {
    /// For a stop that begins now.
    pub(super) fn of(grace: &Grace) -> Self {
        Self {
            before_end: (grace.remaining() / 4).min(LONGEST_LAST_CALL),
            whole_until: grace.kill_at(),
        }
    }

    /// How long it is until the last call.
    pub(super) fn remaining(self, grace: &Grace) -> Duration {
        self.at(grace).saturating_duration_since(Instant::now())
    }

    /// Resolves at the last call, and follows every shortening. Cancel-safe.
    pub(super) async fn wait(self, grace: Grace) {
        let mut follower = grace.clone();
        loop {
            tokio::select! {
                () = sleep_until(self.at(&grace)) => return,
                () = follower.changed() => {}
                () = grace.waited_for(), if self.is_whole(&grace) => {}
            }
        }
    }

    /// What a container has that is sent its stop signal now.
    pub(super) fn grace_of_signal(self, grace: Grace) -> Grace {
        if self.is_whole(&grace) { grace.at_least(self.before_end) } else { grace }
    }

    /// What a hook that has not ended by the last call took, for the report.
    pub(super) fn taken(self, grace: &Grace) -> String {
        if self.is_whole(grace) {
            "the whole grace period".to_owned()
        } else {
            format!("all but the last {:.1?} of the grace period", self.before_end)
        }
    }

    fn at(self, grace: &Grace) -> Instant {
        let end = grace.kill_at();
        let before = if self.is_whole(grace) { Duration::ZERO } else { self.before_end };
        end.checked_sub(before).unwrap_or_else(Instant::now)
    }

    fn is_whole(self, grace: &Grace) -> bool {
        !grace.node_waits() && self.whole_until == grace.kill_at()
    }
}

#[cfg(test)]
mod tests {
    use winddown_shared::KillReason;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// When the stop signal is sent to a container whose hook does not end, and when it is killed; in seconds.
    async fn ends(mut grace: Grace) -> (f64, f64) {
        let (began, last_call) = (Instant::now(), LastCall::of(&grace));
        last_call.wait(grace.clone()).await;
        let signalled = began.elapsed();
        grace = last_call.grace_of_signal(grace);
        grace.expired().await;
        (signalled.as_secs_f64(), began.elapsed().as_secs_f64())
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_may_take_all_of_the_grace_only_where_nothing_waits_for_the_pod() {
        use KillReason::*;

        let plugin = winddown_shared::PluginName::new("max-age");
        for (reason, of_30, of_2) in [
            (None, (30.0, 32.0), (2.0, 2.5)),
            (Some(Removed), (30.0, 32.0), (2.0, 2.5)),
            (Some(Operator), (30.0, 32.0), (2.0, 2.5)),
            (Some(Shutdown), (28.0, 30.0), (1.5, 2.0)),
            (Some(Preemption), (28.0, 30.0), (1.5, 2.0)),
            (Some(Eviction), (28.0, 30.0), (1.5, 2.0)),
            (Some(Drain), (28.0, 30.0), (1.5, 2.0)),
            (Some(Plugin(plugin)), (28.0, 30.0), (1.5, 2.0)),
        ] {
            for (length, expected) in [(30, of_30), (2, of_2)] {
                let grace = Grace::fixed(SECOND * length).with_reason(reason);
                assert_eq!(ends(grace).await, expected, "{reason:?}, {length} s");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_that_shortens_the_grace_of_a_removed_pod_is_not_exceeded() {
        let (sender, grace) = Grace::until(Instant::now() + SECOND * 30);
        let shorten = async {
            tokio::time::sleep(SECOND).await;
            sender.shorten_to(Instant::now() + SECOND * 5);
        };
        let (ends, ()) = tokio::join!(ends(grace.with_reason(KillReason::Removed)), shorten);
        assert_eq!(ends, (4.0, 6.0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_removed_pod_for_which_the_node_begins_to_wait_does_not_exceed_the_same_grace() {
        let (sender, grace) = Grace::until(Instant::now() + SECOND * 30);
        let wait = async {
            tokio::time::sleep(SECOND * 5).await;
            sender.node_waits();
        };
        let (ends, ()) = tokio::join!(ends(grace.with_reason(KillReason::Removed)), wait);
        assert_eq!(ends, (28.0, 30.0));
    }
}

//! Handles pods that stay on the node if it comes back, which depends on how it goes down.

use std::time::Duration;

use winddown_shared::ShutdownKind;

use super::kills::{Asked, Due};
use super::{Cancelled, ShutdownRun};
use crate::EndingPods;
use crate::PodEnd;
use crate::in_place::comes_back;
use crate::run_context::RunContext;

/// How long to wait for the login manager to report the kind of a shutdown after it announced one. systemd 257
/// reports it some milliseconds after `PreparingForShutdown` changes; versions before 255 never do.
const NAMED_WITHIN: Duration = Duration::from_millis(200);

impl<K: EndingPods> ShutdownRun<'_, K> {
    /// Waits for the kind of the shutdown if pods may stay depending on it.
    pub(super) async fn wait_for_kind(&mut self) -> Result<(), Cancelled> {
        if !self.unasked.waiting.iter().flatten().any(|(_, pod)| self.plan.may_stay(pod)) {
            return Ok(());
        }
        self.wait_until(
            |run| if run.context_is(is_unnamed) { NAMED_WITHIN } else { Duration::ZERO },
        )
        .await
    }

    /// Spares pods that keep running through a soft reboot. Takes that back once a notice says that the node is lost.
    pub(super) fn spare_survivors(&mut self) {
        let softly = |context: &RunContext| {
            context.kind == ShutdownKind::SoftReboot && context.notice.is_none()
        };
        if !self.context_is(softly) {
            for (place, pod) in std::mem::take(&mut self.unasked.survivors) {
                self.groups[place.group].pods[place.pod].end = PodEnd::Spared;
                self.unasked.waiting[place.group].push((place, pod));
            }
            return;
        }
        for waiting in &mut self.unasked.waiting {
            let survivors = waiting.extract_if(.., |(place, pod)| {
                let report = &mut self.groups[place.group].pods[place.pod];
                let survives = report.asked.is_none()
                    && report.prior_reason.is_none()
                    && self.plan.may_survive(pod)
                    && self.killer.survives_soft_reboot(pod.uid());
                if survives {
                    report.end = PodEnd::Survives;
                }
                survives
            });
            self.unasked.survivors.extend(survivors);
        }
    }

    /// Asks the pods again that were to stay and are still terminating, once the node does not come back: they fail.
    pub(super) fn fail_staying(&mut self) {
        if self.node_comes_back() {
            return;
        }
        let stays =
            |asked: &Asked| self.groups[asked.place.group].pods[asked.place.pod].stays_on_reboot;
        let staying = self.kills.asked.iter().filter(|(_, asked)| stays(asked));
        for id in staying.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(Asked { place, pod, wait }) = self.kills.asked.remove(&id) else { continue };
            wait.abort();
            let again = self.ask(Due::again(place, pod), self.latest_end(place.group));
            if self.kills.overdue.remove(&id) {
                self.kills.overdue.insert(again);
            }
        }
    }

    /// Whether the node comes back by itself, as far as known.
    pub(super) fn node_comes_back(&self) -> bool {
        self.context_is(|context| comes_back(context.kind, context.notice.is_some()))
    }

    fn context_is(&self, so: impl Fn(&RunContext) -> bool) -> bool {
        self.params.context.as_ref().is_some_and(|context| so(&context.borrow()))
    }
}

/// Whether the kind is still unknown and would matter: after a notice, the node does not come back anyway.
fn is_unnamed(context: &RunContext) -> bool {
    context.kind == ShutdownKind::Unknown && context.notice.is_none()
}

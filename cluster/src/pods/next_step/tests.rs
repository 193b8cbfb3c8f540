//! A table of states and the action for each.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use tokio::time::Instant;
use winddown_shared::{Pod, WallTime};

use super::{OrphanPolicy, PodAction, PodView, next_step};
use crate::pods::known::{ApiPresence, GivenPod, KnownPod, KnownPods};

const S: Duration = Duration::from_secs(1);

/// One state of a pod.
struct Case {
    known: KnownPod,
    has_predecessor: bool,
    is_replaced: bool,
    final_status: bool,
    is_over_here: bool,
    runs: Option<bool>,
    is_overdue: bool,
    orphans: OrphanPolicy,
}

fn object(phase: &str, restart: &str) -> api::Pod {
    api::Pod {
        metadata: ObjectMeta {
            name: Some("a".into()),
            namespace: Some("default".into()),
            uid: Some("u1".into()),
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            restart_policy: Some(restart.into()),
            ..api::PodSpec::default()
        }),
        status: Some(api::PodStatus { phase: Some(phase.into()), ..api::PodStatus::default() }),
    }
}

impl Case {
    fn of(object: api::Pod) -> Self {
        let known = KnownPods::of_earlier(Vec::new(), true);
        let pod = Pod::new(object).unwrap();
        known.applied(&pod, Instant::now());
        Self {
            known: known.get(pod.uid()).unwrap(),
            has_predecessor: false,
            is_replaced: false,
            final_status: false,
            is_over_here: false,
            runs: Some(false),
            is_overdue: false,
            orphans: OrphanPolicy::Stop,
        }
    }

    fn new(phase: &str) -> Self {
        Self::of(object(phase, "Always"))
    }

    fn never(phase: &str) -> Self {
        Self::of(object(phase, "Never"))
    }

    /// Deleted now, with a grace period of ten seconds.
    fn deleting(phase: &str) -> Self {
        let mut object = object(phase, "Always");
        object.metadata.deletion_timestamp = Some(Time(WallTime::from_second(1010).unwrap()));
        object.metadata.deletion_grace_period_seconds = Some(10);
        Self::of(object)
    }

    /// Gone from the API.
    fn gone() -> Self {
        let mut case = Self::new("Running");
        case.known.presence = ApiPresence::Gone;
        case.known.deadline = Some(Instant::now() + 30 * S);
        case
    }

    /// The node was given it.
    fn given(mut self, ended: bool) -> Self {
        let last = ended.then(Arc::default);
        self.known.given = Some(GivenPod { pod: self.known.pod.clone(), last });
        self
    }

    fn with(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }

    /// The node was told to terminate it, by a deadline that is `later` now than it was then.
    fn delivered(self, later: Duration) -> Self {
        self.with(|case| {
            let deadline = case.known.deadline.unwrap();
            case.known.sent_deadline = Some(deadline);
            case.known.deadline = Some(deadline + later);
        })
    }

    fn step(&self) -> PodAction {
        next_step(PodView {
            known: &self.known,
            has_predecessor: self.has_predecessor,
            is_replaced: self.is_replaced,
            final_status: self.final_status,
            is_over_here: self.is_over_here,
            runs: self.runs,
            is_overdue: self.is_overdue,
            orphans: self.orphans,
        })
    }
}

#[test]
fn a_pod_that_is_wanted() {
    let image = |case: &mut Case| {
        let mut object = case.known.pod.object().clone();
        object.metadata.labels = Some([("new".into(), String::new())].into());
        case.known.pod = Pod::new(object).unwrap();
    };
    let overdue = |case: &mut Case| case.is_overdue = true;
    let rows = [
        ("unknown", Case::new("Pending"), PodAction::Give),
        ("unknown, ran, may run again", Case::new("Running"), PodAction::Give),
        ("unknown, ran, may not", Case::never("Running"), PodAction::Conclude),
        (
            "unknown, may not run again, and runs",
            Case::never("Running").with(|c| c.runs = Some(true)),
            PodAction::Give,
        ),
        (
            "unknown, may not run again, and may run",
            Case::never("Running").with(|c| c.runs = None),
            PodAction::Wait,
        ),
        ("unknown, never ran", Case::never("Pending"), PodAction::Give),
        (
            "its end was said",
            Case::new("Running").with(|c| c.final_status = true),
            PodAction::Nothing,
        ),
        (
            "an older one is there",
            Case::new("Pending").with(|c| c.has_predecessor = true),
            PodAction::Nothing,
        ),
        ("refused", Case::new("Pending").with(|c| c.known.refused = true), PodAction::Nothing),
        ("overdue", Case::new("Pending").with(overdue), PodAction::Overdue),
        (
            "overdue, and refused",
            Case::new("Pending").with(overdue).with(|c| c.known.refused = true),
            PodAction::Overdue,
        ),
        (
            "overdue, and it runs",
            Case::new("Running").with(overdue).with(|c| c.runs = Some(true)),
            PodAction::Give,
        ),
        (
            "overdue, and it may run",
            Case::new("Running").with(overdue).with(|c| c.runs = None),
            PodAction::Give,
        ),
        ("overdue, ran, may not again", Case::never("Running").with(overdue), PodAction::Conclude),
        (
            "overdue, and its end was said",
            Case::new("Running").with(overdue).with(|c| c.final_status = true),
            PodAction::Nothing,
        ),
        ("T6: Failed", Case::new("Failed"), PodAction::GiveTerminated),
        ("T7: Succeeded", Case::new("Succeeded"), PodAction::GiveTerminated),
        (
            "Failed, and it runs, and the node was not given it",
            Case::new("Failed").with(|c| c.runs = Some(true)),
            PodAction::TakeOver,
        ),
        (
            "Failed, and it may run, and the node was not given it",
            Case::new("Failed").with(|c| c.runs = None),
            PodAction::Wait,
        ),
        ("Failed, and it runs", Case::new("Failed").given(false), PodAction::End),
        (
            "Failed, and it runs, as the node was told",
            Case::new("Failed").given(false).delivered(Duration::ZERO),
            PodAction::Nothing,
        ),
        (
            "Failed, as the node says",
            Case::new("Failed").given(false).with(|c| c.is_over_here = true),
            PodAction::Nothing,
        ),
        ("Failed, and it has ended", Case::new("Failed").given(true), PodAction::Nothing),
        ("as it should be", Case::new("Running").given(false), PodAction::Nothing),
        ("ended", Case::new("Running").given(true), PodAction::Nothing),
        ("changed", Case::new("Running").given(false).with(image), PodAction::Change),
        (
            "it ends here, and the API does not have it so",
            Case::new("Running").given(false).with(image).with(|case| {
                let ending = Case::deleting("Running").known.pod;
                case.known.given.as_mut().unwrap().pod = ending;
            }),
            PodAction::Nothing,
        ),
        ("changed after its end", Case::new("Running").given(true).with(image), PodAction::Nothing),
    ];
    for (what, case, expected) in rows {
        assert_eq!(case.step(), expected, "{what}");
    }
}

#[test]
fn a_pod_that_is_being_deleted() {
    let rows = [
        ("runs", Case::deleting("Running").given(false), PodAction::End),
        ("runs, no status yet", Case::deleting("Pending").given(false), PodAction::End),
        ("runs though the API says Failed", Case::deleting("Failed").given(false), PodAction::End),
        ("has ended", Case::deleting("Running").given(true), PodAction::Remove),
        ("unknown", Case::deleting("Pending"), PodAction::Conclude),
        (
            "unknown, and runs",
            Case::deleting("Pending").with(|c| c.runs = Some(true)),
            PodAction::TakeOver,
        ),
        (
            "unknown, and may run",
            Case::deleting("Pending").with(|c| c.runs = None),
            PodAction::Wait,
        ),
        (
            "unknown, its end was said",
            Case::deleting("Pending").with(|c| c.final_status = true),
            PodAction::Remove,
        ),
        ("unknown, the API knows its end", Case::deleting("Succeeded"), PodAction::Remove),
        (
            "unknown, the API knows its end, and it runs",
            Case::deleting("Failed").with(|c| c.runs = Some(true)),
            PodAction::TakeOver,
        ),
        (
            "unknown, its end was said, and it may run",
            Case::deleting("Running").with(|c| (c.final_status, c.runs) = (true, None)),
            PodAction::Wait,
        ),
        (
            "runs, and the node knows",
            Case::deleting("Running").given(false).delivered(Duration::ZERO),
            PodAction::Nothing,
        ),
        (
            "never postponed",
            Case::deleting("Running").given(false).delivered(S),
            PodAction::Nothing,
        ),
        (
            "removed, finalizers are left",
            Case::deleting("Running").given(true).with(|c| c.known.removed = true),
            PodAction::Nothing,
        ),
    ];
    for (what, case, expected) in rows {
        assert_eq!(case.step(), expected, "{what}");
    }
}

#[test]
fn a_grace_that_was_shortened_is_told_again() {
    let shorter = Case::deleting("Running").given(false).delivered(Duration::ZERO).with(|case| {
        case.known.deadline = case.known.deadline.map(|deadline| deadline - S);
    });
    assert_eq!(shorter.step(), PodAction::End);
}

#[test]
fn a_pod_that_the_api_does_not_have() {
    let orphan = |policy| {
        Case::gone().given(false).with(|c| {
            c.known.was_seen = false;
            c.orphans = policy;
        })
    };
    let absent = ApiPresence::Absent { confirmed: 0, needed: 1 };
    let rows = [
        (
            "a list lacks it",
            Case::gone().given(false).with(|c| c.known.presence = absent),
            PodAction::LookUp,
        ),
        ("deleted", Case::gone().given(false), PodAction::End),
        ("deleted, ended", Case::gone().given(true), PodAction::Forget),
        ("deleted, unknown", Case::gone(), PodAction::Forget),
        ("never seen", orphan(OrphanPolicy::Stop), PodAction::End),
        ("never seen, adopted", orphan(OrphanPolicy::Adopt), PodAction::LeaveAlone),
        ("never seen, reported", orphan(OrphanPolicy::Report), PodAction::LeaveAlone),
        (
            "its name is needed",
            orphan(OrphanPolicy::Adopt).with(|c| c.is_replaced = true),
            PodAction::End,
        ),
        (
            "seen, then deleted, though orphans are adopted",
            Case::gone().given(false).with(|c| c.orphans = OrphanPolicy::Adopt),
            PodAction::End,
        ),
    ];
    for (what, case, expected) in rows {
        assert_eq!(case.step(), expected, "{what}");
    }
}

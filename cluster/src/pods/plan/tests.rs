//! A table of how things stand and what is done then.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use tokio::time::Instant;
use winddown_shared::{Pod, WallTime};

use super::{OrphanPolicy, PodAction, PodView, next_step};
use crate::pods::known::{ApiPresence, Known, KnownPods};
use crate::pods::progress::StopAsked;
use crate::provider::ProvidedPod;

const S: Duration = Duration::from_secs(1);

/// One way things can stand.
struct Case {
    known: Known,
    provider: Option<ProvidedPod>,
    has_predecessor: bool,
    is_replaced: bool,
    last_word: bool,
    orphans: OrphanPolicy,
    now: Instant,
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
        let known = KnownPods::default();
        let pod = Pod::new(object).unwrap();
        let now = Instant::now();
        known.applied(&pod, now, WallTime::from_second(1000).unwrap());
        Self {
            known: known.get(pod.uid()).unwrap(),
            provider: None,
            has_predecessor: false,
            is_replaced: false,
            last_word: false,
            orphans: OrphanPolicy::Stop,
            now,
        }
    }

    fn new(phase: &str) -> Self {
        Self::of(object(phase, "Always"))
    }

    fn never(phase: &str) -> Self {
        Self::of(object(phase, "Never"))
    }

    /// Deleted now, with ten seconds of grace.
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
        case.known.deadline = Some(case.now + 30 * S);
        case
    }

    fn provided(mut self, ended: bool) -> Self {
        let status = Arc::new(api::PodStatus::default());
        self.provider = Some(ProvidedPod { pod: self.known.pod.clone(), status, ended });
        self
    }

    fn with(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }

    /// Asked to end when it was deleted, and that is `ago`.
    fn asked(self, ago: Duration, kill: bool) -> Self {
        self.with(|case| {
            let deadline = case.known.deadline.unwrap();
            case.known.progress.stop = Some(StopAsked { deadline, at: case.now, kill });
            case.now += ago;
        })
    }

    fn step(&self) -> PodAction {
        next_step(PodView {
            known: &self.known,
            provider: self.provider.as_ref(),
            has_predecessor: self.has_predecessor,
            is_replaced: self.is_replaced,
            last_word: self.last_word,
            orphans: self.orphans,
            now: self.now,
            api_time: WallTime::from_second(1000).unwrap(),
            kill_slack: 2 * S,
            kill_every: 5 * S,
        })
    }
}

fn stop(seconds: u64) -> PodAction {
    PodAction::Stop { grace: Duration::from_secs(seconds), kill: false }
}

const KILL: PodAction = PodAction::Stop { grace: Duration::ZERO, kill: true };

#[test]
fn a_pod_that_is_wanted() {
    let image = |case: &mut Case| {
        let mut object = case.known.pod.object().clone();
        object.metadata.labels = Some([("new".into(), String::new())].into());
        case.known.pod = Pod::new(object).unwrap();
    };
    let rows = [
        ("unknown", Case::new("Pending"), PodAction::Create),
        ("unknown, ran, may run again", Case::new("Running"), PodAction::Create),
        ("unknown, ran, may not", Case::never("Running"), PodAction::Lost),
        ("unknown, never ran", Case::never("Pending"), PodAction::Create),
        (
            "was created here, may not run again",
            Case::never("Pending").with(|c| c.known.progress.created = true),
            PodAction::Lost,
        ),
        ("its end was said", Case::new("Running").with(|c| c.last_word = true), PodAction::Nothing),
        (
            "an older one is there",
            Case::new("Pending").with(|c| c.has_predecessor = true),
            PodAction::Nothing,
        ),
        (
            "refused",
            Case::new("Pending").with(|c| c.known.progress.refused = true),
            PodAction::Nothing,
        ),
        ("T6: Failed", Case::new("Failed"), PodAction::Nothing),
        ("T7: Succeeded", Case::new("Succeeded"), PodAction::Nothing),
        ("Failed and yet there", Case::new("Failed").provided(false), PodAction::Nothing),
        ("as it should be", Case::new("Running").provided(false), PodAction::Nothing),
        ("ended", Case::new("Running").provided(true), PodAction::Nothing),
        ("changed", Case::new("Running").provided(false).with(image), PodAction::Update),
        (
            "the provider wants it to go",
            Case::new("Running").provided(false).with(|case| {
                let deleting = Case::deleting("Running").known.pod;
                case.provider.as_mut().unwrap().pod = deleting;
            }),
            PodAction::RequestDeletion { grace: 10 * S },
        ),
        (
            "changed after its end",
            Case::new("Running").provided(true).with(image),
            PodAction::Nothing,
        ),
    ];
    for (what, case, expected) in rows {
        assert_eq!(case.step(), expected, "{what}");
    }
}

#[test]
fn a_pod_that_is_being_deleted() {
    let rows = [
        ("runs", Case::deleting("Running").provided(false), stop(10)),
        ("runs, no status yet", Case::deleting("Pending").provided(false), stop(10)),
        ("runs though the API says Failed", Case::deleting("Failed").provided(false), stop(10)),
        ("has ended", Case::deleting("Running").provided(true), PodAction::Remove),
        ("unknown", Case::deleting("Pending"), PodAction::Lost),
        (
            "unknown, its end was said",
            Case::deleting("Pending").with(|c| c.last_word = true),
            PodAction::Remove,
        ),
        ("unknown, the API knows its end", Case::deleting("Succeeded"), PodAction::Remove),
        (
            "its create is open",
            Case::deleting("Pending").with(|c| c.known.progress.create_open = true),
            stop(10),
        ),
        (
            "removed, finalizers are left",
            Case::deleting("Running").provided(true).with(|c| c.known.progress.removed = true),
            PodAction::Nothing,
        ),
    ];
    for (what, case, expected) in rows {
        assert_eq!(case.step(), expected, "{what}");
    }
}

#[test]
fn a_pod_that_takes_its_time_to_end() {
    let case = || Case::deleting("Running").provided(false);
    let until = |case: &Case, seconds| PodAction::Until(case.now + Duration::from_secs(seconds));
    let asked = case().asked(3 * S, false);
    assert_eq!(asked.step(), until(&asked, 9), "its grace and the slack");
    assert_eq!(case().asked(12 * S, false).step(), KILL);
    let killed = case().asked(12 * S, true);
    assert_eq!(killed.step(), KILL, "asked again");
    let killed = case().asked(S, true);
    assert_eq!(killed.step(), until(&killed, 4));
    let shorter = case().asked(S, false).with(|c| c.known.deadline = Some(c.now + 4 * S));
    assert_eq!(shorter.step(), stop(4));
    // It says that it does not have what it lists.
    let denied = |ago| case().asked(ago, false).with(|c| c.known.progress.unknown_to_stop = true);
    let waits = denied(4 * S);
    assert_eq!(waits.step(), until(&waits, 6));
    assert_eq!(denied(10 * S).step(), PodAction::Lost);
}

#[test]
fn a_pod_that_the_api_does_not_have() {
    let orphan = |policy| {
        Case::gone().provided(false).with(|c| {
            c.known.was_seen = false;
            c.orphans = policy;
        })
    };
    let absent = ApiPresence::Absent { confirmed: 0, needed: 1 };
    let rows = [
        (
            "a list lacks it",
            Case::gone().provided(false).with(|c| c.known.presence = absent),
            PodAction::LookUp,
        ),
        ("deleted", Case::gone().provided(false), stop(30)),
        ("deleted, ended", Case::gone().provided(true), PodAction::Forget),
        ("deleted, unknown", Case::gone(), PodAction::Forget),
        (
            "deleted, its create is open",
            Case::gone().with(|c| c.known.progress.create_open = true),
            stop(30),
        ),
        ("never seen", orphan(OrphanPolicy::Stop), stop(30)),
        ("never seen, adopted", orphan(OrphanPolicy::Adopt), PodAction::LeaveAlone),
        ("never seen, reported", orphan(OrphanPolicy::Report), PodAction::LeaveAlone),
        (
            "its name is needed",
            orphan(OrphanPolicy::Adopt).with(|c| c.is_replaced = true),
            stop(30),
        ),
        (
            "seen, then deleted, though orphans are adopted",
            Case::gone().provided(false).with(|c| c.orphans = OrphanPolicy::Adopt),
            stop(30),
        ),
    ];
    for (what, case, expected) in rows {
        assert_eq!(case.step(), expected, "{what}");
    }
}

//! How the known pods change with each report.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use tokio::time::Instant;
use winddown_shared::{Pod, PodUid, PodUidMap, WallTime};

use super::{ApiPresence, KnownPods, ObjectChange};

fn pod(name: &str, uid: &str) -> Pod {
    pod_with(name, uid, |_| ())
}

fn pod_with(name: &str, uid: &str, edit: impl FnOnce(&mut api::Pod)) -> Pod {
    let metadata = ObjectMeta {
        name: Some(name.into()),
        namespace: Some("default".into()),
        uid: Some(uid.into()),
        ..ObjectMeta::default()
    };
    let mut pod = api::Pod { metadata, ..api::Pod::default() };
    edit(&mut pod);
    Pod::new(pod).unwrap()
}

fn wall(second: i64) -> WallTime {
    WallTime::from_second(second).unwrap()
}

fn apply(known: &KnownPods, pod: &Pod) -> ObjectChange {
    known.applied(pod, Instant::now())
}

fn nothing() -> KnownPods {
    KnownPods::of_earlier(Vec::new(), true)
}

fn uids(all: &[&str]) -> PodUidMap<()> {
    all.iter().map(|uid| (PodUid::new(*uid), ())).collect()
}

#[test]
fn only_what_matters_is_a_change() {
    let known = nothing();
    assert_eq!(apply(&known, &pod("a", "u1")), ObjectChange::New);
    assert_eq!(apply(&known, &pod("a", "u1")), ObjectChange::Nothing);
    let status = |pod: &mut api::Pod| {
        pod.status = Some(api::PodStatus { phase: Some("Running".into()), ..Default::default() });
    };
    assert_eq!(apply(&known, &pod_with("a", "u1", status)), ObjectChange::Nothing);
    let phase = |known: &KnownPods| {
        known.get(&PodUid::new("u1")).unwrap().pod.status.clone().unwrap().phase
    };
    assert_eq!(phase(&known).as_deref(), Some("Running"), "and yet it is remembered");
    let label = |pod: &mut api::Pod| {
        pod.metadata.labels = Some([("a".into(), "b".into())].into());
    };
    assert_eq!(apply(&known, &pod_with("a", "u1", label)), ObjectChange::Matters);
}

#[test]
fn a_change_lets_what_was_refused_be_tried_again() {
    let known = nothing();
    apply(&known, &pod("a", "u1"));
    let uid = PodUid::new("u1");
    known.mark(&uid, |known| known.refused = true);
    apply(&known, &pod("a", "u1"));
    assert!(known.get(&uid).unwrap().refused);
    apply(
        &known,
        &pod_with("a", "u1", |p| p.metadata.labels = Some([("a".into(), "b".into())].into())),
    );
    assert!(!known.get(&uid).unwrap().refused);
}

#[test]
fn a_grace_only_shrinks() {
    let known = nothing();
    let now = Instant::now();
    let left = |until: i64, granted: i64, elapsed: u64| {
        let deleting = pod_with("a", "u1", |p| {
            p.metadata.deletion_timestamp = Some(Time(wall(until)));
            p.metadata.deletion_grace_period_seconds = Some(granted);
        });
        let elapsed = Duration::from_secs(elapsed);
        known.applied(&deleting, now + elapsed);
        (known.get(&PodUid::new("u1")).unwrap().deadline.unwrap() - now).as_secs()
    };
    apply(&known, &pod("a", "u1"));
    assert!(known.get(&PodUid::new("u1")).unwrap().deadline.is_none());
    assert_eq!(left(1030, 30, 0), 30);
    assert_eq!(left(1030, 30, 10), 30, "the same end, later");
    assert_eq!(left(1015, 5, 10), 15, "shortened");
    assert_eq!(left(1100, 90, 10), 15, "never postponed");
}

#[test]
fn a_grace_that_an_earlier_agent_has_begun_goes_on_by_its_record_whatever_the_clocks_show() {
    let deleting = |granted| {
        pod_with("a", "u1", |p| {
            p.metadata.deletion_timestamp = Some(Time(wall(900)));
            p.metadata.deletion_grace_period_seconds = Some(granted);
        })
    };
    let begun = Instant::now();
    let known = KnownPods::of_earlier(vec![deleting(10)], true);
    let left = || known.get(&PodUid::new("u1")).unwrap().deadline.map(|at| (at - begun).as_secs());
    assert_eq!(left(), Some(10));
    apply(&known, &deleting(600));
    assert_eq!(left(), Some(10), "what was granted counts from the first agent's request");
    apply(&known, &deleting(5));
    assert_eq!(left(), Some(5));
}

#[test]
fn what_a_list_lacks_is_absent_until_it_was_looked_up() {
    let known = nothing();
    for uid in ["u1", "u2"] {
        apply(&known, &pod(uid, uid));
    }
    assert_eq!(known.listed(&uids(&["u1"]), 3), [PodUid::new("u2")]);
    let presence = |uid: &str| known.get(&PodUid::new(uid)).unwrap().presence;
    assert_eq!(presence("u1"), ApiPresence::Present);
    assert_eq!(presence("u2"), ApiPresence::Absent { confirmed: 0, needed: 1 });
    assert!(known.not_found(&PodUid::new("u2"), Instant::now()));
    assert_eq!(presence("u2"), ApiPresence::Gone);
    assert!(known.listed(&uids(&["u1"]), 3).is_empty(), "what is gone is not asked about again");
    // After an empty list more than one lookup is needed.
    assert_eq!(known.listed(&uids(&[]), 3).len(), 1);
    for certain in [false, false, true] {
        assert_eq!(known.not_found(&PodUid::new("u1"), Instant::now()), certain);
    }
}

#[test]
fn a_pod_that_is_seen_again_is_present_again() {
    let known = nothing();
    apply(&known, &pod("a", "u1"));
    known.listed(&uids(&[]), 1);
    assert_eq!(apply(&known, &pod("a", "u1")), ObjectChange::Matters);
    assert_eq!(known.get(&PodUid::new("u1")).unwrap().presence, ApiPresence::Present);
}

#[test]
fn pods_of_one_name_stand_in_the_order_they_came() {
    let (old, new) = (pod("a", "u1"), pod("a", "u2"));
    let known = KnownPods::of_earlier(vec![old.clone()], true);
    apply(&known, &new);
    assert_eq!(known.namesakes(&new), ["u1", "u2"].map(PodUid::new));
    assert_eq!(known.namesakes(&new), known.namesakes(&old));
    assert!(known.forget(&PodUid::new("u1")).is_none(), "it may be in the API");
    for uid in ["u1", "u2"] {
        known.gone(&PodUid::new(uid), None, Instant::now());
    }
    assert_eq!(known.forget(&PodUid::new("u1")).unwrap(), [PodUid::new("u2")]);
    assert_eq!(known.namesakes(&new), [PodUid::new("u2")]);
    assert!(known.forget(&PodUid::new("u2")).unwrap().is_empty());
    assert!(known.get(&PodUid::new("u2")).is_none());
}

#[test]
fn an_answer_that_is_older_than_what_the_watch_said_is_no_news() {
    let known = nothing();
    let (web, uid) = (pod("web", "u1"), PodUid::new("u1"));
    let found = |known: &KnownPods| known.found(&web, Instant::now());
    let presence = |known: &KnownPods| known.get(&uid).unwrap().presence;
    assert!(!found(&known), "nobody asked for it");
    assert!(known.get(&uid).is_none());
    apply(&known, &web);
    known.listed(&uids(&[]), 1);
    assert!(found(&known));
    assert_eq!(presence(&known), ApiPresence::Present);
    known.listed(&uids(&[]), 1);
    known.gone(&uid, None, Instant::now());
    assert!(!found(&known));
    assert_eq!(presence(&known), ApiPresence::Gone, "it would have run on for ever");
}

/// The end that the node was given: within how many seconds, and the final phase.
fn end_of(known: &KnownPods) -> (Option<i64>, Option<String>) {
    let given = known.get(&PodUid::new("u1")).unwrap().given.unwrap();
    let grace = given.pod.metadata.deletion_grace_period_seconds.filter(|_| given.is_ending());
    (grace, given.last.and_then(|last| last.phase.clone()))
}

fn failed() -> Arc<api::PodStatus> {
    let phase = Some("Failed".to_owned());
    Arc::new(api::PodStatus { phase, ..api::PodStatus::default() })
}

#[test]
fn a_pod_is_wanted_from_when_it_is_given_until_it_is_forgotten() {
    let known = nothing();
    let mut wanted = known.wanted();
    let mut names = || {
        let now = wanted.borrow_and_update().clone().unwrap();
        (now.pods.len(), now.waiting.len(), now.complete)
    };
    assert_eq!(names(), (0, 0, true));
    for (name, uid) in [("a", "u1"), ("b", "u2")] {
        apply(&known, &pod(name, uid));
    }
    assert_eq!(names(), (0, 0, true), "they are not literal yet");
    let uid = PodUid::new("u1");
    known.give(&uid, pod("a", "u1"));
    assert_eq!(names(), (1, 1, true));
    assert!(known.forget(&uid).is_none());
    known.gone(&uid, None, Instant::now());
    known.forget(&uid);
    assert_eq!(names(), (0, 1, true));
    let mut over = pod("b", "u2").object().clone();
    over.status.get_or_insert_default().phase = Some("Failed".into());
    let over = Pod::new(over).unwrap();
    assert_eq!(apply(&known, &over), ObjectChange::Matters, "the node does not have it");
    assert_eq!(names(), (0, 1, true), "what is left of it stays");
    assert!(known.give_terminated(over.uid(), over.clone()));
    assert_eq!(names(), (1, 0, true));
    assert_eq!(apply(&known, &over), ObjectChange::Nothing);

    let known = KnownPods::of_earlier(vec![pod("a", "u1")], false);
    apply(&known, &pod("b", "u2"));
    let missing = |known: &KnownPods| !known.wanted().borrow().clone().unwrap().complete;
    assert!(missing(&known), "a record could not be read");
    assert!(known.all_known() && !known.all_known());
    assert!(!missing(&known));
    assert_eq!(known.wanted().borrow().clone().unwrap().waiting, [PodUid::new("u2")]);
}

#[test]
fn an_end_only_comes_nearer_and_is_known_to_the_next_agent() {
    let known = nothing();
    let (uid, now) = (PodUid::new("u1"), Instant::now());
    let end = |known: &KnownPods, millis| {
        known.mark(&uid, |pod| pod.deadline = Some(now + Duration::from_millis(millis)));
        known.end(&uid, now, wall(0))
    };
    assert!(end(&known, 9_000).is_none(), "it is not known");
    apply(&known, &pod("a", "u1"));
    known.give(&uid, pod("a", "u1"));
    for (millis, seconds, is_news) in
        [(8_500, 9, true), (20_000, 9, false), (2_000, 2, true), (2_001, 2, false)]
    {
        let kept = end(&known, millis);
        assert_eq!(kept.is_some(), is_news, "{millis} ms");
        assert_eq!(end_of(&known).0, Some(seconds), "{millis} ms");
        if let Some(kept) = kept {
            assert_eq!(end_of(&KnownPods::of_earlier(vec![kept], true)).0, Some(seconds));
        }
    }
}

#[test]
fn what_has_ended_is_not_ended_again_by_this_agent_or_the_next() {
    let known = nothing();
    let uid = PodUid::new("u1");
    apply(&known, &pod("a", "u1"));
    known.give(&uid, pod("a", "u1"));
    let kept = known.ended(&uid, failed()).unwrap();
    assert!(known.end(&uid, Instant::now(), wall(0)).is_none());
    for agent in [&known, &KnownPods::of_earlier(vec![kept], true)] {
        assert_eq!(end_of(agent), (None, Some("Failed".to_owned())));
    }
}

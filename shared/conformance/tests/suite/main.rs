//! The suite on the fake runtime, which keeps every promise, and on ones that break a single promise each.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod faulty;

use std::cell::RefCell;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use winddown_runtime_conformance::{
    PodBehaviour, RuntimeUnderTest, cases, conformance_tests, for_each_case,
};
use winddown_shared::testing::FakeRuntime;
use winddown_shared::{Pod, PodUid};

use faulty::{Fault, Faulty};

/// Runtimes that share one state, as on a machine whose agent restarts.
struct Scripted {
    runtime: FakeRuntime,
    fault: Option<Fault>,
    /// What makes containers exit.
    exits: RefCell<JoinSet<()>>,
}

impl Scripted {
    fn new(fault: Option<Fault>) -> Self {
        Self { runtime: FakeRuntime::default(), fault, exits: RefCell::default() }
    }

    /// Ends the pod's container a while after it has started.
    fn ends(&self, uid: PodUid, code: i32, times: u32) {
        let runtime = self.runtime.clone();
        self.exits.borrow_mut().spawn(async move {
            for _ in 0..times {
                while !runtime.runs(&uid) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                runtime.exit(&uid, code);
            }
        });
    }
}

impl RuntimeUnderTest for Scripted {
    type Runtime = Faulty;

    async fn open(&self) -> Faulty {
        Faulty::new(self.runtime.clone(), self.fault)
    }

    fn pod(&self, name: &str, behaviour: PodBehaviour) -> Pod {
        let pod = behaviour.pod(name);
        match behaviour {
            PodBehaviour::UntilStopped => {}
            PodBehaviour::IgnoresSigterm => {
                self.runtime.stop_takes(pod.uid(), Duration::from_secs(24 * 60 * 60));
            }
            PodBehaviour::Exits(code) => self.ends(pod.uid().clone(), code, 1),
            PodBehaviour::Crashes(code) => self.ends(pod.uid().clone(), code, 3),
        }
        pod
    }

    async fn cut_off(&self) -> bool {
        self.runtime.fail(true);
        true
    }
}

/// The promises that a runtime with this fault breaks. Notes when each case began.
async fn broken(
    fault: Option<Fault>,
    begins: &RefCell<Vec<Instant>>,
) -> Vec<(&'static str, String)> {
    let broken = cases::try_all(async || {
        begins.borrow_mut().push(Instant::now());
        Scripted::new(fault)
    });
    let broken = broken.await;
    broken.into_iter().map(|broken| (broken.case, broken.to_string())).collect()
}

fn names() -> Vec<&'static str> {
    cases::ALL.iter().map(|(case, ..)| *case).collect()
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_keeps_its_promises_passes_every_case() {
    assert_eq!(broken(None, &RefCell::default()).await, []);
}

#[test]
fn a_ready_made_pod_says_how_it_behaves() {
    for behaviour in [
        PodBehaviour::UntilStopped,
        PodBehaviour::IgnoresSigterm,
        PodBehaviour::Exits(0),
        PodBehaviour::Crashes(-1),
    ] {
        assert_eq!(PodBehaviour::of(&behaviour.pod("web")), Some(behaviour));
    }
    assert_eq!(PodBehaviour::of(&winddown_shared::testing::pod("web")), None);
}

#[tokio::test(start_paused = true)]
async fn each_broken_promise_fails_its_own_case_and_no_other() {
    for &(fault, case) in faulty::ALL {
        let begins = RefCell::default();
        let broken = broken(Some(fault), &begins).await;
        let cases: Vec<&str> = broken.iter().map(|(case, _)| *case).collect();
        assert_eq!(cases, [case], "{fault:?}: {broken:?}");
        let (nth, begins) = (names().iter().position(|name| *name == case), begins.into_inner());
        let ended = begins.get(nth.unwrap() + 1).copied().unwrap_or_else(Instant::now);
        let took = ended - begins[nth.unwrap()];
        assert!(took < Duration::from_secs(30), "{fault:?}: known only after {took:?}");
    }
    let mut tried: Vec<&str> = faulty::ALL.iter().map(|(_, case)| *case).collect();
    tried.dedup();
    assert_eq!(tried, names(), "each case, in their order, is shown to fail");
}

/// A case is about a sentence that the author of a runtime has read.
#[test]
fn each_case_quotes_the_contract() {
    // Without what makes links of the names of methods.
    let source = include_str!("../../../src/runtime.rs").replace("///", " ");
    let mut parts = source.split("(Self::");
    let first = parts.next().unwrap().to_owned();
    let contract = parts.fold(first, |all, part| all + part.split_once(')').unwrap().1);
    let words =
        |text: &str| text.replace(['[', ']'], "").split_whitespace().collect::<Vec<_>>().join(" ");
    let contract = words(&contract);
    for (case, method, promise) in cases::ALL {
        assert!(contract.contains(&words(promise)), "{case}: no documentation says: {promise}");
        assert!(contract.contains(&format!("fn {method}(")), "{case}: {method}");
    }
}

#[test]
fn every_case_is_handed_to_a_macro_that_asks_for_them() {
    macro_rules! texts {
        ($with:literal => $($case:ident)*) => { vec![$(concat!($with, stringify!($case))),*] };
    }
    assert_eq!(for_each_case! { [texts] "" }, names());
}

#[tokio::test(start_paused = true)]
async fn a_broken_promise_names_the_case_what_was_found_and_the_sentence() {
    let subject = Scripted::new(Some(Fault::StillShownAsRunning));
    let broken = cases::nothing_runs_when_a_stop_has_resolved(&subject).await.unwrap_err();
    assert_eq!(
        broken.to_string(),
        "nothing_runs_when_a_stop_has_resolved: stop_pod has resolved, and pod_status says that \
         [\"main\"] still runs\n`Runtime::stop_pod` promises: Resolves when nothing of the pod runs, \
         and `pod_status` and `list_pods` say so."
    );
}

/// As in the README: one `#[test]` for each case.
mod one_by_one {
    use super::*;

    conformance_tests!(
        {
            tokio::time::pause();
            Scripted::new(None)
        },
        cut_off
    );
}

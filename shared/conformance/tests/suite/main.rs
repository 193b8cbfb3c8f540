//! The suite on the fake runtime, which keeps every promise, and on ones that break a single promise each.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod faulty;

use std::time::Duration;

use winddown_runtime_conformance::{
    PodBehaviour, RuntimeUnderTest, cases, conformance_tests, for_each_case,
};
use winddown_shared::testing::{FakeRuntime, pod_with};
use winddown_shared::{Pod, PodUid};

use faulty::{Fault, Faulty};

/// Runtimes that share one state, as on a machine whose agent restarts.
struct Scripted {
    runtime: FakeRuntime,
    fault: Option<Fault>,
}

impl Scripted {
    fn new(fault: Option<Fault>) -> Self {
        Self { runtime: FakeRuntime::default(), fault }
    }

    /// Ends the pod's container a while after it has started.
    fn ends(&self, uid: PodUid, code: i32) {
        let runtime = self.runtime.clone();
        tokio::spawn(async move {
            while !runtime.runs(&uid) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            runtime.exit(&uid, code);
        });
    }
}

impl RuntimeUnderTest for Scripted {
    type Runtime = Faulty;

    async fn open(&self) -> Faulty {
        Faulty::new(self.runtime.clone(), self.fault)
    }

    fn pod(&self, name: &str, behaviour: PodBehaviour) -> Pod {
        let uid = PodUid::new(format!("uid-{name}"));
        let policy = match behaviour {
            PodBehaviour::UntilStopped => "Always",
            PodBehaviour::IgnoresSigterm => {
                self.runtime.stop_takes(&uid, Duration::from_secs(24 * 60 * 60));
                "Always"
            }
            PodBehaviour::Exits(code) => {
                self.ends(uid.clone(), code);
                "Never"
            }
        };
        pod_with(uid.as_str(), name, |pod| {
            pod.spec.get_or_insert_default().restart_policy = Some(policy.to_owned());
        })
    }

    async fn cut_off(&self) -> bool {
        self.runtime.fail(true);
        true
    }
}

async fn broken(fault: Option<Fault>) -> Vec<(&'static str, String)> {
    let broken = cases::try_all(async || Scripted::new(fault)).await;
    broken.into_iter().map(|broken| (broken.case, broken.to_string())).collect()
}

fn names() -> Vec<&'static str> {
    cases::ALL.iter().map(|(case, ..)| *case).collect()
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_keeps_its_promises_passes_every_case() {
    assert_eq!(broken(None).await, []);
}

#[tokio::test(start_paused = true)]
async fn each_broken_promise_fails_its_own_case_and_no_other() {
    for &(fault, case) in faulty::ALL {
        let broken = broken(Some(fault)).await;
        let cases: Vec<&str> = broken.iter().map(|(case, _)| *case).collect();
        assert_eq!(cases, [case], "{fault:?}: {broken:?}");
    }
    let tried: Vec<&str> = faulty::ALL.iter().map(|(_, case)| *case).collect();
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

    conformance_tests!({
        tokio::time::pause();
        Scripted::new(None)
    });
}

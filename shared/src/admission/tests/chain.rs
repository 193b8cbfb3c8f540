//! The chain, the hook for preemption, and failures of admission itself.

use super::*;

/// Gives the same answer to every attempt.
struct Always(PreemptionOutcome);

impl AdmissionFailureHandler for Always {
    fn handle_admission_failure(
        &self,
        _: &Pod,
        _: FitFailures,
        _: &NodeView,
        _: &[Pod],
    ) -> PreemptionOutcome {
        self.0.clone()
    }
}

/// Refuses everything, or nothing.
struct Gate(Option<&'static str>);

impl AdmitHandler for Gate {
    fn admit(&self, _: &Pod, _: &OtherPods) -> Result<(), Rejection> {
        match self.0 {
            None => Ok(()),
            Some(reason) => {
                Err(Rejection { reason: reason.into(), message: "no".into(), retryable: true })
            }
        }
    }
}

fn no_others() -> OtherPods {
    OtherPods::new(Vec::new)
}

fn too_large(uid: &str) -> Pod {
    pod(uid, &asks(&json!({"cpu": "1"})))
}

fn critical(spec: &Value) -> Pod {
    let mut spec = spec.clone();
    spec["priority"] = json!(2_000_000_000);
    pod("u", &spec)
}

fn plan() -> VictimPlan {
    VictimPlan { victims: vec![], message: "two pods are terminating".into(), signal: None }
}

fn decide(room: PreemptionOutcome) -> Verdict {
    let fit = NodeFit::new(Arc::new(machine1())).with_preemption(Arc::new(Always(room)));
    Admission::default().then(fit).decide(&too_large("u"), &no_others())
}

fn refused(verdict: Verdict) -> (String, String) {
    let Verdict::Refused(rejection) = verdict else { panic!("{verdict:?}") };
    (rejection.reason.to_string(), rejection.message.to_string())
}

#[test]
fn the_first_refusal_wins_and_later_handlers_are_not_asked() {
    let recording = Recording::default();
    let fit = || NodeFit::new(Arc::new(machine1())).with_preemption(Arc::new(recording.clone()));
    let shut = Admission::default().then(Gate(Some("NodeShutdown"))).then(fit());
    assert_eq!(refused(shut.decide(&too_large("u"), &no_others())).0, "NodeShutdown");
    assert!(recording.0.lock().unwrap().is_empty(), "no room is made for a refused pod");
    let open = Admission::default().then(Gate(None)).then(fit()).then(Gate(Some("Later")));
    let rejection = open.admit(&too_large("u"), &no_others()).unwrap_err();
    assert_eq!(&*rejection.reason, "OutOfcpu");
    assert_eq!(
        rejection.status_message(),
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: 0, \
         capacity: 10"
    );
}

#[test]
fn what_becomes_of_the_pod_is_what_the_hook_says() {
    assert!(matches!(decide(PreemptionOutcome::Fits), Verdict::Admitted));
    let coming = PreemptionOutcome::Preempt(plan());
    let Verdict::Waiting(waits) = decide(coming.clone()) else { panic!("it does not wait") };
    assert_eq!(waits.message, plan().message);
    let failed = decide(PreemptionOutcome::Failed("preemption: error finding a set".into()));
    let expected = "Unexpected error while attempting to recover from admission failure: \
                    preemption: error finding a set";
    assert_eq!(refused(failed), ("UnexpectedAdmissionError".into(), expected.into()));
    let unknown = "GeneralPredicates failed due to unknown reason, which is unexpected.";
    let none = decide(PreemptionOutcome::Rejected(FitFailures::default()));
    assert_eq!(refused(none), ("UnknownReason".into(), unknown.into()));

    let fit = NodeFit::new(Arc::new(machine1())).with_preemption(Arc::new(Always(coming)));
    let rejection = fit.admit(&too_large("u"), &no_others()).unwrap_err();
    assert_eq!(&*rejection.reason, "OutOfcpu", "now it may not start, whatever could be done");
}

#[test]
fn a_pod_that_a_later_check_refuses_gets_no_room() {
    let fit = || {
        NodeFit::new(Arc::new(machine1()))
            .with_preemption(Arc::new(Always(PreemptionOutcome::Preempt(plan()))))
    };
    let refusing = Admission::default().then(fit()).then(Gate(Some("AppArmor")));
    assert_eq!(refused(refusing.decide(&too_large("u"), &no_others())).0, "AppArmor");
    let two = Admission::default().then(fit()).then(Gate(None)).then(fit());
    assert!(matches!(two.decide(&too_large("u"), &no_others()), Verdict::Waiting(_)));
}

#[test]
fn a_node_that_was_never_read_lets_nothing_in() {
    let (sender, receiver) = tokio::sync::watch::channel(None);
    let admission = Admission::default().then(NodeFit::new(receiver));
    let small = pod("u", &asks(&json!({"cpu": "1m"})));
    let expected = ("InvalidNodeInfo".into(), "Kubelet cannot get node info.".into());
    assert_eq!(refused(admission.decide(&small, &no_others())), expected);
    sender.send_replace(Some(Arc::new(machine1())));
    assert!(matches!(admission.decide(&small, &no_others()), Verdict::Admitted));
}

#[test]
fn no_room_is_made_for_a_pod_of_another_system() {
    let recording = Recording::default();
    let fit = NodeFit::new(Arc::new(machine1())).with_preemption(Arc::new(recording.clone()));
    let mut spec = asks(&json!({"cpu": "1"}));
    spec["os"] = json!({"name": "windows"});
    assert_eq!(refused(fit.decide(&critical(&spec), &no_others())).0, "PodOSNotSupported");
    assert!(recording.0.lock().unwrap().is_empty());
}

#[test]
fn room_is_made_only_for_a_critical_pod_that_lacks_nothing_but_resources() {
    let cpu = || insufficient("cpu", 8, 5, 10);
    let pods = || insufficient("pods", 1, 32, 32);
    let all = |failures: &[AdmissionFailure]| failures.iter().cloned().collect::<FitFailures>();
    let ordinary = too_large("u");
    let critical = critical(&asks(&json!({})));

    let lacking = all(&[pods(), cpu()]);
    assert_eq!(lacking.clone().into_requirements(&ordinary), Err(lacking.clone()), "all stay");
    let needed = vec![(ResourceName::Pods, 1), (ResourceName::Cpu, 3)];
    assert_eq!(lacking.into_requirements(&critical), Ok(needed));

    let mixed = all(&[cpu(), AdmissionFailure::NODE_NAME, AdmissionFailure::NODE_PORTS]);
    let others = all(&[AdmissionFailure::NODE_NAME, AdmissionFailure::NODE_PORTS]);
    assert_eq!(mixed.clone().into_requirements(&critical), Err(others), "resources are dropped");
    assert_eq!(mixed.clone().into_requirements(&ordinary), Err(mixed));
}

use winddown_shared::AdmissionFailure;

use super::*;

const CRITICAL: i32 = 2_000_000_000;
const MEBI: i64 = 1 << 20;

/// A pod with these requests, in millicores and MiB, named as in the kubelet's own tests.
fn asks(name: &str, priority: Option<i32>, amount: i64, is_guaranteed: bool) -> Pod {
    let requests = match amount {
        0 => serde_json::json!({}),
        amount => serde_json::json!({"cpu": format!("{amount}m"), "memory": format!("{amount}Mi")}),
    };
    let limits = if is_guaranteed { requests.clone() } else { serde_json::json!({}) };
    let object = serde_json::json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": {"kubernetes.io/config.source": "api"},
        },
        "spec": {
            "priority": priority,
            "containers": [
                {"name": "main", "resources": {"requests": requests, "limits": limits}},
            ],
        },
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn best_effort() -> Pod {
    asks("best-effort", None, 0, false)
}

fn burstable(amount: i64) -> Pod {
    asks(&format!("burstable-{amount}"), None, amount, false)
}

fn guaranteed(amount: i64) -> Pod {
    asks(&format!("guaranteed-{amount}"), None, amount, true)
}

fn cluster_critical() -> Pod {
    asks("cluster-critical", Some(CRITICAL), 100, true)
}

fn lacks(resource: &str, amount: i64) -> AdmissionFailure {
    let resource = ResourceName::from(resource);
    AdmissionFailure::InsufficientResource { resource, requested: amount, used: 0, capacity: 0 }
}

fn room(pod: &Pod, failures: &[AdmissionFailure], others: &[Pod]) -> PreemptionOutcome {
    let failures = failures.iter().cloned().collect();
    PreemptionHandler::default().handle_admission_failure(
        pod,
        failures,
        &NodeView::default(),
        others,
    )
}

fn victims(room: &PreemptionOutcome) -> Vec<&str> {
    match room {
        PreemptionOutcome::Preempt(plan) => {
            plan.victims.iter().map(|victim| &**victim.pod.name()).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn chosen(needs: &[(&str, i64)], others: &[Pod]) -> Vec<String> {
    let failures: Vec<_> = needs.iter().map(|(name, amount)| lacks(name, *amount)).collect();
    let room = room(&cluster_critical(), &failures, others);
    victims(&room).into_iter().map(str::to_owned).collect()
}

fn both(cpu: i64, pods: i64) -> [(&'static str, i64); 3] {
    [("cpu", cpu), ("memory", cpu * MEBI), ("pods", pods)]
}

// === the kubelet's TestHandleAdmissionFailure ===

#[test]
fn critical_pods_cannot_be_preempted() {
    let running = asks("running", Some(CRITICAL), 100, true);
    let PreemptionOutcome::Failed(error) =
        room(&cluster_critical(), &[lacks("pods", 1)], &[running])
    else {
        panic!("room without victims");
    };
    assert_eq!(
        error,
        "preemption: error finding a set of pods to preempt: no set of running pods found to \
         reclaim resources: [(res: pods, q: 1), ]"
    );
}

#[test]
fn a_non_critical_pod_ends_no_pod() {
    let failure = lacks("memory", 550 * MEBI);
    let room = room(&guaranteed(100), std::slice::from_ref(&failure), &[burstable(100)]);
    let PreemptionOutcome::Rejected(failures) = room else { panic!("{room:?}") };
    assert_eq!(failures.iter().collect::<Vec<_>>(), [&failure]);
}

#[test]
fn best_effort_pods_are_not_preempted_when_attempting_to_free_resources() {
    let room = room(&cluster_critical(), &[lacks("memory", 100 * MEBI)], &[best_effort()]);
    assert!(matches!(room, PreemptionOutcome::Failed(_)), "{room:?}");
}

#[test]
fn multiple_pods_are_evicted() {
    let others = [
        asks("critical", Some(CRITICAL), 100, true),
        best_effort(),
        burstable(100),
        burstable(300),
        guaranteed(100),
        guaranteed(300),
    ];
    assert_eq!(chosen(&[("memory", 550 * MEBI)], &others), ["burstable-300", "guaranteed-300"]);
}

#[test]
fn a_failure_that_no_room_mends_is_all_that_a_critical_pod_is_refused_for() {
    let failures = [lacks("memory", MEBI), AdmissionFailure::NODE_PORTS];
    let room = room(&cluster_critical(), &failures, &[burstable(100)]);
    let PreemptionOutcome::Rejected(failures) = room else { panic!("{room:?}") };
    assert_eq!(failures.iter().collect::<Vec<_>>(), [&AdmissionFailure::NODE_PORTS]);
}

#[test]
fn a_non_critical_pod_is_refused_for_everything() {
    let failures = [lacks("memory", MEBI), AdmissionFailure::NODE_PORTS];
    let room = room(&guaranteed(100), &failures, &[burstable(100)]);
    let PreemptionOutcome::Rejected(refused) = room else { panic!("{room:?}") };
    assert_eq!(refused, failures.into_iter().collect::<FitFailures>());
}

// === the kubelet's TestGetPodsToPreempt ===

#[test]
fn no_requirements_end_no_pod() {
    assert!(matches!(room(&cluster_critical(), &[], &[burstable(100)]), PreemptionOutcome::Fits));
}

#[test]
fn no_pods_are_not_enough() {
    assert!(matches!(
        room(&cluster_critical(), &[lacks("pods", 1)], &[]),
        PreemptionOutcome::Failed(_)
    ));
}

#[test]
fn equal_pods_and_resources_requirements() {
    assert_eq!(chosen(&both(100, 1), &[burstable(100)]), ["burstable-100"]);
}

#[test]
fn higher_requirements_than_pod_requests() {
    let failures = both(200, 2).map(|(name, amount)| lacks(name, amount));
    let room = room(&cluster_critical(), &failures, &[burstable(100)]);
    assert!(matches!(room, PreemptionOutcome::Failed(_)), "{room:?}");
}

#[test]
fn choose_between_best_effort_and_burstable() {
    assert_eq!(chosen(&[("pods", 1)], &[burstable(100), best_effort()]), ["best-effort"]);
}

#[test]
fn choose_between_burstable_and_guaranteed() {
    assert_eq!(chosen(&[("pods", 1)], &[guaranteed(100), burstable(100)]), ["burstable-100"]);
}

#[test]
fn choose_lower_request_burstable_if_it_meets_requirements() {
    let others = [best_effort(), burstable(300), burstable(100)];
    assert_eq!(chosen(&both(100, 0)[..2], &others), ["burstable-100"]);
}

#[test]
fn choose_higher_request_burstable_if_lower_does_not_meet_requirements() {
    let others = [best_effort(), burstable(100), burstable(300)];
    assert_eq!(chosen(&both(150, 0)[..2], &others), ["burstable-300"]);
}

#[test]
fn multiple_pods_required() {
    let others = [best_effort(), burstable(100), burstable(300), guaranteed(100), guaranteed(300)];
    assert_eq!(chosen(&both(350, 0)[..2], &others), ["burstable-300", "burstable-100"]);
}

#[test]
fn evict_guaranteed_when_we_have_to_and_dont_evict_the_extra_burstable() {
    let others = [best_effort(), burstable(100), burstable(300), guaranteed(100), guaranteed(300)];
    assert_eq!(chosen(&[("memory", 550 * MEBI)], &others), ["burstable-300", "guaranteed-300"]);
}

#[test]
fn evict_cluster_critical_pod_for_node_critical_pod() {
    let node_critical = asks("node-critical", Some(CRITICAL + 1000), 100, true);
    let room = room(&node_critical, &[lacks("cpu", 100)], &[cluster_critical()]);
    assert_eq!(victims(&room), ["cluster-critical"]);
}

#[test]
fn can_not_evict_node_critical_pod_for_cluster_critical_pod() {
    let node_critical = asks("node-critical", Some(CRITICAL + 1000), 100, true);
    let room = room(&cluster_critical(), &[lacks("cpu", 100)], &[node_critical]);
    assert!(matches!(room, PreemptionOutcome::Failed(_)), "{room:?}");
}

// === what becomes of the victims ===

#[test]
fn a_victim_ends_with_its_own_grace_and_the_kubelets_status() {
    let room = room(&cluster_critical(), &[lacks("cpu", 100)], &[burstable(100)]);
    let PreemptionOutcome::Preempt(plan) = room else { panic!("{room:?}") };
    let request = &plan.victims[0].request;
    assert_eq!(
        (request.reason, request.grace, request.evict),
        (KillReason::Preemption, None, true)
    );
    let status = request.status.as_ref().unwrap();
    assert_eq!(&*status.reason, "Preempting");
    assert_eq!(&*status.message, "Preempted in order to admit critical pod");
    assert_eq!(
        status.disruption_message.as_deref(),
        Some("Pod was preempted by Kubelet to accommodate a critical pod.")
    );
    assert_eq!(plan.signal, Some(ResourceName::Cpu));
}

#[test]
fn the_waiting_pod_says_who_ends_what_is_lacking_and_who_was_passed_over() {
    let others = [
        asks("dns", Some(CRITICAL), 100, true),
        burstable(100),
        burstable(300),
        guaranteed(100),
        guaranteed(200),
        guaranteed(250),
        guaranteed(300),
    ];
    let room = room(&cluster_critical(), &[lacks("cpu", 1), lacks("memory", 3 * MEBI)], &others);
    let PreemptionOutcome::Preempt(plan) = room else { panic!("{room:?}") };
    assert_eq!(
        &*plan.message,
        "waiting for default/burstable-100 to free cpu 1m, memory 3Mi; passed over: \
         default/burstable-300, default/guaranteed-100, default/guaranteed-200 and 2 more; not \
         preemptable: 1"
    );
}

#[test]
fn the_waiting_pod_does_not_speak_of_pods_that_there_are_none_of() {
    let room = room(&cluster_critical(), &[lacks("cpu", 1)], &[burstable(100)]);
    let PreemptionOutcome::Preempt(plan) = room else { panic!("{room:?}") };
    assert_eq!(&*plan.message, "waiting for default/burstable-100 to free cpu 1m");
}

#[test]
fn pods_that_free_nothing_when_ranked_make_room_when_the_fit_counts_them() {
    let object = serde_json::json!({
        "metadata": {"name": "overhead", "namespace": "default", "uid": "overhead"},
        "spec": {"containers": [{"name": "main"}], "overhead": {"cpu": "250m"}},
    });
    let overhead = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
    assert_eq!(overhead.accounted_requests().cpu_milli(), 0);
    let room = room(&cluster_critical(), &[lacks("cpu", 100)], std::slice::from_ref(&overhead));
    assert_eq!(victims(&room), ["overhead"]);
    // The explanation is of the same choice.
    let pods = [overhead];
    let lacking = [(winddown_shared::ResourceName::Cpu, 100)];
    let explained =
        crate::explain_admission(&cluster_critical(), &pods, &lacking, Strategy::Distance);
    let [considered] = &explained.considered[..] else { panic!("{explained:?}") };
    assert_eq!(considered.verdict, crate::VictimVerdict::Taken(1));
    assert_eq!(considered.frees[0].1, 250);
}

#[test]
fn an_amount_is_read_in_the_unit_of_its_resource() {
    let read = |name, amount| amount_text(&ResourceName::from(name), amount);
    assert_eq!(read("cpu", 1500), "1500m");
    assert_eq!(read("memory", 2 << 30), "2Gi");
    assert_eq!(read("hugepages-2Mi", 64 << 20), "64Mi");
    assert_eq!(read("example.com/gpu", 2048), "2048");
}

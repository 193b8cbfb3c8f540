use k8s_openapi::api::core::v1::Toleration;
use winddown_shared::PressureCondition;
use winddown_shared::testing::static_pod;

use super::*;
use crate::policy::StaticPods;
use crate::tests::{changed, pod};

fn best_effort() -> Pod {
    pod("best-effort", 0, &[])
}

fn burstable() -> Pod {
    pod("burstable", 0, &[("memory", "1Mi")])
}

fn tolerating(key: &str, operator: &str, effect: &str) -> Pod {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    changed("tolerates", 0, &[], |object| {
        object.spec.as_mut().unwrap().tolerations = Some(vec![Toleration {
            key: text(key),
            operator: text(operator),
            effect: text(effect),
            ..Toleration::default()
        }]);
    })
}

fn static_with_priority(priority: i32) -> Pod {
    let mut object = static_pod("s", "s").object().clone();
    object.spec.get_or_insert_default().priority = Some(priority);
    Pod::new(object).unwrap()
}

fn under(conditions: &[PressureCondition]) -> Conditions {
    conditions.iter().copied().collect()
}

#[test]
fn admit_under_node_conditions() {
    let cases: [(&[PressureCondition], bool, bool); 4] = [
        (&[], true, true),
        (&[PressureCondition::Memory], false, true),
        (&[PressureCondition::Memory, PressureCondition::Disk], false, false),
        (&[PressureCondition::Pid], false, false),
    ];
    let (policy, mut spared) = (Policy::default(), Policy::default());
    spared.static_pods = StaticPods::Spared;
    for (conditions, best, burst) in cases {
        let conditions = under(conditions);
        assert_eq!(admits(&policy, conditions, &best_effort()), best, "{conditions}");
        assert_eq!(admits(&policy, conditions, &burstable()), burst, "{conditions}");
        assert!(admits(&policy, conditions, &static_pod("s", "s")), "{conditions}");
        assert!(admits(&spared, conditions, &static_with_priority(0)), "{conditions}");
        assert_eq!(admits(&policy, conditions, &static_with_priority(0)), best, "{conditions}");
        assert!(admits(&policy, conditions, &pod("critical", 2_000_000_000, &[])), "{conditions}");
    }
}

#[test]
fn a_pod_that_asks_for_no_memory_may_tolerate_the_want_of_it() {
    let (policy, memory) = (Policy::default(), under(&[PressureCondition::Memory]));
    let key = "node.kubernetes.io/memory-pressure";
    assert!(admits(&policy, memory, &tolerating(key, "Exists", "NoSchedule")));
    assert!(admits(&policy, memory, &tolerating(key, "Equal", "NoSchedule")));
    assert!(admits(&policy, memory, &tolerating("", "Exists", "")));
    assert!(!admits(&policy, memory, &tolerating("", "", "")));
    assert!(!admits(&policy, memory, &tolerating(key, "Exists", "NoExecute")));
    assert!(!admits(&policy, memory, &tolerating("node.kubernetes.io/not-ready", "Exists", "")));
    assert!(!admits(
        &policy,
        under(&[PressureCondition::Disk]),
        &tolerating(key, "Exists", "NoSchedule")
    ));
}

#[test]
fn the_refusal_passes_with_the_condition_and_says_what_the_kubelet_says() {
    let (sender, conditions) = watch::channel(under(&[PressureCondition::Memory]));
    let gate = PressureGate::new(conditions, watch::Sender::new(Arc::default()).subscribe());
    let refused = gate.admit(&best_effort(), &OtherPods::new(Vec::new)).unwrap_err();
    assert_eq!(&*refused.reason, "Evicted");
    assert_eq!(&*refused.message, "The node had condition: [MemoryPressure]. ");
    assert!(refused.retryable);
    sender.send_replace(Conditions::NONE);
    assert_eq!(gate.admit(&best_effort(), &OtherPods::new(Vec::new)), Ok(()));
}

use k8s_openapi::api::core::v1::NodeSystemInfo;

use super::*;

fn fixed() -> NodeFacts {
    NodeFacts {
        info: NodeSystemInfo {
            container_runtime_version: "cri://unknown".into(),
            ..NodeSystemInfo::default()
        },
        labels: [("at".to_owned(), "start".to_owned())].into(),
        ..NodeFacts::default()
    }
}

fn now(change: impl FnOnce(&mut Changing)) -> NodeFacts {
    let mut changing = Changing::default();
    change(&mut changing);
    facts(&fixed(), &changing)
}

/// Status, reason and message of a condition.
fn condition(facts: &NodeFacts, kind: &str) -> [String; 3] {
    let one = facts.conditions.iter().find(|one| one.type_ == kind).unwrap().clone();
    [one.status, one.reason.unwrap(), one.message.unwrap()]
}

#[test]
fn what_is_not_known_stays_as_it_was_at_the_start() {
    let facts = now(|_| {});
    assert_eq!(facts.labels["at"], "start");
    assert_eq!(facts.info.container_runtime_version, "cri://unknown");
    assert!(facts.capacity.is_empty() && facts.allocatable.is_empty());
}

/// What an earlier agent wrote stays true for ever otherwise.
#[test]
fn pods_that_hold_shutdowns_are_a_condition_that_is_false_when_none_does() {
    let held = now(|changing| changing.held = Some("pod batch/backup".to_owned()));
    assert_eq!(condition(&held, SHUTDOWN_HELD), ["True", "PodsHold", "pod batch/backup"]);
    assert_eq!(condition(&now(|_| {}), SHUTDOWN_HELD)[..2], ["False", "NoPodHolds"]);
}

#[test]
fn what_is_known_is_said_in_the_apis_own_units() {
    let amounts = |cpu, memory| -> Allocatable {
        [
            (ResourceName::Cpu, cpu),
            (ResourceName::Memory, memory),
            (ResourceName::EphemeralStorage, 100 << 30),
            (ResourceName::from("hugepages-2Mi"), 4 << 20),
            (ResourceName::from("pods"), 110),
        ]
        .into_iter()
        .collect()
    };
    let facts = now(|changing| {
        changing.amounts = Some((amounts(2000, 4 << 30), amounts(1850, (4 << 30) - 1024)));
        changing.labels = Some([("zone".to_owned(), "a".to_owned())].into());
        let image = ContainerImage { names: None, size_bytes: Some(7) };
        changing.runtime =
            Some(NodeRuntime { name: "containerd://1.6.20".to_owned(), images: vec![image] });
    });
    let shown = |map: &BTreeMap<String, ApiQuantity>| {
        map.iter()
            .map(|(name, amount)| format!("{name}={}", amount.0))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        shown(&facts.capacity),
        "cpu=2 ephemeral-storage=100Gi hugepages-2Mi=4Mi memory=4Gi pods=110"
    );
    assert_eq!(
        shown(&facts.allocatable),
        "cpu=1850m ephemeral-storage=100Gi hugepages-2Mi=4Mi memory=4194303Ki pods=110"
    );
    assert_eq!(facts.labels.into_iter().collect::<Vec<_>>(), [("zone".into(), "a".into())]);
    assert_eq!(facts.info.container_runtime_version, "containerd://1.6.20");
    assert_eq!(facts.images[0].size_bytes, Some(7));
    let for_pods = for_pods(&amounts(1850, 7));
    assert_eq!((for_pods.cpu_milli, for_pods.memory_bytes), (1850, 7));
    assert_eq!(for_pods.ephemeral_storage_bytes, 100 << 30);
}

#[test]
fn a_shutdown_is_clean_only_while_the_node_is_down_and_nothing_is_left() {
    for (clean, status, reason) in [
        (Clean::Up(String::new()), "False", "NodeIsUp"),
        (Clean::Up("it was cut off".into()), "False", "NodeIsUp"),
        (Clean::Down { clean: true }, "True", "PodsEnded"),
        (Clean::Down { clean: false }, "False", "PodsLeft"),
    ] {
        let facts = now(|changing| changing.clean = clean.clone());
        let [is, why, text] = condition(&facts, CLEAN_SHUTDOWN);
        assert_eq!((&*is, &*why), (status, reason), "{clean:?}");
        assert!(!text.is_empty());
        if let Clean::Up(last) = &clean
            && !last.is_empty()
        {
            assert_eq!(&text, last);
        }
    }
}

#[test]
fn a_node_without_the_lock_says_why() {
    let unknown = condition(&now(|_| {}), UNPROTECTED);
    assert_eq!(unknown[..2], ["Unknown", "NotKnown"], "nothing is said that nobody knows");
    for (state, status, reason) in [
        (ProtectionState::Protected, "False", "Protected"),
        (ProtectionState::Limited, "False", "Protected"),
        (ProtectionState::Unprotected, "True", "NotProtected"),
        (ProtectionState::Unknown, "Unknown", "NotKnown"),
    ] {
        let verdict = Protection { state, text: "logind says so".into(), ..Protection::default() };
        let facts = now(|changing| changing.protection = Some(verdict));
        assert_eq!(condition(&facts, UNPROTECTED), [status, reason, "logind says so"]);
    }
}

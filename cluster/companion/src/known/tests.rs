use std::thread;

use super::*;

#[test]
fn the_set_that_is_published_last_is_the_newest() {
    for round in 0..300 {
        let known = PodIndex::new(None, "n1".to_owned());
        let desired = known.desired();
        let uids = ["a", "b", "c", "d"];
        thread::scope(|scope| {
            // A read lock blocks all senders, so that they send at once afterwards.
            let reading = desired.borrow();
            for uid in uids {
                let known = &known;
                scope.spawn(move || {
                    let mut pod = api::Pod::default();
                    let name = Some(uid.to_owned());
                    (pod.metadata.uid, pod.metadata.name) = (name.clone(), name.clone());
                    pod.metadata.namespace = name;
                    assert!(known.applied(pod));
                    known.publish();
                });
            }
            while known.list().len() < uids.len() {
                thread::yield_now();
            }
            drop(reading);
        });
        let seen = desired.borrow().as_ref().unwrap().pods.len();
        assert_eq!(seen, uids.len(), "round {round}");
    }
}

/// Whoever may create pods can make each as long as etcd takes it.
#[test]
fn variables_which_may_be_large_are_not_kept() {
    let known = PodIndex::new(None, "n1".to_owned());
    let container = || {
        let env = api::EnvVar { name: "A".into(), ..api::EnvVar::default() };
        api::Container { env: Some(vec![env]), ..api::Container::default() }
    };
    let (containers, init_containers) = (vec![container()], Some(vec![container()]));
    let mut pod = api::Pod::default();
    let name = Some("a".to_owned());
    (pod.metadata.uid, pod.metadata.name) = (name.clone(), name.clone());
    pod.metadata.namespace = name;
    pod.spec = Some(api::PodSpec { containers, init_containers, ..api::PodSpec::default() });
    known.applied(pod);
    known.publish();
    let pods = known.desired().borrow().clone().unwrap();
    let spec = pods.pods[0].spec.as_ref().unwrap();
    let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    assert!(all.all(|one| one.env.is_none()));
}

//! Room that becomes free without a request, and which pod gets it.

use super::*;

/// A pod that is not restarted once it has completed.
fn job(name: &str, cpus: u8) -> Pod {
    let mut object = ordinary(name, cpus).object().clone();
    object.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    Pod::new(object).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_held_pod_takes_the_room_of_a_job_that_completes_while_its_victim_still_ends() {
    let c = crowded();
    let (a, job, dns) = (ordinary("a", 6), job("job", 4), critical("dns", 4));
    c.takes(&a, 25);
    c.node.want(&[&a, &job]).await;
    c.node.want(&[&a, &job, &dns]).await;
    assert_eq!(c.node.runtime.stops(), [a.uid().clone()]);
    tokio::time::sleep(secs(2)).await;
    c.node.runtime.exit(job.uid(), 0);
    settle().await;
    assert!(c.runs(&dns) && c.runs(&a), "there was room before its victim had terminated");
}

#[tokio::test(start_paused = true)]
async fn a_held_pod_takes_the_room_of_a_job_that_completes_while_what_ends_is_stuck() {
    let c = crowded();
    let (a, job, dns) = (ordinary("a", 6), critical("job", 4), critical("dns", 4));
    let job = {
        let mut object = job.object().clone();
        object.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
        Pod::new(object).unwrap()
    };
    c.node.runtime.stop_fails(a.uid(), u32::MAX);
    c.node.want(&[&a, &job]).await;
    c.node.want(&[&a, &job, &dns]).await;
    tokio::time::sleep(secs(100)).await;
    assert_eq!(c.reason(&dns), WAITING_FOR_PREEMPTION);
    c.node.runtime.exit(job.uid(), 0);
    settle().await;
    assert!(c.runs(&dns), "the one that does not end is not all there is");
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_back_in_one_pass_are_asked_by_importance() {
    let size = |cpus: &str| {
        let allocatable = [("cpu", cpus), ("pods", "100")].into_iter().collect();
        Some(Arc::new(NodeView { allocatable, ..ten_cpus() }))
    };
    let (view, views) = watch::channel(size("12"));
    let fit = NodeFit::new(views).with_preemption(Arc::new(ByName(Asked::default())));
    let (runtime, events) = (FakeRuntime::default(), FakeRecorder::default());
    let node = node_with(runtime, events.clone(), |a| a.then(fit), &VictimLock::new());
    let pods: Vec<Pod> = (0..6)
        .map(|i| {
            let mut object = asks(&format!("p{i}"), None, 2).object().clone();
            object.spec.as_mut().unwrap().priority = Some(i);
            Pod::new(object).unwrap()
        })
        .collect();
    let all: Vec<&Pod> = pods.iter().collect();
    node.want(&all).await;
    assert_eq!(node.runtime.starts().len(), 6);
    node.gate.send_replace(GateState::Shut);
    for pod in &pods {
        node.workers.kill_pod(pod.clone(), shutdown()).await.unwrap();
    }
    settle().await;
    view.send_replace(size("2"));
    node.gate.send_replace(GateState::Open);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(node.runtime.starts()[6..], [pods[5].uid().clone()]);
    let preempts = |event: &Event| matches!(event, Event::PreemptionStarted { .. });
    assert!(!events.events().iter().any(preempts), "nobody was let in to be terminated at once");
}

//! Static pods that were refused or preempted, and room that becomes free later.

use super::*;

/// When admission ran for each pod.
#[derive(Clone, Default)]
struct Asks(Arc<Mutex<Vec<(String, Instant)>>>);

impl AdmitHandler for Asks {
    fn admit(&self, pod: &Pod, _others: &OtherPods) -> Result<(), Rejection> {
        self.0.lock().unwrap().push((pod.name().to_string(), Instant::now()));
        let Some(reason) = pod.name().strip_prefix("odd") else { return Ok(()) };
        let (reason, message) = (format!("Odd{reason}").into(), "never".into());
        Err(Rejection { reason, message, retryable: false })
    }
}

impl Asks {
    /// The times in seconds since `began`, without duplicates.
    fn of(&self, pod: &Pod, began: Instant) -> Vec<u64> {
        let asks = self.0.lock().unwrap();
        let asked = asks.iter().filter(|(name, _)| **name == **pod.name());
        let mut seconds: Vec<u64> = asked.map(|(_, at)| (*at - began).as_secs()).collect();
        seconds.dedup();
        seconds
    }
}

fn crowded_with(asks: &Asks) -> Crowded {
    let (asked, lock, events) = (Asked::default(), VictimLock::new(), FakeRecorder::default());
    let fit = NodeFit::new(Arc::new(ten_cpus())).with_preemption(Arc::new(ByName(asked.clone())));
    let checks = |admission: Admission| admission.then(asks.clone()).then(fit);
    let node = node_with(FakeRuntime::default(), events.clone(), checks, &lock);
    Crowded { node, events, lock, asked }
}

/// A static pod; with a priority it may be preempted.
fn manifest(name: &str, priority: Option<i32>, cpus: u8) -> Pod {
    let mut object = api_of(&asks(name, None, cpus));
    object.spec.as_mut().unwrap().priority = priority;
    Pod::new(object).unwrap()
}

fn api_of(pod: &Pod) -> k8s_openapi::api::core::v1::Pod {
    (**pod).clone()
}

async fn sleep(seconds: u64) {
    tokio::time::sleep(secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_static_pod_starts_when_another_pod_has_left() {
    let c = crowded();
    let (base, web) = (manifest("base", None, 6), manifest("web", None, 6));
    c.takes(&base, 3);
    c.node.want(&[&base]).await;
    c.node.want(&[&base, &web]).await;
    assert_eq!(c.node.said(&web).0, "Failed");
    sleep(60).await;
    assert!(!c.runs(&web), "nothing has changed");
    c.node.want(&[&web]).await;
    sleep(2).await;
    assert!(!c.runs(&web), "the other one is still terminating");
    sleep(2).await;
    assert!(c.runs(&web));
    assert_eq!(c.node.said(&web), ("Running".into(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_refused_static_pod_whose_manifest_is_corrected_under_its_uid_starts_once_and_stays() {
    let c = crowded();
    let too_large = manifest("web", None, 11);
    c.node.want(&[&too_large]).await;
    assert_eq!(c.node.said(&too_large).0, "Failed");
    let mut object = api_of(&manifest("web", None, 6));
    object.metadata.uid = Some(too_large.uid().to_string());
    let corrected = Pod::new(object).unwrap();
    c.node.want(&[&corrected]).await;
    sleep(2).await;
    assert_eq!(c.node.said(&corrected), ("Running".into(), String::new()));
    assert!(c.runs(&corrected));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_completes_makes_room_like_a_pod_that_is_ended() {
    let c = crowded();
    let (job, web) = (manifest("job", None, 6), manifest("web", None, 6));
    let mut object = api_of(&job);
    object.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    let job = Pod::new(object).unwrap();
    c.node.want(&[&job]).await;
    c.node.want(&[&job, &web]).await;
    sleep(15).await;
    c.node.runtime.exit(job.uid(), 0);
    sleep(1).await;
    assert!(c.runs(&web));
    assert_eq!(c.node.said(&job).0, "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_is_asked_about_less_and_less_often_however_many_pods_leave() {
    let asks = Asks::default();
    let c = crowded_with(&asks);
    let (base, web) = (manifest("base", None, 8), manifest("web", None, 6));
    let began = Instant::now();
    c.node.want(&[&base]).await;
    c.node.want(&[&base, &web]).await;
    for i in 0..700 {
        c.node.want(&[&base, &web, &ordinary(&format!("job{i}"), 1)]).await;
        sleep(1).await;
    }
    let asked = asks.of(&web, began);
    let apart: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (found, delay) in apart.iter().zip([10, 20, 40, 80, 160, 300]) {
        assert!((delay..delay + 3).contains(found), "{asked:?}");
    }
    assert_eq!(apart.len(), 6, "{asked:?}");
    let told = c.events.events().into_iter();
    let told = told.filter(|e| matches!(e, Event::PodRejected { pod, .. } if pod == web.pod_ref()));
    assert_eq!(told.count(), 1, "refused as before is no news");
}

#[tokio::test(start_paused = true)]
async fn without_a_change_a_static_pod_is_asked_about_every_five_minutes() {
    let asks = Asks::default();
    let c = crowded_with(&asks);
    let (base, web) = (manifest("base", None, 8), manifest("web", None, 6));
    let began = Instant::now();
    c.node.want(&[&base]).await;
    sleep(1).await;
    c.node.want(&[&base, &web]).await;
    sleep(1000).await;
    assert_eq!(asks.of(&web, began), [1, 301, 601, 901]);
    c.node.want(&[&base]).await;
    sleep(1000).await;
    assert_eq!(asks.of(&web, began).len(), 4, "it is not wanted any more");
}

#[tokio::test(start_paused = true)]
async fn what_the_node_can_never_run_is_asked_about_only_when_the_node_is_another() {
    let asks = Asks::default();
    let c = crowded_with(&asks);
    let (odd, began) = (manifest("odd", None, 1), Instant::now());
    c.node.want(&[&odd]).await;
    sleep(2000).await;
    assert_eq!(asks.of(&odd, began), [0]);
    c.node.gate.send_replace(GateState::Open);
    sleep(2000).await;
    assert_eq!(asks.of(&odd, began), [0, 2000]);
}

#[tokio::test(start_paused = true)]
async fn a_preempted_static_pod_comes_back_when_there_is_room_again() {
    let c = crowded();
    let (low, other) = (manifest("low", Some(10), 5), manifest("other", Some(20), 5));
    let dns = critical("dns", 5);
    c.node.want(&[&low, &other]).await;
    c.node.want(&[&low, &other, &dns]).await;
    sleep(5).await;
    assert!(c.runs(&dns) && c.runs(&other));
    let preempted = ("Failed".to_owned(), "Preempting".to_owned());
    assert_eq!(c.node.said(&low), preempted);
    // A pod leaves, and its room is not enough.
    let small = ordinary("small", 0);
    c.node.want(&[&low, &other, &dns, &small]).await;
    c.node.want(&[&low, &other, &dns]).await;
    sleep(100).await;
    assert_eq!(c.node.said(&low), preempted, "why it is away stays to be read");
    c.node.want(&[&low, &dns]).await;
    sleep(60).await;
    assert!(c.runs(&low));
    assert_eq!(c.node.said(&low), ("Running".into(), String::new()));
    assert!(c.runs(&dns) && c.used() <= 10);
    let back = Event::PodRestarted { pod: low.pod_ref().clone(), is_static: true };
    assert!(c.events.events().contains(&back));
}

#[tokio::test(start_paused = true)]
async fn a_preempted_static_pod_gets_room_from_pods_below_it_as_any_critical_pod_does() {
    let c = crowded();
    let (low, other) = (manifest("low", Some(10), 5), ordinary("other", 5));
    let dns = critical("dns", 5);
    c.node.want(&[&low, &other]).await;
    c.node.want(&[&low, &other, &dns]).await;
    sleep(30).await;
    assert!(c.runs(&dns) && c.runs(&low) && !c.runs(&other));
    sleep(3000).await;
    assert_eq!(c.node.runtime.stops().len(), 2, "and that is the end of it");
}

#[tokio::test(start_paused = true)]
async fn static_pods_that_do_not_fit_together_do_not_end_each_other_in_turn() {
    let c = crowded();
    let (low, mid, high) = (
        manifest("a-low", Some(1), 6),
        manifest("b-mid", Some(2), 6),
        manifest("c-high", Some(3), 6),
    );
    let unranked = manifest("d-unranked", None, 6);
    let all = [&low, &mid, &high, &unranked];
    for pods in 1..=all.len() {
        c.node.want(&all[..pods]).await;
        sleep(60).await;
    }
    // Other pods come and go meanwhile.
    for i in 0..60 {
        let job = ordinary(&format!("job{i}"), 1);
        c.node.want(&[&low, &mid, &high, &unranked, &job]).await;
        sleep(60).await;
    }
    assert!(c.runs(&high));
    let stopped = |pod: &Pod| c.node.runtime.stops().iter().filter(|uid| *uid == pod.uid()).count();
    assert_eq!(all.map(stopped), [1, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_away_takes_no_room_that_is_promised_to_a_held_one() {
    let c = crowded();
    let (low, big) = (manifest("a-low", Some(1), 4), ordinary("big", 6));
    let dns = critical("dns", 10);
    c.takes(&low, 1);
    c.takes(&big, 29);
    c.node.want(&[&low, &big]).await;
    c.node.want(&[&low, &big, &dns]).await;
    // Its own delay is over before the other victim has terminated.
    sleep(20).await;
    assert!(!c.runs(&low) && !c.runs(&dns));
    sleep(15).await;
    assert!(c.runs(&dns) && !c.runs(&low));
}

#[tokio::test(start_paused = true)]
async fn while_admission_is_closed_no_pod_is_tried_and_all_are_when_it_opens() {
    let asks = Asks::default();
    let c = crowded_with(&asks);
    let (base, low) = (manifest("base", None, 4), manifest("a-low", Some(1), 6));
    let (web, dns) = (manifest("web", None, 7), critical("dns", 6));
    let began = Instant::now();
    c.node.want(&[&base, &low]).await;
    c.node.want(&[&base, &low, &web]).await;
    c.node.want(&[&base, &low, &web, &dns]).await;
    assert_eq!(c.reason(&low), "Preempting");
    c.node.gate.send_replace(GateState::Shut);
    c.node.want(&[&low, &web]).await;
    sleep(2000).await;
    assert_eq!((asks.of(&low, began).len(), asks.of(&web, began).len()), (1, 1));
    c.node.gate.send_replace(GateState::Open);
    sleep(30).await;
    assert!(c.runs(&web) ^ c.runs(&low), "one of them fits");
}

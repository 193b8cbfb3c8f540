//! Tests of the fit, and of preemption for a critical pod that does not fit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use winddown_host::{Capacity, ReadError};
use winddown_shared::{KillReason, KillRequest};

use super::*;
use crate::fit::Fit;
use crate::{Machine, Settings};
use winddown_control::api::{PreemptionPlan, RoomVerdict};

const GIB: i64 = 1 << 30;
const CRITICAL: i32 = 2_000_001_000;

fn capacity() -> Capacity {
    Capacity {
        cpu_milli: 2000,
        memory: 4 * GIB,
        huge_pages: BTreeMap::new(),
        ephemeral_storage: 100 * GIB,
        pids: None,
    }
}

/// A machine that can be read while `readable` is true.
pub(super) fn machine(readable: Arc<AtomicBool>) -> Machine {
    let capacity = move || match readable.load(Ordering::SeqCst) {
        true => Ok(capacity()),
        false => Err(ReadError::Unreadable {
            path: "/proc/meminfo".into(),
            source: std::io::ErrorKind::PermissionDenied.into(),
        }),
    };
    Machine { capacity: Box::new(capacity), app_armor: false }
}

/// A node with 2 CPUs and 4 GiB, of which `change` may reserve some.
fn small_node(change: impl FnOnce(&mut Config)) -> Bench {
    small_node_that(Arc::new(AtomicBool::new(true)), change)
}

fn small_node_that(readable: Arc<AtomicBool>, change: impl FnOnce(&mut Config)) -> Bench {
    let left = (tempfile::tempdir().unwrap(), boot_clock(), FakeRuntime::default(), held());
    small_node_after(left, readable, change)
}

/// The same on the state that an earlier agent left.
fn small_node_after(
    left: (tempfile::TempDir, BootClock, FakeRuntime, FakeInhibitor),
    readable: Arc<AtomicBool>,
    change: impl FnOnce(&mut Config),
) -> Bench {
    let (state, clock, runtime, login) = left;
    bench_with(state, clock, runtime, login, |parts| {
        parts.machine = Some(machine(readable));
        let mut config = Config::clone(&parts.configuration.config);
        change(&mut config);
        parts.configuration.config = Arc::new(config);
    })
}

/// A pod that requests so many millicores.
fn asking(name: &str, priority: i32, cpu: i64) -> Pod {
    changed(&pod(name, priority, 30), |pod| {
        let requests = [("cpu".to_owned(), Quantity(format!("{cpu}m")))];
        let resources = kube::ResourceRequirements {
            requests: Some(requests.into()),
            ..kube::ResourceRequirements::default()
        };
        pod.spec.as_mut().unwrap().containers[0].resources = Some(resources);
    })
}

fn from_api(pod: &Pod) -> Pod {
    changed(pod, |pod| pod.metadata.annotations = None)
}

fn changed(pod: &Pod, change: impl FnOnce(&mut kube::Pod)) -> Pod {
    let mut object = kube::Pod::clone(pod);
    change(&mut object);
    Pod::new(object).unwrap()
}

fn refused(b: &Bench) -> Vec<(String, String, String)> {
    let rejected = b.node.status().rejected.into_iter();
    rejected.map(|pod| (pod.name, pod.reason, pod.message)).collect()
}

fn plan(b: &Bench, manifest: Option<&str>) -> PreemptionPlan {
    b.node.preemption_plan(manifest.map(str::as_bytes), None).unwrap()
}

fn told(b: &Bench, kind: &str) -> Vec<String> {
    let decisions = b.node.status().decisions.into_iter();
    decisions.filter(|decision| decision.kind == kind).map(|decision| decision.text).collect()
}

fn sample(b: &Bench, name: &str) -> String {
    let text = b.node.metrics();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("none");
    line.trim().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_refused_for_a_port_is_told_of_with_the_pod_that_uses_it() {
    let on_port = |name: &str| {
        changed(&pod(name, 0, 30), |pod| {
            let port = kube::ContainerPort { host_port: Some(8200), ..Default::default() };
            pod.spec.as_mut().unwrap().containers[0].ports = Some(vec![port]);
        })
    };
    let (first, second) = (from_api(&on_port("first")), from_api(&on_port("second")));
    let b = small_node(|_| {});
    b.want(&[&first]).await;
    b.want(&[&first, &second]).await;
    let refused = b.node.status().rejected.pop().unwrap();
    assert_eq!((&*refused.name, &*refused.reason), ("second", "NodePorts"));
    assert_eq!(refused.held_by.as_deref(), Some("port 8200 is used by default/first"));
    assert!(!refused.message.contains("8200"), "the kubelet's words: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_pod_that_does_not_fit_is_refused_with_the_kubelets_words() {
    let b = small_node(|config| {
        config.node.system_reserved = [("cpu".into(), "250m".into())].into();
        config.node.kube_reserved = [("cpu".into(), "250m".into())].into();
    });
    let (a, big) = (from_api(&asking("a", 0, 1000)), from_api(&asking("big", 0, 501)));
    b.want(&[&a]).await;
    b.want(&[&a, &big]).await;
    let message = "Pod was rejected: Node didn't have enough resource: cpu, requested: 501, \
                   used: 1000, capacity: 1500";
    assert_eq!(refused(&b), [("big".into(), "OutOfcpu".into(), message.into())]);
    let counted = sample(&b, "kubelet_admission_rejections_total{reason=\"OutOfcpu\"}");
    assert_eq!(counted, "1");
}

#[tokio::test(start_paused = true)]
async fn the_number_of_pods_is_bounded_and_selectors_ask_for_the_nodes_labels() {
    let b = small_node(|config| {
        config.node.max_pods = 1;
        config.node.labels = [("rack".into(), "r1".into())].into();
    });
    let selecting = |name: &str, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let wanted = from_api(&pod(name, 0, 30));
        changed(&wanted, |pod| pod.spec.as_mut().unwrap().node_selector = Some(labels))
    };
    let elsewhere = selecting("elsewhere", &[("rack", "r2")]);
    b.want(&[&elsewhere]).await;
    let [(name, reason, _)] = &refused(&b)[..] else { panic!("{:?}", refused(&b)) };
    assert_eq!((name.as_str(), reason.as_str()), ("elsewhere", "NodeAffinity"));
    let here = selecting("here", &[("rack", "r1"), ("kubernetes.io/hostname", "n1")]);
    let away = selecting("away", &[("rack", "r2")]);
    let more = from_api(&pod("more", 0, 30));
    b.want(&[&here]).await;
    assert_eq!(b.runtime.starts(), [here.uid().clone()]);
    b.want(&[&here, &away, &more]).await;
    let all = refused(&b);
    // Too many pods is reported before node affinity, as by the kubelet.
    for name in ["more", "away"] {
        let (_, reason, _) = all.iter().find(|(other, ..)| other == name).unwrap();
        assert_eq!(reason, "OutOfpods", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_wait_for_a_machine_that_cannot_be_read() {
    let readable = Arc::new(AtomicBool::new(false));
    let b = small_node_that(Arc::clone(&readable), |_| {});
    let a = from_api(&asking("a", 0, 1000));
    b.want(&[&a]).await;
    assert_eq!(refused(&b), [], "it would have failed for good");
    let status = b.node.0.core.statuses.get(a.uid()).unwrap();
    assert_eq!(status.reason.as_deref(), Some("WaitingForTurn"));
    assert_eq!(status.message.as_deref(), Some("this machine's resources cannot be read yet"));
    assert!(plan(&b, None).resources.is_empty());
    readable.store(true, Ordering::SeqCst);
    tokio::time::sleep(secs(31)).await;
    assert_eq!(refused(&b), []);
    assert!(b.runtime.starts().contains(a.uid()));
    // The last reading is used when the machine cannot be read again.
    readable.store(false, Ordering::SeqCst);
    b.configured.replace(b.configured.configuration());
    tokio::time::sleep(secs(1)).await;
    assert!(!plan(&b, None).resources.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_to_be_confined_is_refused_where_the_kernel_confines_none() {
    for app_armor in [false, true] {
        let left = (tempfile::tempdir().unwrap(), boot_clock(), FakeRuntime::default(), held());
        let b = bench_with(left.0, left.1, left.2, left.3, |parts| {
            let machine = machine(Arc::new(AtomicBool::new(true)));
            parts.machine = Some(Machine { app_armor, ..machine });
        });
        let a = from_api(&changed(&pod("a", 0, 30), |pod| {
            let profile =
                kube::AppArmorProfile { type_: "RuntimeDefault".into(), localhost_profile: None };
            pod.spec.as_mut().unwrap().containers[0].security_context =
                Some(kube::SecurityContext {
                    app_armor_profile: Some(profile),
                    ..kube::SecurityContext::default()
                });
        }));
        b.want(&[&a]).await;
        let message = "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the \
                       host";
        let expected = [("a".to_owned(), "AppArmor".to_owned(), message.to_owned())];
        assert_eq!(refused(&b), if app_armor { &[][..] } else { &expected[..] });
        assert_eq!(b.runtime.starts().contains(a.uid()), app_armor);
    }
}

/// The file system of the state directory hangs after the start; a reload took one of the agent's threads for good.
#[tokio::test(start_paused = true)]
async fn a_reload_applies_what_it_can_while_a_disk_does_not_answer() {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let (gate, is_first) = (std::sync::Mutex::new(gate), AtomicBool::new(true));
    let capacity = move || {
        if !is_first.swap(false, Ordering::SeqCst) {
            let _ = gate.lock().unwrap().recv();
        }
        Ok(capacity())
    };
    let machine = Machine { capacity: Box::new(capacity), app_armor: false };
    let fit = Fit::new(&FakeRuntime::default(), Some(machine), "n1", &Settings::default(), false);
    let labels = BTreeMap::from([("rack".to_owned(), "r1".to_owned())]);
    let settings = Settings { labels, ..Settings::default() };
    let reload = fit.follow(&settings);
    tokio::pin!(reload);
    assert!(reload.as_mut().now_or_never().is_none(), "it waits");
    tokio::time::advance(secs(3)).await;
    reload.await;
    let found = fit.found().unwrap();
    assert_eq!(found.view.labels.get("rack").map(String::as_str), Some("r1"));
    assert_eq!(found.whole.get(&winddown_shared::ResourceName::Cpu), 2000);
    drop(go);
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_makes_room_lets_in_what_was_refused() {
    let b = small_node(|config| config.node.max_pods = 1);
    let (a, c) = (from_api(&pod("a", 0, 30)), from_api(&pod("c", 0, 30)));
    b.want(&[&a]).await;
    b.want(&[&a, &c]).await;
    assert_eq!(refused(&b).len(), 1);
    let mut configuration = b.configured.configuration();
    let mut config = Config::clone(&configuration.config);
    config.node.max_pods = 2;
    configuration.config = Arc::new(config);
    b.configured.replace(configuration);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(refused(&b), []);
    assert!(b.runtime.starts().contains(c.uid()));
}

#[test]
fn a_reload_and_a_change_of_the_node_object_at_once_are_both_seen() {
    let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let machine = machine(Arc::new(AtomicBool::new(true)));
    let fit = Fit::new(&FakeRuntime::default(), Some(machine), "n1", &Settings::default(), false);
    for round in 0..1000 {
        let (text, together) = (round.to_string(), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let settings = Settings { labels: label("rack", &text), ..Settings::default() };
                together.wait();
                fit.apply(&settings);
            });
            let labels = Some(label("zone", &text));
            let metadata = ObjectMeta { labels, ..ObjectMeta::default() };
            let server = Arc::new(kube::Node { metadata, ..kube::Node::default() });
            together.wait();
            fit.set_server_node(Some(server));
        });
        let view = Arc::clone(&fit.found().unwrap().view);
        let seen = ["rack", "zone"].map(|key| view.labels.get(key));
        assert_eq!(seen, [Some(&text); 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_keeps_all_of_a_resource_says_so() {
    let b = small_node(|config| {
        config.node.kube_reserved =
            [("memory".into(), "4Gi".into()), ("cpu".into(), "1".into())].into();
    });
    let warnings = b.node.status().config.warnings;
    let said = "nothing of memory is left for pods: systemReserved, kubeReserved and evictionHard \
                keep all of it";
    assert_eq!(warnings, [said]);
}

#[tokio::test(start_paused = true)]
async fn a_rehearsal_lets_in_whatever_there_is() {
    let b = bench(FakeRuntime::default(), held());
    let huge = from_api(&asking("huge", 0, 1_000_000));
    b.want(&[&huge]).await;
    assert!(b.runtime.starts().contains(huge.uid()));
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_waits_until_others_have_ended_for_it() {
    let b = small_node(|_| {});
    let (web, best, dns) =
        (asking("web", 0, 1500), pod("best", 0, 30), asking("dns", CRITICAL, 1800));
    b.runtime.stop_takes(web.uid(), secs(7));
    b.want(&[&web, &best]).await;
    b.want(&[&web, &best, &dns]).await;

    let status = b.node.status();
    assert_eq!(status.rejected, []);
    let waiting = status.pods.iter().find(|pod| pod.name == "dns").unwrap();
    assert_eq!((&*waiting.phase, &*waiting.reason), ("Pending", "WaitingForPreemption"));
    assert_eq!(waiting.state, PodState::Waiting);
    assert_eq!(waiting.desired_containers, 1);
    assert_eq!(plan(&b, None).waiting[0].name, "dns");
    assert!(!b.runtime.starts().contains(dns.uid()), "the room is not there yet");

    tokio::time::sleep(secs(10)).await;
    assert!(b.runtime.starts().contains(dns.uid()));
    assert!(!b.runtime.runs(web.uid()));
    let status = b.node.status();
    let of = |name: &str| status.pods.iter().find(|pod| pod.name == name).unwrap();
    assert_eq!((&*of("web").phase, &*of("web").reason), ("Failed", "Preempting"));
    assert_eq!(of("web").message, "Preempted in order to admit critical pod");
    assert_eq!((&*of("dns").phase, &*of("dns").reason), ("Running", ""));
    assert_eq!(of("best").phase, "Running", "it has nothing that dns lacks");
    assert_eq!(plan(&b, None).waiting, []);
    assert_eq!(told(&b, "preemptionStarted"), ["default/dns lacks cpu, preempting default/web"]);
    assert_eq!(
        told(&b, "podPreempted"),
        [
            "default/web preempted for default/dns, which was waiting for default/web to free cpu 1300m; \
          passed over: default/best"
        ]
    );
    let kinds: Vec<String> = status.decisions.iter().map(|d| d.kind.clone()).collect();
    let story = [
        "preemptionStarted",
        "killRequested",
        "podWaiting",
        "podStopped",
        "podPreempted",
        "podAdmitted",
    ];
    assert!(kinds.ends_with(&story.map(str::to_owned)), "the cause first: {kinds:?}");
    assert_eq!(sample(&b, "kubelet_preemptions{preemption_signal=\"cpu\"}"), "1");
}

#[tokio::test(start_paused = true)]
async fn a_successor_ends_no_second_pod_for_a_critical_one_that_has_to_wait() {
    let b = small_node(|_| {});
    let (a, z) = (from_api(&asking("a", 0, 1000)), from_api(&asking("z", 0, 1000)));
    let crit = asking("crit", CRITICAL, 1000);
    for pod in [&a, &z] {
        b.runtime.stop_takes(pod.uid(), secs(8));
    }
    b.want(&[&a, &z]).await;
    b.want(&[&a, &z, &crit]).await;
    let victims = told(&b, "killRequested");
    assert_eq!(victims.len(), 1, "{victims:?}");
    tokio::time::sleep(secs(2)).await;
    let first = b.runtime.stops();
    let left = b.stop();
    // By now the pod that was not chosen would be the better victim.
    let cheaper = |pod: &Pod| match first.contains(pod.uid()) {
        true => pod.clone(),
        false => changed(pod, |pod| pod.spec.as_mut().unwrap().priority = Some(-5)),
    };
    let (a, z) = (cheaper(&a), cheaper(&z));
    let b = small_node_after(left, Arc::new(AtomicBool::new(true)), |_| {});
    b.want(&[&a, &z, &crit]).await;
    tokio::time::sleep(secs(20)).await;
    assert_eq!(told(&b, "preemptionStarted"), [""; 0]);
    assert!(b.runtime.starts().contains(crit.uid()));
    let stopped: std::collections::HashSet<_> = b.runtime.stops().into_iter().collect();
    assert_eq!(stopped, first.into_iter().collect(), "and no other");
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_ended_for_a_pod_that_the_runtime_cannot_run() {
    let state = tempfile::tempdir().unwrap();
    let b = bench_with(state, boot_clock(), FakeRuntime::default(), held(), |parts| {
        parts.machine = Some(machine(Arc::new(AtomicBool::new(true))));
    });
    let (web, odd) = (asking("web", 0, 1500), asking("odd", CRITICAL, 1800));
    b.runtime.refuse(odd.uid());
    b.want(&[&web]).await;
    b.want(&[&web, &odd]).await;
    tokio::time::sleep(secs(60)).await;
    let [(_, reason, message)] = &refused(&b)[..] else { panic!("{:?}", refused(&b)) };
    assert_eq!(reason, "PodFeatureUnsupported");
    assert_eq!(message, "Pod was rejected: spec.volumes: refused as scripted");
    assert_eq!(told(&b, "preemptionStarted"), Vec::<String>::new());
    assert!(b.runtime.runs(web.uid()));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_runtime_cannot_run_is_refused_for_that_though_it_would_not_fit_either() {
    let b = small_node(|_| {});
    let odd = asking("odd", CRITICAL, 180_000);
    b.runtime.refuse(odd.uid());
    b.want(&[&odd]).await;
    let [(_, reason, message)] = &refused(&b)[..] else { panic!("{:?}", refused(&b)) };
    assert_eq!(reason, "PodFeatureUnsupported");
    assert_eq!(message, "Pod was rejected: spec.volumes: refused as scripted");
}

/// A manifest of a static pod that requests so many millicores.
fn manifest(name: &str, priority: i32, cpu: i64) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{priority: {priority}, \
         hostNetwork: true, containers: [{{name: c, image: host, command: [/bin/true], \
         resources: {{requests: {{cpu: {cpu}m}}}}}}]}}}}"
    )
}

fn used_of(b: &Bench, name: &str) -> i64 {
    let resources = plan(b, None).resources;
    resources.iter().find(|resource| resource.name == name).unwrap().used
}

#[tokio::test(start_paused = true)]
async fn the_plan_gives_away_no_room_that_is_reserved_and_waits_for_what_terminates_as_admission_does()
 {
    let b = small_node(|_| {});
    let (web, dns) = (asking("web", 0, 1500), asking("dns", CRITICAL, 1000));
    b.runtime.stop_takes(web.uid(), secs(20));
    b.want(&[&web]).await;
    b.want(&[&web, &dns]).await;
    let asked = |cpu| plan(&b, Some(&manifest("late", CRITICAL, cpu))).pod.unwrap();
    let beside = asked(1000);
    assert_eq!(beside.verdict, RoomVerdict::Waits, "{beside:?}");
    assert_eq!(beside.message, "waiting for terminating pods: default/web");
    let instead = asked(1001);
    assert_eq!(instead.verdict, RoomVerdict::Rejected, "{instead:?}");
    assert_eq!(instead.insufficient[0].amount, 1);
    assert_eq!(used_of(&b, "cpu"), 1500);
    tokio::time::sleep(secs(30)).await;
    assert_eq!(asked(1000).verdict, RoomVerdict::Starts);
    assert_eq!(used_of(&b, "cpu"), 1000);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_before_and_after_the_held_one_starts_is_admitted_as_planned() {
    let b = small_node(|_| {});
    let (web, dns) = (asking("web", 0, 1000), asking("dns", CRITICAL, 1500));
    b.runtime.stop_takes(web.uid(), secs(20));
    b.want(&[&web]).await;
    b.want(&[&web, &dns]).await;
    let asked = |cpu| plan(&b, Some(&manifest("late", CRITICAL, cpu))).pod.unwrap();
    let more = asked(501);
    assert_eq!(more.verdict, RoomVerdict::Rejected, "{more:?}");
    assert_eq!(more.insufficient[0].amount, 1);
    let fits = asked(500);
    assert_eq!(fits.verdict, RoomVerdict::Starts, "{fits:?}");
    let late = from_api(&asking("late", 0, 500));
    b.want(&[&web, &dns, &late]).await;
    assert_eq!(refused(&b), []);
    assert!(b.runtime.starts().contains(late.uid()) && !b.runtime.starts().contains(dns.uid()));
}

#[tokio::test(start_paused = true)]
async fn the_plan_counts_a_pod_that_should_have_terminated_and_one_without_a_manifest() {
    let b = small_node(|_| {});
    let (stuck, lost) = (asking("stuck", 0, 1500), pod("lost", 0, 30));
    b.want(&[&stuck, &lost]).await;
    let b = small_node_after(b.stop(), Arc::new(AtomicBool::new(true)), |_| {});
    b.manifests.send_replace(Arc::new(DesiredManifests {
        generation: 1,
        complete: false,
        pods: vec![stuck.clone()],
        ..DesiredManifests::default()
    }));
    tokio::time::sleep(secs(1)).await;
    assert_eq!((used_of(&b, "pods"), used_of(&b, "cpu")), (2, 1500));
    b.runtime.stop_fails(stuck.uid(), u32::MAX);
    b.node.workers().request_kill(stuck, &KillRequest::new(KillReason::Removed));
    let asked = || plan(&b, Some(&manifest("late", CRITICAL, 1500))).pod.unwrap().verdict;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(asked(), RoomVerdict::Waits, "it has time left");
    tokio::time::sleep(secs(120)).await;
    assert_eq!(asked(), RoomVerdict::Waits, "it is the last hope, and its room is not free");
    assert_eq!((used_of(&b, "pods"), used_of(&b, "cpu")), (2, 1500));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_from_the_manifest_that_was_asked_about_does_not_compete_with_itself() {
    let b = small_node(|_| {});
    b.want(&[&asking("dns-n1", CRITICAL, 1500)]).await;
    let same = plan(&b, Some(&manifest("dns", CRITICAL, 1500))).pod.unwrap();
    assert_eq!((same.verdict, same.insufficient.len()), (RoomVerdict::Starts, 0), "{same:?}");
    let other = plan(&b, Some(&manifest("web", CRITICAL, 1500))).pod.unwrap();
    assert_eq!(other.verdict, RoomVerdict::Rejected);
}

#[tokio::test(start_paused = true)]
async fn the_plan_says_what_there_is_and_who_would_end_and_touches_nothing() {
    let b = small_node(|config| {
        config.node.extended_resources = [("example.com/dongle".into(), "2".into())].into();
    });
    let web = asking("web", 0, 1500);
    b.want(&[&web]).await;
    let found = plan(&b, None);
    let cpu = found.resources.iter().find(|resource| resource.name == "cpu").unwrap();
    assert_eq!((cpu.capacity, cpu.allocatable, cpu.used), (2000, 2000, 1500));
    let memory = found.resources.iter().find(|resource| resource.name == "memory").unwrap();
    assert_eq!(memory.allocatable, 4 * GIB - (100 << 20));
    let names: Vec<&str> = found.resources.iter().map(|resource| &*resource.name).collect();
    assert_eq!(names, ["pods", "cpu", "memory", "ephemeral-storage", "example.com/dongle"]);

    let case = |priority, cpu| plan(&b, Some(&manifest("dns", priority, cpu))).pod.unwrap();
    let fits = case(CRITICAL, 500);
    assert_eq!((fits.verdict, fits.pod.as_str()), (RoomVerdict::Starts, "default/dns-n1"));
    let preempts = case(CRITICAL, 1000);
    assert_eq!(preempts.verdict, RoomVerdict::Preempts, "{preempts:?}");
    assert_eq!(preempts.victims, ["default/web"]);
    assert_eq!(preempts.considered.len(), 1);
    assert_eq!((&*preempts.considered[0].why, preempts.considered[0].distance), ("taken", 0.0));
    assert_eq!((&*preempts.insufficient[0].name, preempts.insufficient[0].amount), ("cpu", 500));
    let too_big = case(CRITICAL, 3000);
    assert_eq!(too_big.verdict, RoomVerdict::Rejected);
    assert_eq!(too_big.reason, "UnexpectedAdmissionError");
    let equal = case(0, 1000);
    assert_eq!(equal.verdict, RoomVerdict::Rejected);
    let error = b.node.preemption_plan(Some(b"kind: Deployment"), None).unwrap_err();
    assert_eq!(error.code, ErrorCode::BadRequest);

    tokio::time::sleep(secs(5)).await;
    assert_eq!(b.node.status().pods.len(), 1);
    assert_eq!(b.node.status().pods[0].phase, "Running");
}

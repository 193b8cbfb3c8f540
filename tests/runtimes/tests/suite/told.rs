//! The events of pods, in the kubelet's words, while a scripted runtime works on them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use winddown_cri::CriRuntime;
use winddown_runtimes_tests::Fault;
use winddown_shared::{EndCause, Event, Pod, PodEventKind, ProbeKind, Recorder, Runtime as _};

use crate::bed::{
    Act, POLITE, eventually, is_running, pod, run, secs, stop, sync_until, waits_for,
};
use crate::faults::{calls, polite};
use crate::stage::Stage as _;
use crate::stages::{Fake, container_of};

/// What was told, with the container's name, or `-` for the pod.
#[derive(Default)]
struct Told(Mutex<Vec<(String, PodEventKind)>>);

impl Recorder for Told {
    fn record(&self, event: &Event) {
        let Event::Pod(event) = event else { return };
        assert_eq!(&*event.pod.namespace, "default");
        let container = event.container.as_ref();
        let name = container.map_or("-".to_owned(), |(_, name)| name.to_string());
        self.0.lock().unwrap().push((name, event.what.clone()));
    }
}

impl Told {
    fn all(&self) -> Vec<(String, PodEventKind)> {
        self.0.lock().unwrap().clone()
    }

    fn of(&self, name: &str) -> Vec<PodEventKind> {
        self.all().into_iter().filter(|(of, _)| of == name).map(|(_, what)| what).collect()
    }
}

/// A stage with a runtime that tells, and retries soon.
async fn scene() -> (Fake, CriRuntime, Arc<Told>) {
    let stage = Fake::set().await;
    let mut config = stage.config();
    config.retry.initial = Duration::from_millis(100);
    let runtime = CriRuntime::open(config).await.unwrap();
    let told = Arc::new(Told::default());
    runtime.record_to(&(Arc::clone(&told) as Arc<dyn Recorder>));
    (stage, runtime, told)
}

fn main_with(extra: &serde_json::Value) -> Pod {
    let mut main = container_of("main", POLITE);
    for (key, value) in extra.as_object().unwrap() {
        main[key] = value.clone();
    }
    pod("web", &json!({"containers": [main]}))
}

fn image_of(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()
}

#[tokio::test]
async fn a_container_is_told_from_its_image_to_its_end() {
    let (_stage, runtime, told) = scene().await;
    let pod = main_with(&json!({"imagePullPolicy": "IfNotPresent"}));
    run(&runtime, &pod).await;
    let image = image_of(&pod);
    let seen = runtime.pod_status(pod.uid()).await.unwrap().containers;
    assert_eq!(seen[0].image_id, format!("{image}@sha256:0"));
    stop(&runtime, &pod, 5).await;
    let expected = [
        PodEventKind::ImagePresent { image },
        PodEventKind::Created,
        PodEventKind::Started,
        PodEventKind::Killing(EndCause::Pod),
    ];
    assert_eq!(told.of("main"), expected);
    stop(&runtime, &pod, 5).await;
    assert_eq!(told.all().len(), expected.len(), "a second stop ends nothing");
}

#[tokio::test]
async fn an_image_is_told_to_be_pulled_or_why_not() {
    let (stage, runtime, told) = scene().await;
    let absent = main_with(&json!({"image": "elsewhere/app:1"}));
    let seen = sync_until(&runtime, &absent, |c| waits_for(&c[0]) == "ImagePullBackOff").await;
    let image = || "elsewhere/app:1".to_owned();
    let [pulling, failed, error, ..] = &told.of("main")[..] else { panic!("{:?}", told.all()) };
    assert_eq!(*pulling, PodEventKind::Pulling { image: image() });
    let PodEventKind::PullFailed { error: why, .. } = failed else { panic!("{failed:?}") };
    assert!(why.starts_with("rpc error: code = NotFound desc = "), "{why}");
    assert_eq!(*error, PodEventKind::Failed { error: "ErrImagePull".to_owned() });
    let back_off = PodEventKind::PullBackOff { image: image() };
    assert!(told.of("main").contains(&back_off));
    let winddown_shared::ContainerState::Waiting { message, .. } = &seen[0].state else { panic!() };
    let wanted = format!("Back-off pulling image \"elsewhere/app:1\": ErrImagePull: {why}");
    assert_eq!(*message, wanted);
    stage.cri.set_image("elsewhere/app:1", true);
    run(&runtime, &absent).await;

    let fresh = main_with(&json!({"image": "registry/app:9", "imagePullPolicy": "Always"}));
    let (_stage, runtime, told) = scene().await;
    run(&runtime, &fresh).await;
    let [pulling, pulled, created, started] = &told.of("main")[..] else { panic!() };
    assert!(matches!(pulling, PodEventKind::Pulling { .. }));
    let PodEventKind::Pulled { took: (pull, whole), .. } = pulled else { panic!("{pulled:?}") };
    assert!(pull <= whole);
    assert_eq!((created, started), (&PodEventKind::Created, &PodEventKind::Started));
}

/// What a registry and a signature lack is a reason of its own; and what has no code is told without.
#[tokio::test]
async fn why_an_image_cannot_be_pulled_is_told_in_the_kubelets_words() {
    let failed = "image pull failed for registry/app:9 because";
    for (said, reason, expected) in [
        ("dial tcp: refused", "ErrImagePull", "dial tcp: refused".to_owned()),
        (
            "RegistryUnavailable: 503",
            "RegistryUnavailable",
            format!("{failed} the registry is unavailable: 503"),
        ),
        (
            "SignatureValidationFailed: no key",
            "SignatureValidationFailed",
            format!("{failed} the signature validation failed: no key"),
        ),
    ] {
        let (stage, runtime, told) = scene().await;
        stage.cri.script("PullImage", 2, Fault::Error(said));
        let pod = main_with(&json!({"image": "registry/app:9"}));
        let message = |seen: &[winddown_shared::ContainerStatus]| match &seen[0].state {
            winddown_shared::ContainerState::Waiting { message, .. } => message.clone(),
            other => panic!("{other:?}"),
        };
        let seen = runtime.sync_pod(&pod).await.unwrap().status.containers;
        assert_eq!((waits_for(&seen[0]).as_ref(), message(&seen)), (reason, expected.clone()));
        let seen = sync_until(&runtime, &pod, |c| waits_for(&c[0]) == "ImagePullBackOff").await;
        let wanted = format!("Back-off pulling image \"registry/app:9\": {reason}: {expected}");
        assert_eq!(message(&seen), wanted);
        let (image, error) = ("registry/app:9".to_owned(), said.to_owned());
        let told = told.of("main");
        assert!(told.contains(&PodEventKind::PullFailed { image, error }), "{told:?}");
        assert!(told.contains(&PodEventKind::Failed { error: reason.to_owned() }), "{told:?}");
    }
}

#[tokio::test]
async fn what_is_no_name_of_an_image_is_not_asked_for() {
    let (stage, runtime, told) = scene().await;
    let pod = main_with(&json!({"image": "Shop/App", "imagePullPolicy": "Always"}));
    let seen = runtime.sync_pod(&pod).await.unwrap().status.containers;
    let why = "couldn't parse image name \"Shop/App\": invalid reference format: repository name (App) \
               must be lowercase";
    let winddown_shared::ContainerState::Waiting { reason, message, .. } = &seen[0].state else {
        panic!("{seen:?}")
    };
    let expected = format!("Failed to apply default image tag \"Shop/App\": {why}");
    assert_eq!((&**reason, message), ("InvalidImageName", &expected));
    let (image, error) = ("Shop/App".to_owned(), why.to_owned());
    let told = told.of("main");
    assert!(told.contains(&PodEventKind::InspectFailed { image, error }), "{told:?}");
    assert!(told.contains(&PodEventKind::Failed { error: "InvalidImageName".to_owned() }));
    let asked = [calls(&stage, "ImageStatus"), calls(&stage, "PullImage")].concat();
    assert_eq!(asked, Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_with_pull_secrets_runs_and_is_told_that_they_are_not_read() {
    let (_stage, runtime, told) = scene().await;
    let pod = main_with(&json!({"image": "registry/app:9", "imagePullPolicy": "Always"}));
    let mut object = pod.object().clone();
    let secrets = json!([{"name": "registry"}, {"name": "mirror"}]);
    object.spec.as_mut().unwrap().image_pull_secrets = serde_json::from_value(secrets).unwrap();
    run(&runtime, &Pod::new(object).unwrap()).await;
    let secrets = vec!["registry".to_owned(), "mirror".to_owned()];
    assert_eq!(told.of("-"), [PodEventKind::PullSecretsUnused(secrets)]);
    assert!(matches!(told.of("main")[..], [_, PodEventKind::Pulled { .. }, ..]));
}

#[tokio::test]
async fn an_image_that_may_not_be_pulled_is_told_of() {
    let (_stage, runtime, told) = scene().await;
    let pod = main_with(&json!({"image": "registry/app:2", "imagePullPolicy": "Never"}));
    let seen = runtime.sync_pod(&pod).await.unwrap().status.containers;
    assert_eq!(waits_for(&seen[0]), "ErrImageNeverPull");
    let expected = [
        PodEventKind::NeverPulled { image: "registry/app:2".to_owned() },
        PodEventKind::Failed { error: "ErrImageNeverPull".to_owned() },
    ];
    assert_eq!(told.of("main"), expected);
}

#[tokio::test]
async fn a_container_that_the_runtime_refuses_is_told_with_its_words() {
    for (call, made) in [("CreateContainer", false), ("StartContainer", true)] {
        let (stage, runtime, told) = scene().await;
        stage.cri.script(call, 1, Fault::Error("no such cgroup"));
        runtime.sync_pod(&polite("web")).await.unwrap();
        let failed = PodEventKind::Failed { error: "no such cgroup".to_owned() };
        assert!(told.of("main").contains(&failed), "{:?}", told.all());
        assert_eq!(told.of("main").contains(&PodEventKind::Created), made);
        assert!(!told.of("main").contains(&PodEventKind::Started));
    }
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_made_or_is_lost_is_told_of_the_pod() {
    let (stage, runtime, told) = scene().await;
    let pod = polite("web");
    stage.cri.script("RunPodSandbox", 1, Fault::Error("no network"));
    runtime.sync_pod(&pod).await.unwrap_err();
    let [PodEventKind::SandboxFailed { error }] = &told.of("-")[..] else { panic!() };
    assert!(error.starts_with("rpc error: code = ") && error.ends_with(" desc = no network"));
    run(&runtime, &pod).await;
    stage.cri.kill_sandboxes();
    sync_until(&runtime, &pod, |c| c[0].restart_count == 1 && is_running(&c[0])).await;
    assert_eq!(told.of("-")[1..], [PodEventKind::SandboxChanged]);
}

#[tokio::test]
async fn a_container_that_keeps_ending_is_told_once_for_each_wait() {
    let (stage, _, _) = scene().await;
    let mut config = stage.config();
    (config.backoff.initial, config.backoff.max) = (secs(100), secs(300));
    config.paths.state = config.paths.state.join("other");
    let runtime = CriRuntime::open(config).await.unwrap();
    let told = Arc::new(Told::default());
    runtime.record_to(&(Arc::clone(&told) as Arc<dyn Recorder>));
    let pod = pod("web", &json!({"containers": [container_of("main", Act::exits(1))]}));
    let seen = sync_until(&runtime, &pod, |c| waits_for(&c[0]) == "CrashLoopBackOff").await;
    let winddown_shared::ContainerState::Waiting { message, .. } = &seen[0].state else { panic!() };
    let wanted = "back-off 1m40s restarting failed container=main pod=web_default(uid-web)";
    assert_eq!(message, wanted);
    runtime.sync_pod(&pod).await.unwrap();
    let times = |what| told.of("main").into_iter().filter(|told| *told == what).count();
    assert_eq!((times(PodEventKind::BackOff), times(PodEventKind::Started)), (1, 2));
}

#[tokio::test]
async fn a_probe_that_fails_is_told_with_what_it_said_and_what_follows() {
    let (_stage, runtime, told) = scene().await;
    let probe = json!({"exec": {"command": ["lament ill"]}, "periodSeconds": 1,
        "failureThreshold": 1});
    let pod = main_with(&json!({"livenessProbe": probe}));
    sync_until(&runtime, &pod, |c| c[0].restart_count == 1).await;
    let told = told.of("main");
    let at = |what: &PodEventKind| told.iter().position(|told| told == what);
    let probe = ProbeKind::Liveness;
    let ill = at(&PodEventKind::Unhealthy { probe, output: "ill, alas".to_owned() });
    let killing = at(&PodEventKind::Killing(EndCause::Probe(probe)));
    assert!(ill.is_some() && ill < killing, "{told:?}");
}

#[tokio::test]
async fn hooks_that_fail_are_told_of_without_what_they_said() {
    let (_stage, runtime, told) = scene().await;
    let fails = json!({"exec": {"command": ["exit 3"]}});
    let pod = main_with(&json!({"lifecycle": {"postStart": fails}}));
    sync_until(&runtime, &pod, |c| c[0].restart_count == 1).await;
    for what in [PodEventKind::PostStartFailed, PodEventKind::Killing(EndCause::PostStart)] {
        assert!(told.of("main").contains(&what), "{:?}", told.all());
    }
    let (_stage, runtime, told) = scene().await;
    let pod = main_with(&json!({"lifecycle": {"preStop": fails}}));
    run(&runtime, &pod).await;
    stop(&runtime, &pod, 5).await;
    eventually("it is told", || told.of("main").contains(&PodEventKind::PreStopFailed)).await;
}

use std::path::Path;
use std::time::Duration;

use winddown_eviction::{
    MemoryAvailable, PressureScope, Signal, StaticPods, Threshold, ThresholdValue,
};
use winddown_shared::PressureCondition;

use crate::{API_VERSION, Config, KIND};

fn read(fields: &str) -> Result<Config, String> {
    let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
    let (file, directory) = ("config.yaml", tempfile::tempdir().unwrap());
    let path = directory.path().join(file);
    std::fs::write(&path, text).unwrap();
    Config::load(&path).map(|(config, _)| config).map_err(|error| error.to_string())
}

#[test]
fn what_is_configured_is_the_policy_of_the_loop() {
    let config = read(
        "evictionHard: {memory.available: 1Gi}\n\
         evictionSoft: {nodefs.available: 15%}\n\
         evictionSoftGracePeriod: {nodefs.available: 1min 30s}\n\
         evictionMinimumReclaim: {nodefs.available: 500Mi}\n\
         evictionPressureTransitionPeriod: 1m\n\
         evictionMaxPodGracePeriod: 20\n",
    )
    .unwrap();
    let policy = config.eviction.policy();
    let thresholds = policy.thresholds();
    let of = |signal| thresholds.iter().find(|threshold| threshold.signal == signal).unwrap();
    assert!(of(Signal::AllocatableMemoryAvailable).is_hard(), "the pods' cgroup is limited");
    let disk: &Threshold = of(Signal::NodeFsAvailable);
    assert_eq!(disk.value, ThresholdValue::Share(0.15));
    assert_eq!(disk.grace, Duration::from_secs(90));
    assert_eq!(disk.signal.condition(), PressureCondition::Disk);
    assert!(disk.min_reclaim.is_some());
    assert_eq!(of(Signal::ContainerFsAvailable).value, disk.value);
    assert_eq!(policy.transition_period, Duration::from_secs(60));
    assert_eq!(policy.max_pod_grace, Some(Duration::from_secs(20)));
    assert_eq!(policy.memory_available, MemoryAvailable::MemAvailable);
    assert_eq!(policy.static_pods, StaticPods::ByPriority);
}

#[test]
fn a_policy_of_the_library_is_that_of_a_node_without_a_configuration() {
    let configured = Config::default().eviction.policy();
    assert!(!configured.thresholds().is_empty());
    assert_eq!(winddown_eviction::Policy::default(), configured);
    let thresholds = Config::default().eviction.policy().thresholds().to_vec();
    let made = winddown_eviction::Policy::new(thresholds, false);
    assert_eq!(made.static_pods, configured.static_pods, "a pod of a manifest can be evicted");
}

#[test]
fn which_figures_count_and_what_is_done_with_them_can_be_chosen() {
    let config = read(
        "memoryAvailable: workingSet\nevictStaticPods: spared\nevictionShadow: true\n\
         localStorageCapacityIsolation: false\nenforceNodeAllocatable: [none]\n\
         imageMinimumGCAge: 30s\n\
         memoryPressure: {scope: pods, some: 40%, below: 500Mi, coolDown: 30s}\n",
    )
    .unwrap();
    let written = config.to_yaml();
    assert!(written.contains("some: 40%"), "{written}");
    assert!(written.contains("imageMinimumGCAge: 30s"), "{written}");
    assert_eq!(config.eviction.image_minimum_gc_age, Duration::from_secs(30));
    let policy = config.eviction.policy();
    assert_eq!(policy.memory_available, MemoryAvailable::WorkingSet);
    assert_eq!(policy.static_pods, StaticPods::Spared);
    assert!(policy.shadow && !policy.local_storage_limits);
    let signals = policy.thresholds().iter().map(|threshold| threshold.signal);
    assert!(!signals.into_iter().any(|s| s == Signal::AllocatableMemoryAvailable));
    let rule = policy.memory_pressure.unwrap();
    assert_eq!((rule.scope, rule.some, rule.full), (PressureScope::Pods, Some(40.0), None));
    assert_eq!(rule.cool_down, Duration::from_secs(30));
}

#[test]
fn a_grace_of_zero_without_a_soft_threshold_has_no_effect_and_is_taken() {
    for soft in ["", "evictionSoft: {nodefs.available: 0%}\n"] {
        let text = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{soft}\
             evictionSoftGracePeriod: {{nodefs.available: 0s}}\n"
        );
        let (config, warnings) = Config::parse(Path::new("c"), text.as_bytes()).unwrap();
        assert!(config.eviction.soft_grace_period.is_empty(), "{soft}");
        let said: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        let lonely = "evictionSoftGracePeriod[nodefs.available]: has no threshold to go with";
        assert_eq!(said.iter().any(|line| line.contains(lonely)), soft.is_empty(), "{said:?}");
        assert!(!config.eviction.policy().thresholds().iter().any(|t| !t.is_hard()));
    }
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_field_and_what_to_write() {
    let cases = [
        (
            "memoryAvailable: rss\n",
            "memoryAvailable: `rss` is unknown: write memAvailable or workingSet",
        ),
        ("memoryPressure: {full: 0%}\n", "memoryPressure.full: `0%` is no share of the time"),
        ("memoryPressure: {full: 10}\n", "memoryPressure.full: `10` is no share of the time"),
        ("memoryPressure: {below: 100%}\n", "memoryPressure.below: `100%` would switch it off"),
        ("enforceNodeAllocatable: pods\n", "enforceNodeAllocatable: needs a list"),
        (
            "evictionHard: {memory.free: 1Gi}\n",
            "evictionHard[memory.free]: unsupported eviction signal memory.free: write one of memory.available",
        ),
        (
            "evictionHard: {memory.available: 1.5GB}\n",
            "evictionHard[memory.available]: `1.5GB` is not a quantity: write a quantity such as 100Mi",
        ),
        (
            "evictionSoft: {memory.available: 50Mi}\nevictionSoftGracePeriod: {memory.available: 1m}\nevictionHard: {memory.available: 200Mi}\n",
            "is never reached before the hard threshold `200Mi`",
        ),
    ];
    for (fields, expected) in cases {
        let error = read(fields).unwrap_err();
        assert!(error.contains(expected), "{fields}\n{error}");
    }
}

#[test]
fn a_soft_threshold_below_the_default_hard_one_is_taken_with_a_warning_and_so_is_what_is_shown_of_it()
 {
    let soft =
        "evictionSoft: {memory.available: 50Mi}\nevictionSoftGracePeriod: {memory.available: 1m}\n";
    let parse = |text: &str| Config::parse(Path::new("config.yaml"), text.as_bytes()).unwrap();
    let (config, warnings) = parse(&format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{soft}"));
    let (shown, again) = parse(&config.to_yaml());
    assert_eq!(shown, config);
    for warnings in [warnings, again] {
        let [warning] = &*warnings else { panic!("{warnings:?}") };
        let what =
            "evictionSoft[memory.available]: `50Mi` is never reached before the hard threshold";
        assert!(warning.to_string().contains(what), "{warning}");
    }
}

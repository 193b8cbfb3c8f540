mod kubelet_files;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use winddown_notices::Cloud;

use super::*;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn parse(text: &str) -> Result<(Config, Vec<Warning>), ConfigError> {
    Config::parse(Path::new("config.yaml"), text.as_bytes())
}

fn ours(fields: &str) -> Config {
    let (config, warnings) = warned(fields);
    assert_eq!(warnings, [""; 0]);
    config
}

/// Returns the configuration with these fields, and its warnings.
fn warned(fields: &str) -> (Config, Vec<String>) {
    read(&format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}"))
}

fn kubelets(fields: &str) -> (Config, Vec<String>) {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    read(&format!("{head}{fields}"))
}

fn read(text: &str) -> (Config, Vec<String>) {
    let (config, warnings) = parse(text).unwrap();
    (config, warnings.iter().map(Warning::to_string).collect())
}

fn total(total: u64, critical: u64) -> ShutdownSettings {
    ShutdownPeriods::Total { total: seconds(total), critical: seconds(critical) }.into()
}

/// The same periods, ordered by role.
fn roles(of: u64, critical: u64) -> ShutdownSettings {
    ShutdownSettings { order: ShutdownOrder::Role, ..total(of, critical) }
}

#[test]
fn every_example_of_a_configuration_is_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let entries = std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect();
    assert!(files.len() >= 2);
    for file in files {
        let (config, warnings) = Config::load(&file).unwrap();
        assert_eq!(warnings, [], "{}", file.display());
        assert!(!config.shutdown.total().is_zero(), "{}", file.display());
    }
}

#[test]
fn a_file_that_sets_nothing_gives_the_default() {
    assert_eq!(ours(""), Config::default());
}

#[test]
fn the_default_protects_the_node() {
    assert_eq!(Config::default().shutdown, roles(60, 30));
}

#[test]
fn durations_are_read_in_both_forms() {
    assert_eq!(ours("shutdownGracePeriod: 1m30s").shutdown, roles(90, 30));
    assert_eq!(ours("shutdownGracePeriod: 1min 30s").shutdown, roles(90, 30));
    assert_eq!(ours("shutdownGracePeriod: \"90s\"").shutdown, roles(90, 30));
}

#[test]
fn a_total_that_stands_alone_leaves_half_to_critical_pods() {
    assert_eq!(ours("shutdownGracePeriod: 15s").shutdown, roles(15, 7));
    assert_eq!(ours("shutdownGracePeriod: 5m").shutdown, roles(300, 30));
}

#[test]
fn a_shutdown_period_of_zero_is_off_and_says_so() {
    let (config, warnings) = warned("shutdownGracePeriod: 0s\n");
    assert!(config.shutdown.total().is_zero());
    assert_eq!(
        warnings[0],
        "config.yaml:3: shutdownGracePeriod: is 0: the node's shutdown is not delayed and no pod \
         is terminated in order"
    );
}

#[test]
fn roots_group_is_no_group_for_the_control_socket_and_says_so() {
    let (config, warnings) = warned("controlSocketGroup: root\n");
    assert_eq!(config.access.control_socket_group, None);
    let said = "config.yaml:3: controlSocketGroup: is root";
    assert!(warnings[0].starts_with(said), "{warnings:?}");
}

#[test]
fn groups_by_priority_are_sorted_and_replace_the_periods() {
    let config = ours(
        "shutdownGracePeriod: 0s\nshutdownGracePeriodByPodPriority:\n\
         - {priority: 2000000000, shutdownGracePeriodSeconds: 10}\n\
         - {priority: -5, shutdownGracePeriodSeconds: 0}\n",
    );
    let group = |priority, s| PriorityPeriod { priority, period: seconds(s) };
    let groups = vec![group(-5, 0), group(2_000_000_000, 10)];
    assert_eq!(config.shutdown, ShutdownPeriods::ByPriority(groups).into());
    assert_eq!(config.shutdown.total(), seconds(10));
}

#[test]
fn beside_a_kubelet_nothing_waits_for_endpoints_that_stay_ready_until_pods_are_evicted() {
    let (config, warnings) = warned("mode: companion\nshutdownEndpointDrainPeriod: 15s\n");
    assert_eq!(config.shutdown, roles(60, 30));
    let said = "config.yaml:4: shutdownEndpointDrainPeriod: has no effect with `mode: companion`: ";
    assert!(warnings[0].starts_with(said), "{warnings:?}");
}

#[test]
fn an_option_that_has_no_effect_in_its_mode_or_runtime_says_so_and_what_to_do() {
    let kubelets = "evictionHard: {memory.available: 1Gi}\nmaxPods: 20\nstaticPodPath: /a\n\
                    containerLogMaxFiles: 9\n";
    let [evicts, admits, runs, logs] = ["evicts", "admits", "runs", "writes the logs of"]
        .map(|does| format!("the kubelet {does} pods: set it in the kubelet's configuration"));
    let own = "evictionShadow: true\npreemptionStrategy: minimal\n";
    let cri = "runtime: cri\n";
    for (fields, here, wanted) in [
        (
            kubelets,
            "mode: companion",
            vec![
                format!("maxPods: has no effect with `mode: companion`: {admits}"),
                format!("staticPodPath: has no effect with `mode: companion`: {runs}"),
                format!("evictionHard: has no effect with `mode: companion`: {evicts}"),
                format!("containerLogMaxFiles: has no effect with `mode: companion`: {logs}"),
            ],
        ),
        (
            own,
            "mode: companion",
            vec![
                "preemptionStrategy: has no effect with `mode: companion`: the kubelet admits pods"
                    .into(),
                "evictionShadow: has no effect with `mode: companion`: the kubelet evicts pods"
                    .into(),
            ],
        ),
        (kubelets, "mode: standalone", vec![]),
        (own, "mode: cluster", vec![]),
        (
            "clusterDNS: [10.96.0.10]\ncontainerRuntimeEndpoint: /run/crio/crio.sock\n",
            "mode: cluster",
            vec![
                "containerRuntimeEndpoint: has no effect without `runtime: cri`".into(),
                "clusterDNS: has no effect without `runtime: cri`".into(),
            ],
        ),
        (
            "endedPods: delete\nregisterNode: false\n",
            "mode: companion",
            vec![
                "registerNode: has no effect without `mode: cluster`: set it in the kubelet's \
                 configuration"
                    .into(),
                "endedPods: has no effect without `mode: cluster`".into(),
            ],
        ),
        (
            "companionWithoutApi: wait\ncordonOnShutdown: false\nregisterNode: false\n",
            "mode: standalone",
            vec![
                "registerNode: has no effect without `mode: cluster`".into(),
                "cordonOnShutdown: has no effect with `mode: standalone`: write `mode: companion` \
                 beside a kubelet, and `mode: cluster` without one"
                    .into(),
                "companionWithoutApi: has no effect without `mode: companion`".into(),
            ],
        ),
        ("imageMinimumGCAge: 1h\nallowedUnsafeSysctls: [net.core.somaxconn]\n", cri, vec![]),
        ("containerRuntimeEndpoint: /run/crio/crio.sock\n", "mode: companion", vec![]),
    ] {
        let (_, warnings) = warned(&format!("{fields}{here}\n"));
        let said: Vec<_> = warnings.iter().map(|said| said.split_once(": ").unwrap().1).collect();
        assert_eq!(said, wanted, "{here}\n{fields}");
    }
}

#[test]
fn a_printed_configuration_warns_in_no_mode_of_the_defaults_that_it_writes() {
    for mode in ["standalone", "cluster", "companion"] {
        let printed = ours(&format!("mode: {mode}\n")).to_yaml();
        let (_, warnings) = read(&printed);
        assert_eq!(warnings, [""; 0], "{mode}");
    }
}

#[test]
fn a_kubelets_file_names_what_has_no_effect_here_with_the_other_fields_that_are_not_used() {
    let (_, warnings) = kubelets(
        "clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\ncgroupDriver: systemd\n\
         registerNode: true\nevictionHard: {memory.available: 1Gi}\n",
    );
    assert_eq!(
        warnings,
        [
            "config.yaml:1: fields of the kubelet that are not used here: clusterDNS, clusterDomain, \
             cgroupDriver"
        ]
    );
}

#[test]
fn an_empty_list_of_groups_is_as_good_as_none() {
    assert_eq!(ours("shutdownGracePeriodByPodPriority: []").shutdown, roles(60, 30));
}

#[test]
fn pods_end_in_the_order_of_roles_unless_a_kubelets_period_or_groups_are_configured() {
    let order = |fields: &str| warned(fields).0.shutdown.order;
    assert_eq!(order("maxPods: 5"), ShutdownOrder::Role);
    assert_eq!(order("shutdownEndpointDrainPeriod: 5s"), ShutdownOrder::Role);
    assert_eq!(order("shutdownGracePeriod: 30s"), ShutdownOrder::Role);
    assert_eq!(order("shutdownGracePeriodCriticalPods: 5s"), ShutdownOrder::Role);
    assert_eq!(order("mode: companion"), ShutdownOrder::Role);
    assert_eq!(order("mode: companion\nshutdownGracePeriod: 30s"), ShutdownOrder::Priority);
    assert_eq!(order("shutdownOrder: priority"), ShutdownOrder::Priority);
    let by_role = "mode: companion\nshutdownGracePeriod: 30s\nshutdownOrder: role";
    assert_eq!(order(by_role), ShutdownOrder::Role);
    assert_eq!(kubelets("shutdownGracePeriod: 30s\n").0.shutdown.order, ShutdownOrder::Priority);
    let list = "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 9}]";
    assert_eq!(order(list), ShutdownOrder::Priority);
    assert_eq!(order(&format!("{list}\nshutdownOrder: priority")), ShutdownOrder::Priority);
}

#[test]
fn what_comes_before_and_after_the_groups_is_read() {
    let shutdown = ours("shutdownEndpointDrainPeriod: 15s\nshutdownReserve: 500ms").shutdown;
    let reserve = Duration::from_millis(500);
    assert_eq!(
        shutdown,
        ShutdownSettings { endpoint_drain: seconds(15), reserve, ..roles(60, 30) }
    );
}

#[test]
fn notices_are_off_unless_a_source_is_named() {
    assert!(!Config::default().shutdown.notices.is_enabled());
    let notices = |fields: &str| ours(&format!("shutdownNotices: {fields}")).shutdown.notices;
    assert_eq!(notices("{}"), NoticesConfig::default());
    assert_eq!(notices("{cloud: none, pollInterval: 0s}"), NoticesConfig::default());
    let aws = notices("{cloud: aws, metadataEndpoint: 'http://127.0.0.1:8080/', pollInterval: 1s}");
    let endpoint = Some("http://127.0.0.1:8080".to_owned());
    assert_eq!(
        aws,
        NoticesConfig { file: None, cloud: Some(Cloud::Aws), endpoint, poll: seconds(1) }
    );
    assert!(notices("{file: /run/notice}").is_enabled());
    let text = "reportsKept: 5\nshutdownNotices:\n  metadataEndpoint: http://[::1]:80\n";
    let (config, warnings) = warned(text);
    assert_eq!((config.shutdown.reports_kept, config.shutdown.notices.is_enabled()), (5, false));
    assert_eq!(
        warnings,
        ["config.yaml:5: shutdownNotices.metadataEndpoint: has no cloud to go with, and no \
             effect"]
    );
}

#[test]
fn an_interval_that_may_miss_a_clouds_notice_is_warned_of() {
    let of = |cloud: &str, poll: &str| {
        warned(&format!("shutdownNotices:\n  cloud: {cloud}\n  pollInterval: {poll}\n")).1
    };
    assert_eq!(
        of("aws", "10m"),
        ["config.yaml:5: shutdownNotices.pollInterval: is 10m0s, but aws may give as little as \
          2m0s of notice, which then comes too late: write a few seconds"]
    );
    assert_eq!((of("azure", "30s").len(), of("azure", "29s").len()), (1, 0));
    assert_eq!(
        (of("aws", "1m59s").len(), of("gcp", "10m").len(), of("none", "10m").len()),
        (0, 0, 0)
    );
}

#[test]
fn a_file_that_only_the_unit_sees_and_a_field_without_a_value_are_warned_of() {
    let hidden = warned("shutdownNotices: {file: /tmp/notice}\n").1;
    assert!(
        hidden[0].starts_with("config.yaml:3: shutdownNotices.file: /tmp/notice is not"),
        "{hidden:?}"
    );
    assert!(warned("shutdownNotices: {file: /run/winddown/notice}\n").1.is_empty());
    let unset = warned("maxPods:\n").1;
    assert_eq!(unset, ["config.yaml:3: maxPods: has no value, so that the default applies"]);
}

#[test]
fn a_kubelets_configuration_is_accepted_and_what_is_not_used_is_listed_once() {
    let (config, warnings) = kubelets(
        "authentication: {anonymous: {enabled: false}}\ncgroupDriver: systemd\n\
         shutdownGracePeriod: 300s\nshutdownGracePeriodCriticalPods: 120s\n\
         staticPodPath: /etc/kubernetes/manifests\nmaxPods: 250\n",
    );
    assert_eq!(config.shutdown, total(300, 120));
    assert_eq!(
        config.pods.static_pod_path.as_deref(),
        Some(Path::new("/etc/kubernetes/manifests"))
    );
    assert_eq!(config.node.max_pods, 250);
    assert_eq!(
        warnings,
        [
            "config.yaml:1: fields of the kubelet that are not used here: authentication, cgroupDriver"
        ]
    );
}

#[test]
fn a_domain_is_one_that_a_resolver_file_can_hold() {
    let refused = |domain: &str| {
        let text =
            format!("apiVersion: {API_VERSION}\nkind: {KIND}\nclusterDomain: \"{domain}\"\n");
        parse(&text).is_err()
    };
    for good in ["", "cluster.local", "cluster.local.", "a-b.c9", &"a.".repeat(100)] {
        assert!(!refused(good), "{good}");
    }
    for bad in
        ["cluster local", "a..b", ".", "-a", "a-", "A", "a\\nnameserver 1.1.1.1", &"a".repeat(64)]
    {
        assert!(refused(bad), "{bad}");
    }
}

#[test]
fn in_a_kubelets_configuration_a_total_alone_leaves_nothing_to_critical_pods() {
    assert_eq!(kubelets("shutdownGracePeriod: 100s\n").0.shutdown, total(100, 0));
    assert_eq!(kubelets("").0.shutdown, roles(60, 30));
}

#[test]
fn in_a_kubelets_configuration_fields_that_are_zero_have_their_default() {
    let zeroes = "fileCheckFrequency: 0s\nnodeStatusUpdateFrequency: 0s\nimageMinimumGCAge: 0s\n\
                  evictionPressureTransitionPeriod: 0s\ncontainerRuntimeEndpoint: \"\"\n\
                  maxPods: 0\nnodeLeaseDurationSeconds: 0\npodLogsDir: \"\"\n\
                  containerLogMaxSize: \"\"\nresolvConf: \"\"\n";
    assert_eq!(kubelets(zeroes), (Config::default(), vec![]));
    // In our own file, that is a mistake.
    let head = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
    assert!(parse(&format!("{head}maxPods: 0\n")).is_err());
}

#[test]
fn hard_thresholds_replace_the_defaults_unless_they_are_merged() {
    let hard = |fields: &str| ours(fields).eviction.hard;
    assert_eq!(hard("evictionHard: {pid.available: 100}").len(), 1);
    assert_eq!(hard("evictionHard: {}").len(), 0);
    let merged = "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}";
    assert_eq!(hard(merged).len(), 5);
    assert_eq!(hard(merged)["memory.available"], "1Gi");
}

#[test]
fn a_soft_threshold_that_is_switched_off_needs_no_grace() {
    let config =
        ours("evictionHard: {nodefs.available: 10%}\nevictionSoft: {nodefs.available: 0%}");
    assert_eq!(config.eviction.soft["nodefs.available"], "0%");
}

/// A kubelet accepts them; nobody wants to wait until no byte is left.
#[test]
fn thresholds_without_a_unit_of_less_than_a_mebibyte_are_warned_about() {
    let fields = "evictionHard: {memory.available: 100m, pid.available: 100, nodefs.inodesFree: 9}\n\
                  evictionSoft: {nodefs.available: 1048575, imagefs.available: 1Ki}\n\
                  evictionSoftGracePeriod: {nodefs.available: 1m, imagefs.available: 1m}\n";
    let why = "is less than 1 MiB: a number without a unit is bytes, and `m` a thousandth of one; write for \
               example 100Mi, or 10%";
    assert_eq!(
        warned(fields).1,
        [
            format!("config.yaml:3: evictionHard[memory.available]: `100m` {why}"),
            format!("config.yaml:4: evictionSoft[nodefs.available]: `1048575` {why}"),
        ]
    );
}

#[test]
fn entries_without_a_threshold_are_warned_about() {
    let fields = "evictionSoftGracePeriod: {memory.available: 1m}\n\
                  evictionMinimumReclaim: {pid.available: 10, memory.available: 0}\n";
    assert_eq!(
        warned(fields).1,
        [
            "config.yaml:3: evictionSoftGracePeriod[memory.available]: has no threshold to go \
             with, and no effect",
            "config.yaml:4: evictionMinimumReclaim[pid.available]: has no threshold to go with, \
             and no effect",
        ]
    );
}

#[test]
fn a_missing_file_is_told_from_a_wrong_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    let missing = Config::load(&path).unwrap_err();
    assert!(missing.is_missing());
    let blank = Config::load(Path::new("/none/a b.yaml")).unwrap_err().hint();
    assert_eq!(blank, "`winddown config default > '/none/a b.yaml'` writes one to start from");
    assert!(missing.to_string().ends_with("config.yaml"), "{missing}");
    let of_directory = || Config::load(directory.path()).unwrap_err().hint();
    assert_eq!(of_directory(), "", "there is no file to name");
    std::fs::write(&path, "kind: 5").unwrap();
    assert_eq!(of_directory(), format!("name the file: {}", path.display()));
    assert!(!Config::load(&path).unwrap_err().is_missing());
    std::fs::write(&path, default_yaml()).unwrap();
    assert_eq!(Config::load(&path).unwrap().0, Config::default());
}

#[test]
fn a_root_goes_before_every_path() {
    let mut config = Config::default();
    config.shutdown.notices.file = Some(PathBuf::from("/run/notice"));
    config.cluster.kubeconfig = Some(PathBuf::from("/etc/kubeconfig"));
    let config = config.rooted(Path::new("/tmp/root"));
    assert_eq!(config.shutdown.notices.file.unwrap(), Path::new("/tmp/root/run/notice"));
    assert_eq!(config.cluster.kubeconfig.unwrap(), Path::new("/tmp/root/etc/kubeconfig"));
    assert_eq!(config.pods.static_pod_path.unwrap(), Path::new("/tmp/root/etc/winddown/pods"));
    assert_eq!(config.access.state_directory, Path::new("/tmp/root/var/lib/winddown"));
    assert_eq!(config.access.control_socket, Path::new("/tmp/root/run/winddown/winddown.sock"));
    assert_eq!(
        config.node.container_runtime_endpoint,
        "unix:///tmp/root/run/containerd/containerd.sock"
    );
    assert_eq!(Config::default().rooted(Path::new("/")), Config::default());
}

#[test]
fn the_node_is_named_after_the_host_unless_the_file_says_otherwise() {
    assert_eq!(Config::default().node_name_or("Edge-1.Example\n"), "edge-1.example");
    assert_eq!(ours("nodeName: other").node_name_or("host"), "other");
}

#[test]
fn a_reload_tells_what_changes_at_once_from_what_waits_for_a_restart() {
    let old = Config::default();
    let new = ours(
        "shutdownGracePeriod: 2m\nruntime: cri\nnodeName: edge-1\nmaxPods: 50\n\
                   preemptionStrategy: minimal\nnodeLabels: {rack: r1}",
    );
    let changes = Config::changes(&old, &new);
    let show = |list: &[FieldChange]| list.iter().map(FieldChange::to_string).collect::<Vec<_>>();
    assert_eq!(
        show(&changes.applied),
        [
            "maxPods: 110 to 50",
            "nodeLabels: unset to {\"rack\":\"r1\"}",
            "preemptionStrategy: \"distance\" to \"minimal\"",
            "shutdownGracePeriod: \"1m0s\" to \"2m0s\"",
        ]
    );
    assert_eq!(
        show(&changes.needs_restart),
        ["runtime: \"process\" to \"cri\"", "nodeName: unset to \"edge-1\""]
    );
    let running = old.reloaded(&new);
    assert_eq!(running.shutdown, roles(120, 30));
    assert_eq!((running.node.runtime, running.node.name.clone()), (RuntimeKind::Process, None));
    assert_eq!(Config::changes(&running, &new).applied, []);
    assert!(Config::changes(&new, &new).is_empty());
}

#[test]
fn lists_and_names_that_look_like_null_are_shown_as_they_were_read() {
    let config = ours(
        "runtime: cri\nclusterDNS: [10.96.0.10, 'fd00::5']\nallowedUnsafeSysctls: ['kernel.msg*']\n\
         enforceNodeAllocatable: []\nnodeLabels: {'null': a}\n",
    );
    let yaml = config.to_yaml();
    assert_eq!(parse(&yaml).unwrap().0, config, "{yaml}");
    assert!(Config::default().to_yaml().contains("\nenforceNodeAllocatable:\n  - pods\n"));
}

#[test]
fn a_mapping_among_the_words_of_a_command_is_no_word() {
    let text = "kind: Configuration\napiVersion: winddown.dev/v1alpha1\n\
                evictionHook:\n  command: [/bin/dump, {out: file}]\n";
    let refused = parse(text).unwrap_err().to_string();
    assert!(refused.contains("needs a list of strings, one of them is a mapping"), "{refused}");
}

fn any_shutdown() -> impl Strategy<Value = ShutdownSettings> {
    let totals = (1_u64..=86_400, 1_u64..=86_400, any::<bool>()).prop_map(|(a, b, role)| {
        let (total, critical) = (seconds(a.max(b)), seconds(a.min(b)));
        let order = if role { ShutdownOrder::Role } else { ShutdownOrder::Priority };
        ShutdownSettings { order, ..ShutdownPeriods::Total { total, critical }.into() }
    });
    let groups = prop::collection::btree_map(any::<i32>(), 1_u64..1000, 1..6).prop_map(|groups| {
        let group = |(priority, s)| PriorityPeriod { priority, period: seconds(s) };
        ShutdownPeriods::ByPriority(groups.into_iter().map(group).collect()).into()
    });
    let shutdown = prop_oneof![totals, groups];
    (shutdown, 0_u64..1000, 0_u64..1000).prop_map(|(shutdown, drain, reserve)| ShutdownSettings {
        endpoint_drain: Duration::from_millis(drain),
        reserve: Duration::from_millis(reserve * 7),
        ..shutdown
    })
}

fn any_notices() -> impl Strategy<Value = NoticesConfig> {
    let cloud = prop_oneof![Just(Cloud::Aws), Just(Cloud::Azure), Just(Cloud::Gcp)];
    let file = proptest::option::of("/[a-zA-Z0-9 :#_'\"é-]{1,12}");
    let port = proptest::option::of(any::<u16>());
    (file, proptest::option::of(cloud), port, 1_u64..3600).prop_map(|(file, cloud, port, poll)| {
        NoticesConfig {
            file: file.map(PathBuf::from),
            cloud,
            endpoint: port.map(|port| format!("http://[fd00::1]:{port}")),
            poll: seconds(poll),
        }
    })
}

proptest! {
    #[test]
    fn what_is_shown_reads_back_to_the_same(
        shutdown in any_shutdown(),
        notices in any_notices(),
        reports_kept in 1_u32..=1000,
        node_name in proptest::option::of("[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?"),
        pods in proptest::option::of("/[a-zA-Z0-9 :#_'\"é-]{1,12}"),
        file_check in 1_u64..3600,
        size in 4096_u64..u64::from(u32::MAX),
        soft in 1_u64..1000,
        metrics in proptest::option::of(any::<SocketAddr>()),
        reserved in proptest::option::of("[1-9][0-9]{0,3}(m|Mi|Gi|k|)"),
        dongles in proptest::option::of(0_u32..),
        label in proptest::option::of("[a-zA-Z0-9]([a-zA-Z0-9._-]{0,8}[a-zA-Z0-9])?|"),
        minimal in any::<bool>(),
    ) {
        let mut config = Config { shutdown, ..Config::default() };
        config.shutdown.notices = notices;
        config.shutdown.reports_kept = reports_kept;
        config.node.name = node_name;
        config.pods.static_pod_path = pods.map(PathBuf::from);
        config.pods.file_check_frequency = seconds(file_check);
        config.access.container_log_max_size = size;
        config.access.metrics_address = metrics.map(|a| match a {
            // The scope and flow are not part of an address in a file.
            SocketAddr::V6(a) => SocketAddr::from((*a.ip(), a.port())),
            v4 => v4,
        });
        config.node.system_reserved.extend(reserved.map(|amount| ("memory".to_owned(), amount)));
        config.node.extended_resources.extend(dongles.map(|n| ("x.io/d".to_owned(), n.to_string())));
        config.node.labels.extend(label.map(|value| ("example.com/rack".to_owned(), value)));
        if minimal {
            config.node.preemption_strategy = winddown_preemption::Strategy::Minimal;
        }
        config.eviction.soft.insert("memory.available".to_owned(), "2Gi".to_owned());
        let grace = Duration::from_millis(soft * 37);
        config.eviction.soft_grace_period.insert("memory.available".to_owned(), grace);
        let (read, _) = parse(&config.to_yaml()).unwrap();
        prop_assert_eq!(&read, &config, "{}", config.to_yaml());
        prop_assert!(Config::changes(&config, &read).is_empty());
    }
}

#[test]
fn a_field_that_no_kubelet_has_is_told_from_one_that_is_not_used_here() {
    let (config, warnings) = kubelets(
        "port: 10250\nshutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPod: 20s\n\
         evictionhard: {memory.available: 1Gi}\nnodefs.available: 10%\nnonsense: 1\n",
    );
    let wanted = [
        "config.yaml:1: fields of the kubelet that are not used here: port",
        "config.yaml:5: shutdownGracePeriodCriticalPod: unknown field: did you mean \
         `shutdownGracePeriodCriticalPods`?",
        "config.yaml:6: evictionhard: unknown field: did you mean `evictionHard`?",
        "config.yaml:7: [nodefs.available]: unknown field: it belongs below `evictionHard`",
        "config.yaml:8: nonsense: unknown field: remove it",
    ];
    assert_eq!(warnings, wanted);
    assert_eq!(config.shutdown, total(60, 0));
    let error = parse(&format!("apiVersion: {API_VERSION}\nkind: {KIND}\npid.available: 10%\n"));
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("unknown field: it belongs below `evictionHard`"), "{error}");
}

#[test]
fn the_list_of_the_kubelets_fields_is_sorted_and_has_what_we_share_with_it() {
    assert!(super::kubelet_fields::KUBELET_FIELDS.is_sorted());
    for shared in ["maxPods", "podLogsDir", "shutdownGracePeriodByPodPriority", "resolvConf"] {
        assert!(super::kubelet_fields::KUBELET_FIELDS.contains(&shared), "{shared}");
    }
}

#[test]
fn a_kubelets_file_is_read_as_the_kubelet_reads_it() {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let file = Path::new("/var/lib/kubelet/config.yaml");
    let read = |fields: &str| Config::parse(file, format!("{head}{fields}").as_bytes());
    let (config, warnings) = read(
        "containerRuntimeEndpoint: /run/crio/crio.sock\nclusterDNS: [kube-dns.example, 10.0.0.10]\n\
         staticPodPath: manifests\nevictionMaxPodGracePeriod: -1\n\
         shutdownGracePeriodByPodPriority:\n\
         - {priority: 5, shutdownGracePeriodSeconds: 1}\n- {priority: 5, shutdownGracePeriodSeconds: 2}\n",
    )
    .unwrap();
    assert_eq!(config.node.container_runtime_endpoint, "unix:///run/crio/crio.sock");
    assert_eq!(config.cluster.dns, ["10.0.0.10".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(config.pods.static_pod_path, Some(PathBuf::from("/var/lib/kubelet/manifests")));
    assert_eq!(config.eviction.policy().max_pod_grace, None);
    assert_eq!(config.shutdown.total(), seconds(2), "the last entry of a priority counts");
    let warnings: Vec<_> = warnings.iter().map(|one| one.problem.to_string()).collect();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings[0].contains("kube-dns.example"), "{warnings:?}");
    assert!(warnings[1].contains("has a priority twice"), "{warnings:?}");

    let refused = |fields: &str| read(fields).unwrap_err().to_string();
    let said = refused("shutdownGracePeriod: 1d\n");
    assert!(said.contains("unknown unit"), "{said}");
    let said = refused("shutdownGracePeriodCriticalPods: 10s\n");
    assert!(said.contains("must be <= shutdownGracePeriod {0s}"), "{said}");
    let (_, warnings) =
        read("shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 0}]\n")
            .unwrap();
    assert!(warnings[0].problem.to_string().starts_with("shutdownGracePeriodByPodPriority: is 0"));
}

#[test]
fn our_own_file_takes_a_path_for_the_runtimes_socket_and_is_strict_about_the_rest() {
    let config = ours("runtime: cri\ncontainerRuntimeEndpoint: /run/crio/crio.sock\n");
    assert_eq!(config.node.container_runtime_endpoint, "unix:///run/crio/crio.sock");
    assert_eq!(ours("shutdownGracePeriod: 1d\n").shutdown.total(), seconds(86_400));
    let refused = |fields: &str| {
        parse(&format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}")).is_err()
    };
    assert!(refused("staticPodPath: manifests\n"));
    assert!(refused("clusterDNS: [kube-dns.example]\n"));
    assert!(refused("containerRuntimeEndpoint: crio.sock\n"));
}

#[test]
fn what_needs_an_api_server_and_has_none_names_the_mode_beside_a_kubelet_first() {
    for line in [
        "kubeconfig: /etc/kubernetes/kubelet.conf",
        "bootstrapKubeconfig: /etc/kubernetes/bootstrap.conf",
        "shutdownAfterNodes: rack=a",
    ] {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{line}\n");
        let (_, warnings) = Config::parse(Path::new("config.yaml"), text.as_bytes()).unwrap();
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        let what = warning.problem.message.as_str();
        let modes = "write `mode: companion` beside a kubelet, and `mode: cluster` without one";
        assert!(what.ends_with(modes), "{line}: {what}");
    }
}

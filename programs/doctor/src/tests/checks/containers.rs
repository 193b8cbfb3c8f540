//! The container runtime, and other programs that stop containers.

use super::super::*;
use super::Severity::{Info, Ok as Well, Problem, Warning};
use super::check;
use winddown_config::WithoutApi;
use winddown_control::api::{
    ApiState, ClosedBy, ClusterStatus, ContainerStatus, Decision, ExitedRun, LastState, PodState,
    PodStatus, Protection, ProtectionReason as Reason,
};
use winddown_render::View;

/// The agent is beside a kubelet, and says this of the API server.
fn beside(facts: &mut Facts, state: ApiState, why: &str) {
    beside_kubelet(facts);
    (facts.kubelet.processes, facts.kubelet.config) = (process("kubelet"), kubelet(""));
    let cluster = known(&mut facts.agent).cluster.as_mut().unwrap();
    (cluster.api.state, cluster.api.why) = (state, Some(why.to_owned()));
}

/// The container runtime is Docker.
fn is_docker(facts: &mut Facts) {
    facts.config.config.node.container_runtime_endpoint = "unix:///run/cri-dockerd.sock".to_owned();
    known(&mut facts.bus.service).after.push("cri-docker.service".to_owned());
}

/// A pod one of whose containers runs.
fn running() -> PodStatus {
    let container = ContainerStatus { state: "running".to_owned(), ..ContainerStatus::default() };
    PodStatus { containers: vec![container], ..PodStatus::default() }
}

#[test]
fn while_no_container_runs_nothing_is_concluded_from_the_lack_of_scopes() {
    let mut facts = healthy();
    facts.bus.scopes = Fact::Known(Scopes::default());
    let waits = ContainerStatus { state: "waiting".to_owned(), ..ContainerStatus::default() };
    let stuck = PodStatus { containers: vec![waits], ..PodStatus::default() };
    known(&mut facts.agent).pods = vec![PodStatus::default(), stuck];
    let found = finding(&facts, "scopes").unwrap();
    assert_eq!(found.title, "containers' scopes would stop after the agent");
    known(&mut facts.files.installed).ordered_scopes.clear();
    assert_eq!(finding(&facts, "scopes").unwrap().severity, Warning);
}

#[test]
fn a_deleted_node_object_is_named_with_its_remedy() {
    let mut facts = healthy();
    facts.api.rights = Fact::Unknown(NotObserved::NotLive, String::new());
    let mut cluster = ClusterStatus { registered: Some(true), ..ClusterStatus::default() };
    known(&mut facts.agent).cluster = Some(cluster.clone());
    assert_eq!(finding(&facts, "api"), None);
    cluster.registered = Some(false);
    known(&mut facts.agent).cluster = Some(cluster);
    let found = finding(&facts, "api").unwrap();
    assert_eq!(found.severity, Warning);
    assert!(found.title.starts_with("the Node object was deleted"), "{found:?}");
    assert!(found.advice[0].contains("recreateNode"), "{found:?}");
}

#[test]
fn a_container_that_exits_again_and_again_is_named_with_its_cause_and_its_log() {
    let mut facts = healthy();
    assert_eq!(finding(&facts, "crash-loop"), None);
    let run = ExitedRun {
        exit_code: 3,
        reason: "Error".to_owned(),
        message: "no port".to_owned(),
        ..ExitedRun::default()
    };
    let looping = ContainerStatus {
        name: "main".to_owned(),
        state: "waiting".to_owned(),
        reason: "CrashLoopBackOff".to_owned(),
        log: "/var/log/1.log".to_owned(),
        last_state: Some(LastState { terminated: run }),
        ..ContainerStatus::default()
    };
    let pod = PodStatus {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        state: PodState::Syncing,
        containers: vec![looping],
        ..PodStatus::default()
    };
    known(&mut facts.agent).pods = vec![running(), pod];
    let found = finding(&facts, "crash-loop").unwrap();
    assert_eq!(found.severity, Warning);
    let seen =
        r#"shop/web: container main exited with code 3 (Error): "no port" (log: /var/log/1.log)"#;
    assert_eq!(found.evidence, [seen]);
    assert_eq!(found.title, "1 pod has a container that exits again and again");
}

#[test]
fn what_is_wrong_with_containers_is_found() {
    check(&[
        (
            "no socket",
            |f| f.runtime.endpoint = unseen(NotObserved::Absent),
            "runtime",
            Problem,
            "as was said",
            "systemctl start containerd.service",
        ),
        (
            "another socket",
            |f| {
                f.runtime.endpoint = unseen(NotObserved::Absent);
                let crio = "unix:///run/crio/crio.sock".to_owned();
                f.runtime.endpoints = Fact::Known(vec![crio]);
            },
            "runtime",
            Problem,
            "as was said",
            "containerRuntimeEndpoint: unix:///run/crio/crio.sock into",
        ),
        (
            "hung socket",
            |f| f.runtime.endpoint = unseen(NotObserved::Silent),
            "runtime",
            Problem,
            "as was said",
            "systemctl restart containerd.service",
        ),
        (
            "no network",
            |f| {
                known(&mut f.agent).runtime.healthy = false;
                known(&mut f.agent).runtime.message =
                    "has no network for pods: NetworkReady=false reason:Because message:of that"
                        .into();
            },
            "runtime",
            Warning,
            "NetworkReady",
            "",
        ),
        (
            "unwell",
            |f| {
                known(&mut f.agent).runtime.healthy = false;
                known(&mut f.agent).runtime.message = "it hangs".into();
            },
            "runtime",
            Problem,
            "it hangs",
            "journalctl",
        ),
        (
            "loose scopes",
            |f| known(&mut f.bus.scopes).seen.push(scope(&["shutdown.target"])),
            "scopes",
            Problem,
            "Before= lacks winddown.service",
            "winddown install --runtime cri",
        ),
        (
            "no drop-ins",
            |f| {
                f.bus.scopes = Fact::Known(Scopes::default());
                known(&mut f.files.installed).ordered_scopes.clear();
            },
            "scopes",
            Warning,
            "cri-containerd-.scope.d/50-winddown.conf is not there",
            "winddown install --runtime cri",
        ),
        (
            "loose scopes of Docker",
            |f| {
                is_docker(f);
                known(&mut f.bus.scopes).seen = vec![ScopeView {
                    name: "docker-0123.scope".to_owned(),
                    before: vec!["shutdown.target".to_owned()],
                }];
            },
            "scopes",
            Problem,
            "docker-0123.scope: Before= lacks winddown.service",
            "printf '[Unit]\\nBefore=winddown.service\\n' > /etc/systemd/system/docker-.scope.d/",
        ),
        (
            "no drop-in for Docker",
            |f| {
                is_docker(f);
                f.bus.scopes = Fact::Known(Scopes::default());
            },
            "scopes",
            Warning,
            "/etc/systemd/system/docker-.scope.d/50-winddown.conf is not there",
            "> /etc/systemd/system/docker-.scope.d/50-winddown.conf",
        ),
        (
            "Docker without scopes",
            |f| {
                is_docker(f);
                f.bus.scopes = Fact::Known(Scopes::default());
                known(&mut f.agent).pods = vec![running()];
            },
            "scopes",
            Well,
            "",
            "",
        ),
        (
            "the configuration of a kubelet that is not here",
            |f| f.kubelet.config = kubelet("shutdownGracePeriod: 30s"),
            "kubelet",
            Info,
            "config.yaml:12",
            "",
        ),
        (
            "whether a kubelet runs cannot be seen",
            |f| f.kubelet.processes = unseen(NotObserved::Failed),
            "kubelet",
            Info,
            "as was said",
            "",
        ),
        (
            "no kubelet to stand beside",
            beside_kubelet,
            "kubelet",
            Problem,
            "",
            "systemctl start kubelet",
        ),
        (
            "a kubelet to stand beside",
            |f| {
                beside_kubelet(f);
                f.kubelet.processes = process("kubelet");
                f.kubelet.config = kubelet("");
            },
            "kubelet",
            Well,
            "no shutdownGracePeriod above 0s",
            "",
        ),
        (
            "a kubelet beside that terminates pods, too",
            |f| {
                beside_kubelet(f);
                f.kubelet.processes = process("kubelet");
                f.kubelet.config = kubelet("shutdownGracePeriod: 30s");
            },
            "kubelet",
            Problem,
            "config.yaml:12",
            "sed -i -E",
        ),
        (
            "rights that lack",
            |f| f.api.rights = Fact::Known(vec!["delete pods".into(), "patch nodes".into()]),
            "api",
            Problem,
            "not allowed: delete pods, patch nodes",
            "kubectl apply",
        ),
        (
            "no API server",
            |f| f.api.rights = unseen(NotObserved::Silent),
            "api",
            Problem,
            "as was said",
            "correct what the line above names",
        ),
        (
            "a kubelet with a proxy",
            |f| {
                f.api.rights = unseen(NotObserved::Silent);
                f.kubelet.config = Fact::Known(Some(KubeletConfig {
                    unit: "kubelet".into(),
                    proxy: "HTTPS_PROXY",
                    ..KubeletConfig::default()
                }));
            },
            "api",
            Problem,
            "kubelet.service sets HTTPS_PROXY, and winddown uses no proxy",
            "correct what the line above names",
        ),
        (
            "an API server that only this command reaches",
            |f| {
                f.api.rights = Fact::Known(Vec::new());
                beside(f, ApiState::Unsigned, "the unit's sandbox hides /home/k/login");
            },
            "api",
            Problem,
            "the unit's sandbox hides /home/k/login",
            "journalctl",
        ),
        ("all rights", |f| f.api.rights = Fact::Known(Vec::new()), "api", Well, "", ""),
        (
            "all rights but that to taint the node",
            |f| f.api.rights = Fact::Known(vec!["taint nodes".into()]),
            "api",
            Well,
            "",
            "",
        ),
        ("oomd", |f| f.runtime.killers = process("systemd-oomd"), "oom", Info, "process 77", ""),
    ]);
}

/// A refusal that both have met is said once, in the agent's words: they name the credentials.
#[test]
fn credentials_that_are_refused_are_named_and_the_node_is_protected_only_in_part() {
    let mut facts = healthy();
    facts.api.rights = unseen(NotObserved::Failed);
    beside(&mut facts, ApiState::Unauthorized, "the certificate in /k/conf expired: renew it");
    let found = finding(&facts, "api").unwrap();
    let why =
        "the API server rejects the credentials: the certificate in /k/conf expired: renew it";
    assert_eq!((found.severity, &*found.evidence), (Problem, &[why.to_owned()][..]));
    let verdict = Protection { reason: Reason::ApiServerUnusable, ..Protection::default() };
    known(&mut facts.agent).protection = Some(verdict);
    let text = render(&diagnose(&facts), &View::default());
    assert!(
        text.contains("\nPROTECTED IN PART: this agent terminates the kubelet's pods"),
        "{text}"
    );
}

#[test]
fn without_the_api_server_pods_end_as_the_configuration_says() {
    let title = |without_api: WithoutApi| {
        let mut facts = healthy();
        facts.config.config.companion.without_api = without_api;
        facts.api.rights = unseen(NotObserved::Silent);
        finding(&facts, "api").unwrap().title
    };
    assert!(title(WithoutApi::StopContainers).contains("through the container runtime"));
    let wait = "would terminate only the pods of manifests (companionWithoutApi: wait)";
    assert!(title(WithoutApi::Wait).ends_with(wait));
}

#[test]
fn rights_that_an_agent_can_do_without_are_named_with_what_lacks_without_them() {
    let mut facts = healthy();
    let (budgets, requests) =
        ("list poddisruptionbudgets.policy", "create evictionrequests.lifecycle.k8s.io");
    facts.api.rights = Fact::Known(["taint nodes", budgets, requests].map(str::to_owned).into());
    let found = finding(&facts, "api").unwrap();
    assert_eq!(found.severity, Well);
    for word in ["taint the node", budgets, requests] {
        assert!(found.title.contains(&format!("not {word}: ")), "{}", found.title);
    }
}

#[test]
fn containers_of_cgroupfs_need_no_order() {
    let mut facts = healthy();
    facts.bus.scopes = Fact::Known(Scopes::default());
    known(&mut facts.agent).pods.push(running());
    let found = finding(&facts, "scopes").unwrap();
    assert_eq!(found.severity, Well);
    assert!(found.title.contains("cgroupfs"), "{found:?}");
}

#[test]
fn limits_that_all_services_of_pods_share_are_found() {
    let with = |slice: SliceView| {
        let mut facts = healthy();
        facts.config.config.node.runtime = RuntimeKind::Systemd;
        facts.bus.slice = Fact::Known(slice);
        finding(&facts, "slice").unwrap()
    };
    assert_eq!(with(SliceView::default()).severity, Well);
    let roomy = SliceView { tasks_max: Some(1000), tasks: Some(899), memory_max: Some(1 << 30) };
    let found = with(roomy);
    assert_eq!(found.severity, Info);
    assert_eq!(found.evidence.len(), 2, "{found:?}");
    let found = with(SliceView { tasks: Some(900), ..roomy });
    assert_eq!(found.severity, Warning);
    assert!(found.evidence[0].contains("TasksMax=1000, 900 in use"), "{found:?}");
    assert!(found.fix[0].contains("TasksMax=infinity"), "{found:?}");
    assert_eq!(finding(&healthy(), "slice"), None, "containers have cgroups of their own");
}

#[test]
fn pods_that_cannot_start_are_named_with_the_cause() {
    let pod = |name: &str, phase: &str| PodStatus {
        namespace: "shop".into(),
        name: name.into(),
        phase: phase.into(),
        state: PodState::Syncing,
        ..PodStatus::default()
    };
    let decision = |name: &str, kind: &str, error: &str| Decision {
        kind: kind.into(),
        pod: format!("shop/{name}"),
        fields: [("error".to_owned(), error.into())].into(),
        ..Decision::default()
    };
    assert_eq!(finding(&healthy(), "starts"), None);
    let mut facts = healthy();
    let waiting = ContainerStatus {
        name: "app".into(),
        state: "waiting".into(),
        reason: "ImagePullBackOff".into(),
        message: "no such image".into(),
        ..ContainerStatus::default()
    };
    let status = known(&mut facts.agent);
    status.pods = vec![
        pod("sandboxless", "Pending"),
        PodStatus { containers: vec![waiting], ..pod("imageless", "Pending") },
        pod("young", "Pending"),
        pod("runs", "Running"),
        PodStatus { state: PodState::Waiting, ..pod("held", "Pending") },
        pod("again", "Pending"),
    ];
    status.decisions = vec![
        decision("sandboxless", "syncFailed", "older"),
        decision("again", "syncFailed", "before it came back"),
        decision("again", "podAdmitted", ""),
        decision("sandboxless", "syncFailed", "cannot create the sandbox: no bridge"),
        decision("runs", "syncFailed", "a probe"),
    ];
    let found = finding(&facts, "starts").unwrap();
    assert_eq!((found.severity, found.title.as_str()), (Warning, "2 pods cannot start"));
    assert_eq!(
        found.evidence,
        [
            "shop/sandboxless: cannot create the sandbox: no bridge",
            "shop/imageless: container app: ImagePullBackOff: no such image",
        ]
    );
    // CRI-O starts no pod without that file.
    let lacks = "create resolv conf: open /etc/resolv.conf: no such file or directory";
    known(&mut facts.agent).decisions.push(decision("sandboxless", "syncFailed", lacks));
    let advice = finding(&facts, "starts").unwrap().advice;
    assert!(advice[0].contains("/etc/resolv.conf"), "{advice:?}");
}

#[test]
fn a_drained_node_and_one_that_was_given_notice_start_no_pod() {
    let closed = |by: &[ClosedBy]| {
        let mut facts = healthy();
        known(&mut facts.agent).admission_closed_by = by.to_vec();
        finding(&facts, "admission")
            .map(|found| (found.severity, [found.fix, found.advice].concat()))
    };
    assert_eq!(closed(&[]), None);
    assert_eq!(closed(&[ClosedBy::Startup, ClosedBy::Shutdown]), None, "it exits by itself");
    let (severity, fix) = closed(&[ClosedBy::Notice, ClosedBy::Drain]).unwrap();
    assert_eq!(severity, Warning);
    assert!(fix[0].contains("winddown undrain"), "{fix:?}");
    assert!(closed(&[ClosedBy::Notice]).unwrap().1[0].contains("winddown status"));
}

#[test]
fn a_runtime_without_a_name_is_not_named() {
    let mut facts = healthy();
    known(&mut facts.agent).runtime.name.clear();
    assert_eq!(finding(&facts, "runtime").unwrap().title, "the runtime answers");
}

#[test]
fn limits_that_are_not_enforced_are_found_where_the_agent_sets_them_with_the_runtimes_own_advice() {
    for (runtime, advice) in
        [(RuntimeKind::Process, "runtime: systemd"), (RuntimeKind::Systemd, "cgroup_enable=memory")]
    {
        let mut facts = healthy();
        facts.config.config.node.runtime = runtime;
        let well = finding(&facts, "limits").map(|found| found.severity);
        assert_eq!(well, (runtime == RuntimeKind::Process).then_some(Well));
        facts.beyond.unenforced = Fact::Known(vec!["memory: not there".to_owned()]);
        let found = finding(&facts, "limits").unwrap();
        assert_eq!(found.severity, Warning);
        let said = format!("{found:?}");
        assert!(said.contains("memory: not there") && said.contains(advice), "{said}");
        facts.config.config.node.runtime = RuntimeKind::Cri;
        assert!(finding(&facts, "limits").is_none(), "the container runtime sets them");
    }
}

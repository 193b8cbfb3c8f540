//! Checks of the container runtime, and of other programs that stop containers.

use super::{Check, LOG, UNIT};
use crate::facts::{
    DOCKERS_SCOPES, Fact, Facts, KubeletConfig, LIST_BUDGETS, NotObserved, REQUEST_EVICTIONS,
    TAINT_NODES, scope_prefix,
};
use crate::finding::{Area, Finding};
use crate::fix::Fix;
use winddown_config::{RuntimeKind, WithoutApi};
use winddown_control::api::{ApiState, ClosedBy, PodStatus, RejectedPod, TroubleKind};
use winddown_host::path_word;
use winddown_shared::display;

/// Checks that the container runtime can be reached.
pub(super) fn runtime(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "runtime",
        Area::Containers,
        "pods are terminated through the runtime; while it is down, they cannot terminate in time",
    );
    if facts.config.config.node.runtime == RuntimeKind::Cri
        && let Fact::Unknown(kind, why) = &facts.runtime.endpoint
        && let Some(finding) = no_connection(&CHECK, facts, *kind, why)
    {
        return Some(finding);
    }
    let status = match &facts.agent {
        Fact::Known(status) => status,
        Fact::Unknown(NotObserved::Denied, _) => {
            return CHECK.not_observed("the runtime's health", &facts.agent);
        }
        // Reported by the check `agent`.
        Fact::Unknown(..) => return None,
    };
    let message = &status.runtime.message;
    if status.is_beside_kubelet() {
        let why = "the kubelet's pods are known and terminated through the API server";
        let check = Check { why, ..CHECK };
        return Some(match status.runtime.healthy {
            true => check.ok("the API server shows the kubelet's pods"),
            false => check
                .problem("the API server does not show the kubelet's pods")
                .saw(message)
                .advise(LOG),
        });
    }
    let runtime = match status.runtime.name.as_str() {
        "" => "the runtime".to_owned(),
        name => format!("the runtime ({name})"),
    };
    Some(if status.runtime.healthy {
        CHECK.ok(format!("{runtime} answers")).saw(message)
    } else if message.contains("NetworkReady=false") {
        CHECK
            .warning(format!("{runtime} has no pod network: only pods with hostNetwork start"))
            .saw(message)
            .advise("install a network plugin (CNI), or repair its configuration")
    } else {
        CHECK.problem(format!("{runtime} is not healthy")).saw(message).advise(LOG)
    })
}

/// Says what to do about a container runtime's socket that takes no connections.
fn no_connection(check: &Check, facts: &Facts, kind: NotObserved, why: &str) -> Option<Finding> {
    let endpoint = &facts.config.config.node.container_runtime_endpoint;
    let title = match kind {
        NotObserved::Absent | NotObserved::Failed => "the container runtime cannot be reached",
        NotObserved::Silent => "the container runtime does not accept connections",
        NotObserved::Denied | NotObserved::NotLive => return None,
    };
    let finding = check.problem(title).saw(format!("{endpoint}: {why}"));
    if kind == NotObserved::Silent {
        return Some(finding.advise(match facts.runtime_unit() {
            Some(unit) => format!("it hangs: `systemctl restart {unit}`"),
            None => "it hangs: restart what listens there".to_owned(),
        }));
    }
    let others = facts.runtime.endpoints.known().into_iter().flatten();
    let other = others.into_iter().find(|other| *other != endpoint);
    Some(match (other, facts.runtime_unit()) {
        // Its unit need not be there either.
        (Some(other), _) if kind == NotObserved::Absent => {
            let file = facts.config.file.display();
            finding.advise(format!(
                "a container runtime is at {other}: if pods are to run there, write \
                 containerRuntimeEndpoint: {other} into {file}, and restart winddown"
            ))
        }
        (_, Some(unit)) => finding.fix(Fix::RuntimeStopped, [format!("systemctl start {unit}")]),
        (_, None) => finding.advise(format!(
            "start what listens at {endpoint}, or correct containerRuntimeEndpoint"
        )),
    })
}

/// Checks that the agent can enforce the pods' limits. Only the process runtime needs more for that than the kernel's
/// usual controllers; with systemd the limits are mentioned only if something is missing.
pub(super) fn limits(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "limits",
        Area::Containers,
        "without control groups of their own pods with limits are refused, and one pod can exhaust the node",
    );
    let runtime = facts.runtime_in_use();
    let advice = match runtime {
        RuntimeKind::Process => format!(
            "give each pod a service of its own: set `runtime: systemd` in {}, then: \
             `winddown install --runtime systemd`, `winddown drain`, `systemctl restart winddown`, `winddown undrain`",
            facts.config.file.display()
        ),
        RuntimeKind::Systemd => {
            "start the kernel with these controllers: on its command line (on a Raspberry Pi in cmdline.txt) add \
             `cgroup_enable=memory`, and leave out `cgroup_disable=`; in a container the host decides"
                .to_owned()
        }
        // A container runtime sets limits itself, and starts no container that it cannot limit.
        RuntimeKind::Cri => return None,
    };
    // If unknown, the reason is reported by another check.
    let missing = facts.beyond.unenforced.known()?;
    if missing.is_empty() && runtime != RuntimeKind::Process {
        return None;
    }
    Some(if missing.is_empty() {
        CHECK.ok("limits of pods on CPU and memory are enforced")
    } else {
        CHECK
            .warning("not every limit of pods can be enforced: pods that have one are refused")
            .saw_all(missing)
            .advise(advice)
    })
}

/// Checks that the scopes of containers stop after the agent.
pub(super) fn scopes(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "scopes",
        Area::Containers,
        "systemd stops scopes that are not ordered together with the agent, all at once",
    );
    let config = &facts.config.config;
    if config.node.runtime == RuntimeKind::Process {
        return Some(CHECK.ok("pods are processes of the unit: there are no scopes to order"));
    }
    if config.node.runtime == RuntimeKind::Systemd {
        return Some(
            CHECK.ok("pods are services that stop after the agent: there are no scopes to order"),
        );
    }
    let prefix = scope_prefix(&config.node.container_runtime_endpoint);
    let directory = facts.below_root(&format!("/etc/systemd/system/{prefix}.scope.d"));
    let file = format!("{directory}/50-winddown.conf");
    let (fix, commands) = order(facts, prefix, &directory, &file);
    if let Some(scopes) = facts.bus.scopes.known().filter(|scopes| scopes.count > 0) {
        let count = match scopes.count {
            1 => "1 container is a scope".to_owned(),
            count => format!("{count} containers are scopes"),
        };
        let loose = scopes.seen.iter().find(|s| !s.before.iter().any(|unit| unit == UNIT));
        return Some(match loose {
            None => CHECK.ok("containers' scopes stop after the agent").saw(count),
            Some(scope) => CHECK
                .problem("containers' scopes stop at the same moment as the agent")
                .saw(count)
                .saw(format!("{}: Before= lacks {UNIT}", scope.name))
                .fix(fix, commands),
        });
    }
    // Pods that wait or fail have no container that could be a scope.
    let has_running = |pod: &PodStatus| pod.containers.iter().any(|c| c.state == "running");
    let running = facts.agent.known().is_some_and(|status| status.pods.iter().any(has_running));
    if running && facts.bus.scopes.known().is_some_and(|scopes| scopes.count == 0) {
        let title = "containers are no scopes (cgroupfs driver): there is nothing to order";
        return Some(CHECK.ok(title));
    }
    let installed = match &facts.files.installed {
        Fact::Known(installed) => installed,
        Fact::Unknown(..) => {
            return CHECK.not_observed("the scopes' drop-ins", &facts.files.installed);
        }
    };
    if !installed.ordered_scopes.contains(&prefix) {
        return Some(
            CHECK
                .warning("containers that systemd holds would stop at the same moment as the agent")
                .saw(format!("{file} is not there"))
                .fix(fix, commands),
        );
    }
    Some(CHECK.ok("containers' scopes would stop after the agent").saw(file))
}

/// The commands that make systemd stop such scopes after the agent.
fn order(
    facts: &Facts,
    prefix: &str,
    directory: &str,
    file: &str,
) -> (Fix, impl Iterator<Item = String> + use<>) {
    let (fix, order) = match prefix {
        // `winddown install` leaves Docker's scopes alone: on other nodes they are no pods.
        DOCKERS_SCOPES => (
            Fix::DockersScopesNotOrdered,
            format!(
                "mkdir -p {} && printf '[Unit]\\nBefore={UNIT}\\n' > {}",
                path_word(directory),
                path_word(file)
            ),
        ),
        _ if facts.live => (Fix::ScopesNotOrdered, facts.install("--runtime cri")),
        _ => (Fix::ScopesNotOrderedInImage, facts.install("--runtime cri")),
    };
    let reload = facts.live.then(|| "systemctl daemon-reload".to_owned());
    (fix, std::iter::once(order).chain(reload))
}

/// Checks that the pods' services have no limit in common.
pub(super) fn slice(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "slice",
        Area::Containers,
        "a limit on all pods together kills or starves pods that no plan knows of",
    );
    if facts.config.config.node.runtime != RuntimeKind::Systemd {
        return None;
    }
    let slice = match &facts.bus.slice {
        Fact::Known(slice) => slice,
        Fact::Unknown(..) => return CHECK.not_observed("the pods' slice", &facts.bus.slice),
    };
    let tasks = slice.tasks_max.map(|max| (max, slice.tasks.unwrap_or_default()));
    let mut seen = Vec::new();
    if let Some((max, now)) = tasks {
        seen.push(format!("winddown.slice: TasksMax={max}, {now} in use"));
    }
    if let Some(max) = slice.memory_max {
        seen.push(format!(
            "winddown.slice: MemoryMax={max}; beyond it the kernel kills, without grace"
        ));
    }
    // A restart of the largest pod may need a tenth.
    let is_close = tasks.is_some_and(|(max, now)| now >= max.saturating_sub(max / 10));
    Some(if seen.is_empty() {
        CHECK.ok("pods' services have no common limit, only each its own")
    } else if is_close {
        CHECK
            .warning("the pods use nearly all the tasks of their slice: programs will not start")
            .saw_all(&seen)
            .fix(Fix::SliceFull, ["systemctl set-property winddown.slice TasksMax=infinity"])
    } else {
        CHECK.info("pods' services have a common limit").saw_all(&seen)
    })
}

/// Advice where the evidence says what is wrong.
const CORRECT_IT: &str = "correct what the line above names; the agent tries again by itself";

/// Checks that the API server allows this agent to stop a kubelet's pods.
pub(super) fn api(facts: &Facts) -> Option<Finding> {
    const DISPENSABLE: [&str; 3] = [TAINT_NODES, LIST_BUDGETS, REQUEST_EVICTIONS];
    const CHECK: Check = Check::new(
        "api",
        Area::Containers,
        "pods of a cluster are known and terminated through the API server, and only with these rights",
    );
    let missing = match &facts.api.rights {
        Fact::Known(missing) => missing,
        Fact::Unknown(NotObserved::NotLive, _) => return of_cluster(facts, CHECK),
        Fact::Unknown(NotObserved::Denied, _) => {
            return CHECK.not_observed("the credentials for the API server", &facts.api.rights);
        }
        Fact::Unknown(_, why) => {
            let title = unanswered(facts.config.config.companion.without_api);
            let why = no_api_of_agent(facts).unwrap_or_else(|| why.clone());
            return Some(
                CHECK.problem(title).saw(why).saw(proxy_of_kubelet(facts)).advise(CORRECT_IT),
            );
        }
    };
    if let Some(why) = no_api_of_agent(facts) {
        // This command is in no sandbox, and has the environment of a shell.
        let title = "the agent cannot use the API server, though this command can";
        return Some(CHECK.problem(title).saw(why).saw(proxy_of_kubelet(facts)).advise(LOG));
    }
    Some(if missing.is_empty() {
        CHECK.ok("the API server allows this agent to terminate the node's pods")
    } else if missing.iter().all(|right| DISPENSABLE.contains(&&**right)) {
        let without = missing.iter().map(|right| match &**right {
            TAINT_NODES => "not taint the node: DaemonSets may start pods while it goes down",
            REQUEST_EVICTIONS => {
                "not create evictionrequests.lifecycle.k8s.io: pods that name eviction responders \
                 are evicted like all others"
            }
            _ => {
                "not list poddisruptionbudgets.policy: each pod is evicted, which takes longer than \
                 the deletion of one that no budget selects"
            }
        });
        let without = without.collect::<Vec<_>>().join("; and ");
        let ok = "the API server allows this agent to terminate the node's pods";
        CHECK.ok(format!("{ok}, but {without}"))
    } else {
        CHECK
            .problem("the API server denies this agent rights that it needs")
            .saw(format!("not allowed: {}", missing.join(", ")))
            .advise(match missing.iter().all(|need| need.ends_with(".events.k8s.io")) {
                // A kubelet's own credentials allow everything else.
                true => {
                    "give it the rights: `kubectl apply -f /usr/share/winddown/rbac/node-extra.yaml`"
                }
                false => {
                    "give it the rights: `kubectl apply -f /usr/share/winddown/rbac/companion-mode.yaml \
                     -f /usr/share/winddown/rbac/own-node.yaml`"
                }
            })
    })
}

/// What a shutdown would do where the API server cannot be queried.
fn unanswered(choice: WithoutApi) -> &'static str {
    match choice {
        WithoutApi::StopContainers => {
            "cannot query the API server: a shutdown would terminate pods through the container runtime"
        }
        WithoutApi::Wait => {
            "cannot query the API server: a shutdown would terminate only the pods of manifests \
             (companionWithoutApi: wait)"
        }
    }
}

/// Why the agent beside a kubelet has no use of the API server, as it says itself.
fn no_api_of_agent(facts: &Facts) -> Option<String> {
    let cluster = facts.agent.known()?.cluster.as_ref().filter(|one| one.is_beside_kubelet())?;
    cluster.api.trouble()
}

/// The proxy by which only the kubelet reaches the API server; empty if it has none.
fn proxy_of_kubelet(facts: &Facts) -> String {
    let config = facts.kubelet.config.known().and_then(Option::as_ref);
    let config = config.filter(|config| !config.proxy.is_empty());
    let said = |config: &KubeletConfig| {
        format!("{}.service sets {}, and winddown uses no proxy", config.unit, config.proxy)
    };
    config.map(said).unwrap_or_default()
}

/// Checks whether a drain or a notice keeps new pods out; returns `None` if neither does.
pub(super) fn admission(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "admission",
        Area::Containers,
        "a drain or a notice keeps new pods out until it is lifted, even across restarts of the agent",
    );
    let agent = facts.agent.known()?;
    let closed = &agent.admission_closed_by;
    // A drain in progress is not to be undone.
    if closed.contains(&ClosedBy::Drain)
        && agent.drain.as_ref().is_some_and(|drain| !drain.is_over())
    {
        let title = "the node is being drained, and no pod starts";
        return Some(CHECK.info(title).advise("`winddown status --watch` follows the drain"));
    }
    if closed.contains(&ClosedBy::Drain) {
        return Some(
            CHECK
                .warning("the node is drained, and no pod starts")
                .fix(Fix::Drained, ["winddown undrain"]),
        );
    }
    let notice = closed.contains(&ClosedBy::Notice);
    notice.then(|| {
        let title = "a notice says that the node goes away, and no pod starts";
        CHECK
            .warning(title)
            .advise("`winddown status` says who gave it; it is over when they withdraw it")
    })
}

/// Checks for pods that cannot start; returns `None` if there are none.
pub(super) fn starts(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "starts",
        Area::Containers,
        "a pod that cannot start serves nothing, however well it would be terminated",
    );
    let stuck = in_trouble(facts, TroubleKind::CannotStart)?;
    let pods = display::pod_count(stuck.len());
    // CRI-O copies it into every pod, on the host's network too.
    let lacks_resolver = |why: &String| why.contains("/etc/resolv.conf: no such file or directory");
    let advice = match stuck.iter().any(lacks_resolver) {
        true => "CRI-O needs the node's /etc/resolv.conf for every pod: create it, if only empty",
        false => "`winddown status -o wide` and `journalctl -u winddown -e` show each attempt",
    };
    Some(CHECK.warning(format!("{pods} cannot start")).saw_all(&stuck).advise(advice))
}

/// Checks for containers that exit again and again; returns `None` if there are none.
pub(super) fn loops(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "crash-loop",
        Area::Containers,
        "a container that exits again and again does no work, and a shutdown does not change that",
    );
    let looping = in_trouble(facts, TroubleKind::Loops)?;
    let title = match looping.len() {
        1 => "1 pod has a container that exits again and again".to_owned(),
        pods => format!("{pods} pods have containers that exit again and again"),
    };
    Some(CHECK.warning(title).saw_all(&looping).advise(
        "correct the command or what it needs in the pod's manifest, which is read again at once; \
         the logs named above have its output",
    ))
}

/// The API server of a node in a cluster, if its agent cannot use it, or will not be able to.
fn of_cluster(facts: &Facts, check: Check) -> Option<Finding> {
    let cluster = facts.agent.known()?.cluster.as_ref()?;
    let api = &cluster.api;
    let title = match api.state {
        ApiState::Unreachable => "the API server cannot be reached: it takes the node for dead",
        ApiState::Unauthorized => "the API server rejects the node's credentials",
        ApiState::Untrusted => "TLS with the API server fails: it takes the node for dead",
        ApiState::Unsigned => {
            "there are no credentials for the API server: the node has not joined"
        }
        _ if cluster.registered == Some(false) => {
            let title = "the Node object was deleted: the cluster deletes the node's pods";
            return Some(check.warning(title).advise(winddown_render::REGISTERS_AGAIN));
        }
        _ if cluster.certificate_problem.is_some() => {
            "the node's client certificate is not renewed: the API server rejects it once it has expired"
        }
        _ => return None,
    };
    let seen = api.why.as_ref().or(cluster.certificate_problem.as_ref());
    let finding = check.warning(title).saw(seen.cloned().unwrap_or_default());
    Some(finding.advise(CORRECT_IT).advise(LOG))
}

/// Checks that no pod was rejected for what it asks for. Returns a finding only if one was.
pub(super) fn rejected(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "rejected",
        Area::Containers,
        "a rejected pod does not run here until it is changed",
    );
    let rejected = facts.agent.known()?.rejected.iter();
    let rejected: Vec<&RejectedPod> = rejected.filter(|pod| pod.reason != "NodeShutdown").collect();
    let title = match rejected.len() {
        0 => return None,
        1 => "1 pod was rejected".to_owned(),
        pods => format!("{pods} pods were rejected"),
    };
    let line = |pod: &&RejectedPod| {
        let held_by = pod.held_by.as_ref().map(|held| format!(": {held}")).unwrap_or_default();
        format!("{}/{}: {}: {}{held_by}", pod.namespace, pod.name, pod.reason, pod.message)
    };
    Some(CHECK.warning(title).saw_each(rejected.iter().map(line)).advise(
        "correct its manifest, or make room: `winddown plan preemption` shows who has what it lacks",
    ))
}

/// The pods in trouble of this kind, each with its cause and its log; `None` if there are none, or if the agent does
/// not answer, which the check `agent` reports.
fn in_trouble(facts: &Facts, kind: TroubleKind) -> Option<Vec<String>> {
    let status = facts.agent.known()?;
    let troubled = status.pods.iter().filter_map(|pod| {
        let trouble = status.trouble(pod).filter(|trouble| trouble.kind == kind)?;
        let log = trouble.container.map(|container| container.log.as_str()).unwrap_or_default();
        let log = if log.is_empty() { String::new() } else { format!(" (log: {log})") };
        Some(format!("{}/{}: {}{log}", pod.namespace, pod.name, trouble.cause))
    });
    let troubled: Vec<_> = troubled.collect();
    (!troubled.is_empty()).then_some(troubled)
}

/// Checks that the API server's certificate is verified. Returns a finding only if it is not.
pub(super) fn server(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "api-server",
        Area::Containers,
        "a server that passes for the API server gets the node's credentials and decides what runs here",
    );
    match &facts.api.server_verified {
        Fact::Known(true) => None,
        Fact::Known(false) => Some(
            CHECK
                .warning("the API server's certificate is not verified")
                .saw("insecure-skip-tls-verify is true in the kubeconfig")
                .advise(
                    "write certificate-authority in its place, then: `systemctl restart winddown`",
                ),
        ),
        Fact::Unknown(NotObserved::Denied, _) => {
            CHECK.not_observed("the credentials for the API server", &facts.api.server_verified)
        }
        // The agent reports why, and does not start without credentials.
        Fact::Unknown(..) => None,
    }
}

/// Checks whether other programs kill processes when memory runs out.
pub(super) fn out_of_memory(facts: &Facts) -> Option<Finding> {
    const CHECK: Check = Check::new(
        "oom",
        Area::Containers,
        "a program that kills processes when memory runs out gives them no grace period and follows no order",
    );
    let killers = match &facts.runtime.killers {
        Fact::Known(killers) => killers,
        Fact::Unknown(..) => return CHECK.not_observed("other processes", &facts.runtime.killers),
    };
    let killers: Vec<String> = killers
        .iter()
        .map(|process| format!("process {}: {}", process.pid, process.name))
        .collect();
    Some(if killers.is_empty() {
        CHECK.ok("only the kernel kills when memory runs out")
    } else {
        CHECK.info("another program kills processes when memory runs out").saw_all(&killers)
    })
}

mod checks;
mod collecting;
mod hostile;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use winddown_shared::WallTime;
use winddown_systemd::drop_in::Setting;
use winddown_systemd::inspect::{
    LockView, LoginView, ScopeView, ServiceView, SliceView, SystemView,
};

use super::*;
use winddown_companion::kubelet::SettingDifference;
use winddown_config::{Config, Mode, RuntimeKind};
use winddown_control::api::{ClusterStatus, LockState, NodeStatus, ReportList, Status};
use winddown_host::FreeSpace;

fn now() -> WallTime {
    "2026-11-20T07:00:00Z".parse().unwrap()
}

/// A healthy node with a container runtime.
fn healthy() -> Facts {
    let mut config = Config::default();
    config.node.runtime = RuntimeKind::Cri;
    Facts {
        live: true,
        root: "/".into(),
        node: "node1".to_owned(),
        config: ConfigFact {
            file: "/etc/winddown/config.yaml".into(),
            read: ConfigRead::Valid(Vec::new()),
            config,
            has_lines: true,
        },
        wanted: secs(32),
        budget: secs(30),
        agent: Fact::Known(status()),
        bus: BusFacts {
            login: Fact::Known(LoginView {
                delay: secs(37),
                preparing: false,
                locks: vec![lock("NetworkManager"), lock("winddown")],
                scheduled: None,
            }),
            system: Fact::Known(SystemView {
                version: "252.39-1~deb12u1".to_owned(),
                state: "running".to_owned(),
            }),
            service: Fact::Known(service()),
            limit: Fact::Known(Some(secs(1800))),
            scopes: Fact::Known(Scopes { count: 1, seen: vec![scope(&["winddown.service"])] }),
            slice: Fact::not_live(),
            synchronised: Fact::Known(true),
            is_booted: true,
        },
        files: FileFacts {
            setting: set("/etc/systemd/logind.conf.d/zz-winddown.conf", 37),
            installed: Fact::Known(Installed {
                unit: true,
                enabled: true,
                ordered_scopes: vec!["cri-containerd-", "crio-"],
                runtime_units: vec!["containerd.service"],
            }),
            others_may_write: Fact::Known(Vec::new()),
            exposed: Fact::Known(Vec::new()),
            state: Fact::Known(StateDirectory {
                path: "/var/lib/winddown".into(),
                unwritable: None,
                left: FreeSpace { bytes: 10 << 30, inodes: Some(1_000_000), read_only: false },
            }),
            in_place_of_logs: Fact::Known(None),
            socket: Fact::Known(SocketFile {
                path: "/run/winddown/winddown.sock".into(),
                mode: 0o600,
                uid: 0,
                group: "root".to_owned(),
                directory_mode: 0o755,
            }),
            reports: Fact::Known(ReportList::default()),
            unreported: Fact::Known(None),
            commands: Fact::Known(vec![ShutdownCommand {
                path: "/usr/sbin/reboot".into(),
                leads_to: "/usr/bin/systemctl".into(),
            }]),
        },
        runtime: ContainerRuntimeFacts {
            endpoint: Fact::Known(()),
            endpoints: Fact::Known(Vec::new()),
            killers: Fact::Known(Vec::new()),
        },
        kubelet: KubeletOnDisk {
            processes: Fact::Known(Vec::new()),
            unit: Fact::Known(None),
            config: Fact::Known(None),
            differences: Vec::new(),
        },
        api: ApiFacts { rights: Fact::not_live(), server_verified: Fact::not_live() },
        beyond: BeyondAgent {
            missing_group: Fact::Known(None),
            out_of_reach: Fact::Known(Vec::new()),
            unenforced: Fact::Known(Vec::new()),
        },
        shortages: Fact::Known(Vec::new()),
        clock: Clock { now: now(), newest: None },
    }
}

/// The agent is the companion of a kubelet, by its configuration and by its own word.
fn beside_kubelet(facts: &mut Facts) {
    facts.config.config.node.mode = Mode::Companion;
    if let Fact::Known(status) = &mut facts.agent {
        status.cluster = Some(ClusterStatus { mode: "companion".to_owned(), ..Default::default() });
    }
}

fn status() -> Status {
    let node = NodeStatus {
        name: "node1".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: 612,
        uptime_seconds: 7200,
        ..NodeStatus::default()
    };
    let mut status = Status { time: now(), node, ..Status::default() };
    status.lock.state = LockState::Held;
    status.lock.required_seconds = 32.0;
    status.shutdown_plan.enabled = true;
    status.runtime.name = "cri".to_owned();
    status.runtime.healthy = true;
    status
}

fn service() -> ServiceView {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    ServiceView {
        load_state: "loaded".to_owned(),
        active_state: "active".to_owned(),
        sub_state: "running".to_owned(),
        unit_file_state: "enabled".to_owned(),
        after: words("dbus.service systemd-logind.service containerd.service kubelet.service"),
        timeout_stop: secs(90),
        watchdog: secs(30),
        fd_store_max: 16,
        fd_store: 1,
        kill_mode: "mixed".to_owned(),
        restart: "always".to_owned(),
        ..ServiceView::default()
    }
}

fn lock(who: &str) -> LockView {
    LockView {
        what: "sleep:shutdown".to_owned(),
        who: who.to_owned(),
        why: String::new(),
        mode: "delay".to_owned(),
        uid: 0,
        pid: 612,
    }
}

fn scope(before: &[&str]) -> ScopeView {
    ScopeView {
        name: "cri-containerd-0123.scope".to_owned(),
        before: before.iter().map(ToString::to_string).collect(),
    }
}

fn set(file: &str, seconds: u64) -> Fact<Option<Setting>> {
    Fact::Known(Some(Setting { file: file.into(), value: secs(seconds) }))
}

fn unseen<T>(kind: NotObserved) -> Fact<T> {
    Fact::Unknown(kind, "as was said".to_owned())
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn kubelet(enabled: &str) -> Fact<Option<KubeletConfig>> {
    Fact::Known(Some(KubeletConfig {
        place: "/var/lib/kubelet/config.yaml:12".to_owned(),
        file: "/var/lib/kubelet/config.yaml".to_owned(),
        unit: "kubelet".to_owned(),
        enabled: enabled.to_owned(),
        is_plain: true,
        wanted: secs(30),
        ..KubeletConfig::default()
    }))
}

fn difference(field: &'static str, ours: &str, kubelets: &str) -> SettingDifference {
    SettingDifference { field, ours: ours.to_owned(), kubelets: kubelets.to_owned() }
}

fn process(name: &str) -> Fact<Vec<KubeletProcess>> {
    Fact::Known(vec![KubeletProcess { pid: 77, name: name.to_owned() }])
}

fn known<T>(fact: &mut Fact<T>) -> &mut T {
    match fact {
        Fact::Known(seen) => seen,
        Fact::Unknown(..) => panic!("the healthy node has it"),
    }
}

fn finding(facts: &Facts, id: &str) -> Option<Finding> {
    findings(facts).into_iter().find(|finding| finding.id == id)
}

fn path(path: &str) -> PathBuf {
    PathBuf::from(path)
}

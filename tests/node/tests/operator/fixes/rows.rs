//! How a node gets each fault that the doctor mends with commands.

use winddown_doctor::Fix;

/// The kind of node on which a fix is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The process runtime.
    Processes,
    /// The systemd runtime, whose agent is in a sandbox.
    Services,
    /// The systemd runtime on a node that counts the tasks of slices.
    Controllers,
    /// A container runtime.
    Containers,
    /// A kubelet, played by a script, with an API server; winddown is not installed.
    Kubelet,
}

/// A fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) stage: Stage,
    /// The check that finds it.
    pub(super) id: &'static str,
    /// What makes it, typed by root on a node that is well.
    pub(super) fault: &'static str,
    /// What is asked.
    pub(super) doctor: &'static str,
}

pub(super) const DOCTOR: &str = "winddown doctor -o json";
const OF_IMAGE: &str = "winddown doctor --root /image -o json";
const AS_NOBODY: &str =
    "setpriv --reuid 65534 --regid 65534 --clear-groups winddown doctor -o json";

/// The rows of a fix, at least one. A fix without a row does not compile.
#[allow(clippy::too_many_lines, reason = "one table")]
pub(super) fn of(fix: Fix) -> Vec<Row> {
    use Stage::{Containers, Controllers, Kubelet, Processes, Services};
    let row = |stage, id, fault| vec![Row { stage, id, fault, doctor: DOCTOR }];
    let image = |id, fault| vec![Row { stage: Processes, id, fault, doctor: OF_IMAGE }];
    let kubelets_image = |id, fault| vec![Row { stage: Kubelet, id, fault, doctor: OF_IMAGE }];
    match fix {
        Fix::NotPermitted => {
            vec![Row { stage: Processes, id: "agent", fault: "true", doctor: AS_NOBODY }]
        }
        // The programs of nodes are links to one file, which nothing may be written to.
        Fix::AgentVersion => row(
            Processes,
            "agent",
            "systemctl stop winddown
             cp /usr/bin/winddownd /root/new; cp /usr/bin/winddownd /root/old
             LC_ALL=C sed -i 's/0\\.1\\.0/0.0.9/g' /root/old
             mv /root/old /usr/bin/winddownd; systemctl start winddown; mv /root/new /usr/bin/winddownd",
        ),
        Fix::AgentSilent => row(Processes, "agent", "kill -STOP $(systemctl show -P MainPID winddown)"),
        Fix::LockHolderSilent => row(Processes, "lock", "kill -STOP $(systemctl show -P MainPID winddown)"),
        Fix::AgentStopped => row(Processes, "agent", "systemctl stop winddown"),
        Fix::SocketGone => row(
            Processes,
            "agent",
            "echo hi >/run/winddown/other; mv -T /run/winddown/other /run/winddown/winddown.sock",
        ),
        Fix::LogindStopped => row(
            Processes,
            "logind",
            "systemctl mask --now systemd-logind dbus-org.freedesktop.login1",
        ),
        Fix::LogindSilent => row(Processes, "logind", "kill -STOP $(systemctl show -P MainPID systemd-logind)"),
        Fix::LogindStale => vec![
            Row { stage: Processes, id: "delay", fault: STALE_LOGIND, doctor: DOCTOR },
            Row { stage: Processes, id: "delay", fault: STALE_LOGIND_ALONE, doctor: DOCTOR },
        ],
        Fix::DelayOverridden => vec![
            Row {
                stage: Processes,
                id: "delay",
                fault: "mkdir -p /usr/lib/systemd/logind.conf.d
                        printf '[Login]\\nInhibitDelayMaxSec=3\\n' >/usr/lib/systemd/logind.conf.d/zzz.conf
                        systemctl restart systemd-logind",
                doctor: DOCTOR,
            },
            Row {
                stage: Processes,
                id: "delay",
                fault: "printf '[Login]\\n\\tInhibitDelayMaxSec = 3\\n' >\"/etc/systemd/logind.conf.d/zzz my site's.conf\"
                        systemctl restart systemd-logind",
                doctor: DOCTOR,
            },
        ],
        Fix::DelayNotRaised => row(
            Services,
            "delay",
            // Neither place can be written to.
            "systemctl stop winddown
             rm -rf /etc/systemd/logind.conf.d /run/systemd/logind.conf.d; echo >/run/systemd/logind.conf.d
             systemctl restart systemd-logind; systemctl start winddown",
        ),
        Fix::UnitMissing => row(
            Processes,
            "unit",
            "systemctl stop winddown; rm /etc/systemd/system/winddown.service; systemctl daemon-reload",
        ),
        Fix::UnitMissingInImage => image("unit", "mkdir /image"),
        Fix::UnitMasked => row(
            Processes,
            "unit",
            "systemctl stop winddown
             ln -sf /dev/null /etc/systemd/system/winddown.service; systemctl daemon-reload",
        ),
        Fix::UnitStale => row(
            Processes,
            "unit",
            "printf '[Service]\\nNice=1\\n' >/etc/systemd/system/winddown.service.d/60-nice.conf",
        ),
        Fix::UnitFailed => row(
            Processes,
            "unit",
            // Without the last configuration in effect, which would be used.
            "cd /etc/winddown; cp -p config.yaml kept; echo 'nonsense: [' >>config.yaml; rm /var/lib/winddown/last-config.yaml
             systemctl restart winddown; mv kept config.yaml",
        ),
        Fix::AgentOutsideUnit => row(
            Processes,
            "unit",
            "systemctl stop winddown; systemd-run --quiet -p Type=notify -p KillMode=process winddownd",
        ),
        Fix::PathsClosed => row(
            Services,
            "sandbox",
            "sed -i '1a stateDirectory: /srv/state' /etc/winddown/config.yaml; systemctl restart winddown",
        ),
        Fix::NotEnabled => row(Processes, "boot", "systemctl disable winddown"),
        Fix::NotEnabledInImage => {
            image("boot", "mkdir /image; winddown install --root /image --no-enable")
        }
        Fix::OrderMissing => row(
            Processes,
            "order",
            "sed -i '/^After=dbus/d' /etc/systemd/system/winddown.service
             systemctl daemon-reload; systemctl restart winddown",
        ),
        Fix::StopTimeShort => vec![
            Row {
                stage: Processes,
                id: "stop-time",
                fault: "sed -i 's/Seconds: 70/Seconds: 400/' /etc/winddown/config.yaml
                        systemctl reload winddown",
                doctor: DOCTOR,
            },
            // As a package has it.
            Row {
                stage: Services,
                id: "stop-time",
                fault: "cd /etc/systemd/system; rm /var/lib/winddown/install.json
                        sed -i 's/^TimeoutStopSec=.*/TimeoutStopSec=90s/' winddown.service
                        mv winddown.service /usr/lib/systemd/system/; systemctl daemon-reload
                        systemctl disable winddown; systemctl enable winddown
                        sed -i 's/Seconds: 70/Seconds: 400/' /etc/winddown/config.yaml
                        systemctl reload winddown",
                doctor: DOCTOR,
            },
        ],
        Fix::RestartKillsPods => row(
            Processes,
            "crash",
            "rm -r /etc/systemd/system/winddown.service.d; systemctl daemon-reload",
        ),
        Fix::RuntimeStopped => row(Containers, "runtime", "systemctl stop containerd"),
        Fix::ScopesNotOrdered => row(
            Containers,
            "scopes",
            "rm -r /etc/systemd/system/cri-containerd-.scope.d; systemctl daemon-reload
             setsid systemd-run --quiet --scope --unit=cri-containerd-0123.scope sleep 1000 >/dev/null 2>&1 &
             until systemctl --quiet is-active cri-containerd-0123.scope; do :; done",
        ),
        Fix::ScopesNotOrderedInImage => image(
            "scopes",
            "mkdir /image; winddown install --root /image --runtime cri
             rm -r /image/etc/systemd/system/cri-containerd-.scope.d",
        ),
        Fix::DockersScopesNotOrdered => row(
            Containers,
            "scopes",
            "cd /etc/winddown; sed -i /^containerRuntimeEndpoint/d config.yaml
             sed -i '1a containerRuntimeEndpoint: unix:///run/cri-dockerd.sock' config.yaml
             setsid systemd-run --quiet --scope --unit=docker-0123.scope sleep 1000 >/dev/null 2>&1 &
             until systemctl --quiet is-active docker-0123.scope; do :; done",
        ),
        Fix::SliceFull => {
            row(Controllers, "slice", "systemctl set-property winddown.slice TasksMax=1")
        }
        Fix::Drained => row(Processes, "admission", "winddown drain"),
        Fix::KubeletDelayShort => row(
            Kubelet,
            "kubelet-shutdown",
            "printf '[Login]\\nInhibitDelayMaxSec=3\\n' >/etc/systemd/logind.conf.d/zzz.conf
             systemctl restart systemd-logind; systemctl restart kubelet",
        ),
        Fix::KubeletDelayShortInImage => kubelets_image(
            "kubelet-shutdown",
            "make-image; mkdir -p /image/etc/systemd/logind.conf.d
             printf '[Login]\\nInhibitDelayMaxSec=3\\n' >/image/etc/systemd/logind.conf.d/zzz.conf",
        ),
        Fix::KubeletLockLost => row(
            Kubelet,
            "kubelet-shutdown",
            "sed -i.kept 's/: [0-9]*s$/: 0s/' /var/lib/kubelet/config.yaml; systemctl restart kubelet
             mv /var/lib/kubelet/config.yaml.kept /var/lib/kubelet/config.yaml",
        ),
        Fix::NotACompanion => vec![
            Row { stage: Kubelet, id: "kubelet", fault: STANDALONE, doctor: DOCTOR },
            Row { stage: Kubelet, id: "kubelet", fault: EDITED_STANDALONE, doctor: DOCTOR },
        ],
        Fix::NotACompanionInImage => kubelets_image(
            "kubelet",
            "make-image; sed -i 's/: [0-9]*s$/: 0s/' /image/var/lib/kubelet/config.yaml
             winddown install --root /image",
        ),
        Fix::CompanionNotStarted => row(Kubelet, "kubelet", STARTED_BEFORE),
        Fix::AnotherKubelet => row(
            Kubelet,
            "kubelet",
            "sed -i 's/: [0-9]*s$/: 0s/' /var/lib/kubelet/config.yaml; systemctl restart kubelet
             winddown install --companion; systemctl enable --now winddown
             printf 'nodeName: other\nkubeletRootDir: /data\n' >>/etc/winddown/config.yaml",
        ),
        Fix::AnotherKubeletInImage => kubelets_image(
            "kubelet",
            "make-image; sed -i 's/: [0-9]*s$/: 0s/' /image/var/lib/kubelet/config.yaml
             winddown install --root /image --companion
             printf 'kubeletRootDir: /data\n' >>/image/etc/winddown/config.yaml",
        ),
        Fix::KubeletStopped => row(
            Kubelet,
            "kubelet",
            "winddown install --companion; systemctl enable --now winddown
             sed -i 's/: [0-9]*s$/: 0s/' /var/lib/kubelet/config.yaml; systemctl stop kubelet",
        ),
        Fix::KubeletTerminatesPods => vec![
            Row {
                stage: Kubelet,
                id: "kubelet",
                fault: "winddown install --companion; systemctl enable --now winddown",
                doctor: DOCTOR,
            },
            Row { stage: Kubelet, id: "kubelet", fault: "winddown install --companion", doctor: DOCTOR },
        ],
        Fix::KubeletTerminatesPodsInImage => {
            kubelets_image("kubelet", "make-image; winddown install --root /image --companion")
        }
        Fix::KubeletStale => vec![
            Row {
                stage: Kubelet,
                id: "kubelet",
                fault: "winddown install --companion; systemctl enable --now winddown
                        sed -i 's/: [0-9]*s$/: 0s/' /var/lib/kubelet/config.yaml",
                doctor: DOCTOR,
            },
            Row {
                stage: Kubelet,
                id: "kubelet",
                fault: "winddown install --companion
                        sed -i 's/: [0-9]*s$/: 0s/' /var/lib/kubelet/config.yaml",
                doctor: DOCTOR,
            },
        ],
        Fix::ConfigChanged => row(
            Processes,
            "config",
            // By the clock of files, which is a tick behind that of `date`.
            "cd /etc/winddown; now=$(date +%s); until [ $(stat -c %Y config.yaml) -gt $now ]; do touch config.yaml; done",
        ),
        Fix::ConfigAtRestart => row(
            Processes,
            "config",
            "echo 'reportsKept: 7' >>/etc/winddown/config.yaml; systemctl reload winddown",
        ),
        Fix::ManifestsWritable => row(Processes, "manifest-writers", WRITTEN_BY_A_USER),
        Fix::StateGone => row(Services, "state", "rm -r /var/lib/winddown"),
        Fix::SocketOpen => row(Processes, "socket", "chmod 666 /run/winddown/winddown.sock"),
        Fix::SocketReplaceable => row(Processes, "socket", "chmod 777 /run/winddown"),
        Fix::SocketGroup => row(
            Processes,
            "socket",
            "systemd-sysusers; sed -i '1a controlSocketGroup: winddown' /etc/winddown/config.yaml",
        ),
        Fix::NoGroup => row(
            Processes,
            "socket",
            "sed -i '1a controlSocketGroup: operators' /etc/winddown/config.yaml",
        ),
    }
}

/// The directory, a file whose name is a command, and a link.
const WRITTEN_BY_A_USER: &str = "cd /etc/winddown/pods; chmod 777 .
    pod() { printf '{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"%s\"}, \"spec\":
        {\"hostNetwork\": true, \"containers\": [{\"name\": \"a\", \"image\": \"host\", \"command\": [\"/bin/sleep\", \"1d\"]}]}}' $1; }
    pod a >'a.yaml; touch pwned; #.yaml'; pod z >/etc/winddown/z.yaml; ln -s ../z.yaml z.yaml
    chown -h nobody 'a.yaml; touch pwned; #.yaml' z.yaml";

const STALE_LOGIND: &str = "file=/etc/systemd/logind.conf.d/zzz.conf
    printf '[Login]\\nInhibitDelayMaxSec=3\\n' >$file; systemctl restart systemd-logind
    until winddown status -o json | grep -q '\"delaySeconds\": 3.0'; do :; done
    printf '[Login]\\nInhibitDelayMaxSec=300\\n' >$file";
const STALE_LOGIND_ALONE: &str = "systemctl stop winddown
    file=/etc/systemd/logind.conf.d/zzz.conf
    printf '[Login]\\nInhibitDelayMaxSec=3\\n' >$file; systemctl restart systemd-logind
    printf '[Login]\\nInhibitDelayMaxSec=300\\n' >$file";
/// What a kubelet's node gets from who follows the way for machines without one, and has switched the kubelet off.
const STANDALONE: &str =
    "sed -i 's/: [0-9]*s$/: 0s/' /var/lib/kubelet/config.yaml; systemctl restart kubelet
    winddown install --start";
/// The same, made a companion while the agent runs.
const STARTED_BEFORE: &str =
    "sed -i 's/: [0-9]*s$/: 0s/' /var/lib/kubelet/config.yaml; systemctl restart kubelet
    winddown install --start; winddown install --companion";
/// The same with a configuration that somebody edited.
const EDITED_STANDALONE: &str = "sed -i 's/: [0-9]*s$/: 0s/' /var/lib/kubelet/config.yaml
    systemctl restart kubelet; winddown install
    sed -i '/^maxPods/d; $a maxPods: 50' /etc/winddown/config.yaml; systemctl enable --now winddown";

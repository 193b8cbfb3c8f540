//! The readers of foreign input.

use crate::Target;

pub(crate) static ALL: [Target; 18] = [
    Target {
        name: "api_objects",
        what: "the API server: pods, against what the node says of them",
        longest: 4096,
        short: 300,
    },
    Target { name: "certificates", what: "credentials: DER and PEM", longest: 2048, short: 2000 },
    Target {
        name: "cgroups",
        what: "the kernel: files of control groups",
        longest: 512,
        short: 2000,
    },
    Target { name: "configuration", what: "a person: config.yaml", longest: 8192, short: 300 },
    Target { name: "container_logs", what: "a container: its output", longest: 70_000, short: 200 },
    Target {
        name: "control_requests",
        what: "a local user: the control socket",
        longest: 2048,
        short: 40,
    },
    Target { name: "cri", what: "the container runtime: its answers", longest: 1024, short: 1500 },
    Target {
        name: "dbus",
        what: "anybody on the bus: messages as they come from the socket",
        longest: 2048,
        short: 1000,
    },
    Target {
        name: "durations",
        what: "a person: times, in three notations",
        longest: 64,
        short: 2000,
    },
    Target {
        name: "kernel_files",
        what: "the kernel: /proc and /sys of the node",
        longest: 1024,
        short: 1500,
    },
    Target {
        name: "kubelet_files",
        what: "a kubelet: dra_manager_state",
        longest: 2048,
        short: 2000,
    },
    Target {
        name: "logs",
        what: "a container's log, as its runtime wrote it, and the API server's query",
        longest: 4096,
        short: 500,
    },
    Target {
        name: "manifests",
        what: "a person: pods as YAML and JSON",
        longest: 8192,
        short: 300,
    },
    Target {
        name: "notices",
        what: "a program, a cloud: the notice file, metadata services",
        longest: 1024,
        short: 2000,
    },
    Target {
        name: "procfs",
        what: "the kernel, and the names of processes in it: /proc/PID, tables of mounts",
        longest: 1024,
        short: 2000,
    },
    Target {
        name: "quantities",
        what: "a person, the API server: amounts",
        longest: 64,
        short: 2000,
    },
    Target {
        name: "reports",
        what: "pods: names and messages, in text, HTML and SVG",
        longest: 8192,
        short: 150,
    },
    Target { name: "thresholds", what: "a person: when to evict", longest: 64, short: 2000 },
];

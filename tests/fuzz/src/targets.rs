//! The readers of foreign input.

use crate::Target;

mod control;
mod documents;
mod kernel;
mod numbers;
mod reports;

pub(crate) static ALL: [Target; 18] = [
    Target {
        name: "api_objects",
        what: "the API server: pods, against what the node says of them",
        laws: winddown_cluster::fuzzing::api_object,
        longest: 4096,
        short: 300,
    },
    Target {
        name: "certificates",
        what: "credentials: DER and PEM",
        laws: winddown_api_client::fuzzing::certificate,
        longest: 2048,
        short: 2000,
    },
    Target {
        name: "cgroups",
        what: "the kernel: files of control groups",
        laws: kernel::cgroups,
        longest: 512,
        short: 2000,
    },
    Target {
        name: "configuration",
        what: "a person: config.yaml",
        laws: documents::configuration,
        longest: 8192,
        short: 300,
    },
    Target {
        name: "container_logs",
        what: "a container: its output",
        laws: winddown_shim::fuzzing::container_log,
        longest: 70_000,
        short: 200,
    },
    Target {
        name: "control_requests",
        what: "a local user: the control socket",
        laws: control::conversation,
        longest: 2048,
        short: 40,
    },
    Target {
        name: "cri",
        what: "the container runtime: its answers",
        laws: winddown_cri::fuzzing::answer,
        longest: 1024,
        short: 1500,
    },
    Target {
        name: "dbus",
        what: "anybody on the bus: messages as they come from the socket",
        laws: winddown_systemd::fuzzing::wire,
        longest: 2048,
        short: 1000,
    },
    Target {
        name: "durations",
        what: "a person: times, in three notations",
        laws: numbers::durations,
        longest: 64,
        short: 2000,
    },
    Target {
        name: "kernel_files",
        what: "the kernel: /proc and /sys of the node",
        laws: winddown_host::fuzzing::kernel_file,
        longest: 1024,
        short: 1500,
    },
    Target {
        name: "kubelet_files",
        what: "a kubelet: dra_manager_state and vol_data.json",
        laws: winddown_companion::fuzzing::kubelet_file,
        longest: 2048,
        short: 2000,
    },
    Target {
        name: "logs",
        what: "a container's log, as its runtime wrote it, and the API server's query",
        laws: winddown_node_api::fuzzing::log,
        longest: 4096,
        short: 500,
    },
    Target {
        name: "manifests",
        what: "a person: pods as YAML and JSON",
        laws: documents::manifest,
        longest: 8192,
        short: 300,
    },
    Target {
        name: "notices",
        what: "a program, a cloud: the notice file, metadata services",
        laws: winddown_notices::fuzzing::notice,
        longest: 1024,
        short: 2000,
    },
    Target {
        name: "procfs",
        what: "the kernel, and the names of processes in it: /proc/PID, tables of mounts",
        laws: kernel::procfs,
        longest: 1024,
        short: 2000,
    },
    Target {
        name: "quantities",
        what: "a person, the API server: amounts",
        laws: numbers::quantities,
        longest: 64,
        short: 2000,
    },
    Target {
        name: "reports",
        what: "pods: names and messages, in text, HTML and SVG",
        laws: reports::laws,
        longest: 8192,
        short: 150,
    },
    Target {
        name: "thresholds",
        what: "a person: when to evict",
        laws: numbers::thresholds,
        longest: 64,
        short: 2000,
    },
];

//! libFuzzer's loop around the target that `WINDDOWN_FUZZ` names. tests/fuzz/run.sh compiles it with `cfg(fuzzing)`, for
//! which the crates have their `fuzzing` modules.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../tests/targets"]
mod targets {
    pub(crate) mod documents;
    pub(crate) mod kernel;
    pub(crate) mod numbers;
    pub(crate) mod reports;
}

#[cfg(fuzzing)]
mod guided {
    use std::sync::OnceLock;

    use super::targets::{documents, kernel, numbers, reports};

    type Laws = fn(&[u8]);

    static LAWS: OnceLock<Laws> = OnceLock::new();

    #[allow(clippy::panic, reason = "what it cannot do ends it")]
    fn laws(target: &str) -> Laws {
        match target {
            "api_objects" => winddown_cluster::fuzzing::api_object,
            "certificates" => winddown_api_client::fuzzing::certificate,
            "cgroups" => kernel::cgroups,
            "configuration" => documents::configuration,
            "container_logs" => winddown_shim::fuzzing::container_log,
            "control_requests" => winddown_control::fuzzing::conversation,
            "cri" => winddown_cri::fuzzing::answer,
            "dbus" => winddown_systemd::fuzzing::wire,
            "durations" => numbers::durations,
            "kernel_files" => winddown_host::fuzzing::kernel_file,
            "kubelet_files" => winddown_companion::fuzzing::kubelet_file,
            "logs" => |bytes: &[u8]| {
                winddown_host::fuzzing::log(bytes);
                winddown_node_api::fuzzing::query(bytes);
            },
            "manifests" => documents::manifest,
            "notices" => winddown_notices::fuzzing::notice,
            "procfs" => procfs,
            "quantities" => numbers::quantities,
            "reports" => reports::laws,
            "thresholds" => numbers::thresholds,
            name => panic!("WINDDOWN_FUZZ={name:?} names no target"),
        }
    }

    /// The input is taken for a process's state, for its memory and for a table of mounts.
    fn procfs(text: &[u8]) {
        winddown_shim::fuzzing::process_state(text);
        winddown_runtimes::fuzzing::memory(text);
        kernel::mount_table(text);
    }

    libfuzzer_sys::fuzz_target!(|data: &[u8]| {
        LAWS.get_or_init(|| laws(&std::env::var("WINDDOWN_FUZZ").unwrap_or_default()))(data);
    });
}

#[cfg(not(fuzzing))]
fn main() {
    println!("tests/fuzz/run.sh");
}

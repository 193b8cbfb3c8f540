//! The options for logs, state and access to the agent.

use std::net::SocketAddr;
use std::path::PathBuf;

use winddown_yaml::{Fields, Problem};

use crate::reference::{FieldReading, at_restart, options};
use crate::{Config, Effect, Trust};

/// The longest path of a socket: `sun_path` has 108 bytes, including the terminating zero.
const LONGEST_SOCKET_PATH: usize = 107;

options! {
    /// The options for logs, state and access to the agent.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AccessSettings {
        /// Where the containers' logs are. The kubelet's /var/log/pods would do, but a kubelet on this machine removes
        /// what it does not know from there.
        pod_logs_dir: PathBuf = PathBuf::from("/var/log/winddown")
            => at_restart("podLogsDir", Effect::LOGS)
                .trusted(Trust::Nothing)
                .zero_is_unset_for_kubelets();
        /// When a log is rotated.
        // In bytes.
        container_log_max_size: u64 = 10 * 1024 * 1024
            => at_restart("containerLogMaxSize", Effect::LOGS)
                .size("4Ki")
                .zero_is_unset_for_kubelets();
        /// How many log files of a container are kept, the current one included.
        container_log_max_files: u32 = 5
            => at_restart("containerLogMaxFiles", Effect::LOGS).integer(2, 1000);
        /// The directory for what has to survive a restart: which processes belong to which pod, and reports of past
        /// shutdowns.
        state_directory: PathBuf = PathBuf::from("/var/lib/winddown")
            => at_restart("stateDirectory", Effect::Everywhere).trusted(Trust::Read);
        /// The socket that commands connect to. Root may do everything.
        control_socket: PathBuf = PathBuf::from("/run/winddown/winddown.sock")
            => at_restart("controlSocket", Effect::Everywhere).trusted(Trust::Socket).check(socket);
        /// An existing group whose members may do everything as well. Unset, or with group 0: only root may, mode 0600.
        control_socket_group: Option<String> = None
            => at_restart("controlSocketGroup", Effect::Everywhere)
                .text("^[A-Za-z0-9_.-]{1,32}$")
                .check(group)
                .example("winddown");
        /// Metrics are on the control socket. This serves them over TCP as well, without authentication.
        metrics_address: Option<SocketAddr> = None
            => at_restart("metricsAddress", Effect::Everywhere).example("127.0.0.1:9477");
    }
}

fn socket(_: &str, path: &str) -> Option<String> {
    let long = path.len();
    (long > LONGEST_SOCKET_PATH)
        .then(|| format!("is {long} bytes long: a socket's path has at most {LONGEST_SOCKET_PATH}"))
}

fn group(_: &str, name: &str) -> Option<String> {
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let valid = (1..=32).contains(&name.len()) && name.bytes().all(valid);
    (!valid).then(|| format!("`{name}` is no group name: write one that `getent group` knows"))
}

pub(crate) fn relate(fields: &mut Fields<'_, '_>, config: &mut Config, reading: &mut FieldReading) {
    let key = "controlSocketGroup";
    if let Some(at) = fields.key_at(key)
        && config.access.control_socket_group.take_if(|group| group == "root").is_some()
    {
        let what = "is root, which counts as none: a process that was given no group runs with this \
                    one. Name a group of operators, for example winddown";
        reading.warnings.push(Problem::new(at, key, what));
    }
    // Directories with different content must not be shared: each owner would take the other's files for its own.
    let Some(pods) = &config.pods.static_pod_path else { return };
    let others = [
        ("stateDirectory", &config.access.state_directory),
        ("podLogsDir", &config.access.pod_logs_dir),
    ];
    for (key, _) in others.into_iter().filter(|(_, directory)| *directory == pods) {
        let what = format!(
            "is {}, which is {key} as well: give each a directory of its own",
            pods.display()
        );
        let at = fields.key_at("staticPodPath").or(fields.key_at(key)).unwrap_or(fields.at());
        fields.fail("staticPodPath", at, what);
    }
}

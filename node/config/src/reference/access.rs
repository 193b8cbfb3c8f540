//! The options for logs, state and access to the agent.

use super::{FieldReading, OptionSection, Top, ValueKind};
use crate::{Config, Trust};
use winddown_yaml::{Fields, Problem};

/// The longest path of a socket: `sun_path` has 108 bytes, including the terminating zero.
const LONGEST_SOCKET_PATH: usize = 107;

pub(super) fn section() -> OptionSection {
    let rows = vec![
        Top::new("podLogsDir", |c| &mut c.pod_logs_dir, ValueKind::PATH).trusted(Trust::Nothing)
            .doc(
                "Where the containers' logs are. The kubelet's /var/log/pods would do, but a kubelet on \
                 this machine removes what it does not know from there.",
            )
            .zero_is_unset_for_kubelets(),
        Top::new("containerLogMaxSize", |c| &mut c.container_log_max_size, ValueKind::Size { least: "4Ki" })
            .doc("When a log is rotated.")
            .zero_is_unset_for_kubelets(),
        Top::new("containerLogMaxFiles", |c| &mut c.container_log_max_files, ValueKind::integer(2, 1000))
            .doc("How many log files of a container are kept, the current one included."),
        Top::new("stateDirectory", |c| &mut c.state_directory, ValueKind::PATH).trusted(Trust::Read).doc(
            "The directory for what has to survive a restart: which processes belong to which \
             pod, and reports of past shutdowns.",
        ),
        Top::new("controlSocket", |c| &mut c.control_socket, ValueKind::PATH).trusted(Trust::Socket)
            .doc("The socket that commands connect to. Root may do everything.")
            .check(socket),
        Top::new("controlSocketGroup", |c| &mut c.control_socket_group, GROUP)
            .doc(
                "An existing group whose members may do everything as well. Unset, or with group \
                 0: only root may, mode 0600.",
            )
            .check(group)
            .example("winddown"),
        Top::new("metricsAddress", |c| &mut c.metrics_address, ValueKind::Address("IP and port"))
            .doc(
                "Metrics are on the control socket. This serves them over TCP as well, without \
                 authentication.",
            )
            .example("127.0.0.1:9477"),
    ];
    OptionSection { title: "Logs, state, access", rows, relate }
}

const GROUP: ValueKind = ValueKind::Text { pattern: "^[A-Za-z0-9_.-]{1,32}$" };

pub(super) fn socket(_: &str, path: &str) -> Option<String> {
    let long = path.len();
    (long > LONGEST_SOCKET_PATH)
        .then(|| format!("is {long} bytes long: a socket's path has at most {LONGEST_SOCKET_PATH}"))
}

fn group(_: &str, name: &str) -> Option<String> {
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let valid = (1..=32).contains(&name.len()) && name.bytes().all(valid);
    (!valid).then(|| format!("`{name}` is no group name: write one that `getent group` knows"))
}

fn relate(fields: &mut Fields<'_, '_>, config: &mut Config, reading: &mut FieldReading) {
    let key = "controlSocketGroup";
    if let Some(at) = fields.key_at(key)
        && config.control_socket_group.take_if(|group| group == "root").is_some()
    {
        let what = "is root, which counts as none: a process that was given no group runs with this \
                    one. Name a group of operators, for example winddown";
        reading.warnings.push(Problem::new(at, key, what));
    }
    // Directories with different content must not be shared: each owner would take the other's files for its own.
    let Some(pods) = &config.static_pod_path else { return };
    let others =
        [("stateDirectory", &config.state_directory), ("podLogsDir", &config.pod_logs_dir)];
    for (key, _) in others.into_iter().filter(|(_, directory)| *directory == pods) {
        let what = format!(
            "is {}, which is {key} as well: give each a directory of its own",
            pods.display()
        );
        let at = fields.key_at("staticPodPath").or(fields.key_at(key)).unwrap_or(fields.at());
        fields.fail("staticPodPath", at, what);
    }
}

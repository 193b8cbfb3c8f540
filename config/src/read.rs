//! A configuration file's tree to a [`Config`].

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use winddown_shared::Quantity;

use super::{
    API_VERSION, ClusterSettings, CompanionSettings, Config, EvictionSettings, KIND, Mode,
    NoticesConfig, RuntimeKind, ShutdownSettings, resources, shutdown,
};
use winddown_yaml::{Fields, Located, Node, Problem, names};

const KUBELET_API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KUBELET_KIND: &str = "KubeletConfiguration";
/// Fields in which the kubelet takes its zero value for its default, and which have no 0 of their own here.
const KUBELET_ZERO_IS_UNSET: &[&str] =
    &["maxPods", "nodeLeaseDurationSeconds", "podLogsDir", "containerLogMaxSize", "resolvConf"];
/// `sun_path` holds 108 bytes, one of them the final zero.
const LONGEST_SOCKET_PATH: usize = 107;
pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);

/// Whose configuration a file is.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    Ours,
    Kubelet,
}

/// Reads the tree; what was accepted but perhaps not meant goes to `warnings`.
pub(super) fn read(root: &Node, warnings: &mut Vec<Problem>) -> Result<Config, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut fields = Fields::new(root, winddown_yaml::Path::ROOT, &mut problems);
    let Some(origin) = origin(&mut fields) else { return Err(problems) };
    if origin == Origin::Kubelet {
        fields.take_zero_for_unset(KUBELET_ZERO_IS_UNSET);
    }
    let config = all(&mut fields, origin, warnings);
    match origin {
        Origin::Ours => fields.finish(),
        Origin::Kubelet => warnings.extend(unused(&fields)),
    }
    if config.shutdown.total().is_zero() && problems.is_empty() {
        let at = root.entry("shutdownGracePeriod").map_or(root.at, |(key, _)| key.at);
        let what = "is 0: the node's shutdown is not delayed and no pod is ended in order";
        warnings.push(Problem::new(at, "shutdownGracePeriod", what));
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// Nothing else in a file means anything before it is known whose it is.
fn origin(fields: &mut Fields<'_, '_>) -> Option<Origin> {
    if !fields.is_mapping() {
        return None;
    }
    let at = fields.at();
    let version = fields.text("apiVersion");
    let kind = fields.text("kind");
    let expected = format!(
        "write `apiVersion: {API_VERSION}` and `kind: {KIND}` \
         (a kubelet's {KUBELET_API_VERSION} {KUBELET_KIND} is accepted as well)"
    );
    let origin = match kind.as_ref().map(|kind| kind.value) {
        Some(KIND) => Some((Origin::Ours, API_VERSION)),
        Some(KUBELET_KIND) => Some((Origin::Kubelet, KUBELET_API_VERSION)),
        Some(other) => {
            let at = kind.as_ref().map_or(at, |kind| kind.at);
            fields.fail("kind", at, format!("`{other}` is no configuration: {expected}"));
            None
        }
        None if fields.has("kind") => None,
        None => {
            fields.fail("kind", at, format!("is missing: {expected}"));
            None
        }
    };
    let (origin, wanted) = origin?;
    match version {
        Some(version) if version.value == wanted => Some(origin),
        Some(version) => {
            let what = format!("`{}` is not understood: write `{wanted}`", version.value);
            fields.fail("apiVersion", version.at, what);
            None
        }
        None => {
            if !fields.has("apiVersion") {
                fields.fail("apiVersion", at, format!("is missing: write `{wanted}`"));
            }
            None
        }
    }
}

fn unused(fields: &Fields<'_, '_>) -> Option<Problem> {
    let unknown: Vec<&str> = fields.unknown().map(|key| &*key.text).collect();
    if unknown.is_empty() {
        return None;
    }
    let what = format!("fields of the kubelet that are not used here: {}", unknown.join(", "));
    Some(Problem::new(fields.at(), "", what))
}

fn all(fields: &mut Fields<'_, '_>, origin: Origin, warnings: &mut Vec<Problem>) -> Config {
    let defaults = Config::default();
    let shutdown = ShutdownSettings::read(fields, |total| match origin {
        // A total without the critical part means none to the kubelet.
        Origin::Kubelet => Duration::ZERO,
        Origin::Ours => Duration::from_secs(10.min(total.as_secs() / 3)),
    });
    let mode = Mode::read(fields);
    let config = Config {
        mode,
        cluster: ClusterSettings::read(fields, mode, warnings),
        companion: CompanionSettings::read(fields),
        runtime: runtime(fields, mode).unwrap_or(defaults.runtime),
        node_name: node_name(fields),
        static_pod_path: static_pod_path(fields, defaults.static_pod_path),
        file_check_frequency: interval(fields, "fileCheckFrequency", HOUR)
            .unwrap_or(defaults.file_check_frequency),
        shutdown,
        notices: NoticesConfig::read(fields, warnings),
        reports_kept: fields
            .integer("reportsKept", 1, 1000)
            .map_or(defaults.reports_kept, |n| n.value),
        eviction: EvictionSettings::read(fields, warnings),
        container_runtime_endpoint: endpoint(fields).unwrap_or(defaults.container_runtime_endpoint),
        system_reserved: resources::reserved(fields, "systemReserved"),
        kube_reserved: resources::reserved(fields, "kubeReserved"),
        max_pods: fields.integer("maxPods", 1, 10_000).map_or(defaults.max_pods, |n| n.value),
        extended_resources: resources::extended(fields),
        node_labels: resources::labels(fields),
        preemption_strategy: resources::strategy(fields).unwrap_or_default(),
        node_status_update_frequency: interval(fields, "nodeStatusUpdateFrequency", HOUR)
            .unwrap_or(defaults.node_status_update_frequency),
        resolv_conf: path(fields, "resolvConf").unwrap_or(defaults.resolv_conf),
        pod_logs_dir: path(fields, "podLogsDir").unwrap_or(defaults.pod_logs_dir),
        container_log_max_size: log_size(fields).unwrap_or(defaults.container_log_max_size),
        container_log_max_files: fields
            .integer("containerLogMaxFiles", 2, 1000)
            .map_or(defaults.container_log_max_files, |n| n.value),
        state_directory: path(fields, "stateDirectory").unwrap_or(defaults.state_directory),
        control_socket: socket(fields).unwrap_or(defaults.control_socket),
        control_socket_group: group(fields, warnings),
        metrics_address: metrics_address(fields),
    };
    check_directories(fields, &config);
    config
}

fn runtime(fields: &mut Fields<'_, '_>, mode: Mode) -> Option<RuntimeKind> {
    let found = fields.text("runtime");
    if mode == Mode::Companion {
        if let Some(Located { value, at }) = found.filter(|found| found.value != "cri") {
            let what = format!(
                "is {value}, but with `mode: companion` a kubelet runs the pods on its container \
                 runtime: remove the line, or write `runtime: cri`"
            );
            fields.fail("runtime", at, what);
        }
        return Some(RuntimeKind::Cri);
    }
    let Located { value, at } = found?;
    match value {
        "process" => Some(RuntimeKind::Process),
        "cri" => Some(RuntimeKind::Cri),
        "systemd" => Some(RuntimeKind::Systemd),
        other => {
            fields.fail(
                "runtime",
                at,
                format!("`{other}` is unknown: write process, cri or systemd"),
            );
            None
        }
    }
}

fn node_name(fields: &mut Fields<'_, '_>) -> Option<String> {
    let Located { value, at } = fields.text("nodeName")?;
    if !names::is_dns_subdomain(value) {
        let what = format!(
            "`{value}` is no node name: write lower-case letters, digits, `-` and `.`, at most 253"
        );
        fields.fail("nodeName", at, what);
    }
    Some(value.to_owned())
}

fn static_pod_path(fields: &mut Fields<'_, '_>, default: Option<PathBuf>) -> Option<PathBuf> {
    match fields.text("staticPodPath") {
        Some(text) if text.value.is_empty() => None,
        Some(text) => Some(absolute(fields, "staticPodPath", &text)),
        None => default,
    }
}

fn path(fields: &mut Fields<'_, '_>, key: &'static str) -> Option<PathBuf> {
    let text = fields.text(key)?;
    Some(absolute(fields, key, &text))
}

pub(super) fn absolute(fields: &mut Fields<'_, '_>, key: &str, text: &Located<&str>) -> PathBuf {
    let path = Path::new(text.value);
    if !path.is_absolute() || text.value.contains('\0') {
        let what =
            format!("`{}` is not an absolute path: write one that starts with /", text.value);
        fields.fail(key, text.at, what);
    } else if path.components().any(|part| part == Component::ParentDir) {
        fields.fail(key, text.at, format!("`{}` has a `..` in it: write it out", text.value));
    }
    path.components().collect()
}

fn socket(fields: &mut Fields<'_, '_>) -> Option<PathBuf> {
    let text = fields.text("controlSocket")?;
    if text.value.len() > LONGEST_SOCKET_PATH {
        let what = format!(
            "is {} bytes long: a socket's path has at most {LONGEST_SOCKET_PATH}",
            text.value.len()
        );
        fields.fail("controlSocket", text.at, what);
    }
    Some(absolute(fields, "controlSocket", &text))
}

fn endpoint(fields: &mut Fields<'_, '_>) -> Option<String> {
    const KEY: &str = "containerRuntimeEndpoint";
    let Located { value, at } = fields.text(KEY)?;
    if value.is_empty() {
        return None;
    }
    if !value.strip_prefix("unix://").is_some_and(|path| path.starts_with('/')) {
        let what = format!(
            "`{value}` is no socket: write unix:// and an absolute path, for example \
             unix:///run/containerd/containerd.sock"
        );
        fields.fail(KEY, at, what);
    }
    Some(value.to_owned())
}

/// A time between looks. The kubelet takes 0 for its default, and so do we.
pub(super) fn interval(
    fields: &mut Fields<'_, '_>,
    key: &'static str,
    most: Duration,
) -> Option<Duration> {
    let Located { value, at } = fields.duration(key)?;
    if value.is_zero() {
        return None;
    }
    if value < Duration::from_secs(1) || value > most {
        let (value, most) = (shutdown::go(value), shutdown::go(most));
        fields.fail(key, at, format!("{value} is out of range: write 1s to {most}"));
    }
    Some(value)
}

fn log_size(fields: &mut Fields<'_, '_>) -> Option<u64> {
    const KEY: &str = "containerLogMaxSize";
    const LEAST: u64 = 4096;
    let found = fields.node(KEY)?;
    let Located { value, at } = fields.raw(KEY, &found, "a size, for example 10Mi")?;
    match value.parse::<Quantity>().map(|quantity| u64::try_from(quantity.value())) {
        Ok(Ok(bytes)) if bytes >= LEAST => Some(bytes),
        Ok(_) => {
            fields.fail(KEY, at, format!("`{value}` is too small: write at least 4Ki"));
            None
        }
        Err(error) => {
            fields.fail(KEY, at, error);
            None
        }
    }
}

fn group(fields: &mut Fields<'_, '_>, warnings: &mut Vec<Problem>) -> Option<String> {
    let Located { value, at } = fields.text("controlSocketGroup")?;
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if value.is_empty() || value.len() > 32 || !value.bytes().all(valid) {
        let what = format!("`{value}` is no group name: write one that `getent group` knows");
        fields.fail("controlSocketGroup", at, what);
    }
    if value == "root" {
        let what = "is root, which counts as none: a process that was given no group runs with this one. \
                    Name a group of operators, for example winddown";
        warnings.push(Problem::new(at, "controlSocketGroup", what));
        return None;
    }
    Some(value.to_owned())
}

fn metrics_address(fields: &mut Fields<'_, '_>) -> Option<SocketAddr> {
    let found = fields.node("metricsAddress")?;
    let Located { value, at } = fields.raw("metricsAddress", &found, "an IP and a port")?;
    if value.is_empty() {
        return None;
    }
    let address = value.parse().ok();
    if address.is_none() {
        let what = format!("`{value}` is no address: write IP and port, such as 127.0.0.1:9477");
        fields.fail("metricsAddress", at, what);
    }
    address
}

/// Two things in one directory would take each other's files for their own.
fn check_directories(fields: &mut Fields<'_, '_>, config: &Config) {
    let Some(pods) = &config.static_pod_path else { return };
    let others =
        [("stateDirectory", &config.state_directory), ("podLogsDir", &config.pod_logs_dir)];
    for (key, directory) in others {
        if pods == directory {
            let what = format!(
                "is {}, which is {key} as well: give each a directory of its own",
                pods.display()
            );
            let at = fields.key_at("staticPodPath").or(fields.key_at(key)).unwrap_or(fields.at());
            fields.fail("staticPodPath", at, what);
        }
    }
}

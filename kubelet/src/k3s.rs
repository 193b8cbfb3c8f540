//! k3s, which contains a kubelet: the arguments that it passes to it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::below;
use super::command_line::{option, values};
use super::configuration::drop_ins;
use super::unit::Start;

pub(super) const SERVER: &str = "k3s.service";
pub(super) const AGENT: &str = "k3s-agent.service";
/// The endpoint of the containerd that k3s contains.
pub(super) const CONTAINERD: &str = "unix:///run/k3s/containerd/containerd.sock";

/// The kubelet's options that are needed here, as k3s takes them: without leading dashes.
const NEEDED: [&str; 4] = ["config=", "config-dir=", "feature-gates=", "root-dir="];

const CONFIG: &str = "/etc/rancher/k3s/config.yaml";
const DATA: &str = "/var/lib/rancher/k3s";

/// The settings for the location of its files, the node's name and the kubelet.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Settings {
    data_dir: Option<String>,
    node_name: Option<String>,
    kubelet_arg: Option<OneOrMore>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// The arguments that k3s passes to its kubelet, as far as they are needed here.
pub(super) fn kubelets_arguments(root: &Path, own: &Start) -> Vec<String> {
    let option = |long, short| option(&own.arguments, long).or(option(&own.arguments, short));
    let file = option("--config", "-c").unwrap_or(CONFIG);
    let mut settings = Settings::default();
    let directory = PathBuf::from(format!("{file}.d"));
    for file in [PathBuf::from(file)].into_iter().chain(drop_ins(root, &directory, "yaml")) {
        let text = fs::read_to_string(below(root, &file)).unwrap_or_default();
        // k3s does not start with a file that cannot be parsed.
        let later: Settings = serde_saphyr::from_str(&text).unwrap_or_default();
        settings.data_dir = later.data_dir.or(settings.data_dir);
        settings.node_name = later.node_name.or(settings.node_name);
        settings.kubelet_arg = later.kubelet_arg.or(settings.kubelet_arg);
    }
    let set = |option: Option<&str>, variable: &str, file: Option<String>| {
        option.or(own.environment.get(variable).map(String::as_str)).map(str::to_owned).or(file)
    };
    let data = set(option("--data-dir", "-d"), "K3S_DATA_DIR", settings.data_dir);
    let data = data.unwrap_or_else(|| DATA.to_owned());
    let name = set(option("--node-name", "--node-name"), "K3S_NODE_NAME", settings.node_name);
    let mut arguments = vec![
        format!("--kubeconfig={data}/agent/kubelet.kubeconfig"),
        format!("--config-dir={data}/agent/etc/kubelet.conf.d"),
    ];
    arguments.extend(name.map(|name| format!("--hostname-override={name}")));
    let more = match settings.kubelet_arg {
        Some(OneOrMore::One(one)) => vec![one],
        Some(OneOrMore::More(more)) => more,
        None => Vec::new(),
    };
    let more = more.iter().map(String::as_str).chain(values(&own.arguments, "--kubelet-arg"));
    let needed = more.filter(|one| NEEDED.iter().any(|name| one.starts_with(*name)));
    arguments.extend(needed.map(|one| format!("--{one}")));
    arguments
}

//! k3s and RKE2, which start a kubelet with arguments of their own settings: options, files and variables.

use std::fs;
use std::path::{Path, PathBuf};

use winddown_host::in_root;
use winddown_yaml::{Value, YamlNode, parse_first_leniently};

use super::KubeletProblem;
use super::command_line::{option, values};
use super::trusted::read_if_there;
use super::unit::{HOST_NAME, UnitStart};

/// A program of that kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rancher {
    /// The beginning of its variables, such as `K3S`.
    pub(super) variables: &'static str,
    /// Its configuration, unless a variable or an option names another.
    pub(super) config: &'static str,
    /// Its data, unless an option, the configuration or a variable names another directory.
    pub(super) data: &'static str,
}

/// The kubelet's options that are needed here, as they are passed on: without leading dashes.
const NEEDED: [&str; 6] =
    ["config", "config-dir", "feature-gates", "root-dir", "hostname-override", "pod-manifest-path"];

/// What runs the containers with the option `docker`. The option for the endpoint then names the socket of Docker.
const CRI_DOCKERD: &str = "unix:///run/k3s/cri-dockerd/cri-dockerd.sock";

/// Where the program keeps what `with-node-id` appends to the name of its node.
const NODE_ID: &str = "/etc/rancher/node/id";

/// The settings for the location of its files, the node's name and the kubelet, merged from its files.
#[derive(Debug, Default)]
struct Settings {
    data_dir: Option<String>,
    node_name: Option<String>,
    with_node_id: Option<String>,
    endpoint: Option<String>,
    docker: Option<String>,
    disable_agent: Option<String>,
    kubelet_arg: Vec<String>,
}

/// The arguments that the program passes to its kubelet, as far as they are needed here.
///
/// # Errors
/// A file of settings that it would read cannot be read: the arguments are not known.
pub(super) fn kubelets_arguments(
    root: &Path,
    rancher: &Rancher,
    own: &UnitStart,
) -> Result<Vec<String>, KubeletProblem> {
    let option = |long, short| option(&own.arguments, long).or(option(&own.arguments, short));
    let variable = |name: &str| rancher.variable(own, name);
    let settings = Settings::read(root, rancher, own)?;
    // What the files say is passed on as options, before those of the command line, and variables are their defaults.
    let set = |option: Option<&str>, name: &str, file: Option<String>| {
        option.map(str::to_owned).or(file).or_else(|| variable(name).map(str::to_owned))
    };
    let data = set(option("--data-dir", "-d"), "DATA_DIR", settings.data_dir);
    let data = data.unwrap_or_else(|| rancher.data.to_owned());
    let name = set(option("--node-name", "--node-name"), "NODE_NAME", settings.node_name);
    let with_id = flag(&own.arguments, "--with-node-id").or(settings.with_node_id.as_deref());
    let name = match with_id.is_some_and(is_true) {
        true => Some(with_node_id(root, name)?),
        false => name,
    };
    let endpoint = option("--container-runtime-endpoint", "--container-runtime-endpoint");
    let docker = flag(&own.arguments, "--docker").or(settings.docker.as_deref());
    let endpoint = match docker.is_some_and(is_true) {
        true => Some(CRI_DOCKERD.to_owned()),
        false => endpoint.map(str::to_owned).or(settings.endpoint),
    };
    let directory = format!("{data}/agent/etc/kubelet.conf.d");
    // What `config-dir` names is then copied into it, and not passed on (k3s: extractConfigArgs).
    let is_merged = in_root(root, &directory).is_dir();
    let mut arguments = vec![
        format!("--kubeconfig={data}/agent/kubelet.kubeconfig"),
        format!("--config-dir={directory}"),
    ];
    arguments.extend(name.map(|name| format!("--hostname-override={name}")));
    arguments.extend(endpoint.map(|address| format!("--container-runtime-endpoint={address}")));
    let more = settings.kubelet_arg.iter().map(String::as_str);
    let more = more.chain(values(&own.arguments, "--kubelet-arg"));
    for (name, value) in more.filter_map(|one| one.trim_start_matches("--").split_once('=')) {
        let plain = name.trim_end_matches(['+', '-']);
        if !NEEDED.contains(&plain) || (is_merged && plain == "config-dir") {
            continue;
        }
        // Of several values for a name the kubelet takes the last. `name-=` puts one before all others, which so count;
        // after `name=` and `name+=` this one does (k3s: GetArgs).
        let at = if name.ends_with('-') { 0 } else { arguments.len() };
        arguments.insert(at, format!("--{plain}={value}"));
    }
    Ok(arguments)
}

/// The name of the node with the id that is appended to it; it is that of the host unless the settings have another.
fn with_node_id(root: &Path, name: Option<String>) -> Result<String, KubeletProblem> {
    let read = |file: &str| {
        let why = match read_if_there(root, Path::new(file)) {
            Ok(Some(text)) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
            Ok(_) => {
                "it is not there, and with-node-id makes it part of the node's name: start the node first"
                    .to_owned()
            }
            Err(why) => why,
        };
        Err(KubeletProblem::of_file(Path::new(file), why))
    };
    let name = name.map_or_else(|| read(HOST_NAME), Ok)?;
    Ok(format!("{name}-{}", read(NODE_ID)?))
}

/// The value of a flag that may stand alone; the last occurrence wins.
pub(super) fn flag<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    arguments.iter().rev().find_map(|argument| match argument.strip_prefix(name)? {
        "" => Some("true"),
        rest => rest.strip_prefix('='),
    })
}

/// As Go reads it.
pub(super) fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// The files that are merged into the configuration `file`, in their order. Unlike a kubelet's, they are not searched in
/// directories below.
fn drop_ins(root: &Path, file: &str) -> Vec<PathBuf> {
    let directory = PathBuf::from(format!("{file}.d"));
    let mut names: Vec<_> = fs::read_dir(in_root(root, &directory))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.file_name())
        .filter(|name| {
            let name = name.to_string_lossy().to_ascii_lowercase();
            name.ends_with(".yaml") || name.ends_with(".yml")
        })
        .collect();
    names.sort();
    names.into_iter().map(|name| directory.join(name)).collect()
}

// === impl Rancher ===

impl Rancher {
    fn variable<'a>(&self, own: &'a UnitStart, name: &str) -> Option<&'a str> {
        let name = format!("{}_{name}", self.variables);
        own.environment.get(&name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn config_file<'a>(&'a self, own: &'a UnitStart) -> &'a str {
        let option = option(&own.arguments, "--config").or(option(&own.arguments, "-c"));
        // Unlike with other settings, the variable takes precedence.
        self.variable(own, "CONFIG_FILE").or(option).unwrap_or(self.config)
    }

    /// The files of its settings, and their directory.
    pub(super) fn sources(&self, root: &Path, own: &UnitStart) -> Vec<PathBuf> {
        let file = self.config_file(own);
        let mut sources = drop_ins(root, file);
        sources.extend([PathBuf::from(file), PathBuf::from(format!("{file}.d"))]);
        sources
    }

    /// Whether a server is told to start no kubelet. Settings that cannot be read do not say so.
    pub(super) fn disables_agent(&self, root: &Path, own: &UnitStart) -> bool {
        let said = Settings::read(root, self, own).ok().and_then(|settings| settings.disable_agent);
        flag(&own.arguments, "--disable-agent").or(said.as_deref()).is_some_and(is_true)
    }
}

// === impl Settings ===

impl Settings {
    fn read(root: &Path, rancher: &Rancher, own: &UnitStart) -> Result<Self, KubeletProblem> {
        let file = rancher.config_file(own);
        let mut settings = Self::default();
        for file in [PathBuf::from(file)].into_iter().chain(drop_ins(root, file)) {
            settings.add(root, &file)?;
        }
        Ok(settings)
    }

    /// Merges a later file: the last value of a key counts, and that of a key with `+` is added to those before it.
    fn add(&mut self, root: &Path, file: &Path) -> Result<(), KubeletProblem> {
        let of_file = |why| KubeletProblem::of_file(file, why);
        if !file.is_absolute() {
            return Err(of_file(
                "it is not a file of this machine with an absolute path".to_owned(),
            ));
        }
        let Some(text) = read_if_there(root, file).map_err(of_file)? else { return Ok(()) };
        let tree = parse_first_leniently(&text)
            .map_err(|problem| KubeletProblem::of_text(file, &problem))?;
        let entries = match tree.as_deref().map(|root| &root.value) {
            Some(Value::Map(entries)) => entries.as_slice(),
            _ => &[],
        };
        for (key, node) in entries {
            let (name, is_added) = match key.text.strip_suffix('+') {
                Some(name) => (name, true),
                None => (&*key.text, false),
            };
            let last = || texts(node).pop();
            match name {
                "data-dir" => self.data_dir = last().or(self.data_dir.take()),
                "node-name" => self.node_name = last().or(self.node_name.take()),
                "with-node-id" => self.with_node_id = last().or(self.with_node_id.take()),
                "disable-agent" => self.disable_agent = last().or(self.disable_agent.take()),
                "docker" => self.docker = last().or(self.docker.take()),
                "container-runtime-endpoint" => self.endpoint = last().or(self.endpoint.take()),
                "kubelet-arg" if is_added => self.kubelet_arg.extend(texts(node)),
                "kubelet-arg" => self.kubelet_arg = texts(node),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A scalar, or the scalars of a list, as they are written.
fn texts(node: &YamlNode) -> Vec<String> {
    let text = |node: &YamlNode| node.text().filter(|text| !text.is_empty()).map(str::to_owned);
    match &node.value {
        Value::List(items) => items.iter().filter_map(|item| text(item)).collect(),
        _ => text(node).into_iter().collect(),
    }
}

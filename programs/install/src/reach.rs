//! What a kubelet's credentials need, and the agent's unit hides or does not have.

use std::fs;
use std::path::Path;

use winddown_api_client::files_of_kubeconfig;
use winddown_companion::kubelet::Kubelet;
use winddown_host::{in_root, regular};
use winddown_systemd::inspect::setting_that_shows;

/// The drop-ins of the agent's unit that an operator writes.
const OPERATORS: &str = "/etc/systemd/system/winddown.service.d";

/// The paths that the agent reads beside its kubelet and that its unit hides from it, each with the drop-in to write: the
/// kubeconfig, what that names, and the kubelet's configuration. Without credentials the agent knows of its pods only
/// what the container runtime has.
pub(super) fn hidden_from_agent(root: &Path, kubelet: &Kubelet, kubeconfig: &Path) -> Vec<String> {
    let named = files_of_kubeconfig(&in_root(root, kubeconfig)).unwrap_or_default();
    let config = kubelet.option("--config").map(|file| ("--config", Path::new(file)));
    let own = std::iter::once(("kubeconfig", kubeconfig)).chain(config);
    // A name alone stands for another program in the agent's PATH than in this one's.
    let named = named.iter().filter(|one| !one.is_searched).map(|one| (one.field, &*one.path));
    let all = own.chain(named);
    let notes = all.filter_map(|(field, path)| {
        let setting = setting_that_shows(path).filter(|setting| !is_set(root, setting))?;
        let more = match field.ends_with(".command") {
            true => ", with ReadWritePaths= and PrivateDevices=no if the command needs them",
            false => "",
        };
        Some(format!(
            "{field}: winddown.service does not see {}: before it starts, write {setting} below [Service] in \
             `systemctl edit winddown`{more}",
            path.display()
        ))
    });
    notes.collect()
}

/// Whether an operator's drop-in has this line.
fn is_set(root: &Path, line: &str) -> bool {
    let files = fs::read_dir(in_root(root, OPERATORS)).into_iter().flatten().flatten();
    let mut texts = files.filter_map(|file| {
        regular::read_to_string(&file.path(), regular::MAX_CONFIGURATION_BYTES).ok()
    });
    texts.any(|text| text.lines().any(|one| one.trim() == line))
}

/// The proxy of the kubelet's unit, by the variable that names it: the value may have a password.
pub(super) fn proxy(root: &Path, kubelet: &Kubelet) -> Option<String> {
    let variable = kubelet.proxy_variable(root)?;
    Some(format!(
        "{} sets {variable}, and winddown uses no proxy: it has to reach the API server without one",
        kubelet.name()
    ))
}

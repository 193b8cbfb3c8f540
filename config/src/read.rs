//! Converts the tree of a configuration file to a [`Config`].

use super::reference::{self, Reading};
use super::{API_VERSION, Config, KIND};
use winddown_yaml::{Fields, Node, Problem};

const KUBELET_API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KUBELET_KIND: &str = "KubeletConfiguration";

/// Reads the tree. Returns the configuration and its warnings.
pub(super) fn read(root: &Node) -> Result<(Config, Vec<Problem>), Vec<Problem>> {
    let mut problems = Vec::new();
    let mut fields = Fields::new(root, winddown_yaml::Path::ROOT, &mut problems);
    let Some(kubelet) = is_kubelets(&mut fields) else { return Err(problems) };
    let mut reading = Reading { kubelet, warnings: Vec::new() };
    let config = reference::read(&mut fields, &mut reading);
    match kubelet {
        true => reading.warnings.extend(unused(&fields)),
        false => fields.finish(),
    }
    if problems.is_empty() { Ok((config, reading.warnings)) } else { Err(problems) }
}

/// Whether the file is a kubelet's; `None` if it is neither a kubelet's nor ours, after which
/// nothing else in it can be interpreted.
fn is_kubelets(fields: &mut Fields<'_, '_>) -> Option<bool> {
    if !fields.is_mapping() {
        return None;
    }
    let at = fields.at();
    let version = fields.text("apiVersion");
    let kind = fields.text("kind");
    let (kubelet, wanted) = match kind.as_ref().map(|kind| kind.value) {
        Some(KIND) => (false, API_VERSION),
        Some(KUBELET_KIND) => (true, KUBELET_API_VERSION),
        None if fields.has("kind") => return None,
        other => {
            let what = other
                .map_or("is missing".to_owned(), |other| format!("`{other}` is no configuration"));
            let what = format!(
                "{what}: write `apiVersion: {API_VERSION}` and `kind: {KIND}` (a kubelet's \
                 {KUBELET_API_VERSION} {KUBELET_KIND} is accepted as well)"
            );
            fields.fail("kind", kind.map_or(at, |kind| kind.at), what);
            return None;
        }
    };
    let (at, what) = match version {
        Some(version) if version.value == wanted => return Some(kubelet),
        Some(version) => (version.at, format!("`{}` is not understood", version.value)),
        None if fields.has("apiVersion") => return None,
        None => (at, "is missing".to_owned()),
    };
    fields.fail("apiVersion", at, format!("{what}: write `{wanted}`"));
    None
}

fn unused(fields: &Fields<'_, '_>) -> Option<Problem> {
    let unknown: Vec<&str> = fields.unknown().map(|key| &*key.text).collect();
    if unknown.is_empty() {
        return None;
    }
    let what = format!("fields of the kubelet that are not used here: {}", unknown.join(", "));
    Some(Problem::new(fields.at(), "", what))
}

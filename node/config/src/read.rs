//! Converts the tree of a configuration file to a [`Config`].

use std::path::Path;
use std::rc::Rc;

use super::kubelet_fields::{KUBELET_FIELDS, belongs_below};
use super::reference::{self, FieldReading};
use super::{API_VERSION, Config, KIND};
use winddown_yaml::{Dialect, Fields, Key, Position, Problem, YamlNode};

const KUBELET_API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KUBELET_KIND: &str = "KubeletConfiguration";

/// Parses the text, a kubelet's as the kubelet does: with what it ignores in it, a key that is written twice or a second
/// document, as a warning. A kubelet reads what begins with `{` as JSON and as nothing else.
pub(super) fn tree(text: &str) -> Result<(Rc<YamlNode>, Option<Problem>), Problem> {
    let is_kubelets =
        |root: &YamlNode| root.get("kind").and_then(YamlNode::text) == Some(KUBELET_KIND);
    let (root, ignored) = match winddown_yaml::parse(text) {
        Ok(root) => (root, None),
        Err(problem) => {
            let first = winddown_yaml::parse_first_leniently(text).ok().flatten();
            let Some(root) = first.filter(|root| is_kubelets(root)) else { return Err(problem) };
            (root, Some(problem))
        }
    };
    if is_kubelets(&root)
        && text.trim_start().starts_with('{')
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text)
    {
        let at = Position { line: error.line(), column: error.column() };
        let what = format!("a kubelet reads this file as JSON, and it is not valid: {error}");
        return Err(Problem::new(at, "", what));
    }
    Ok((root, ignored))
}

/// Reads the tree. Returns the configuration and its warnings.
pub(super) fn read(path: &Path, root: &YamlNode) -> Result<(Config, Vec<Problem>), Vec<Problem>> {
    let mut problems = Vec::new();
    let mut fields = Fields::new(root, winddown_yaml::Path::ROOT, &mut problems);
    let Some(kubelet) = is_kubelets(&mut fields) else { return Err(problems) };
    let mut reading = FieldReading { kubelet, unused: Vec::new(), warnings: Vec::new() };
    fields.belongs_below(belongs_below);
    if kubelet {
        let whole = std::path::absolute(path).unwrap_or_default();
        let directory = whole.parent().unwrap_or(Path::new("/")).to_owned();
        fields
            .read_as(Dialect { zero_is_unset: reference::zero_is_unset_for_kubelets(), directory });
    }
    let config = reference::read(&mut fields, &mut reading);
    match kubelet {
        true => reading.warnings.extend(not_read(&fields, &reading.unused)),
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

/// Says which fields of a kubelet's file are not used here, and which do not exist: the kubelet ignores those too.
fn not_read(fields: &Fields<'_, '_>, without_effect: &[&str]) -> Vec<Problem> {
    let is_kubelets = |key: &&Key| KUBELET_FIELDS.contains(&&*key.text);
    let (unused, unknown): (Vec<_>, Vec<_>) = fields.unknown().partition(is_kubelets);
    let mut said = Vec::new();
    let unused: Vec<&str> =
        without_effect.iter().copied().chain(unused.iter().map(|key| &*key.text)).collect();
    if !unused.is_empty() {
        let what = format!("fields of the kubelet that are not used here: {}", unused.join(", "));
        said.push(Problem::new(fields.at(), "", what));
    }
    said.extend(unknown.into_iter().map(|key| fields.unknown_field(key, &KUBELET_FIELDS)));
    said
}

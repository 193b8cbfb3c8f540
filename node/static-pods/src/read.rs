//! Turns one file into one pod.

use std::path::Path;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::Pod;

use super::{ManifestError, defaults, identity, validate};
use winddown_yaml::{FieldCheck, Fields, Problem, Problems, YamlNode};

/// Reads a manifest: YAML or JSON, one `v1` `Pod`.
///
/// The pod is completed as the kubelet does for a file: defaults filled in, `-<node_name>` appended to its name, bound
/// to the node, marked as coming from a file, with a UID that is a hash of the pod, the node's name and `path` unless
/// the manifest sets one. `path` also names the file in errors.
///
/// # Errors
/// [`ManifestError::Empty`], or [`ManifestError::Invalid`] with all problems: syntax, unknown fields, wrong types, values
/// that Kubernetes would refuse, and fields that need an API server.
pub fn read_manifest(path: &Path, bytes: &[u8], node_name: &str) -> Result<Pod, ManifestError> {
    let wrong = |list| ManifestError::Invalid(Problems::new(path, list));
    let text = winddown_yaml::text(bytes).map_err(|problem| wrong(vec![problem]))?;
    let root = winddown_yaml::parse_if_any(text).map_err(|problem| wrong(vec![problem]))?;
    let root = root.ok_or_else(|| ManifestError::Empty { path: path.to_owned() })?;
    let mut problems = Vec::new();
    if !is_pod(&root, &mut problems) {
        return Err(wrong(problems));
    }
    let read = winddown_yaml::decode::<api::Pod>(&root);
    problems = read.problems;
    if let Some(pod) = &read.value {
        let mut check = FieldCheck::new(&root);
        let mut whole = pod.clone();
        defaults::fill(whole.spec.as_mut());
        validate::pod(&mut check, &whole, node_name);
        // A field that could not be read is already reported: do not report it as missing, too.
        let news = |problem: &Problem| {
            let field = problem.field.as_str();
            !read.left_out.iter().any(|out| is_within(field, out) || is_within(out, field))
        };
        problems.extend(check.into_problems().into_iter().filter(news));
    }
    let Some(mut pod) = read.value.filter(|_| problems.is_empty()) else {
        return Err(wrong(problems));
    };
    let uid = identity::uid(&pod, path, node_name);
    // Before it is bound: another profile is another spec.
    defaults::fill_profiles(&mut pod);
    identity::bind(&mut pod, uid, node_name);
    defaults::fill(pod.spec.as_mut());
    Pod::new(pod).map_err(|error| wrong(vec![Problem::of_file(error)]))
}

/// Whether `field` is `around` or a part of it.
fn is_within(field: &str, around: &str) -> bool {
    field.strip_prefix(around).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Whether this is a Pod at all; the fields of anything else are not checked.
fn is_pod(root: &YamlNode, problems: &mut Vec<Problem>) -> bool {
    let mut fields = Fields::new(root, winddown_yaml::Path::ROOT, problems);
    if !fields.is_mapping() {
        return false;
    }
    let at = fields.at();
    for (key, wanted) in [("kind", "Pod"), ("apiVersion", "v1")] {
        match fields.text(key) {
            Some(found) if found.value == wanted => {}
            Some(found) if key == "kind" => {
                let what = format!(
                    "a {} is not run from a file, only a Pod is: write `apiVersion: v1`, `kind: Pod` \
                     and the metadata and spec of its pod",
                    winddown_yaml::Shortened(found.value)
                );
                fields.fail(key, found.at, what);
                // The version belongs to another kind.
                return false;
            }
            Some(found) => {
                let what = format!(
                    "`{}` is not run from a file: write `{wanted}`",
                    winddown_yaml::Shortened(found.value)
                );
                fields.fail(key, found.at, what);
            }
            None if fields.has(key) => {}
            None => fields.fail(key, at, format!("is missing: write `{key}: {wanted}`")),
        }
    }
    problems.is_empty()
}

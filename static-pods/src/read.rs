//! One file to one pod.

use std::path::Path;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::Pod;

use super::{ManifestError, defaults, identity, validate};
use winddown_yaml::{Check, Fields, Node, Problem, Problems};

/// Reads a manifest: YAML or JSON, one `v1` `Pod`.
///
/// The pod comes back as the kubelet makes it of a file: defaults filled in, name ended with
/// `-<node_name>`, bound to the node, marked as coming from a file, with a UID that is a hash of the
/// pod, the node's name and `path` unless the manifest gives one. `path` also names the file in
/// errors.
///
/// # Errors
/// [`ManifestError::Invalid`] with everything that is wrong: syntax, unknown fields, wrong types,
/// values Kubernetes would refuse, and fields that only an API server could serve.
pub fn read_manifest(path: &Path, bytes: &[u8], node_name: &str) -> Result<Pod, ManifestError> {
    let wrong = |list| ManifestError::Invalid(Problems::new(path, list));
    let text = winddown_yaml::text(bytes).map_err(|problem| wrong(vec![problem]))?;
    let root = winddown_yaml::parse(text).map_err(|problem| wrong(vec![problem]))?;
    let mut problems = Vec::new();
    if !is_pod(&root, &mut problems) {
        return Err(wrong(problems));
    }
    let read = winddown_yaml::decode::<api::Pod>(&root);
    problems = read.problems;
    if let Some(pod) = &read.value {
        let mut check = Check::new(&root);
        validate::pod(&mut check, pod, node_name);
        // What could not be read is reported once; that it is missing then is no news.
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
    identity::bind(&mut pod, uid, node_name);
    if let Some(spec) = &mut pod.spec {
        defaults::fill(spec);
    }
    Pod::new(pod).map_err(|error| wrong(vec![Problem::of_file(error)]))
}

/// Whether `field` is `around`, or a part of it.
fn is_within(field: &str, around: &str) -> bool {
    field.strip_prefix(around).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Whether this is a Pod at all; of anything else the fields are of no interest.
fn is_pod(root: &Node, problems: &mut Vec<Problem>) -> bool {
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
                // The version is that of another kind.
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

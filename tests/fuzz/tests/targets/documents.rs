//! Manifests and the configuration.

use std::path::Path;

use winddown_config::Config;
use winddown_shared::display::clean;
use winddown_shared::{CONFIG_SPEC_ANNOTATION, Pod};
use winddown_static_pods::read_manifest;

const NODE: &str = "node1";

/// What a command prints of a file that is wrong: a bounded number of lines, each with the file's name, and
/// nothing that a terminal obeys.
fn shown(file: &str, error: &str) {
    assert!(error.len() <= 20_000 && !error.is_empty(), "{} bytes", error.len());
    for line in error.lines() {
        assert!(line.starts_with(file), "{line:?} names no file");
        assert_eq!(clean(line), line, "what is quoted is harmless");
    }
}

pub(crate) fn configuration(bytes: &[u8]) {
    let file = Path::new("c.yaml");
    let config = match Config::parse(file, bytes) {
        Ok((config, _)) => config,
        Err(error) => return shown("c.yaml:", &error.to_string()),
    };
    let yaml = config.to_yaml();
    let again = Config::parse(file, yaml.as_bytes());
    assert!(again.is_ok(), "what is printed can be read: {:?}\n{yaml}", again.err());
    let again = again.map(|(config, _)| config.to_yaml()).unwrap_or_default();
    assert_eq!(again, yaml, "and is the same");
    let says_none = |line: &str| {
        let field = line.trim_start_matches(['-', ' ']);
        ["shutdownGracePeriod: 0s", "shutdownGracePeriodSeconds: 0"].contains(&field)
    };
    assert!(!config.shutdown.total().is_zero() || yaml.lines().any(says_none), "{yaml}");
}

pub(crate) fn manifest(bytes: &[u8]) {
    let file = Path::new("p.yaml");
    let pod = match read_manifest(file, bytes, NODE) {
        Ok(pod) => pod,
        Err(error) => return shown("p.yaml:", &error.to_string()),
    };
    let name = pod.name().to_string();
    assert!(name.ends_with("-node1") && name.len() <= 253, "{name:?}");
    for part in [&*name, pod.namespace(), pod.uid().as_str()] {
        assert!(
            !part.is_empty() && !part.contains(['/', '\0']) && !part.starts_with('.'),
            "{part:?}"
        );
    }
    // Written out as it was understood, it is the same pod: defaults are filled in once. The mark of its spec is of the
    // text as it was read, where the UID is the pod's own, as it is now.
    let unmarked = |pod: &Pod| {
        let mut object = pod.object().clone();
        object.metadata.annotations.get_or_insert_default().remove(CONFIG_SPEC_ANNOTATION);
        object
    };
    let mut written = pod.object().clone();
    written.status = None;
    written.metadata.name = name.strip_suffix("-node1").map(str::to_owned);
    let written = serde_json::to_vec(&written).unwrap_or_default();
    match read_manifest(file, &written, NODE) {
        Ok(again) => assert_eq!(unmarked(&again), unmarked(&pod)),
        Err(error) => assert!(written.len() > winddown_yaml::MAX_BYTES, "{error}"),
    }
}

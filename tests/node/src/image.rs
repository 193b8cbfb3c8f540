//! Container images built by hand in the format of `docker save`: nothing is downloaded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::NodeError;

mod tar;

use tar::Archive;

/// The image that pods run: a shell, a `date` with nanoseconds, and the C library, so that most programs of the node
/// can be mounted and run in it.
pub const IMAGE: &str = "winddown.test/run:1";
/// The same, but with a stop signal that only the runtime knows how to send.
pub const IMAGE_WITH_ODD_SIGNAL: &str = "winddown.test/odd-signal:1";
/// containerd's default image for sandboxes, which it would download otherwise.
pub(crate) const PAUSE: &str = "registry.k8s.io/pause:3.6";

/// Exits when asked to, like the real one: the first process of a namespace must handle the signal, or systemd waits
/// for it in vain at the very end of a power-off.
const PAUSING: [&str; 3] = ["/bin/sh", "-c", "trap 'exit 0' TERM INT; sleep 1000000 & wait"];

/// The applets of busybox that are linked. Its own `date` has no nanoseconds.
const APPLETS: [&str; 4] = ["sh", "sleep", "kill", "cat"];
/// The libraries that programs of the node need, from the folder for its architecture.
const LIBRARIES: [&str; 3] = ["libc.so.6", "libm.so.6", "libgcc_s.so.1"];

/// Builds all images in one archive for `ctr images import`, from the programs in the Debian root `base`.
pub(crate) fn archive(base: &Path) -> Result<Vec<u8>, NodeError> {
    let layer = layer(base)?;
    let mut archive = Archive::default();
    let mut manifest = Vec::new();
    let shell = ["/bin/sh"].as_slice();
    let images = [
        (PAUSE, PAUSING.as_slice(), "SIGTERM"),
        (IMAGE, shell, "SIGTERM"),
        (IMAGE_WITH_ODD_SIGNAL, shell, "SIGRTMIN+3"),
    ];
    for (n, (name, command, signal)) in images.into_iter().enumerate() {
        let config = format!("config-{n}.json");
        manifest.push(serde_json::json!({
            "Config": config, "RepoTags": [name], "Layers": ["layer.tar"],
        }));
        let text = serde_json::json!({
            "architecture": architecture(),
            "os": "linux",
            "config": { "Cmd": command, "Env": ["PATH=/bin"], "StopSignal": signal },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))] },
        });
        archive.file(&config, 0o644, text.to_string().as_bytes());
    }
    archive.file("layer.tar", 0o644, &layer);
    archive.file("manifest.json", 0o644, serde_json::Value::from(manifest).to_string().as_bytes());
    Ok(archive.finish())
}

/// The single layer that all images share.
fn layer(base: &Path) -> Result<Vec<u8>, NodeError> {
    let mut layer = Archive::default();
    for folder in ["bin", "dev", "etc", "lib", "lib64", "proc", "sys", "tmp"] {
        layer.folder(folder);
    }
    for program in ["busybox", "date"] {
        layer.file(&format!("bin/{program}"), 0o755, &read(&base.join("usr/bin").join(program))?);
    }
    for applet in APPLETS {
        layer.link(&format!("bin/{applet}"), "busybox");
    }
    let libraries = library_folder(base)?;
    let folder = libraries.file_name().unwrap_or_default().to_string_lossy();
    layer.folder(&format!("lib/{folder}"));
    for name in LIBRARIES {
        layer.file(&format!("lib/{folder}/{name}"), 0o755, &read(&libraries.join(name))?);
    }
    for (name, path) in entries(&libraries)? {
        if name.starts_with("ld-linux") {
            layer.file(&format!("lib/{folder}/{name}"), 0o755, &read(&path)?);
            // Depending on the architecture, programs refer to their loader by one of these paths.
            layer.link(&format!("lib/{name}"), &format!("{folder}/{name}"));
            layer.link(&format!("lib64/{name}"), &format!("../lib/{folder}/{name}"));
        }
    }
    Ok(layer.finish())
}

/// Debian's folder for the libraries of its architecture, for example `usr/lib/x86_64-linux-gnu`.
fn library_folder(base: &Path) -> Result<PathBuf, NodeError> {
    let all = base.join("usr/lib");
    let found = entries(&all)?.into_iter().find(|(name, _)| name.ends_with("-linux-gnu"));
    found.map(|(_, path)| path).ok_or_else(|| NodeError::File {
        path: all.join("*-linux-gnu"),
        source: io::ErrorKind::NotFound.into(),
    })
}

fn entries(dir: &Path) -> Result<Vec<(String, PathBuf)>, NodeError> {
    let found = fs::read_dir(dir)
        .map_err(|source| NodeError::File { path: dir.to_owned(), source })?
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    Ok(found.collect())
}

fn read(path: &Path) -> Result<Vec<u8>, NodeError> {
    fs::read(path).map_err(|source| NodeError::File { path: path.to_owned(), source })
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of this machine's architecture in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

//! The files of a pod: directories, volumes, its hosts file. Blocking.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use k8s_openapi::api::core::v1 as k8s;
use rustix::fs::{FileType, fstat};
use winddown_engine::{files, mount_table, removal};
use winddown_shared::{Pod, PodUid, Quantity, RuntimeError, error_chain};

use super::config::CriConfig;
use super::tree::{NewDirectory, Tree};
use super::{caused, dirs, failed, mounts as mount_points, spec};

mod mount;

pub(super) use mount::{is_inside, mounts, notice};

/// Creates the pod's directories and volumes. Existing ones stay.
///
/// # Errors
/// Names what could not be created, or why a hostPath does not match its type.
pub(super) fn prepare(config: &CriConfig, pod: &Pod) -> Result<(), RuntimeError> {
    directory(&dirs::pod(config, pod.uid()), 0o711)?;
    directory(&dirs::logs_of(config, pod), 0o755)?;
    let Some(spec) = pod.spec.as_ref() else { return Ok(()) };
    for volume in spec.volumes.iter().flatten() {
        let what = || format!("volume {} of pod {}", volume.name, pod.label());
        if let Some(empty) = &volume.empty_dir {
            empty_dir(config, (pod.uid(), &volume.name), empty, spec)
                .map_err(|e| caused(what(), e))?;
        }
        if let Some(host) = &volume.host_path {
            host_path(&config.proc_root, host)
                .map_err(|e| caused(format!("{}: {}", what(), host.path), e))?;
        }
    }
    Ok(())
}

/// Whether there may be mounts below the pod's directory, according to its spec.
pub(super) fn may_mount(pod: &Pod) -> bool {
    let Some(spec) = pod.spec.as_ref() else { return false };
    let in_memory = |v: &k8s::Volume| {
        v.empty_dir.as_ref().is_some_and(|empty| empty.medium.as_deref() == Some("Memory"))
    };
    let leaves_mounts = |m: &k8s::VolumeMount| {
        let is_part = |path: &Option<String>| path.as_deref().is_some_and(|p| !p.is_empty());
        is_part(&m.sub_path)
            || is_part(&m.sub_path_expr)
            || m.mount_propagation.as_deref() == Some("Bidirectional")
    };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    spec.volumes.iter().flatten().any(in_memory)
        || containers.flat_map(|c| c.volume_mounts.iter().flatten()).any(leaves_mounts)
}

/// Creates what one run of a container needs: its log directory, its termination message file, and the
/// pod's hosts file if it was not written after the sandbox was created.
///
/// # Errors
/// Names what could not be created.
pub(super) fn prepare_run(
    config: &CriConfig,
    pod: &Pod,
    container: &str,
    attempt: u32,
    ips: &[String],
) -> Result<(), RuntimeError> {
    if !dirs::hosts(config, pod.uid()).exists() {
        write_hosts(config, pod, ips)?;
    }
    directory(&dirs::logs_of(config, pod).join(container), 0o755)?;
    let file = dirs::termination_log(config, pod.uid(), container, attempt);
    if let Some(parent) = file.parent() {
        directory(parent, 0o711)?;
    }
    // A runtime that lost its containers, as CRI-O does when the machine boots, counts from 0 again if their logs are
    // gone too: what an earlier run left says nothing about this one.
    remove_file(&dirs::asked(config, pod.uid(), container, attempt))?;
    let made = OpenOptions::new().create(true).write(true).truncate(true).mode(0o666).open(&file);
    // Any user of the container may write to it, independent of the process's umask.
    let made = made.and_then(|file| file.set_permissions(Permissions::from_mode(0o666)));
    made.map_err(|e| caused(format!("cannot make {}", file.display()), e))
}

/// Removes the hosts file of an earlier sandbox, which had other addresses.
///
/// # Errors
/// The file cannot be removed.
pub(super) fn remove_hosts(config: &CriConfig, uid: &PodUid) -> Result<(), RuntimeError> {
    remove_file(&dirs::hosts(config, uid))
}

/// Writes the pod's hosts file: for a pod on the node's network a copy of the node's, otherwise its own.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_hosts(
    config: &CriConfig,
    pod: &Pod,
    ips: &[String],
) -> Result<(), RuntimeError> {
    let path = dirs::hosts(config, pod.uid());
    let node = match pod.is_on_host_network() {
        true => Some(fs::read_to_string(&config.hosts_file).unwrap_or_default()),
        false => None,
    };
    let text = hosts(pod, ips, &config.cluster_domain, node.as_deref());
    let written = || {
        // In place, because running containers have this file mounted.
        let mut file = File::create(&path)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(Permissions::from_mode(0o644))
    };
    written().map_err(|e| {
        // The next start would take a part, or nothing, for the whole.
        let _ = fs::remove_file(&path);
        caused(format!("cannot write {}", path.display()), e)
    })
}

/// The content of a pod's hosts file, byte for byte the kubelet's. `node` is the node's, for pods on its network.
pub(crate) fn hosts(pod: &Pod, ips: &[String], domain: &str, node: Option<&str>) -> String {
    let mut text = match node {
        Some(node) => format!("# Kubernetes-managed hosts file (host network).\n{node}"),
        None => "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
                 ::1\tlocalhost ip6-localhost ip6-loopback\n\
                 fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n\
                 fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
            .to_owned(),
    };
    if node.is_none() {
        let name = spec::hostname(pod);
        let below = pod.spec.as_ref().and_then(|s| s.subdomain.as_deref());
        let below = below.filter(|s| !s.is_empty() && spec::hostname_override(pod).is_none());
        let full = below.map(|sub| format!("{name}.{sub}.{}.svc.{domain}\t", pod.namespace()));
        for ip in ips {
            text.push_str(&format!("{ip}\t{}{name}\n", full.as_deref().unwrap_or_default()));
        }
    }
    let aliases = pod.spec.as_ref().and_then(|s| s.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default();
        text.push_str(&format!("{}\t{}\n", alias.ip, names.join("\t")));
    }
    text
}

fn empty_dir(
    config: &CriConfig,
    (uid, name): (&PodUid, &str),
    empty: &k8s::EmptyDirVolumeSource,
    spec: &k8s::PodSpec,
) -> io::Result<()> {
    let path = &dirs::volume(config, uid, name);
    if empty.medium.as_deref() == Some("Memory") {
        let size = empty.size_limit.as_ref().and_then(|q| q.0.parse::<Quantity>().ok());
        memory(config, (uid, name), size.map(Quantity::value))?;
    } else {
        make(path, 0o777)?;
    }
    let group = spec.security_context.as_ref().and_then(|s| s.fs_group);
    let group = group.and_then(|id| u32::try_from(id).ok());
    if group.is_none() {
        return fs::set_permissions(path, Permissions::from_mode(0o777));
    }
    std::os::unix::fs::chown(path, None, group)?;
    // Files in it then belong to the group, if this process may set the bit (RestrictSUIDSGID=).
    fs::set_permissions(path, Permissions::from_mode(0o2777))
        .or_else(|_| fs::set_permissions(path, Permissions::from_mode(0o777)))
}

/// Creates a directory in memory: a mount of its own or, if this process may not mount, a directory on
/// an existing one (`CriConfig::memory_dir`), which does not enforce the size limit.
fn memory(config: &CriConfig, (uid, name): (&PodUid, &str), size: Option<i64>) -> io::Result<()> {
    let path = dirs::volume(config, uid, name);
    let shared = dirs::memory(config, uid).join(name);
    let is_link = fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
    if is_link {
        // Its target was lost when the node restarted.
        return make(&shared, 0o777);
    }
    make(&path, 0o777)?;
    or_link(mount_points::memory(&path, size), (uid, name), &path, &shared)
}

/// If mounting is not permitted, replaces the directory with a link to one on the shared file system.
fn or_link(
    mounted: io::Result<()>,
    (uid, name): (&PodUid, &str),
    path: &Path,
    shared: &Path,
) -> io::Result<()> {
    match mounted {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(%uid, volume = %name, error = error_chain(&error), "an emptyDir in memory has no limit of its own");
            make(shared, 0o777)?;
            fs::remove_dir(path)?;
            std::os::unix::fs::symlink(shared, path)
        }
        outcome => outcome,
    }
}

/// Checks or creates the path of a hostPath volume in the host's files: this service may have another
/// view of them, and may not be able to write to them.
fn host_path(proc_root: &Path, host: &k8s::HostPathVolumeSource) -> io::Result<()> {
    let kind = host.type_.as_deref().unwrap_or_default();
    if kind.is_empty() {
        return Ok(());
    }
    let (tree, path) = (Tree::of_host(proc_root)?, Path::new(&host.path));
    let new = NewDirectory { mode: 0o755, owner: None };
    let found = match tree.find(path, (kind == "DirectoryOrCreate").then_some(new)) {
        Err(e) if kind == "FileOrCreate" && e.kind() == io::ErrorKind::NotFound => {
            tree.make_file(path, 0o644)?
        }
        found => found?,
    };
    let found = FileType::from_raw_mode(fstat(&found)?.st_mode);
    let (is_right, wanted) = match kind {
        "Directory" | "DirectoryOrCreate" => (found == FileType::Directory, "directory"),
        "File" | "FileOrCreate" => (found == FileType::RegularFile, "file"),
        "Socket" => (found == FileType::Socket, "socket"),
        "CharDevice" => (found == FileType::CharacterDevice, "character device"),
        "BlockDevice" => (found == FileType::BlockDevice, "block device"),
        _ => (false, "path of a known type"),
    };
    if is_right { Ok(()) } else { Err(io::Error::other(format!("it is not a {wanted}"))) }
}

fn directory(path: &Path, mode: u32) -> Result<(), RuntimeError> {
    make(path, mode).map_err(|e| caused(format!("cannot make {}", path.display()), e))
}

/// Creates a directory with this mode, independent of the process's umask. An existing one is not changed.
fn make(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Removes a file, if it exists.
fn remove_file(path: &Path) -> Result<(), RuntimeError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(caused(format!("cannot remove {}", path.display()), e))
        }
        _ => Ok(()),
    }
}

/// Removes the pod's directory and everything in it. Nothing may be mounted below it.
///
/// # Errors
/// Something is still mounted there, or the directory cannot be removed.
pub(super) fn remove(config: &CriConfig, uid: &PodUid) -> Result<(), RuntimeError> {
    let path = dirs::pod(config, uid);
    if !files::is_safe(uid.as_str()) {
        return Err(failed(format!("{uid} cannot be the name of a directory")));
    }
    remove_all(&config.proc_root, &dirs::memory(config, uid))?;
    remove_all(&config.proc_root, &path)
}

/// Removes a directory tree, but not if something is mounted in it, which may be the node's own files.
///
/// # Errors
/// Something is still mounted there, or the tree cannot be removed.
pub(super) fn remove_all(proc_root: &Path, path: &Path) -> Result<(), RuntimeError> {
    let cannot = |e| caused(format!("cannot remove {}", path.display()), e);
    if let Some(mounted) = mount_table::below(proc_root, path).map_err(cannot)?.first() {
        let what = format!(
            "cannot remove {}: something is mounted at {}",
            path.display(),
            mounted.display()
        );
        return Err(failed(what));
    }
    match removal::tree(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(cannot(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;

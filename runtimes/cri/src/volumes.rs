//! The files of a pod: directories, volumes, its hosts file. Blocking.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use k8s_openapi::api::core::v1 as k8s;
use rustix::fs::{FileType, Mode, fchmod, fchown, fstat};
use rustix::process::Gid;
use winddown_engine::disk_notes::RunNote;
use winddown_host::{if_exists, mount_table, regular, removal};
use winddown_shared::{Pod, PodUid, ResourceName, RuntimeError};

use super::config::CriConfig;
use super::tree::{DirectoryTree, NewDirectory};
use super::{caused, dirs, failed, host_mount, mounts, spec};

mod memory;
mod mount;

pub(super) use mount::{is_inside, mounts, notice};

/// The largest hosts file of the node that is copied: lists of blocked names take some megabytes.
const MAX_HOSTS_BYTES: u64 = 16 * 1024 * 1024;

/// Creates the pod's directories and volumes. Existing ones stay.
///
/// # Errors
/// Names what could not be created, or why a hostPath does not match its type.
pub(super) fn prepare(config: &CriConfig, pod: &Pod) -> Result<(), RuntimeError> {
    directory(&dirs::pods(config), &dirs::pod(config, pod.uid()), 0o711)?;
    directory(&config.logs.dir, &dirs::logs_of(config, pod), 0o755)?;
    let Some(spec) = pod.spec.as_ref() else { return Ok(()) };
    for volume in spec.volumes.iter().flatten() {
        let what = || format!("volume {} of pod {}", volume.name, pod.pod_ref());
        if let Some(empty) = &volume.empty_dir {
            empty_dir(config, pod, &volume.name, empty).map_err(|e| caused(what(), e))?;
        }
        if let Some(host) = &volume.host_path {
            host_path(&config.paths.proc, host)
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
/// pod's hosts file as it is now.
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
    write_hosts(config, pod, ips)?;
    directory(&config.logs.dir, &dirs::logs_of(config, pod).join(container), 0o755)?;
    let (pods, file) =
        (dirs::pods(config), dirs::termination_log(config, pod.uid(), container, attempt));
    directory(&pods, file.parent().unwrap_or(&pods), 0o711)?;
    // A runtime that lost its containers, as CRI-O does when the machine boots, counts from 0 again if their logs are
    // gone too: what an earlier run left says nothing about this one.
    remove_file(config, &dirs::asked(config, pod.uid(), container, attempt))?;
    remove_file(config, &dirs::ended(config, pod.uid(), container))?;
    for note in RunNote::ALL {
        remove_file(config, &dirs::note(config, pod.uid(), container, attempt, note))?;
    }
    // Any user of the container may write to it.
    write(&pods, &file, 0o666, b"")
        .map_err(|e| caused(format!("cannot make {}", file.display()), e))
}

/// Removes the hosts file of an earlier sandbox, which had other addresses.
pub(super) fn remove_hosts(config: &CriConfig, uid: &PodUid) -> Result<(), RuntimeError> {
    remove_file(config, &dirs::hosts(config, uid))
}

/// Writes the pod's hosts file: for a pod on the node's network a copy of the node's, otherwise its own.
pub(super) fn write_hosts(
    config: &CriConfig,
    pod: &Pod,
    ips: &[String],
) -> Result<(), RuntimeError> {
    let path = dirs::hosts(config, pod.uid());
    let node = match pod.is_on_host_network() {
        true => Some(nodes_hosts(&config.dns.hosts_file)?),
        false => None,
    };
    let text = hosts(pod, ips, &config.dns.domain, node.as_deref());
    // In place, because running containers have this file mounted, and never see it without content.
    if holds(&dirs::pods(config), &path, &text) {
        return Ok(());
    }
    write(&dirs::pods(config), &path, 0o644, &text).map_err(|e| {
        // The next start would take a part, or nothing, for the whole.
        let _ = remove_file(config, &path);
        caused(format!("cannot write {}", path.display()), e)
    })
}

/// The content of a pod's hosts file, byte for byte the kubelet's. `node` is the node's, for pods on its network.
pub(crate) fn hosts(pod: &Pod, ips: &[String], domain: &str, node: Option<&[u8]>) -> Vec<u8> {
    let mut content = match node {
        Some(node) => [b"# Kubernetes-managed hosts file (host network).\n", node].concat(),
        None => b"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
                 ::1\tlocalhost ip6-localhost ip6-loopback\n\
                 fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n\
                 fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
            .to_vec(),
    };
    let mut text = String::new();
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
    content.extend(text.into_bytes());
    content
}

/// The node's hosts file, whose bytes are copied as they are; nothing if there is none.
fn nodes_hosts(path: &Path) -> Result<Vec<u8>, RuntimeError> {
    let read = if_exists(regular::read(path, MAX_HOSTS_BYTES))
        .map_err(|e| caused(format!("cannot read {}", path.display()), e))?;
    Ok(read.unwrap_or_default())
}

fn empty_dir(
    config: &CriConfig,
    pod: &Pod,
    name: &str,
    empty: &k8s::EmptyDirVolumeSource,
) -> io::Result<()> {
    let (pods, path) = (dirs::pods(config), dirs::volume(config, pod.uid(), name));
    let below = path.strip_prefix(&pods).unwrap_or(&path);
    if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
        // A pod that may write here made it, or an agent that could not mount.
        regular::remove_below(&pods, below)?;
    }
    make(&pods, &dirs::volumes(config, pod.uid()), 0o755)?;
    regular::make_directory_below(&pods, below, mounts::UNFINISHED)?;
    if empty.medium.as_deref() == Some("Memory") {
        let for_pods = config.node.allocatable.borrow().get(&ResourceName::Memory);
        let size = memory::size(pod, empty.size_limit.as_ref(), for_pods);
        host_mount::memory(&config.paths.own_program, &path, size)?;
    }
    let made = regular::open_directory_below(&pods, below)?;
    if fstat(&made)?.st_mode & 0o777 != mounts::UNFINISHED {
        // Its mode and its group are the pod's to change.
        return Ok(());
    }
    let group = pod.spec.as_ref().and_then(|s| s.security_context.as_ref()?.fs_group);
    let Some(group) = group.and_then(|id| u32::try_from(id).ok()) else {
        return Ok(fchmod(&made, Mode::RWXU | Mode::RWXG | Mode::RWXO)?);
    };
    fchown(&made, None, Some(Gid::from_raw(group)))?;
    host_mount::open_to_group(&config.paths.own_program, &path)
}

/// Checks or creates the path of a hostPath volume in the host's files: this service may have another
/// view of them, and may not be able to write to them.
fn host_path(proc_root: &Path, host: &k8s::HostPathVolumeSource) -> io::Result<()> {
    let kind = host.type_.as_deref().unwrap_or_default();
    if kind.is_empty() {
        return Ok(());
    }
    let (tree, path) = (DirectoryTree::of_host(proc_root)?, Path::new(&host.path));
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

fn directory(base: &Path, path: &Path, mode: u32) -> Result<(), RuntimeError> {
    make(base, path, mode).map_err(|e| caused(format!("cannot make {}", path.display()), e))
}

/// Creates a directory with this mode, independent of the process's umask, below `base`, in which pods may have made
/// links. An existing one is not changed. Others can pass through those above it, but only list them if they can list
/// the directory itself.
fn make(base: &Path, path: &Path, mode: u32) -> io::Result<()> {
    let name = path.strip_prefix(base).map_err(|_| io::ErrorKind::InvalidInput)?;
    let above = mode & !0o022 & (0o711 | mode & 0o044);
    regular::make_directory_below(base, name.parent().unwrap_or(Path::new("")), above)?;
    regular::make_directory_below(base, name, mode).map(drop)
}

/// Whether a file has this content, below `base`, in which pods may have made links.
fn holds(base: &Path, path: &Path, content: &[u8]) -> bool {
    let name = path.strip_prefix(base).unwrap_or(path);
    let most = content.len() as u64;
    let found = regular::open_below(base, name).and_then(|file| regular::read_open(&file, most));
    found.is_ok_and(|found| found == content)
}

/// Writes a file with this mode, independent of the process's umask, in place, below `base`, in which pods may have
/// made links.
fn write(base: &Path, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let name = path.strip_prefix(base).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut file = regular::append_below(base, name, mode)?;
    file.set_len(0)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))
}

/// Removes a file of a pod, if it exists.
fn remove_file(config: &CriConfig, path: &Path) -> Result<(), RuntimeError> {
    let pods = dirs::pods(config);
    let removed = regular::remove_below(&pods, path.strip_prefix(&pods).unwrap_or(path));
    let cannot = |e| caused(format!("cannot remove {}", path.display()), e);
    if_exists(removed).map(drop).map_err(cannot)
}

/// Removes the pod's directory and everything in it. Nothing may be mounted below it.
///
/// # Errors
/// Something is still mounted there, or the directory cannot be removed.
pub(super) fn remove(config: &CriConfig, uid: &PodUid) -> Result<(), RuntimeError> {
    remove_all(&config.paths.proc, &dirs::pods(config), &dirs::pod(config, uid))
}

/// Removes a directory tree below `base`, in which pods may have made links, but not if something is mounted in it,
/// which may be the node's own files.
///
/// # Errors
/// Something is still mounted there, or the tree cannot be removed.
pub(super) fn remove_all(proc_root: &Path, base: &Path, path: &Path) -> Result<(), RuntimeError> {
    let cannot = |e| caused(format!("cannot remove {}", path.display()), e);
    if let Some(mounted) = mount_table::below(proc_root, path).map_err(cannot)?.first() {
        let what = format!(
            "cannot remove {}: something is mounted at {}",
            path.display(),
            mounted.display()
        );
        return Err(failed(what));
    }
    let removed = removal::tree_below(base, path.strip_prefix(base).unwrap_or(path));
    if_exists(removed).map(drop).map_err(cannot)
}

#[cfg(test)]
mod tests;

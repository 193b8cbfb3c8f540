//! The mounts of one container.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1 as k8s;
use winddown_engine::environment::expand_path;
use winddown_engine::termination_notices;
use winddown_shared::{Pod, RuntimeError};

use super::super::config::CriConfig;
use super::super::{api, caused, dirs, failed, host_mount, labels, spec};

/// The container's mounts: its volumes, the hosts file, its termination message file. Bind-mounts parts of volumes
/// to a place of their own. Blocking.
///
/// # Errors
/// A part leads out of its volume or cannot be mounted, or its path contains an unknown variable.
pub(in super::super) fn mounts(
    config: &CriConfig,
    pod: &Pod,
    container: &k8s::Container,
    attempt: u32,
    ips: &[String],
) -> Result<Vec<api::Mount>, RuntimeError> {
    let mut all = Vec::new();
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let source = source(config, pod, container, (i, mount), ips)?;
        all.push(api::Mount {
            container_path: mount.mount_path.clone(),
            host_path: source.display().to_string(),
            readonly: mount.read_only == Some(true),
            selinux_relabel: is_ours(config, pod, &mount.name),
            propagation: propagation(mount).into(),
        });
    }
    let message = Path::new(labels::message_path(container));
    let taken = |path: &Path| all.iter().any(|m| Path::new(&m.container_path) == path);
    let own_message = !taken(message);
    let own_hosts = !taken(Path::new("/etc/hosts"));
    if own_hosts {
        all.push(file(&dirs::hosts(config, pod.uid()), Path::new("/etc/hosts")));
    }
    if own_message {
        let host = dirs::termination_log(config, pod.uid(), &container.name, attempt);
        all.push(file(&host, message));
    }
    Ok(all)
}

/// Mount path of the directory with the termination notice of the pod. `/dev` is in memory in every container, so
/// no mount point is created in an image or a volume.
const NOTICES: &str = "/dev/winddown";

/// The mount of the pod's termination notice at `dir` and the variable with its path, for a container with these other mounts.
/// `None` if one of them is in the way.
pub(in super::super) fn notice(
    dir: &Path,
    others: &[api::Mount],
) -> Option<(api::Mount, api::KeyValue)> {
    let place = Path::new(NOTICES);
    let is_in_the_way = |other: &api::Mount| {
        let other = Path::new(&other.container_path);
        place.starts_with(other) || other.starts_with(place)
    };
    if others.iter().any(is_in_the_way) {
        return None;
    }
    let value = format!("{NOTICES}/{}", termination_notices::FILE).into_bytes();
    let variable = api::KeyValue { key: termination_notices::VARIABLE.to_owned(), value };
    Some((api::Mount { readonly: true, ..file(dir, place) }, variable))
}

/// Whether the volume is a directory that was created for the pod: only such a volume may get the SELinux label of
/// the pod's containers.
fn is_ours(config: &CriConfig, pod: &Pod, name: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let mut named = volumes.filter(|volume| volume.name == name);
    let is_made = |host: &k8s::HostPathVolumeSource| {
        config.made_volumes.iter().any(|made| Path::new(&host.path).starts_with(made))
    };
    named.next().is_some_and(|volume| volume.host_path.as_ref().is_none_or(is_made))
}

fn source(
    config: &CriConfig,
    pod: &Pod,
    container: &k8s::Container,
    (i, mount): (usize, &k8s::VolumeMount),
    ips: &[String],
) -> Result<PathBuf, RuntimeError> {
    let field = format!("volumeMounts[{i}] of container {}", container.name);
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let mut volumes = volumes.filter(|v| v.name == mount.name);
    let Some(volume) = volumes.next() else {
        return Err(failed(format!("{field}: the pod has no volume {}", mount.name)));
    };
    let root = match &volume.host_path {
        Some(host) => PathBuf::from(&host.path),
        None => dirs::volume(config, pod.uid(), &volume.name),
    };
    // Errors show it as it is written: the value of a variable may be a Secret's.
    let (written, sub) = match (mount.sub_path.as_deref(), mount.sub_path_expr.as_deref()) {
        (Some(path), _) if !path.is_empty() => (path, path.to_owned()),
        (_, Some(text)) if !text.is_empty() => {
            let env = spec::variables(config, pod, ips, container, &field)?;
            (text, expand_path(text, &env).map_err(|why| failed(format!("{field}: {why}")))?)
        }
        _ => return Ok(root),
    };
    let sub = Path::new(&sub);
    if !is_inside(sub) {
        return Err(failed(format!(
            "{field}: {written} leads out of the volume: write a path below it"
        )));
    }
    let target = dirs::sub_path(config, pod.uid(), &container.name, i);
    let what = || format!("{field}: {written}");
    host_mount::bind_part(&config.paths.own_program, &config.paths.proc, &root, sub, &target)
        .map_err(|e| caused(what(), e))?;
    Ok(target)
}

/// Whether a path stays below its start, judged by its components alone.
pub(in super::super) fn is_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn file(host: &Path, container: &Path) -> api::Mount {
    api::Mount {
        container_path: container.display().to_string(),
        host_path: host.display().to_string(),
        selinux_relabel: true,
        ..api::Mount::default()
    }
}

fn propagation(mount: &k8s::VolumeMount) -> api::MountPropagation {
    match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => api::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => api::MountPropagation::PropagationBidirectional,
        _ => api::MountPropagation::PropagationPrivate,
    }
}

//! Computes the files of a volume. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::Pod;

use super::allowance::Allowance;
use super::downward::{self, NodeAmounts};
use super::object::{FoundObject, Hidden, Object, ObjectKey, ObjectKind};
use super::problem::ReferenceProblem;

/// What a file takes in memory, where Secrets are, is a multiple of this.
const PAGE_BYTES: usize = 4096;

/// The files of a volume, by their path in it.
pub(crate) type Payload = BTreeMap<String, File>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) bytes: Hidden,
    /// Its permission bits.
    pub(crate) mode: u32,
    /// The user who owns it, if it is not root.
    pub(crate) owner: Option<u32>,
}

/// A token that a volume shows, identified by the request for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenKey {
    /// The audience; empty for the API server.
    pub(crate) audience: String,
    /// The requested lifetime in seconds.
    pub(crate) seconds: i64,
}

/// The inputs for the files of a volume.
pub(crate) struct PayloadInputs<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) objects: &'a HashMap<ObjectKey, FoundObject>,
    pub(crate) tokens: &'a HashMap<TokenKey, Hidden>,
    /// The node's allocatable amounts, once they are known.
    pub(crate) node: Option<NodeAmounts>,
}

pub(crate) fn tokens(volume: &api::Volume) -> impl Iterator<Item = TokenKey> {
    let sources = volume.projected.iter().flat_map(|p| p.sources.iter().flatten());
    sources.filter_map(|s| s.service_account_token.as_ref()).map(token_key)
}

/// Computes the files of the pod's volume `index`. `allowance` is that of all its volumes.
///
/// # Errors
/// When something that it must show is missing, cannot be read, cannot be shown, or is more than is
/// allowed.
pub(crate) fn files(
    known: &PayloadInputs<'_>,
    index: usize,
    volume: &api::Volume,
    allowance: &mut Allowance,
) -> Result<Payload, ReferenceProblem> {
    let field = format!("spec.volumes[{index}]");
    let mut making = Making { known, field, files: Payload::new(), allowance };
    if let Some(map) = &volume.config_map {
        let of = KeySource::new(ObjectKind::ConfigMap, &map.name, map.optional, &map.items);
        making.object(&of, mode_of(map.default_mode))?;
    } else if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let of = KeySource::new(ObjectKind::Secret, name, secret.optional, &secret.items);
        making.object(&of, mode_of(secret.default_mode))?;
    } else if let Some(downward) = &volume.downward_api {
        making.downward(downward.items.iter().flatten(), mode_of(downward.default_mode))?;
    } else if let Some(projected) = &volume.projected {
        let mode = mode_of(projected.default_mode);
        for (i, source) in projected.sources.iter().flatten().enumerate() {
            making.projection(i, source, mode)?;
        }
    }
    making.finish()
}

/// How many directories the files are in, below that of the volume: a path of 4 kB can have two thousand.
pub(crate) fn directories(files: &Payload) -> usize {
    let parents = |path: &str| path.matches('/').count();
    // In this order all files of a directory follow each other.
    let shared = files.keys().zip(files.keys().skip(1)).map(|(path, next)| {
        let same = path.bytes().zip(next.bytes()).take_while(|(a, b)| a == b);
        same.filter(|(byte, _)| *byte == b'/').count()
    });
    files.keys().map(|path| parents(path)).sum::<usize>() - shared.sum::<usize>()
}

struct Making<'a> {
    known: &'a PayloadInputs<'a>,
    field: String,
    files: Payload,
    allowance: &'a mut Allowance,
}

/// A reference to an object whose keys become files.
struct KeySource<'a> {
    kind: ObjectKind,
    name: &'a str,
    optional: bool,
    items: &'a [api::KeyToPath],
}

// === impl Making ===

impl Making<'_> {
    fn projection(
        &mut self,
        i: usize,
        source: &api::VolumeProjection,
        mode: u32,
    ) -> Result<(), ReferenceProblem> {
        if let Some(map) = &source.config_map {
            let of = KeySource::new(ObjectKind::ConfigMap, &map.name, map.optional, &map.items);
            return self.object(&of, mode);
        }
        if let Some(secret) = &source.secret {
            let of =
                KeySource::new(ObjectKind::Secret, &secret.name, secret.optional, &secret.items);
            return self.object(&of, mode);
        }
        if let Some(downward) = &source.downward_api {
            return self.downward(downward.items.iter().flatten(), mode);
        }
        if let Some(token) = &source.service_account_token {
            return self.token(token, mode);
        }
        Err(ReferenceProblem::Invalid {
            field: format!("{}.projected.sources[{i}]", self.field),
            why: "only configMap, secret, downwardAPI and serviceAccountToken are shown".to_owned(),
        })
    }

    fn object(&mut self, of: &KeySource<'_>, mode: u32) -> Result<(), ReferenceProblem> {
        let Some(object) = self.look_up(of)? else { return Ok(()) };
        if of.items.is_empty() {
            for (key, value) in object.binary.iter().chain(&object.data) {
                self.put(key, value.clone(), mode, None)?;
            }
            return Ok(());
        }
        for item in of.items {
            let Some(value) = object.value(&item.key) else {
                if of.optional {
                    continue;
                }
                return Err(self.lacks(of, &object, &item.key));
            };
            let mode = item.mode.map_or(mode, |own| mode_of(Some(own)));
            self.put(&item.path, value.clone(), mode, None)?;
        }
        Ok(())
    }

    fn look_up(&self, of: &KeySource<'_>) -> Result<Option<Arc<Object>>, ReferenceProblem> {
        let key = ObjectKey::new(of.kind, self.known.pod.namespace(), of.name);
        let kind = of.kind.lower();
        match self.known.objects.get(&key) {
            Some(FoundObject::There(object)) => Ok(Some(Arc::clone(object))),
            Some(FoundObject::Unreadable { error, after }) => {
                let message = format!("failed to read {kind} {:?}: {error}", of.name);
                Err(ReferenceProblem::Unreadable { message, after: *after })
            }
            Some(FoundObject::Missing) | None if of.optional => Ok(None),
            Some(FoundObject::Missing) | None => {
                let message = format!("{kind} {:?} not found", of.name);
                Err(ReferenceProblem::Missing { key, version: None, is_for_volume: true, message })
            }
        }
    }

    fn lacks(&self, of: &KeySource<'_>, object: &Object, wanted: &str) -> ReferenceProblem {
        let message = match of.kind {
            ObjectKind::ConfigMap => {
                format!("configmap references non-existent config key: {wanted}")
            }
            ObjectKind::Secret => format!("references non-existent secret key: {wanted}"),
        };
        let key = ObjectKey::new(of.kind, self.known.pod.namespace(), of.name);
        ReferenceProblem::Missing {
            key,
            version: object.version.clone(),
            is_for_volume: true,
            message,
        }
    }

    fn downward<'a>(
        &mut self,
        items: impl Iterator<Item = &'a api::DownwardAPIVolumeFile>,
        mode: u32,
    ) -> Result<(), ReferenceProblem> {
        for item in items {
            let PayloadInputs { pod, node, .. } = self.known;
            let text = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => downward::field(pod, &field.field_path).map_err(Into::into),
                (None, Some(resource)) => downward::resource(pod, resource, None, *node),
                (None, None) => Err("write `fieldRef` or `resourceFieldRef`".to_owned().into()),
            };
            let at = || format!("{}: downwardAPI item {:?}", self.field, item.path);
            let text = text.map_err(|error| error.problem(at))?;
            let mode = item.mode.map_or(mode, |own| mode_of(Some(own)));
            self.put(&item.path, Hidden::from(text.into_bytes()), mode, None)?;
        }
        Ok(())
    }

    /// Adds a token, for the user that all containers run as and the pod's group only, if there are such.
    fn token(
        &mut self,
        token: &api::ServiceAccountTokenProjection,
        mode: u32,
    ) -> Result<(), ReferenceProblem> {
        let Some(value) = self.known.tokens.get(&token_key(token)) else {
            let message = "the service account's token is not there yet".to_owned();
            return Err(ReferenceProblem::Unreadable { message, after: None });
        };
        let owner = common_user(self.known.pod);
        let mode = if owner.is_some() || group(self.known.pod).is_some() { 0o600 } else { mode };
        self.put(&token.path, value.clone(), mode, owner)
    }

    fn put(
        &mut self,
        path: &str,
        bytes: Hidden,
        mode: u32,
        owner: Option<u32>,
    ) -> Result<(), ReferenceProblem> {
        let Some(path) = below(path) else {
            return Err(ReferenceProblem::Invalid {
                field: self.field.clone(),
                why: format!("{path:?} is not a path below the volume: write one without `..`"),
            });
        };
        let pages = bytes.bytes().len().div_ceil(PAGE_BYTES).max(1);
        self.allowance.take(&self.field, pages * PAGE_BYTES)?;
        self.files.insert(path, File { bytes, mode, owner });
        Ok(())
    }

    /// Rejects a path that is both a file and a directory, which the kubelet notices only when it writes.
    fn finish(self) -> Result<Payload, ReferenceProblem> {
        let is_both = |path: &&String| {
            let mut parents = path.match_indices('/').map(|(at, _)| &path[..at]);
            parents.any(|parent| self.files.contains_key(parent))
        };
        if let Some(path) = self.files.keys().find(is_both) {
            let why = format!("{path:?} is below a path that is a file");
            return Err(ReferenceProblem::Unfit { field: self.field, why });
        }
        self.allowance.take(&self.field, directories(&self.files) * PAGE_BYTES)?;
        let group = group(self.known.pod);
        let mut files = self.files;
        for file in files.values_mut().filter(|_| group.is_some()) {
            file.mode |= 0o440;
        }
        Ok(files)
    }
}

// === impl KeySource ===

impl<'a> KeySource<'a> {
    fn new(
        kind: ObjectKind,
        name: &'a str,
        optional: Option<bool>,
        items: &'a Option<Vec<api::KeyToPath>>,
    ) -> Self {
        let items = items.as_deref().unwrap_or_default();
        Self { kind, name, optional: optional == Some(true), items }
    }
}

/// `fsGroup`: the group that can read the pod's volumes.
pub(crate) fn group(pod: &Pod) -> Option<u32> {
    let security = pod.spec.as_ref()?.security_context.as_ref()?;
    security.fs_group.and_then(|id| u32::try_from(id).ok())
}

/// The user that all containers run as, if each sets one and all are the same.
fn common_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|s| s.run_as_user);
    let plain = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let plain = plain.map(|c| c.security_context.as_ref());
    let later = spec.ephemeral_containers.iter().flatten().map(|c| c.security_context.as_ref());
    let mut users = plain.chain(later).map(|own| own.and_then(|s| s.run_as_user).or(of_pod));
    let first = users.next()??;
    let agree = users.all(|user| user == Some(first));
    u32::try_from(first).ok().filter(|_| agree)
}

fn token_key(token: &api::ServiceAccountTokenProjection) -> TokenKey {
    TokenKey {
        audience: token.audience.clone().unwrap_or_default(),
        seconds: token.expiration_seconds.unwrap_or(3600),
    }
}

fn mode_of(given: Option<i32>) -> u32 {
    given.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644) & 0o777
}

/// The path in its shortest form, as the kubelet writes `./a//b`; `None` if it does not stay in the volume, or begins with
/// a name that the writer reserves.
fn below(path: &str) -> Option<String> {
    let is_fit = !path.starts_with('/') && !path.contains('\0') && path.len() <= 4096;
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let is_safe = parts.iter().all(|part| *part != ".." && part.len() < 256);
    let is_own = parts.first().is_some_and(|first| !first.starts_with(".."));
    (is_fit && is_safe && is_own).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests;

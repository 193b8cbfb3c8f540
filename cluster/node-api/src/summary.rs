//! The response of `/stats/summary`, in the kubelet's form (`k8s.io/kubelet/pkg/apis/stats/v1alpha1`). Unknown values
//! are left out and never 0; only the start times of the node and of pods, which are required, have substitutes.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};
use winddown_host::pod_logs::status_of;
use winddown_shared::status::StatusEntry;
use winddown_shared::{DiskUse, FsStats, MemoryStats, PodStats, PodUid, WallTime};

use crate::figures::{PodRate, Taken};

pub(crate) fn summary(node: &str, taken: &Taken, statuses: &[StatusEntry]) -> Value {
    let known: HashMap<&PodUid, &StatusEntry> =
        statuses.iter().map(|entry| (entry.pod.uid(), entry)).collect();
    let pods = taken.figures.pods.iter();
    let pods = pods.filter_map(|(uid, stats)| Some(pod(taken, known.get(uid)?, stats)));
    json!({ "node": of_node(node, taken), "pods": pods.collect::<Vec<_>>() })
}

fn of_node(name: &str, taken: &Taken) -> Value {
    let stats = &taken.figures.node;
    let fs = |fs: &Option<FsStats>| fs.as_ref().map(|fs| disk(taken.at, Some(fs), (None, None)));
    let used = |fs: &FsStats| {
        let inodes = fs.inodes.zip(fs.inodes_free);
        (fs.used_bytes, inodes.map(|(all, free)| all.saturating_sub(free)))
    };
    let nodefs = stats.nodefs.as_ref().map(|fs| disk(taken.at, Some(fs), used(fs)));
    let runtime =
        object([("imageFs", fs(&stats.imagefs)), ("containerFs", fs(&stats.containerfs))]);
    let rlimit = stats
        .tasks
        .map(|tasks| json!({"time": time(taken.at), "maxpid": tasks.max, "curproc": tasks.used}));
    object([
        ("nodeName", Some(name.into())),
        ("startTime", Some(time(taken.figures.booted_at.unwrap_or(WallTime::UNIX_EPOCH)))),
        ("cpu", cpu(taken.at, taken.figures.cpu_time, taken.node_rate)),
        ("memory", stats.memory.map(|memory| of_memory(taken.at, memory))),
        ("fs", nodefs),
        ("runtime", Some(runtime).filter(|runtime| runtime != &json!({}))),
        ("rlimit", rlimit),
    ])
}

fn pod(taken: &Taken, entry: &StatusEntry, stats: &PodStats) -> Value {
    let none = PodRate::default();
    let rates = taken.rates.get(entry.pod.uid()).unwrap_or(&none);
    let layers = taken.figures.node.containerfs.or(taken.figures.node.imagefs);
    let nodefs = taken.figures.node.nodefs;
    let at = taken.at;
    // Of what only a part could be counted, the rest is unknown.
    let both = |used: DiskUse| match used.is_partial {
        false => (Some(used.bytes), Some(used.inodes)),
        true => (None, None),
    };
    let containers = stats.containers.iter().map(|one| {
        object([
            ("name", Some((*one.name).into())),
            ("startTime", started_at(&entry.status, &one.name).map(time)),
            ("cpu", cpu(at, one.cpu_time, rates.containers.get(&one.name).copied())),
            ("memory", working_set(at, one.memory_working_set)),
            ("rootfs", one.rootfs.map(|used| disk(at, layers.as_ref(), both(used)))),
            ("logs", one.logs.map(|used| disk(at, nodefs.as_ref(), both(used)))),
        ])
    });
    let volumes = stats.volumes.iter().map(|volume| {
        let mut value = disk(at, nodefs.as_ref(), both(volume.used));
        value["name"] = (*volume.name).into();
        value
    });
    let volumes: Vec<Value> = volumes.collect();
    let (name, namespace) = (&**entry.pod.name(), &**entry.pod.namespace());
    let ephemeral = stats.ephemeral.map(|used| disk(at, nodefs.as_ref(), both(used)));
    object([
        (
            "podRef",
            Some(json!({"name": name, "namespace": namespace, "uid": entry.pod.uid().as_str()})),
        ),
        ("startTime", Some(time(entry.status.start_time.as_ref().map_or(at, |start| start.0)))),
        ("containers", Some(containers.collect())),
        ("cpu", cpu(at, stats.cpu_time, rates.pod)),
        ("memory", working_set(at, stats.memory_working_set)),
        ("volume", Some(volumes).filter(|all| !all.is_empty()).map(Value::from)),
        ("ephemeral-storage", ephemeral),
        ("process_stats", stats.tasks.map(|count| json!({"process_count": count}))),
    ])
}

/// The start time of a container that is running.
pub(crate) fn started_at(status: &PodStatus, name: &str) -> Option<WallTime> {
    let one = status_of(status, name)?;
    Some(one.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}

fn cpu(at: WallTime, used: Option<Duration>, rate: Option<Duration>) -> Option<Value> {
    let nanos = |time: Duration| Value::from(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    Some(object([
        ("time", Some(time(at))),
        ("usageNanoCores", rate.map(nanos)),
        ("usageCoreNanoSeconds", Some(nanos(used?))),
    ]))
}

fn working_set(at: WallTime, bytes: Option<u64>) -> Option<Value> {
    Some(json!({"time": time(at), "workingSetBytes": bytes?}))
}

fn of_memory(at: WallTime, memory: MemoryStats) -> Value {
    let MemoryStats { working_set, available, .. } = memory;
    json!({"time": time(at), "availableBytes": available, "workingSetBytes": working_set})
}

/// The capacity of a file system, and the bytes and inodes that are used of it.
fn disk(at: WallTime, fs: Option<&FsStats>, used: (Option<u64>, Option<u64>)) -> Value {
    let (bytes, inodes) = used;
    let of = |field: fn(&FsStats) -> Option<u64>| fs.and_then(field).map(Value::from);
    object([
        ("time", Some(time(at))),
        ("availableBytes", of(|fs| fs.available_bytes)),
        ("capacityBytes", of(|fs| fs.capacity_bytes)),
        ("usedBytes", bytes.map(Value::from)),
        ("inodesFree", of(|fs| fs.inodes_free)),
        ("inodes", of(|fs| fs.inodes)),
        ("inodesUsed", inodes.map(Value::from)),
    ])
}

/// Formats a time as Kubernetes does, to the second.
fn time(at: WallTime) -> Value {
    WallTime::from_second(at.as_second()).unwrap_or(at).to_string().into()
}

fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let known = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(known.collect::<Map<_, _>>())
}

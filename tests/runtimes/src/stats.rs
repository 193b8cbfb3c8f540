//! The resource usage of the fake's containers.

use crate::api::*;

/// The reported usage of a container: bytes of memory, then bytes and inodes of its writable layer.
const USED: (u64, u64, u64) = (7_000_000, 40_960, 4);

/// The stats of a running container.
pub(super) fn of(id: &str) -> ContainerStats {
    let value = |value| Some(UInt64Value { value });
    let (memory, bytes, inodes) = USED;
    ContainerStats {
        attributes: Some(ContainerAttributes { id: id.to_owned() }),
        cpu: Some(CpuUsage { timestamp: 1, usage_core_nano_seconds: value(5_000_000_000) }),
        memory: Some(MemoryUsage { timestamp: 1, working_set_bytes: value(memory) }),
        writable_layer: Some(FilesystemUsage {
            timestamp: 1,
            fs_id: None,
            used_bytes: value(bytes),
            inodes_used: value(inodes),
        }),
    }
}

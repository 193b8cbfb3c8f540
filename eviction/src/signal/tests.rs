use winddown_shared::{FsStats, LimitStats, MemoryStats};

use super::*;
use crate::cause::Cause;

#[test]
fn each_signal_is_found_by_its_name_and_is_a_cause_of_that_name() {
    for (index, signal) in Signal::ALL.into_iter().enumerate() {
        assert_eq!((signal.index(), signal.as_str()), (index, Signal::NAMES[index]));
        assert_eq!(signal.as_str().parse(), Ok(signal));
        assert_eq!(Cause::named(signal.as_str()), Some(Cause::Signal(signal)));
    }
    let limits = ["emptydirfs.limit", "ephemeralpodfs.limit", "ephemeralcontainerfs.limit"];
    let causes = [Cause::EmptyDirLimit, Cause::PodLimit, Cause::ContainerLimit];
    assert_eq!(limits.map(Cause::named), causes.map(Some));
    let unit = |name| Cause::named(name).and_then(Cause::unit);
    let units = ["memoryPressure", "pid.available", "emptydirfs.limit", "memory"].map(unit);
    assert_eq!(units, [Some(Unit::Bytes), Some(Unit::Count), None, None]);
}

#[test]
fn what_a_node_did_not_measure_is_available_for_no_signal() {
    for signal in Signal::ALL {
        assert_eq!(signal.available(&NodeStats::default(), MemoryAvailable::default()), None);
    }
}

#[test]
fn what_a_node_has_none_of_never_runs_out_whatever_the_signal() {
    let none = || {
        let memory = MemoryStats { at: None, working_set: 0, available: 0, mem_available: None };
        let file_system = FsStats {
            capacity_bytes: Some(0),
            available_bytes: Some(0),
            inodes: Some(0),
            inodes_free: Some(0),
            ..FsStats::default()
        };
        let mut node = NodeStats::default();
        (node.memory, node.pods_memory) = (Some(memory), Some(memory));
        (node.nodefs, node.imagefs, node.containerfs) =
            (Some(file_system), Some(file_system), Some(file_system));
        node.tasks = Some(LimitStats { at: None, max: 0, used: 0 });
        node
    };
    for signal in Signal::ALL {
        // A new signal's figure belongs in `none`: without it, this would show nothing.
        assert!(
            (signal.row().available)(&none(), MemoryAvailable::default()).is_some(),
            "{signal}"
        );
        assert_eq!(signal.available(&none(), MemoryAvailable::default()), None, "{signal}");
    }
}

#[test]
fn the_first_signal_of_each_resource_is_the_one_of_the_node_itself() {
    let names: Vec<_> = Signal::first_of_each_resource().map(Signal::as_str).collect();
    assert_eq!(
        names,
        ["memory.available", "nodefs.available", "nodefs.inodesFree", "pid.available"]
    );
}

#[test]
fn the_threshold_of_a_signal_is_configured_as_its_own_unless_it_is_derived() {
    use Signal::{AllocatableMemoryAvailable, ContainerFsAvailable, ContainerFsInodesFree};
    let derived = [
        (AllocatableMemoryAvailable, Some(Signal::MemoryAvailable)),
        (ContainerFsAvailable, None),
        (ContainerFsInodesFree, None),
    ];
    for signal in Signal::ALL {
        let found = derived.iter().find(|(derived, _)| *derived == signal);
        let wanted = found.map_or(Some(signal), |(_, from)| *from);
        assert_eq!(signal.configured_as(), wanted, "{signal}");
    }
}

use winddown_shared::{FsStats, LimitStats, MemoryStats};

use super::*;

fn shown(stats: &NodeStats, signal: Signal) -> Option<(String, i64)> {
    let observed = Observations::of(stats, MemoryAvailable::WorkingSet).get(signal)?;
    Some((observed.quantity(signal.resource().unit()).to_string(), observed.capacity))
}

fn memory(available: u64) -> Option<MemoryStats> {
    Some(MemoryStats { at: None, working_set: 1 << 20, available, mem_available: None })
}

#[test]
fn make_signal_observations() {
    let fs = |free: u64| {
        Some(FsStats {
            at: None,
            capacity_bytes: Some(10 << 20),
            available_bytes: Some(free << 20),
            inodes: Some(9_000),
            inodes_free: Some(free * 1000),
            ..FsStats::default()
        })
    };
    let stats = {
        let mut stats = NodeStats::default();
        stats.memory = memory(7 << 20);
        stats.pods_memory = memory(5 << 20);
        stats.nodefs = fs(1);
        stats.imagefs = fs(2);
        stats.containerfs = fs(3);
        stats.tasks = Some(LimitStats { at: None, max: 255_816, used: 1000 });
        stats
    };
    let expected = [
        ("7Mi", 8 << 20),
        ("5Mi", 6 << 20),
        ("1Mi", 10 << 20),
        ("1k", 9_000),
        ("2Mi", 10 << 20),
        ("2k", 9_000),
        ("3Mi", 10 << 20),
        ("3k", 9_000),
        ("254816", 255_816),
    ];
    assert_eq!(Signal::ALL.len(), expected.len());
    for (signal, (available, capacity)) in Signal::ALL.into_iter().zip(expected) {
        assert_eq!(shown(&stats, signal), Some((available.to_owned(), capacity)), "{signal}");
    }
}

#[test]
fn what_was_not_measured_is_not_observed() {
    for signal in Signal::ALL {
        assert_eq!(shown(&NodeStats::default(), signal), None);
    }
    let half = FsStats { available_bytes: Some(0), inodes_free: Some(0), ..FsStats::default() };
    let stats = {
        let mut stats = NodeStats::default();
        stats.nodefs = Some(half);
        stats
    };
    assert_eq!(shown(&stats, Signal::NodeFsAvailable), None);
}

#[test]
fn more_tasks_than_there_should_be_are_less_than_none_left() {
    let tasks = Some(LimitStats { at: None, max: 10, used: 12 });
    let stats = {
        let mut stats = NodeStats::default();
        stats.tasks = tasks;
        stats
    };
    assert_eq!(shown(&stats, Signal::PidAvailable), Some(("-2".to_owned(), 10)));
}

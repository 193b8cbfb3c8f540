//! The model against figures that can be worked out by hand.

use std::time::Duration;

use super::{Asked, Level, Limits, Load, Scenario, Seen, load};

fn asked(after_ms: u64, what: &str) -> Asked {
    Asked { after: Duration::from_millis(after_ms), what: what.to_owned(), body: 100 }
}

fn seen(seconds: u64, asked: Vec<Asked>) -> Seen {
    Seen { times: 1, span: Duration::from_secs(seconds), asked, bytes: (1000, 500) }
}

/// A lease every ten seconds.
fn idle() -> Seen {
    seen(100, (0..10).map(|n| asked(n * 10_000, "patch leases")).collect())
}

/// A hundred statuses at once, then nothing for the rest of two seconds.
fn power_off() -> Seen {
    seen(2, (0..100).map(|_| asked(0, "patch pods/status")).collect())
}

/// Ten requests a second at each level, and a hundred writes.
const SMALL: Limits =
    Limits { concurrency: 245.0, seat: Duration::from_secs(1), queue: 500.0, etcd: 100.0 };

fn at(nodes: u32, act: &Seen) -> Load {
    load(Scenario { nodes, act, all: 0 }, &idle(), &SMALL)
}

#[test]
fn the_defaults_give_the_levels_their_share_of_the_seats() {
    let limits = Limits::DEFAULT;
    assert_eq!((limits.seats(Level::NodeHigh), limits.seats(Level::System)), (98.0, 74.0));
    assert!((limits.rate(Level::System) - 74.0 / 0.022).abs() < 1e-6);
}

#[test]
fn leases_and_nodes_have_a_level_of_their_own() {
    for what in ["patch leases", "patch nodes/status", "get nodes"] {
        assert_eq!(asked(0, what).level(), Level::NodeHigh, "{what}");
    }
    for what in ["patch pods/status", "list pods", "create events"] {
        assert_eq!(asked(0, what).level(), Level::System, "{what}");
    }
}

#[test]
fn only_what_changes_objects_is_a_write() {
    for what in ["patch pods/status", "create events", "delete pods", "update leases"] {
        assert!(asked(0, what).is_write(), "{what}");
    }
    for what in [
        "get nodes",
        "list pods",
        "watch pods",
        "create selfsubjectaccessreviews",
        "create serviceaccounts/token",
    ] {
        assert!(!asked(0, what).is_write(), "{what}");
    }
}

#[test]
fn idle_nodes_add_up() {
    // 400 leases in ten seconds are 40 a second: all that the level serves.
    let load = load(Scenario { nodes: 0, act: &idle(), all: 400 }, &idle(), &SMALL);
    assert!((load.node_high - 1.0).abs() < 1e-9, "{load:?}");
    assert!((load.etcd - 0.4).abs() < 1e-9, "{load:?}");
    assert!(load.system.abs() < 1e-9, "{load:?}");
}

#[test]
fn what_is_not_served_at_once_waits_and_the_last_is_that_late() {
    // 100 requests at once, 30 a second: 3 are served in the first slot, 97 wait.
    let load = at(1, &power_off());
    assert!((load.waiting - 97.0).abs() < 1e-9, "{load:?}");
    assert!((load.late.as_secs_f64() - 97.0 / 30.0).abs() < 1e-6, "{load:?}");
    assert!((load.requests - 100.0).abs() < 1e-9 && (load.peak - 100.0).abs() < 1e-9);
    assert!(!load.refused);
}

#[test]
fn more_than_may_wait_are_refused() {
    assert!(at(6, &power_off()).refused);
}

#[test]
fn twice_the_nodes_are_twice_the_load() {
    let (once, twice) = (at(3, &power_off()), at(6, &power_off()));
    for (one, two) in [
        (once.requests, twice.requests),
        (once.writes, twice.writes),
        (once.peak, twice.peak),
        (once.bytes, twice.bytes),
        (once.system, twice.system),
    ] {
        assert!((two - 2.0 * one).abs() < 1e-6, "{once:?} {twice:?}");
    }
}

#[test]
fn those_that_are_idle_take_from_what_is_served() {
    let mut busy = idle();
    busy.asked.extend((0..10).map(|n| asked(n * 10_000, "get pods")));
    // A hundred nodes ask the level for ten a second, of its thirty.
    let scenario = Scenario { nodes: 1, act: &power_off(), all: 100 };
    let load = load(scenario, &busy, &SMALL);
    assert!((load.late.as_secs_f64() - 98.0 / 20.0).abs() < 1e-6, "{load:?}");
}

#[test]
fn kinds_of_requests_are_counted_with_their_size() {
    let mut seen = power_off();
    seen.asked.push(asked(5, "patch leases"));
    let kinds = seen.kinds();
    assert_eq!(kinds["patch pods/status"], (100, 100));
    assert_eq!(kinds["patch leases"], (1, 100));
}

#[test]
fn what_goes_on_anyway_is_not_counted_twice() {
    let mut act = power_off();
    act.asked.push(asked(0, "patch leases"));
    assert!((at(1, &act).requests - 100.0).abs() < 1e-9);
}

#[test]
fn what_goes_on_more_often_than_usual_is_counted() {
    // A lease in ten seconds is usual; three at once are not.
    let mut act = power_off();
    act.asked.extend((0..3).map(|_| asked(0, "patch leases")));
    assert!((at(1, &act).requests - 103.0).abs() < 1e-9);
}

#[test]
fn a_node_that_was_seen_often_stands_for_as_many_that_differ() {
    let at_once = |ms| seen(2, vec![asked(ms, "watch pods")]);
    let both = Seen::together(vec![at_once(0), at_once(1500)]).unwrap();
    assert_eq!((both.times, both.bytes), (2, (2000, 1000)));
    // Fifty in the first slot, of which 3 are served; 42 more until the other fifty come: 5 + 50 - 3.
    let load = at(100, &both);
    assert!((load.requests - 100.0).abs() < 1e-9, "{load:?}");
    assert!((load.waiting - 52.0).abs() < 1e-9, "{load:?}");
    assert!((load.bytes - 150_000.0).abs() < 1e-6, "{load:?}");
}

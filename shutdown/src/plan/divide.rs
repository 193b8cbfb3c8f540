//! Divides the available time between the endpoint drain and the groups.

use std::time::Duration;

use winddown_shared::Grace;

use super::{Group, share};
use crate::Role;
use crate::budget::whole_seconds;

/// Sets the time of each role group for when there is as much time as the policy asks for.
///
/// The groups of ordinary pods may together take all of `total` except what the others ask for, of which
/// at most `later` is kept from them. The others share the rest. If a share is not enough, the longest
/// requests are cut to a common length.
pub(super) fn by_role(groups: &mut [Group], total: Duration, later: Duration) {
    let (total, later) = (total.as_secs(), later.as_secs());
    let ordinary = groups.partition_point(|group| group.role == Some(Role::Ordinary));
    for (index, group) in groups.iter_mut().enumerate() {
        // Until the shares are known, this is the grace period of pods that have none of their own.
        group.configured =
            Duration::from_secs(if index < ordinary { total - later } else { later });
    }
    let wishes: Vec<u64> =
        groups.iter().map(|group| longest_request(group).as_secs().min(total)).collect();
    let (ordinary, others) = wishes.split_at(ordinary);
    let kept = later.min(others.iter().sum());
    let mut shares = share::level(ordinary, total - kept);
    shares.extend(share::level(others, total - shares.iter().sum::<u64>()));
    for (group, share) in groups.iter_mut().zip(shares) {
        group.configured = Duration::from_secs(share);
        group.allowed = group.configured;
    }
}

/// Divides `available` if it is less than the policy asks for. Returns what is left of the endpoint
/// drain.
///
/// Time that pods ask for comes first, then the drain, then time that no pod asks for.
pub(super) fn shrink(groups: &mut [Group], drain: Duration, available: Duration) -> Duration {
    let used: Vec<u64> = groups.iter().map(|group| useful_time(group).as_secs()).collect();
    let needed = Duration::from_secs(used.iter().sum());
    let drain = drain.min(available.saturating_sub(needed));
    // Time that no pod asked for still helps with a slow stop, so spare seconds go back where they came from.
    let configured = groups.iter().map(|group| group.configured.as_secs());
    let shares = share::level_with_rest(&used, configured, (available - drain).as_secs());
    for (group, share) in groups.iter_mut().zip(shares) {
        group.allowed = Duration::from_secs(share);
    }
    drain
}

/// The longest time any pod of the group asks for, within the group's period.
fn useful_time(group: &Group) -> Duration {
    longest_request(group).min(group.configured)
}

/// The longest time any pod of the group asks for; zero without pods.
fn longest_request(group: &Group) -> Duration {
    let longest = group
        .pods
        .iter()
        .map(|planned| planned.pod.termination_grace_period().unwrap_or(group.configured))
        .max();
    longest.map_or(Duration::ZERO, |longest| whole_seconds(longest).max(Grace::SHORTEST))
}

//! Converts a container's resources to the kernel's units, calculated as the kubelet does.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use winddown_shared::Quantity;

/// The length of a CPU quota's period, in microseconds; the kernel's default.
pub const CPU_PERIOD_MICROS: i64 = 100_000;
/// The smallest quota that the kernel accepts.
const MIN_QUOTA: i64 = 1000;
/// The range of CPU shares; one CPU is 1024.
const SHARES: RangeInclusive<i64> = 2..=262_144;
/// The range of weights of cgroup v2.
const WEIGHTS: RangeInclusive<i64> = 1..=10_000;

/// Returns the amount of this name; none if it is missing or invalid.
pub fn amount(amounts: Option<&BTreeMap<String, Text>>, name: &str) -> Option<Quantity> {
    amounts?.get(name)?.0.parse().ok()
}

/// CPU shares for a request in thousandths of a CPU.
pub fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(*SHARES.start(), *SHARES.end())
}

/// The cgroup v2 weight for CPU shares: maps their range linearly to that of weights, as container runtimes do.
pub fn weight(shares: i64) -> i64 {
    let shares = shares.clamp(*SHARES.start(), *SHARES.end()) - SHARES.start();
    WEIGHTS.start() + shares * (WEIGHTS.end() - WEIGHTS.start()) / (SHARES.end() - SHARES.start())
}

/// The CPU quota per period for a limit in thousandths of a CPU.
pub fn quota(milli: i64) -> i64 {
    (milli.saturating_mul(CPU_PERIOD_MICROS) / 1000).max(MIN_QUOTA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_requests_map_to_weights_as_the_kubelet_maps_them() {
        for (milli, expected) in
            [(0, 1), (100, 4), (500, 20), (1000, 39), (4000, 157), (i64::MAX, 10_000)]
        {
            assert_eq!(weight(shares(milli)), expected, "{milli} m");
        }
    }
}

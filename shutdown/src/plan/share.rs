//! Divides seconds fairly.

/// Grants each of `wants` in full or, if they exceed `total`, cuts the largest to a common level. Left-over
/// seconds go to the last ones that were cut.
///
/// The shares add up to `total` or the sum of `wants`, whichever is less. Raising `total` by one raises
/// exactly one share by one, so no share ever falls.
pub(super) fn level(wants: &[u64], total: u64) -> Vec<u64> {
    let mut ascending = wants.to_vec();
    ascending.sort_unstable();
    let mut level = u64::MAX;
    let mut left = total;
    let mut sharers = wants.len() as u64;
    for want in ascending {
        if want.saturating_mul(sharers) > left {
            level = left / sharers;
            left %= sharers;
            break;
        }
        left -= want;
        sharers -= 1;
    }

    let mut shares: Vec<u64> = wants.iter().map(|want| (*want).min(level)).collect();
    for (share, want) in shares.iter_mut().zip(wants).rev() {
        if left == 0 {
            break;
        }
        if want > share {
            *share += 1;
            left -= 1;
        }
    }
    shares
}

/// Like [`level`], for wishes that are each a part of a whole: what no one wants of `total` is divided among the
/// rests of the wholes. Who wants nothing gets nothing.
pub(super) fn level_with_rest(
    wants: &[u64],
    wholes: impl Iterator<Item = u64>,
    total: u64,
) -> Vec<u64> {
    let rest =
        |(want, whole): (&u64, u64)| if *want == 0 { 0 } else { whole.saturating_sub(*want) };
    let rest: Vec<u64> = wants.iter().zip(wholes).map(rest).collect();
    let shares = level(wants, total);
    let more = level(&rest, total - shares.iter().sum::<u64>());
    shares.iter().zip(more).map(|(share, more)| share + more).collect()
}

//! Parses `/proc/meminfo`.

/// The lines that are used, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemInfo {
    /// `MemTotal`; not 0.
    pub total: u64,
    /// `MemFree`; at most the total.
    pub free: u64,
    /// `MemAvailable`; older kernels lack it.
    pub available: Option<u64>,
    /// `Inactive(file)`: the part of the page cache that can be reclaimed first.
    pub inactive_file: Option<u64>,
    /// `SwapTotal`; 0 without swap.
    pub swap_total: Option<u64>,
    /// `SwapFree`; at most the total.
    pub swap_free: Option<u64>,
    /// `Zswap`: the memory that compressed pages take; missing on kernels without zswap.
    pub zswap: Option<u64>,
    /// `Zswapped`: the uncompressed size of these pages.
    pub zswapped: Option<u64>,
}

impl MemInfo {
    /// Returns none if the total or the free memory is missing.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (mut total, mut free) = (None, None);
        let mut info = Self::default();
        for line in text.split(|&b| b == b'\n') {
            let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
            let place = match &line[..colon] {
                b"MemTotal" => &mut total,
                b"MemFree" => &mut free,
                b"MemAvailable" => &mut info.available,
                b"Inactive(file)" => &mut info.inactive_file,
                b"SwapTotal" => &mut info.swap_total,
                b"SwapFree" => &mut info.swap_free,
                b"Zswap" => &mut info.zswap,
                b"Zswapped" => &mut info.zswapped,
                _ => continue,
            };
            *place = bytes(&line[colon + 1..]);
        }
        let total = total.filter(|&total| total > 0)?;
        let swap_free = info.swap_free.zip(info.swap_total).map(|(free, total)| free.min(total));
        Some(Self { total, free: free?.min(total), swap_free, ..info })
    }
}

/// Parses a value such as `  24684092 kB`, as bytes.
fn bytes(text: &[u8]) -> Option<u64> {
    let number = text.trim_ascii().strip_suffix(b"kB")?;
    crate::cgroup_number(number)?.checked_mul(1024)
}

#[cfg(test)]
mod tests {

    use super::*;

    const TEXT: &[u8] = b"MemTotal:       24684092 kB\nMemFree:         3657652 kB\n\
        MemAvailable:   23326036 kB\nBuffers:           83900 kB\nInactive(file):  13280000 kB\n\
        SwapTotal:       2097148 kB\nSwapFree:        1048576 kB\nZswap:              5120 kB\n\
        Zswapped:          20480 kB\nHugePages_Total:       0\n";

    #[test]
    fn the_lines_are_found_by_name_and_counted_in_bytes() {
        let expected = MemInfo {
            total: 24_684_092 * 1024,
            free: 3_657_652 * 1024,
            available: Some(23_326_036 * 1024),
            inactive_file: Some(13_280_000 * 1024),
            swap_total: Some(2_097_148 * 1024),
            swap_free: Some(1_048_576 * 1024),
            zswap: Some(5120 * 1024),
            zswapped: Some(20480 * 1024),
        };
        assert_eq!(MemInfo::parse(TEXT), Some(expected));
    }

    #[test]
    fn a_kernel_that_does_not_tell_what_is_available_is_understood() {
        let info = MemInfo::parse(b"MemTotal: 8 kB\nMemFree: 4 kB\n").unwrap();
        assert_eq!((info.available, info.inactive_file), (None, None));
    }

    #[test]
    fn a_text_without_the_total_or_with_another_unit_tells_nothing() {
        for text in ["", "MemFree: 4 kB\n", "MemTotal: 8 MB\nMemFree: 4 kB\n", "MemTotal: 0 kB\n"] {
            assert_eq!(MemInfo::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(MemInfo::parse(b"MemTotal: 99999999999999999999 kB\nMemFree: 1 kB"), None);
        assert_eq!(MemInfo::parse(b"MemTotal: 18446744073709551615 kB\nMemFree: 1 kB"), None);
    }
}

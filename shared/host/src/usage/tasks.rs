//! Reads the number of tasks from `/proc/loadavg`.

/// All tasks of the machine, counting each thread: the number after the slash in the fourth field.
pub(super) fn running(loadavg: &[u8]) -> Option<u64> {
    let mut fields = loadavg.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let field = fields.nth(3)?;
    let slash = field.iter().position(|&b| b == b'/')?;
    crate::cgroup_number(&field[slash + 1..])
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_number_of_tasks_is_the_one_after_the_slash() {
        assert_eq!(running(b"1.90 4.09 6.45 2/126 6270\n"), Some(126));
        for text in ["", "1 2 3", "1 2 3 4 5", "1 2 3 4/ 5", "1 2 3 4/-5 6", "1 2 3 4/5x 6"] {
            assert_eq!(running(text.as_bytes()), None, "{text:?}");
        }
    }
}

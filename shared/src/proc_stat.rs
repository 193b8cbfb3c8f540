//! The text of a `/proc/PID/stat`.

use std::str::FromStr;

/// What the kernel says of a process in one line, by the numbers of proc_pid_stat(5).
#[derive(Clone, Copy, Debug)]
pub struct ProcStat<'a> {
    /// From the third field on.
    after_name: &'a str,
}

impl<'a> ProcStat<'a> {
    /// The fields of `text`; none if it is something else.
    pub fn new(text: &'a str) -> Option<Self> {
        // The second field is a name in parentheses that may hold spaces, parentheses and more.
        let (_, after_name) = text.rsplit_once(')')?;
        Some(Self { after_name })
    }

    /// The field of that number, which counts from 1; the first two are not told. None if it is not there
    /// or no `T`.
    pub fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        let mut fields = self.after_name.split_ascii_whitespace();
        fields.nth(number.checked_sub(3)?)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_number_whatever_the_name_is() {
        for name in ["sleep", "a b", "a) b (c)", "9 9) R 1", ""] {
            let text = format!("42 ({name}) S 7 -1\n");
            let stat = ProcStat::new(&text).unwrap();
            assert_eq!(
                (stat.field(3), stat.field(4), stat.field(5)),
                (Some('S'), Some(7), Some(-1))
            );
            for absent in [0, 1, 2, 6, usize::MAX] {
                assert_eq!(stat.field::<String>(absent), None, "{absent}");
            }
            assert_eq!(stat.field::<u32>(5), None, "it is negative");
        }
        assert!(ProcStat::new("42 sleep S 7").is_none());
    }
}

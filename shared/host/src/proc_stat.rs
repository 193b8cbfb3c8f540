//! Parser for `/proc/PID/stat`.

use std::str::FromStr;

/// The fields of one process, numbered as in proc_pid_stat(5).
#[derive(Clone, Copy, Debug)]
pub struct ProcStat<'a> {
    /// The text from the third field on.
    after_name: &'a str,
}

impl<'a> ProcStat<'a> {
    /// Parses `text`; `None` if it is malformed.
    pub fn new(text: &'a str) -> Option<Self> {
        // The second field is a name in parentheses that may hold spaces, parentheses and more.
        let (_, after_name) = text.rsplit_once(')')?;
        Some(Self { after_name })
    }

    /// The field with this number, counting from 1; the first two are not available. `None` if it
    /// does not exist or is not a `T`.
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

//! What does not depend on what else the machine does: instructions and allocations, counted by
//! valgrind. Hardware counters need privileges and hardware that test machines seldom have.

use std::process::Command;

use crate::node::own_program;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// Instructions of all threads together, of user space only (callgrind).
    Instructions,
    /// Calls that got memory from the heap (dhat).
    Allocations,
}

/// What one more time costs: this program is run with `args(1)` and with `args(1 + times)`, and the
/// difference is divided. So what comes before and what only the first time does is left out. None
/// without valgrind.
pub(crate) fn per_time(
    counting: Counting,
    times: u64,
    args: impl Fn(u64) -> Vec<String>,
) -> Option<u64> {
    let once = counting.total(&args(1))?;
    let often = counting.total(&args(1 + times))?;
    Some(often.saturating_sub(once) / times.max(1))
}

impl Counting {
    /// Everything that this program does when it is called so; none without valgrind.
    pub(crate) fn total(self, args: &[String]) -> Option<u64> {
        let tool = match self {
            Self::Instructions => ["--tool=callgrind", "--callgrind-out-file=/dev/null"],
            Self::Allocations => ["--tool=dhat", "--dhat-out-file=/dev/null"],
        };
        let ran = Command::new("valgrind").args(tool).arg(own_program().ok()?).args(args).output();
        let ran = ran.ok().filter(|ran| ran.status.success())?;
        self.read(&String::from_utf8(ran.stderr).ok()?)
    }

    fn read(self, said: &str) -> Option<u64> {
        let line = |with: &str| said.lines().find(|line| line.contains(with));
        let number = match self {
            // ==1== Collected : 4711
            Self::Instructions => line("Collected :")?.rsplit(':').next()?.trim().to_owned(),
            // ==1== Total:     1,234 bytes in 56 blocks
            Self::Allocations => {
                let blocks = line("Total:")?.split(" in ").nth(1)?;
                blocks.split(' ').next()?.replace(',', "")
            }
        };
        number.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Counting;

    #[test]
    fn the_count_is_found_in_what_valgrind_says() {
        let callgrind = "==7== Events    : Ir\n==7== Collected : 208534\n";
        assert_eq!(Counting::Instructions.read(callgrind), Some(208_534));
        let dhat = "==7== Total:     1,024,001 bytes in 12,056 blocks\n==7== At t-gmax: 8 bytes in 1 blocks\n";
        assert_eq!(Counting::Allocations.read(dhat), Some(12_056));
        assert_eq!(Counting::Instructions.read("valgrind: not found"), None);
    }
}

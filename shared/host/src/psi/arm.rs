//! Sets a trigger, with the shortest window that the kernel allows this process.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

/// Without `CAP_SYS_RESOURCE` a window has to be a multiple of this.
const UNPRIVILEGED_STEP: Duration = Duration::from_secs(2);
/// The kernel's bounds of a window.
const MIN_WINDOW: Duration = Duration::from_millis(500);
const MAX_WINDOW: Duration = Duration::from_secs(10);

/// When to fire: `stall` lost within `window`, in which at least one task waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsiTrigger {
    /// The time lost, more than 0 and at most the window.
    pub stall: Duration,
    /// The window, 500 ms to 10 s. The kernel fires at most once per window.
    pub window: Duration,
}

/// Shows, for example, `any task waiting 280ms in 2s`, for the log.
impl fmt::Display for PsiTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "any task waiting {:?} in {:?}", self.stall, self.window)
    }
}

/// A trigger that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    /// The actual window, which may be longer than requested, with `stall` in proportion.
    pub trigger: PsiTrigger,
    /// Whether it is as requested. If not, this process lacks `CAP_SYS_RESOURCE`, and the kernel (6.4 or later)
    /// checks only every 2 s.
    pub as_asked: bool,
}

/// Why there is no trigger; poll the numbers instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unarmed {
    /// The kernel reports no pressure here.
    #[error(
        "{}: no pressure is reported; the kernel is built or started without it (psi=1), or the cgroup has none",
        .path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The process lacks the permission.
    #[error(
        "{} may not be written: run as root with CAP_SYS_RESOURCE, which Linux 5.13 to 6.3 want, or delegate the cgroup",
        .path.display()
    )]
    Forbidden {
        /// The file.
        path: PathBuf,
    },
    /// The kernel rejects such a trigger, with any window.
    #[error("{}: the kernel rejects a trigger of {stall:?} in {window:?}", .path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The time lost.
        stall: Duration,
        /// The window.
        window: Duration,
        /// The error of the kernel.
        source: io::Error,
    },
    /// It is not possible to wait on the file.
    #[error("cannot wait for pressure")]
    NoWaiting {
        /// The error of the system.
        source: io::Error,
    },
}

/// Sets a trigger on a file. It lasts for as long as the file stays open.
pub(super) fn arm(path: &Path, asked: PsiTrigger) -> Result<(File, Armed), Unarmed> {
    let window = asked.window.clamp(MIN_WINDOW, MAX_WINDOW);
    let first = PsiTrigger { window, stall: asked.stall.min(window) };
    match set(path, first) {
        Ok(file) => Ok((file, Armed { trigger: first, as_asked: true })),
        Err(Errno::INVAL) => {
            let second = unprivileged(first);
            let file = set(path, second).map_err(|errno| unarmed(path, second, errno))?;
            Ok((file, Armed { trigger: second, as_asked: second == first }))
        }
        Err(errno) => Err(unarmed(path, first, errno)),
    }
}

/// The shortest window that needs no privilege, with the same proportion of stall time.
pub(super) fn unprivileged(trigger: PsiTrigger) -> PsiTrigger {
    let step = UNPRIVILEGED_STEP.as_micros();
    let steps = trigger.window.as_micros().div_ceil(step).clamp(1, 5);
    let window = UNPRIVILEGED_STEP * u32::try_from(steps).unwrap_or(1);
    let share = trigger.stall.as_secs_f64() / trigger.window.as_secs_f64();
    let stall = window.mul_f64(share.clamp(0.0, 1.0));
    PsiTrigger { window, stall }
}

/// The text that sets the trigger.
pub(super) fn text(trigger: PsiTrigger) -> String {
    // The kernel wants the text to be terminated.
    format!("some {} {}\0", trigger.stall.as_micros(), trigger.window.as_micros())
}

fn set(path: &Path, trigger: PsiTrigger) -> Result<File, Errno> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nonblock)
        .open(path)
        .map_err(errno)?;
    // In a single write: each write is a trigger of its own.
    let text = text(trigger);
    match file.write(text.as_bytes()) {
        Ok(written) if written == text.len() => Ok(file),
        Ok(_) => Err(Errno::IO),
        Err(error) => Err(errno(error)),
    }
}

fn unarmed(path: &Path, trigger: PsiTrigger, errno: Errno) -> Unarmed {
    let path = path.to_owned();
    match errno {
        Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV => Unarmed::Missing { path },
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Unarmed::Forbidden { path },
        errno => Unarmed::Refused {
            path,
            stall: trigger.stall,
            window: trigger.window,
            source: errno.into(),
        },
    }
}

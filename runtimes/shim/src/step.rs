//! Says in words for operators why the kernel refused a step: the library's own begin with the name of a constant.

use std::io;

use nix::errno::Errno;

/// Why this step failed, and what to do next.
pub(crate) fn refused(step: &'static str) -> impl Fn(Errno) -> String {
    move |error| {
        let why = match error {
            Errno::EMFILE | Errno::ENFILE => {
                "too many files are open: stop programs on this node, or raise fs.file-max"
                    .to_owned()
            }
            Errno::ENOMEM => "no memory is left: free some on this node".to_owned(),
            Errno::EACCES | Errno::EINVAL | Errno::ENOSYS | Errno::EPERM => {
                "the kernel, or SystemCallFilter= of the unit, does not permit it".to_owned()
            }
            other => format!("{}: the kernel's log may say more", io::Error::from(other)),
        };
        format!("{step}: {why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_the_kernel_is_told_with_the_next_step_and_in_no_librarys_words() {
        let table = [
            (Errno::EPERM, "cannot listen: the kernel, or SystemCallFilter= of the unit"),
            (Errno::ENOSYS, "cannot listen: the kernel, or SystemCallFilter= of the unit"),
            (Errno::EMFILE, "cannot listen: too many files are open: stop programs on this node"),
            (Errno::ENFILE, "cannot listen: too many files are open: stop programs on this node"),
            (Errno::ENOMEM, "cannot listen: no memory is left: free some on this node"),
            (Errno::ENODEV, "cannot listen: No such device (os error 19): the kernel's log may"),
        ];
        for (error, wanted) in table {
            let said = refused("cannot listen")(error);
            assert!(said.starts_with(wanted), "{said}: {wanted}");
            assert!(!said.contains(&format!("{error:?}")), "{said}");
        }
    }
}

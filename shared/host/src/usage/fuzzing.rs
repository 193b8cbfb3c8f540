//! Properties of the parsers of usage, for any input.

use std::path::Path;

use crate::meminfo::MemInfo;

use super::{mounts, tasks};

pub(crate) fn laws(text: &[u8]) {
    if let Some(info) = MemInfo::parse(text) {
        assert!(info.total > 0 && info.free <= info.total, "{info:?}");
        assert!(info.swap_free.unwrap_or(0) <= info.swap_total.unwrap_or(0), "{info:?}");
    }
    let told = tasks::running(text);
    assert_eq!(told, tasks::running(&[text, b" \n"].concat()), "what follows changes nothing");
    for path in ["/", "/var/lib/winddown/pods"] {
        let path = Path::new(path);
        let device = mounts::device_of(text, path);
        let more = [text, b"\nno line of a table\n"].concat();
        assert_eq!(device, mounts::device_of(&more, path), "other lines change nothing");
        let hidden =
            [text, b"\n1 0 0:0 / / rw - x x rw\n99 1 8:77 / ".as_slice(), b"/var rw\n"].concat();
        let below = mounts::device_of(&hidden, path);
        assert!(below.is_some(), "a root is mounted");
    }
}

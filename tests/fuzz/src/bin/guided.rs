//! libFuzzer's loop around the target that `WINDDOWN_FUZZ` names.
#![no_main]

use std::sync::OnceLock;

use winddown_fuzz::Target;

static TARGET: OnceLock<&Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("WINDDOWN_FUZZ").unwrap_or_default();
        let target = Target::named(&name);
        assert!(target.is_some(), "WINDDOWN_FUZZ={name:?} names no target");
        target.unwrap_or(&winddown_fuzz::targets()[0])
    });
    (target.laws)(data);
});

//! Every target against its seeds and some thousand mutations of them.

#![allow(clippy::expect_used, reason = "clippy does not see that helpers are tests")]

use winddown_fuzz::{Mutator, Target, targets};

/// Shows the input if a law is broken.
struct Shown<'a> {
    target: &'a str,
    from: &'a str,
    input: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { target, from, input } = self;
            eprintln!("{target}, made from {from}: {:?}", input.escape_ascii().to_string());
        }
    }
}

fn keeps(target: &Target, from: &str, input: &[u8]) {
    let _shown = Shown { target: target.name, from, input };
    (target.laws)(input);
}

fn short(name: &str) {
    let target = Target::named(name).expect("a target");
    let seeds = target.seeds().expect("its seeds");
    assert!(!seeds.is_empty(), "{name} has no seeds");
    keeps(target, "nothing", &[]);
    let mut mutator = Mutator::new(0x7769_6e64_646f_776e);
    for (index, (from, seed)) in seeds.iter().enumerate() {
        keeps(target, from, seed);
        let (_, other) = &seeds[(index + 1) % seeds.len()];
        for _ in 0..target.short {
            keeps(target, from, &mutator.mutate(seed, other, target.longest));
        }
    }
}

macro_rules! shorts {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                short(stringify!($name));
            }
        )*

        #[test]
        fn every_target_has_a_test_and_every_folder_a_target() {
            let names: Vec<&str> = targets().iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
            for entry in std::fs::read_dir(corpus).expect("the corpus") {
                let folder = entry.expect("a folder").file_name();
                assert!(names.contains(&folder.to_str().expect("a name")), "{folder:?}");
            }
        }
    };
}

shorts!(
    api_objects,
    certificates,
    cgroups,
    configuration,
    container_logs,
    control_requests,
    cri,
    dbus,
    durations,
    kernel_files,
    kubelet_files,
    logs,
    manifests,
    notices,
    procfs,
    quantities,
    reports,
    thresholds,
);

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::arm::{text, unprivileged};
use super::*;

const TEXT: &str = "some avg10=12.34 avg60=0.50 avg300=0.00 total=6286784\n\
    full avg10=0.01 avg60=0.00 avg300=0.00 total=3506618\n";

#[test]
fn both_lines_are_read() {
    let stats = parse_pressure(TEXT.as_bytes()).unwrap();
    assert_eq!((stats.some_avg10, stats.full_avg10), (12.34, 0.01));
    assert_eq!((stats.some_total_us, stats.full_total_us), (6_286_784, 3_506_618));
}

#[test]
fn a_text_without_a_share_of_time_tells_nothing() {
    let only_some = "some avg10=1.00 avg60=0 avg300=0 total=5\n";
    assert_eq!(parse_pressure(only_some.as_bytes()).map(|p| p.full_total_us), Some(0));
    for text in [
        "",
        "full avg10=1.00 avg60=0 avg300=0 total=5\n",
        "some avg10=NaN total=5\n",
        "some avg10=inf total=5\n",
        "some avg10=-1 total=5\n",
        "some avg10=100.01 total=5\n",
        "some avg10=1.00\n",
        "some avg10=1.00 total=-5\n",
        "something avg10=1.00 total=5\n",
    ] {
        assert_eq!(parse_pressure(text.as_bytes()), None, "{text:?}");
    }
}

fn trigger(stall_ms: u64, window_ms: u64) -> PsiTrigger {
    let (stall, window) = (Duration::from_millis(stall_ms), Duration::from_millis(window_ms));
    PsiTrigger { stall, window }
}

#[test]
fn a_trigger_is_written_in_microseconds_with_an_end() {
    assert_eq!(text(trigger(70, 500)), "some 70000 500000\0");
}

/// The kubelet's test of how it describes what it armed: for the node, and for the pods.
#[test]
fn threshold_description() {
    let cgroup = PsiPlace::Cgroup("/edge/pods".to_owned());
    assert_eq!(PsiPlace::Node.to_string(), "the whole machine");
    assert_eq!(cgroup.to_string(), "cgroup /edge/pods");
    assert_eq!(trigger(280, 2000).to_string(), "any task waiting 280ms in 2s");
}

#[test]
fn without_privilege_the_window_grows_to_whole_steps_and_the_share_stays() {
    for ((stall, window), expected) in [
        ((70, 500), (280, 2000)),
        ((500, 1000), (1000, 2000)),
        ((2000, 2000), (2000, 2000)),
        ((300, 3000), (400, 4000)),
        ((1000, 10_000), (1000, 10_000)),
    ] {
        let found = unprivileged(trigger(stall, window));
        assert_eq!(found, trigger(expected.0, expected.1), "{stall} in {window}");
    }
}

#[tokio::test]
async fn what_cannot_be_watched_says_why() {
    let folder = tempfile::tempdir().unwrap();
    for place in [PsiPlace::Node, PsiPlace::Cgroup("/a".to_owned())] {
        let trigger = PsiTrigger::default();
        let why = PsiWatch::start(folder.path(), folder.path(), &place, trigger).unwrap_err();
        assert!(matches!(why, Unarmed::Missing { .. }), "{why}");
        assert!(why.to_string().contains("no pressure is reported"), "{why}");
    }
}

#[tokio::test]
async fn a_trigger_that_is_gone_is_told() {
    let (reading, writing) = std::io::pipe().unwrap();
    let watch = PsiWatch::of(reading.into()).unwrap();
    drop(writing);
    assert!(!watch.stalled().await);
}

#[tokio::test]
async fn a_trigger_is_set_on_this_kernel_with_whatever_window_it_allows() {
    if !Path::new("/proc/pressure/memory").exists() {
        return crate::skip("a trigger is set", "this kernel tells no pressure");
    }
    let (proc, cgroup) = (Path::new("/proc"), Path::new("/sys/fs/cgroup"));
    match PsiWatch::start(proc, cgroup, &PsiPlace::Node, PsiTrigger::default()) {
        Ok((_, armed)) => {
            let step = armed.trigger.window.as_millis();
            assert!(armed.as_asked && step == 500 || step == 2000, "{armed:?}");
        }
        Err(Unarmed::Forbidden { .. }) => crate::skip("a trigger is set", "needs root"),
        Err(why) => panic!("{}", winddown_shared::error_chain(&why)),
    }
}

proptest! {
    #[test]
    fn no_trigger_asks_for_more_than_its_window(stall in 0_u64..20_000, window in 500_u64..=10_000) {
        let found = unprivileged(trigger(stall.min(window), window));
        prop_assert!(found.stall <= found.window);
        prop_assert_eq!(found.window.as_millis() % 2000, 0);
        prop_assert!(found.window <= Duration::from_secs(10));
    }
}

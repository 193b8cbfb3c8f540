//! Counts the file descriptors of the whole process; alone in its binary so that nothing else opens any.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of tests are tests too")]

use std::time::Duration;

use winddown_shared::{Inhibitor as _, LockState};
use winddown_systemd::stand_in::StandIn;
use winddown_systemd::{InhibitorConfig, LogindInhibitor};

const LIMIT: Duration = Duration::from_secs(20);

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

#[tokio::test]
async fn fifty_shutdowns_and_cancels_open_as_much_as_they_close() {
    let root = tempfile::tempdir().expect("a directory");
    let logind = StandIn::new(Duration::from_secs(30));
    let mut config = InhibitorConfig::new(Duration::from_secs(30));
    config.bus = logind.peer();
    config.root = Some(root.path().to_owned());
    let inhibitor = LogindInhibitor::start(config);
    let mut state = inhibitor.state();
    let cycles = async {
        let mut before = 0;
        for round in 0..=50_u64 {
            state.wait_for(|s| !s.preparing && s.lock == LockState::Held).await.expect("alive");
            // After every cancellation but the first, a new lock is taken.
            let granted = usize::try_from(round + 1).expect("few");
            logind
                .until_locks(|locks| {
                    let held = locks.iter().filter(|lock| lock.released_at.is_none()).count();
                    (locks.len(), held) == (granted, 1)
                })
                .await;
            if round == 1 {
                before = open_descriptors();
            }
            if round == 50 {
                break;
            }
            logind.prepare_for_shutdown(true).await;
            state.wait_for(|s| s.preparing).await.expect("alive");
            if round % 2 == 0 {
                inhibitor.release().await;
            }
            logind.prepare_for_shutdown(false).await;
            state.wait_for(|s| !s.preparing).await.expect("alive");
        }
        before
    };
    let before = tokio::time::timeout(LIMIT, cycles).await.expect("no round hangs");
    assert_eq!(open_descriptors(), before);
}

//! What becomes of the run of an earlier agent, by what is known when the next one decides.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, advance};
use winddown_shared::testing::{FakeInhibitor, FakeKiller};
use winddown_shared::{InhibitorState, LockState, NoticeState, WallClock};

use super::two_fields;
use crate::controller::ResumeDecision::{self, Drop, Resume, Undecided};
use crate::record::tests::record;
use crate::tests::secs;
use crate::{BootClock, RunRecord, ShutdownController, ShutdownParts};

type Says = fn(&mut InhibitorState);

const NOTHING: Says = |login| {
    login.lock = LockState::Waiting { why: "not connected yet".into() };
    login.delay = None;
};
const STAYS_UP: Says = |_| {};
const GOES_DOWN: Says = |login| login.preparing = true;

#[tokio::test(start_paused = true)]
async fn a_run_may_go_on_while_it_cannot_be_known_to_be_called_off() {
    // The clock must reach back to the start of each run.
    advance(secs(600)).await;
    // It began at 1 s and had 30 s and a reserve of 2 s; its notice runs out at 121 s.
    let noticed = record("boot", 1000, 1);
    let mut plain = noticed.clone();
    plain.report.notice = None;
    let undecided = Undecided(Instant::now() + secs(31));
    let none = NoticeState::default;
    let its_own = NoticeState { heard: ["aws".into()].into(), ..none() };
    let unread = NoticeState { unheard: ["aws".into()].into(), ..none() };
    for (run, at, notices, login, decision, why) in [
        (&noticed, 2, none(), STAYS_UP, Resume, "the source has not repeated it yet"),
        (&noticed, 2, its_own, STAYS_UP, Drop, "the source says nothing more"),
        (&noticed, 122, none(), STAYS_UP, Drop, "the notice's time is over"),
        (&noticed, 122, unread, STAYS_UP, Resume, "its source may repeat it yet"),
        (&plain, 2, none(), NOTHING, undecided, "the login manager has not spoken"),
        (&plain, 2, none(), STAYS_UP, Drop, "the login manager says that it is over"),
        (&plain, 60, none(), NOTHING, Drop, "the run's time is over"),
        (&plain, 600, none(), GOES_DOWN, Resume, "the login manager says that it goes on"),
    ] {
        assert_eq!(decide(run, at, notices, login), decision, "{why}");
    }
}

/// The decision `at` seconds after the boot.
fn decide(run: &RunRecord, at: u64, notices: NoticeState, login: Says) -> ResumeDecision {
    let inhibitor = FakeInhibitor::holding(secs(40));
    inhibitor.modify(login);
    let killer = Arc::new(FakeKiller::with([]));
    let wall = WallClock::fixed(run.report.started_at);
    let clock = BootClock::new(move || secs(at));
    let policy = two_fields(30, 10);
    let parts = ShutdownParts::new(killer, Arc::new(inhibitor), policy, wall, clock, "boot");
    let notices = watch::Sender::new(notices).subscribe();
    let controller = ShutdownController::new(ShutdownParts { notices, ..parts });
    let mut signals = controller.signals();
    signals.restore_notice(run, controller.start_of(run));
    controller.resume_decision(run, &signals.current())
}

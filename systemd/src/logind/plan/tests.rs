//! Whatever happens in whatever order: the plan comes to rest, and in the right place.

use proptest::prelude::*;
use tokio::time::Instant;
use winddown_shared::ShutdownKind;

use super::{Facts, Step};
use crate::logind::session::{Heard, Listed};
use std::time::Duration;

const WANTED: Duration = Duration::from_secs(30);

/// Something that happens between two steps.
#[derive(Clone, Debug)]
enum Happens {
    Signal(bool, bool),
    Property(bool),
    Restart,
    Leave,
    Reconnect,
    Recheck,
    Release,
    Loses,
    Want(u64),
}

fn happenings() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (any::<bool>(), any::<bool>()).prop_map(|(begins, true_)| Happens::Signal(begins, true_)),
        any::<bool>().prop_map(Happens::Property),
        Just(Happens::Restart),
        Just(Happens::Leave),
        Just(Happens::Reconnect),
        Just(Happens::Recheck),
        Just(Happens::Release),
        Just(Happens::Loses),
        (0..100_u64).prop_map(Happens::Want),
    ]
}

/// A login manager of two facts.
struct World {
    preparing: bool,
    /// It lists the lock that is held.
    lists: bool,
}

/// Answers one step, as a login manager in that state does.
fn answer(facts: &mut Facts, step: Step, world: &mut World) {
    match step {
        Step::ReadPreparing => {
            facts.preparing_is(world.preparing, Instant::now());
        }
        Step::ReadDelay => facts.delay = Some(WANTED),
        Step::Inhibit if world.preparing => facts.unread = true,
        Step::Inhibit => facts.fresh = true,
        Step::VerifyNew => {
            world.lists = true;
            assert!(facts.new_lock_is(Listed::Ours));
        }
        Step::VerifyHeld => {
            facts.held_lock_is(if world.lists { Listed::Ours } else { Listed::No });
        }
        Step::RaiseDelay => facts.raised = true,
    }
}

fn happen(facts: &mut Facts, world: &mut World, what: &Happens) {
    match *what {
        Happens::Signal(begins, truthful) => {
            if truthful {
                world.preparing = begins;
            }
            let kind = ShutdownKind::Unknown;
            facts.hear(Heard::Prepare { begins, kind, at: Instant::now() });
        }
        Happens::Property(preparing) => world.preparing = preparing,
        Happens::Restart => facts.hear(Heard::Back),
        Happens::Leave => facts.hear(Heard::Gone),
        Happens::Reconnect => facts.forget_session(),
        Happens::Recheck => facts.recheck(),
        Happens::Release => {
            if facts.preparing && !facts.released {
                facts.release();
            }
        }
        Happens::Loses => world.lists = false,
        Happens::Want(seconds) => facts.want(Duration::from_secs(seconds)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_plan_always_comes_to_rest_where_the_login_manager_is(
        script in prop::collection::vec((happenings(), 0..4_usize), 0..40),
        inherited in any::<bool>(),
    ) {
        let mut facts = Facts::new(WANTED, inherited);
        let mut world = World { preparing: false, lists: inherited };
        let mut epoch = 0;
        for (what, steps) in &script {
            happen(&mut facts, &mut world, what);
            for _ in 0..*steps {
                let Some(step) = facts.next_step() else { break };
                prop_assert!(
                    step != Step::Inhibit || !(facts.preparing || facts.unread),
                    "no lock is asked for before the state is read, nor in a shutdown"
                );
                answer(&mut facts, step, &mut world);
                prop_assert!(facts.epoch == epoch || facts.preparing);
                epoch = facts.epoch;
                prop_assert_eq!(facts.preparing, facts.since.is_some());
            }
        }
        // Left alone, it is done after a handful of steps; the recheck brings a lost logind back
        // and finds what no signal told.
        facts.recheck();
        for _ in 0..12 {
            let Some(step) = facts.next_step() else { break };
            answer(&mut facts, step, &mut world);
        }
        prop_assert_eq!(facts.next_step(), None);
        prop_assert_eq!(facts.preparing, world.preparing);
        prop_assert!(!facts.fresh);
        if !facts.preparing {
            prop_assert!(facts.held && facts.held_listed && world.lists && !facts.retake);
        } else {
            prop_assert!(facts.held == facts.held_listed);
            prop_assert!(!(facts.held && facts.released));
        }
    }
}

//! Whatever happens, in any order: the plan settles, and in the right state.

use proptest::prelude::*;
use tokio::time::Instant;
use winddown_shared::ShutdownKind;

use super::{LogindFacts, LogindStep, PreparingMeaning};
use crate::logind::session::{Listed, LogindEvent};
use std::sync::Arc;
use std::time::Duration;

const WANTED: Duration = Duration::from_secs(30);

/// Something that happens between two steps.
#[derive(Clone, Debug)]
enum Happens {
    Signal(bool, bool),
    /// A property changed, with or without the state.
    Change(Option<bool>),
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
        any::<Option<bool>>().prop_map(Happens::Change),
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

/// A login manager with two facts.
struct World {
    preparing: bool,
    /// Whether it lists the held lock.
    lists: bool,
}

/// Answers one step as a login manager in that state does.
fn answer(facts: &mut LogindFacts, step: LogindStep, world: &mut World) {
    match step {
        LogindStep::ReadPreparing => {
            facts.preparing_is(world.preparing, Instant::now());
        }
        LogindStep::ReadDelay => facts.delay = Some(WANTED),
        LogindStep::Inhibit if world.preparing => facts.unread = true,
        LogindStep::Inhibit => facts.fresh = true,
        LogindStep::VerifyNew => {
            world.lists = true;
            assert!(facts.new_lock_is(Listed::Ours));
        }
        LogindStep::VerifyHeld => {
            facts.held_lock_is(if world.lists { Listed::Ours } else { Listed::No });
        }
        LogindStep::RaiseDelay => facts.tried_to_raise(),
        LogindStep::ReadRequest => facts.request = Some(Arc::default()),
        LogindStep::ReadScheduled => facts.schedule_unread = false,
    }
}

fn happen(facts: &mut LogindFacts, world: &mut World, what: &Happens) {
    match *what {
        Happens::Signal(begins, truthful) => {
            if truthful {
                world.preparing = begins;
            }
            let kind = ShutdownKind::Unknown;
            facts.observe(LogindEvent::Prepare { begins, kind, at: Instant::now() });
        }
        Happens::Change(preparing) => {
            world.preparing = preparing.unwrap_or(world.preparing);
            facts.observe(LogindEvent::Changed { at: Instant::now() });
        }
        Happens::Property(preparing) => world.preparing = preparing,
        Happens::Restart => facts.observe(LogindEvent::Back),
        Happens::Leave => facts.observe(LogindEvent::Gone),
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
        let mut facts = LogindFacts::new(WANTED, inherited);
        let mut world = World { preparing: false, lists: inherited };
        let mut epoch = 0;
        for (what, steps) in &script {
            happen(&mut facts, &mut world, what);
            for _ in 0..*steps {
                let Some(step) = facts.next_step() else { break };
                prop_assert!(
                    step != LogindStep::Inhibit || !(facts.preparing || facts.unread),
                    "no lock is asked for before the state is read, nor in a shutdown"
                );
                answer(&mut facts, step, &mut world);
                prop_assert!(facts.epoch == epoch || facts.preparing);
                epoch = facts.epoch;
                prop_assert_eq!(facts.preparing, facts.since.is_some());
            }
        }
        // Without further events it settles after a few steps. The recheck finds changes without a signal, but
        // does not call a logind that has left: that would start it.
        facts.recheck();
        if facts.gone {
            prop_assert_eq!(facts.next_step(), None);
            facts.observe(LogindEvent::Back);
        }
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

/// What a version of systemd reports, in its order, each with its time in milliseconds.
#[derive(Clone, Copy, Debug)]
enum Tells {
    Plain(u64, bool),
    WithKind(u64, bool),
    Changed(u64),
    /// Nothing; the periodic read is due.
    Due,
}

/// What systemd reports of a shutdown and its cancellation, as recorded with `busctl monitor`, and
/// how the plan interprets it when it reads the state after each.
#[test]
fn whatever_a_version_tells_and_in_which_order_a_shutdown_begins_once_and_ends_once() {
    use PreparingMeaning::{Begins, Ends, Same};
    use Tells::{Changed, Due, Plain, WithKind};
    type Told<'a> = &'a [(Tells, PreparingMeaning)];
    let begin_252: Told<'_> = &[(Plain(1, true), Begins)];
    let begin_257: Told<'_> =
        &[(Changed(1), Begins), (WithKind(2, true), Same), (Plain(3, true), Same)];
    let begin_262: Told<'_> =
        &[(WithKind(1, true), Begins), (Plain(2, true), Same), (Changed(3), Same)];
    let quiet: Told<'_> = &[(Changed(9), Ends)];
    let job_failed: Told<'_> = &[(Plain(9, false), Ends)];
    let nothing: Told<'_> = &[(Due, Ends)];
    let late_word: Told<'_> = &[(Due, Ends), (Changed(9), Same)];
    let both: Told<'_> = &[(Changed(8), Ends), (WithKind(9, false), Same), (Plain(9, false), Same)];
    let both_turned: Told<'_> = &[(Plain(8, false), Ends), (Changed(9), Same)];
    let ends = [quiet, job_failed, nothing, late_word, both, both_turned];
    for (begins, names_kind) in [(begin_252, false), (begin_257, true), (begin_262, true)] {
        for end in ends {
            let zero = Instant::now();
            let at = |millis| zero + Duration::from_millis(millis);
            let mut facts = settled();
            let hear_and_read = |facts: &mut LogindFacts, told: Tells, preparing: bool| {
                let power_off = ShutdownKind::PowerOff;
                let plain = ShutdownKind::Unknown;
                let (when, heard) = match told {
                    Plain(when, begins) => {
                        (when, LogindEvent::Prepare { begins, kind: plain, at: at(when) })
                    }
                    WithKind(when, begins) => {
                        (when, LogindEvent::Prepare { begins, kind: power_off, at: at(when) })
                    }
                    Changed(when) => (when, LogindEvent::Changed { at: at(when) }),
                    Due => {
                        facts.unread = true;
                        return facts.preparing_is(preparing, at(9));
                    }
                };
                facts.observe(heard);
                assert_eq!(facts.next_step(), Some(LogindStep::ReadPreparing), "{told:?}");
                facts.preparing_is(preparing, at(when))
            };
            for (told, meaning) in begins {
                assert_eq!(hear_and_read(&mut facts, *told, true), *meaning, "{begins:?} {told:?}");
            }
            let kind = if names_kind { ShutdownKind::PowerOff } else { ShutdownKind::Unknown };
            assert_eq!((facts.kind, facts.since), (kind, Some(at(1))), "{begins:?}");
            assert_eq!(facts.next_step(), Some(LogindStep::ReadDelay), "{begins:?}");
            facts.delay = Some(WANTED);
            for (told, meaning) in end {
                assert_eq!(hear_and_read(&mut facts, *told, false), *meaning, "{end:?} {told:?}");
            }
            assert!(!facts.preparing && facts.retake, "{end:?}: a new lock is due");
            assert_eq!((facts.epoch, facts.since), (1, None), "{begins:?} {end:?}");
            assert_eq!(facts.next_step(), Some(LogindStep::Inhibit), "{end:?}");
        }
    }
}

/// All reports may also arrive before the state can be read even once.
#[test]
fn what_arrives_before_the_state_is_read_is_read_once_and_keeps_the_signals_time() {
    let zero = Instant::now();
    let at = |millis| zero + Duration::from_millis(millis);
    let prepare = |kind, millis| LogindEvent::Prepare { begins: true, kind, at: at(millis) };
    let (named, plain) = (ShutdownKind::Reboot, ShutdownKind::Unknown);
    let changed = |millis| LogindEvent::Changed { at: at(millis) };
    let orders = [
        [changed(0), prepare(named, 1), prepare(plain, 3)],
        [prepare(named, 1), prepare(plain, 2), changed(3)],
        [prepare(named, 1), changed(2), prepare(plain, 3)],
    ];
    for order in orders {
        let mut facts = settled();
        order.into_iter().for_each(|heard| facts.observe(heard));
        assert_eq!(facts.preparing_is(true, at(500)), PreparingMeaning::Begins);
        assert_eq!((facts.since, facts.kind), (Some(at(1)), named), "{order:?}");
        // The time of an unrelated change is not kept for the next shutdown.
        facts.observe(changed(600));
        assert_eq!(facts.preparing_is(false, at(600)), PreparingMeaning::Ends);
        facts.observe(changed(700));
        assert_eq!(facts.preparing_is(false, at(700)), PreparingMeaning::Same);
        facts.observe(prepare(plain, 9000));
        assert_eq!(facts.preparing_is(true, at(9001)), PreparingMeaning::Begins);
        assert_eq!(facts.since, Some(at(9000)), "{order:?}");
    }
}

/// systemd 256 and later may not tell of the cancel in between, and both may be over before the state is read.
#[test]
fn a_shutdown_that_takes_the_place_of_another_has_its_own_kind_and_request() {
    let mut facts = settled();
    for kind in [ShutdownKind::Reboot, ShutdownKind::PowerOff] {
        for told in [kind, ShutdownKind::Unknown] {
            let at = Instant::now();
            facts.observe(LogindEvent::Prepare { begins: true, kind: told, at });
            facts.preparing_is(true, at);
        }
        assert_eq!((facts.kind, facts.request.is_some()), (kind, false));
        facts.request = Some(Arc::default());
    }
}

/// Before systemd 255 no signal says of what kind the shutdown is, but one tells of the cancel in between.
#[test]
fn a_shutdown_whose_signals_are_heard_with_the_cancel_before_it_is_another_one() {
    let zero = Instant::now();
    let plain = |begins, seconds| LogindEvent::Prepare {
        begins,
        kind: ShutdownKind::Unknown,
        at: zero + Duration::from_secs(seconds),
    };
    let mut facts = settled();
    facts.observe(plain(true, 1));
    facts.preparing_is(true, zero + Duration::from_secs(1));
    facts.request = Some(Arc::default());
    facts.released = true;
    facts.observe(plain(false, 5));
    facts.observe(plain(true, 6));
    assert_eq!(facts.preparing_is(true, zero + Duration::from_secs(7)), PreparingMeaning::Begins);
    assert_eq!((facts.epoch, facts.since), (2, Some(zero + Duration::from_secs(6))));
    assert_eq!((facts.request.is_none(), facts.released), (true, false));
    // The next signal is of the same one.
    facts.observe(plain(true, 7));
    assert_eq!(facts.preparing_is(true, zero + Duration::from_secs(8)), PreparingMeaning::Same);
}

/// What a login manager has announced says nothing about the one that takes its place.
#[test]
fn a_signal_that_was_not_confirmed_goes_with_the_login_manager_that_sent_it() {
    let zero = Instant::now();
    let (early, late) = (zero + Duration::from_secs(1), zero + Duration::from_secs(60));
    for preparing in [false, true] {
        let mut facts = settled();
        let kind = ShutdownKind::PowerOff;
        facts.observe(LogindEvent::Changed { at: early });
        facts.observe(LogindEvent::Prepare { begins: true, kind, at: early });
        facts.observe(LogindEvent::Gone);
        facts.observe(LogindEvent::Back);
        let meaning = if preparing { PreparingMeaning::Begins } else { PreparingMeaning::Same };
        assert_eq!(facts.preparing_is(preparing, late), meaning, "it is no forgery");
        assert_eq!(facts.since, preparing.then_some(late));
    }
}

/// Returns the facts with a listed lock and no step left.
fn settled() -> LogindFacts {
    let mut facts = LogindFacts::new(WANTED, false);
    let mut world = World { preparing: false, lists: false };
    while let Some(step) = facts.next_step() {
        answer(&mut facts, step, &mut world);
    }
    facts
}

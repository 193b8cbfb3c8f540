//! Properties that hold for every pod.

use proptest::prelude::*;

use super::*;

fn any_seen() -> impl Strategy<Value = ContainerObservation> {
    prop_oneof![
        Just(ContainerObservation::Never),
        (any::<bool>(), any::<bool>())
            .prop_map(|(started, failing)| ContainerObservation::Running { started, failing }),
        (0..3i32, 0..3u64).prop_map(|(code, s)| ended_wait(code, s)),
        (0..3i32).prop_map(|exit_code| ContainerObservation::Done { exit_code }),
    ]
}

fn any_rules() -> impl Strategy<Value = Vec<ContainerRule>> {
    let restart =
        prop_oneof![Just(Restart::Always), Just(Restart::OnFailure), Just(Restart::Never)];
    (proptest::collection::vec(any::<bool>(), 0..4), 1..4usize, restart).prop_map(
        |(init, regular, restart)| {
            let once = if restart == Restart::Never { Restart::Never } else { Restart::OnFailure };
            let init = init.into_iter().enumerate().map(|(i, sidecar)| {
                let (kind, restart) = if sidecar {
                    (ContainerKind::Sidecar, Restart::Always)
                } else {
                    (ContainerKind::Init, once)
                };
                rule(&format!("i{i}"), kind, restart)
            });
            let regular =
                (0..regular).map(|i| rule(&format!("r{i}"), ContainerKind::Regular, restart));
            init.chain(regular).collect()
        },
    )
}

fn scene() -> impl Strategy<Value = (Vec<ContainerRule>, Vec<ContainerObservation>)> {
    any_rules().prop_flat_map(|rules| {
        let seen = proptest::collection::vec(any_seen(), rules.len());
        (Just(rules), seen)
    })
}

proptest! {
    /// Containers to start do not run, may be started, and have no backoff left.
    #[test]
    fn only_what_does_not_run_and_may_run_is_started((rules, seen) in scene()) {
        let plan = plan(&rules, &seen);
        for &i in &plan.start {
            match seen[i] {
                ContainerObservation::Never | ContainerObservation::Outdated => {}
                ContainerObservation::Running { .. } => prop_assert!(false, "{} runs", rules[i].name),
                ContainerObservation::Done { .. } => prop_assert!(false, "{} is done", rules[i].name),
                ContainerObservation::Ended { exit_code, wait } => {
                    prop_assert!(wait.is_zero() && rules[i].restart.applies_to(exit_code));
                }
            }
        }
        for &i in &plan.stop {
            let failing = matches!(seen[i], ContainerObservation::Running { failing: true, .. });
            prop_assert!(failing);
        }
    }

    /// Before the first regular container starts, at most one init container is in progress, and every one before it is
    /// done.
    #[test]
    fn init_containers_never_overlap((rules, seen) in scene()) {
        let begun = rules.iter().zip(&seen)
            .any(|(r, s)| r.kind == ContainerKind::Regular && *s != ContainerObservation::Never);
        let plan = plan(&rules, &seen);
        if !begun {
            let fresh: Vec<usize> =
                plan.start.iter().copied().filter(|&i| seen[i] == ContainerObservation::Never).collect();
            for &i in &fresh {
                let earlier = rules.iter().zip(&seen).enumerate().take(i);
                let has_let_start = |at: usize| rules.iter().zip(&seen).skip(at + 1).any(|(rule, seen)| {
                    rule.kind != ContainerKind::Regular && *seen != ContainerObservation::Never
                });
                for (at, (rule, seen)) in earlier {
                    let ready = match rule.kind {
                        ContainerKind::Init => matches!(seen, ContainerObservation::Ended { exit_code: 0, .. }),
                        ContainerKind::Sidecar => {
                            matches!(seen, ContainerObservation::Running { started: true, .. }) || has_let_start(at)
                        }
                        ContainerKind::Regular => fresh.contains(&i),
                        ContainerKind::Ephemeral => true,
                    };
                    prop_assert!(ready, "{} is not done", rule.name);
                }
            }
        }
        if plan.done {
            prop_assert!(plan.start.is_empty() && plan.stop.is_empty() && plan.again_in.is_none());
        }
    }

    /// Every pod whose containers succeed finishes: no state is stuck.
    #[test]
    fn a_pod_whose_containers_succeed_always_gets_on(rules in any_rules()) {
        let mut seen = vec![ContainerObservation::Never; rules.len()];
        for _ in 0..=rules.len() {
            for i in plan(&rules, &seen).start {
                seen[i] = match rules[i].kind {
                    ContainerKind::Init => ended(0),
                    _ => UP,
                };
            }
        }
        for (rule, seen) in rules.iter().zip(&seen) {
            let as_it_should = if rule.kind == ContainerKind::Init { ended(0) } else { UP };
            prop_assert_eq!(*seen, as_it_should, "{}", rule.name);
        }
        for (rule, seen) in rules.iter().zip(&mut seen) {
            if rule.kind == ContainerKind::Regular {
                *seen = ended(0);
            }
        }
        let end = plan(&rules, &seen);
        let restarts = rules.iter()
            .any(|r| r.kind == ContainerKind::Regular && r.restart == Restart::Always);
        prop_assert_eq!(end.done, !restarts);
    }

    /// The backoff only grows until it is at its limit, and never exceeds it.
    #[test]
    fn the_back_off_grows_and_stays_within_its_limit(runs in proptest::collection::vec(0..1200u64, 1..40)) {
        let backoff = CrashBackoff::default();
        let mut due = Duration::ZERO;
        for ran in runs {
            let waited = backoff.after(due, Duration::from_secs(ran));
            prop_assert!(waited <= backoff.max && waited <= due);
            let next = backoff.next(waited);
            prop_assert!(next >= backoff.initial && next <= backoff.max && next > waited || next == backoff.max);
            due = next;
        }
    }
}

//! Compares what a deed did to the pods with what it does undisturbed.

use std::time::Duration;

use super::seen::{PodSeen, Seen};

/// How much longer or shorter a pod may have had between SIGTERM and its end.
pub const TOLERANCE: Duration = Duration::from_secs(1);

/// The differences, one line each.
pub(crate) fn judge(expected: &Seen, seen: &Seen) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, expected) in &expected.pods {
        match seen.pods.get(name) {
            Some(seen) => differences.extend(of_pod(name, expected, seen)),
            None => differences.push(format!("{name}: not seen")),
        }
    }
    let more = seen.order.iter().filter(|line| !expected.order.contains(line));
    differences.extend(more.map(|line| format!("order: {line}")));
    if expected.report != seen.report {
        differences.push(format!("report: {:?} instead of {:?}", seen.report, expected.report));
    }
    differences
}

fn of_pod(name: &str, expected: &PodSeen, seen: &PodSeen) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |what: &str, expected: usize, seen: usize| {
        if expected != seen {
            differences.push(format!("{name}: {what} {seen} times instead of {expected}"));
        }
    };
    compare("started", expected.starts, seen.starts);
    compare("exited by itself", expected.exits, seen.exits);
    compare("ran at the end", expected.processes, seen.processes);
    // A runtime may be asked a second time to stop what was asked before, and repeats the signal.
    compare("asked to stop", usize::from(expected.was_asked), usize::from(seen.was_asked));
    if let (Some(expected), Some(seen)) = (expected.had, seen.had)
        && expected.abs_diff(seen) > TOLERANCE
    {
        differences.push(format!("{name}: had {seen:.1?} to exit instead of {expected:.1?}"));
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pod: PodSeen) -> Seen {
        let pods = [("web".to_owned(), pod)].into();
        Seen { took: Duration::ZERO, pods, order: Vec::new(), report: None, was_late: false }
    }

    const ENDED: PodSeen = PodSeen {
        starts: 1,
        exits: 1,
        was_asked: true,
        had: Some(Duration::from_millis(1500)),
        processes: 1,
    };

    #[test]
    fn a_pod_that_never_came_back_or_had_another_grace_or_runs_twice_is_a_difference() {
        let judged = |pod| judge(&seen(ENDED), &seen(pod));
        assert_eq!(judged(ENDED), [""; 0]);
        assert_eq!(judged(PodSeen { had: Some(Duration::from_millis(2400)), ..ENDED }), [""; 0]);
        let wrong = [
            PodSeen { starts: 0, processes: 0, ..ENDED },
            PodSeen { exits: 0, ..ENDED },
            PodSeen { was_asked: false, ..ENDED },
            PodSeen { processes: 2, ..ENDED },
            PodSeen { had: Some(Duration::from_millis(2600)), ..ENDED },
            PodSeen { had: Some(Duration::from_millis(400)), ..ENDED },
        ];
        for pod in wrong {
            assert_ne!(judged(pod.clone()), [""; 0], "{pod:?}");
        }
        let nothing = Seen { pods: [].into(), ..seen(ENDED) };
        assert_eq!(judge(&seen(ENDED), &nothing), ["web: not seen"]);
    }

    #[test]
    fn a_group_that_began_too_early_and_another_report_are_differences() {
        let late = Seen { order: vec!["queue before web".to_owned()], ..seen(ENDED) };
        assert_eq!(judge(&seen(ENDED), &late), ["order: queue before web"]);
        let other = Seen { report: Some("forced".to_owned()), ..seen(ENDED) };
        assert_ne!(judge(&seen(ENDED), &other), [""; 0]);
    }
}

//! `winddown doctor`: the output for findings.

use super::world::{Ran, printing};
use crate::{Exit, TextFormat, doctor};
use winddown_doctor::{Area, Diagnosis, Finding, Fix, Severity};

fn found(severity: Severity) -> Finding {
    let wrong = severity > Severity::Info;
    Finding {
        id: "delay",
        area: Area::Shutdown,
        severity,
        title: "logind waits 10s of the 32s wanted".to_owned(),
        evidence: vec![
            "/usr/lib/systemd/logind.conf.d/zzz.conf: InhibitDelayMaxSec=10s".to_owned(),
        ],
        fix: wrong.then(|| "systemctl kill -s HUP systemd-logind".to_owned()).into_iter().collect(),
        fix_id: wrong.then_some(Fix::LogindStale),
        advice: wrong.then(|| "wait".to_owned()).into_iter().collect(),
        why: "when logind stops waiting, what still runs is killed",
    }
}

fn shown(severities: &[Severity], form: TextFormat) -> Ran {
    let findings = severities.iter().copied().map(found).collect();
    printing(|out| doctor::print(&Diagnosis::new("node1", None, findings), form, out))
}

#[test]
fn the_worst_finding_decides_the_exit_code() {
    use Severity::{Info, Ok as Well, Problem, Warning};
    for (severities, exit, last) in [
        ([].as_slice(), Exit::Success, "node1: 0 checks, all well"),
        (&[Well, Well], Exit::Success, "node1: 2 checks, all well"),
        (&[Well, Info], Exit::Success, "node1: 2 checks, all well, 1 thing to know"),
        (
            &[Well, Warning, Info],
            Exit::Warnings,
            "node1: 3 checks: 1 warning, 1 thing to know, 1 well",
        ),
        (&[Warning, Problem, Problem], Exit::Problems, "node1: 3 checks: 2 problems, 1 warning"),
    ] {
        let ran = shown(severities, TextFormat::Text);
        assert_eq!((ran.exit, ran.out.lines().last()), (exit, Some(last)), "{severities:?}");
        assert_eq!(ran.err, "", "findings are the result, not an error");
        let ran = shown(severities, TextFormat::Json);
        assert_eq!(ran.exit, exit, "{severities:?}");
    }
}

#[test]
fn the_json_has_the_documented_shape() {
    let ran = shown(&[Severity::Ok, Severity::Warning], TextFormat::Json);
    let got: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        got,
        serde_json::json!({
            "apiVersion": "winddown.dev/v1alpha1",
            "kind": "Diagnosis",
            "node": "node1",
            "severity": "warning",
            "counts": { "ok": 1, "info": 0, "warning": 1, "problem": 0 },
            "findings": [
                {
                    "id": "delay",
                    "area": "shutdown",
                    "severity": "warning",
                    "title": "logind waits 10s of the 32s wanted",
                    "evidence":
                        ["/usr/lib/systemd/logind.conf.d/zzz.conf: InhibitDelayMaxSec=10s"],
                    "fix": ["systemctl kill -s HUP systemd-logind"],
                    "fixId": "logindStale",
                    "advice": ["wait"],
                    "why": "when logind stops waiting, what still runs is killed",
                },
                {
                    "id": "delay",
                    "area": "shutdown",
                    "severity": "ok",
                    "title": "logind waits 10s of the 32s wanted",
                    "evidence":
                        ["/usr/lib/systemd/logind.conf.d/zzz.conf: InhibitDelayMaxSec=10s"],
                    "fix": [],
                    "advice": [],
                    "why": "when logind stops waiting, what still runs is killed",
                },
            ],
        })
    );
}

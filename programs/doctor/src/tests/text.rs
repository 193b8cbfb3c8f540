use unicode_width::UnicodeWidthStr as _;

use super::*;
use winddown_render::View;

fn shown(facts: &Facts, view: &View) -> String {
    render(&diagnose(facts), view)
}

#[test]
fn a_healthy_node_fits_one_screen_and_ends_with_all_well() {
    let text = shown(&healthy(), &View { width: Some(80), ..View::default() });
    assert!(text.ends_with("\nnode1: 22 checks, all well\n"), "{text}");
    assert!(text.lines().count() <= 24, "{text}");
    for line in text.lines() {
        assert!(line.width() <= 80, "{line}");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn before_an_installation_the_program_is_named_by_its_path() {
    let mut facts = healthy();
    known(&mut facts.bus.service).load_state = "not-found".into();
    let unit = |diagnosis: Diagnosis| {
        diagnosis.findings.into_iter().find(|found| found.id == "unit").unwrap().fix
    };
    assert_eq!(unit(diagnose(&facts)), ["winddown install", "systemctl start winddown"]);
    let typed = unit(diagnose(&facts).typed_by_path("/root/winddown-0.1.0/winddown"));
    assert_eq!(typed, ["/root/winddown-0.1.0/winddown install", "systemctl start winddown"]);
}

#[test]
fn where_the_program_is_not_found_by_its_name_every_command_has_its_path() {
    let mut facts = healthy();
    facts.files.state = Fact::Unknown(NotObserved::Denied, "no".to_owned());
    let mut diagnosis = diagnose(&facts);
    let finding = diagnosis.findings.first_mut().unwrap();
    finding.fix.push("winddown config check && winddown undrain".to_owned());
    finding.advice = vec!["`winddown status` and `journalctl -u winddown -e` show why".to_owned()];
    let text = render(&diagnosis.typed_by_path("'/opt/a b/winddown'"), &View::default());
    for line in [
        "sudo '/opt/a b/winddown' doctor",
        "'/opt/a b/winddown' config check && '/opt/a b/winddown' undrain",
        "`'/opt/a b/winddown' status` and `journalctl -u winddown -e` show why",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("sudo winddown"), "{text}");
}

#[test]
fn what_a_user_may_not_see_is_not_called_well() {
    let mut facts = healthy();
    facts.files.state = Fact::Unknown(NotObserved::Denied, "no".to_owned());
    let text = shown(&facts, &View::default());
    let last = "\nnode1: nothing wrong in 21 checks; 1 needs root: sudo winddown doctor\n";
    assert!(text.ends_with(last), "{text}");
}

#[test]
fn one_check_is_counted_in_the_singular() {
    let mut diagnosis = diagnose(&healthy());
    diagnosis.findings.truncate(1);
    let last = |findings: Vec<Finding>, verdict| {
        let text = render(&Diagnosis::new("node1", verdict, findings), &View::default());
        text.lines().last().map(str::to_owned)
    };
    let well = diagnosis.findings;
    assert_eq!(last(well.clone(), None).unwrap(), "node1: 1 check, all well");
    let problem = vec![Finding { severity: Severity::Problem, ..well[0].clone() }];
    assert_eq!(last(problem, None).unwrap(), "node1: 1 check: 1 problem");
    let mut facts = healthy();
    facts.files.state = Fact::Unknown(NotObserved::Denied, "no".to_owned());
    let unseen = diagnose(&facts).findings.into_iter().filter(|one| one.severity == Severity::Info);
    let both = well.into_iter().chain(unseen).collect();
    let wanted = "node1: nothing wrong in 1 check; 1 needs root: sudo winddown doctor";
    assert_eq!(last(both, None).unwrap(), wanted);
}

#[test]
fn the_worst_comes_first_with_what_was_seen_why_and_what_mends_it() {
    let mut facts = healthy();
    facts.bus.synchronised = Fact::Known(false);
    known(&mut facts.bus.service).unit_file_state = "disabled".to_owned();
    known(&mut facts.bus.login).locks.push(lock("kubelet"));
    facts.kubelet.config = kubelet("shutdownGracePeriod: 30s");
    facts.files.setting = set("/usr/lib/systemd/logind.conf.d/zzz.conf", 10);
    known(&mut facts.bus.login).delay = secs(10);
    insta::assert_snapshot!(shown(&facts, &View { width: Some(80), ..View::default() }));
}

#[test]
fn colour_changes_no_column() {
    let mut facts = healthy();
    facts.files.state = unseen(NotObserved::Silent);
    facts.runtime.killers = process("earlyoom");
    let plain = shown(&facts, &View::default());
    let coloured = shown(&facts, &View { color: true, ..View::default() });
    assert_ne!(plain, coloured);
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
}

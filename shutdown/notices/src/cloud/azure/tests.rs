use super::*;

fn event(kind: &str, status: &str, not_before: &str, machine: &str) -> serde_json::Value {
    serde_json::json!({
        "EventId": "f020ba2e-3bc0-4c40-a10b-86575a9eabd5",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": [machine, "vmss_2"],
        "EventStatus": status,
        "NotBefore": not_before,
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    })
}

fn document(events: &[serde_json::Value]) -> String {
    serde_json::json!({ "DocumentIncarnation": 5, "Events": events }).to_string()
}

const AT: &str = "Mon, 19 Sep 2016 18:29:47 GMT";
const LATER: &str = "Mon, 19 Sep 2016 19:29:47 GMT";

fn expected() -> When {
    When::At("2016-09-19T18:29:47Z".parse().expect("a time"))
}

#[test]
fn events_that_end_this_machine_count_and_others_do_not() {
    let cases = [
        (vec![event("Preempt", "Scheduled", AT, "vmss_1")], Some(expected())),
        (vec![event("Terminate", "Scheduled", AT, "VMSS_1")], Some(expected())),
        (vec![event("Reboot", "Scheduled", AT, "vmss_1")], Some(expected())),
        (vec![event("Redeploy", "Scheduled", AT, "vmss_1")], Some(expected())),
        (vec![event("Redeploy", "Scheduled", "2016-09-19T18:29:47Z", "vmss_1")], Some(expected())),
        (vec![event("Freeze", "Scheduled", AT, "vmss_1")], None),
        (vec![event("Something", "Scheduled", AT, "vmss_1")], None),
        (vec![event("Reboot", "Scheduled", AT, "vmss_3")], None),
        (vec![event("Reboot", "Started", "", "vmss_1")], Some(When::In(STARTED_EVENT_TIME))),
        (vec![event("Reboot", "Started", AT, "vmss_1")], Some(When::In(STARTED_EVENT_TIME))),
        (
            vec![
                event("Reboot", "Scheduled", LATER, "vmss_1"),
                event("Redeploy", "Scheduled", AT, "vmss_1"),
            ],
            Some(expected()),
        ),
        (
            vec![
                event("Reboot", "Scheduled", AT, "vmss_1"),
                event("Redeploy", "Started", "", "vmss_1"),
            ],
            Some(When::In(STARTED_EVENT_TIME)),
        ),
        (
            vec![
                event("Redeploy", "Scheduled", "soon", "vmss_1"),
                event("Reboot", "Scheduled", AT, "vmss_1"),
            ],
            Some(expected()),
        ),
        (vec![], None),
    ];
    for (events, when) in cases {
        let told = scheduled(&document(&events), "vmss_1").expect("a document");
        let earliest = told.iter().min_by_key(|event| event.not_before);
        assert_eq!(earliest.map(|event| event.announced.when), when, "{events:?}");
        assert!(told.iter().all(|event| event.id.starts_with("f020ba2e")), "{events:?}");
    }
}

#[test]
fn the_text_says_what_happens_to_the_machine() {
    let body = document(&[event("Redeploy", "Scheduled", AT, "vmss_1")]);
    let told = scheduled(&body, "vmss_1").expect("a document");
    assert_eq!(
        &*told[0].announced.text,
        "the machine is moved to another host: Host server is undergoing maintenance."
    );
}

#[test]
fn an_answer_that_is_not_understood_is_an_error_not_a_withdrawal() {
    let odd = document(&[event("Reboot", "Scheduled", "soon", "vmss_1")]);
    for wrong in ["", "{}", "[]", "null", "<html>", r#"{"Events": 7}"#, &odd] {
        assert!(scheduled(wrong, "vmss_1").is_err(), "{wrong:?}");
    }
}

use super::*;

fn at(text: &str) -> When {
    When::At(text.parse().expect("a time"))
}

#[test]
fn spot_actions_are_read() {
    for (action, done) in [
        ("terminate", "terminated"),
        ("stop", "stopped"),
        ("hibernate", "hibernated"),
        ("something-new", "reclaimed"),
    ] {
        let body = format!(r#"{{"action": "{action}", "time": "2017-09-18T08:22:00Z"}}"#);
        let announced = spot_action(&body).expect("an action");
        assert_eq!(announced.announced.when, at("2017-09-18T08:22:00Z"));
        assert_eq!(announced.not_before, "2017-09-18T08:22:00Z".parse().ok());
        assert_eq!(&*announced.announced.text, format!("the spot instance is {done}"));
    }
    for wrong in ["", "{}", "[]", "null", r#"{"action":"stop","time":"soon"}"#, "<html>"] {
        assert!(spot_action(wrong).is_err(), "{wrong:?}");
    }
}

const REBOOT: &str = r#"{"NotBefore": "21 Jan 2019 09:00:43 GMT", "Code": "system-reboot",
    "Description": "scheduled reboot", "EventId": "instance-event-0d59937288b749b32",
    "NotAfter": "21 Jan 2019 09:17:23 GMT", "State": "active"}"#;

#[test]
fn the_events_that_end_the_instance_count() {
    let retire = REBOOT.replace("21 Jan 2019 09:00", "20 Jan 2019 09:00");
    let retire = retire.replace("system-reboot", "instance-retirement");
    let network = REBOOT.replace("system-reboot", "system-maintenance");
    let over = REBOOT.replace("active", "completed");
    let odd = REBOOT.replace("21 Jan 2019 09:00:43 GMT", "soon");
    let done = REBOOT.replace("scheduled reboot", "[Completed] scheduled reboot");
    let (first, second) = ("2019-01-20T09:00:43Z", "2019-01-21T09:00:43Z");
    let cases = [
        (format!("[{REBOOT}]"), vec![second]),
        (format!("[{REBOOT}, {retire}]"), vec![second, first]),
        (format!("[{network}, {REBOOT}]"), vec![second]),
        (format!("[{odd}, {REBOOT}]"), vec![second]),
        (format!("[{network}]"), vec![]),
        (format!("[{over}, {done}]"), vec![]),
        ("[]".to_owned(), vec![]),
        (String::new(), vec![]),
    ];
    for (body, expected) in cases {
        let events = scheduled(&body).expect("events");
        let whens: Vec<_> = events.iter().map(|event| event.announced.when).collect();
        assert_eq!(whens, expected.into_iter().map(at).collect::<Vec<_>>(), "{body}");
    }
    let [event] = &scheduled(&format!("[{REBOOT}]")).expect("events")[..] else { panic!("one") };
    assert_eq!(&*event.announced.text, "scheduled event system-reboot: scheduled reboot");
    assert_eq!(event.id, "instance-event-0d59937288b749b32");
    assert_eq!(event.not_before, second.parse().ok());
}

#[test]
fn an_answer_that_is_not_understood_is_an_error_not_a_withdrawal() {
    let odd = REBOOT.replace("21 Jan 2019 09:00:43 GMT", "soon");
    for wrong in ["{}", "<html>", "[7]", "null", &format!("[{odd}]")] {
        assert!(scheduled(wrong).is_err(), "{wrong:?}");
    }
}

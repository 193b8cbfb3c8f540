use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use winddown_render::PodOrder::{Name, Newest, Restarts, Urgency};

use super::{Act, LiveControls, MAX_FILTER_CHARS};

/// Presses each key of `typed`: `\x1b` is Esc, `\n` Enter, `\x08` Backspace.
fn pressed(typed: &str) -> (LiveControls, Act) {
    let mut choice = LiveControls::default();
    let mut act = Act::Draw;
    for key in typed.chars() {
        let code = match key {
            '\x1b' => KeyCode::Esc,
            '\n' => KeyCode::Enter,
            '\x08' => KeyCode::Backspace,
            key => KeyCode::Char(key),
        };
        act = choice.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
    (choice, act)
}

#[test]
fn what_is_typed_after_a_slash_is_the_filter_and_escape_leaves_it() {
    for (typed, filter, typing) in [
        ("/", "", true),
        ("/web", "web", true),
        ("/sq?/", "sq?/", true),
        ("/web\n", "web", false),
        ("/web\n/er", "weber", true),
        ("/web\x08", "we", true),
        ("/w\x08", "", true),
        ("/w\x08\x08", "", false),
        ("/web\x1b", "", false),
        ("/web\n\x1b", "", false),
        ("web", "", false),
    ] {
        let (choice, act) = pressed(typed);
        assert_eq!((&*choice.filter, choice.typing, act), (filter, typing, Act::Draw), "{typed:?}");
    }
    let (choice, _) = pressed(&format!("/{}", "w".repeat(MAX_FILTER_CHARS + 1)));
    assert_eq!(choice.filter.len(), MAX_FILTER_CHARS);
}

#[test]
fn s_goes_through_the_orders_and_escape_returns_to_the_first() {
    for (typed, order) in [
        ("", Urgency),
        ("s", Name),
        ("ss", Restarts),
        ("sss", Newest),
        ("ssss", Urgency),
        ("ss\x1b", Urgency),
        ("/s\n", Urgency),
    ] {
        assert_eq!(pressed(typed).0.order, order, "{typed:?}");
    }
}

#[test]
fn escape_leaves_one_thing_at_a_time_and_then_the_program() {
    for (typed, act) in [
        ("\x1b", Act::Quit),
        ("?\x1b", Act::Draw),
        ("?\x1b\x1b", Act::Quit),
        ("??\x1b", Act::Quit),
        ("s/web\n?\x1b\x1b\x1b", Act::Draw),
        ("s/web\n?\x1b\x1b\x1b\x1b", Act::Quit),
        ("q", Act::Quit),
        ("?q", Act::Quit),
    ] {
        assert_eq!(pressed(typed).1, act, "{typed:?}");
    }
    let (choice, _) = pressed("s/web\n?\x1b");
    assert!(!choice.help && choice.filter == "web" && choice.order == Name);
    assert!(!pressed("?/w").0.help, "a filter is typed with the pods in sight");
}

#[test]
fn the_list_starts_at_its_top_when_other_pods_are_in_it() {
    for (typed, skipped) in [("jjk", 1), ("jj/", 2), ("jj/w", 0), ("jjs", 0), ("/w\njj\x1b", 0)] {
        assert_eq!(pressed(typed).0.skipped, skipped, "{typed:?}");
    }
}

#[test]
fn control_keys_work_in_a_filter_and_a_released_key_does_nothing() {
    let mut choice = LiveControls { typing: true, ..LiveControls::default() };
    for (key, act) in [('c', Act::Quit), ('d', Act::Quit), ('z', Act::Stop), ('w', Act::Draw)] {
        assert_eq!(choice.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL)), act);
    }
    let key = KeyEvent::new(KeyCode::Char('w'), KeyModifiers::NONE);
    choice.press(KeyEvent { kind: KeyEventKind::Release, ..key });
    assert_eq!(choice.filter, "");
}

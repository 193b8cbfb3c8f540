use super::*;

#[test]
fn the_wait_doubles_up_to_the_longest_and_stays_there() {
    let mut backoff = Backoff::PATIENT;
    let waits: Vec<_> = (0..18).map(|_| backoff.step(1.0)).collect();
    assert_eq!(waits[..3], [5, 10, 20].map(Duration::from_millis));
    assert_eq!(waits[15], Duration::from_millis(5 << 15));
    assert_eq!(waits[16..], [Duration::from_secs(300); 2]);
    assert_eq!(backoff.failures(), 18);
}

#[test]
fn the_wait_is_never_less_than_half_of_its_step() {
    let mut backoff = Backoff::new(Duration::from_secs(4), Duration::from_secs(4));
    assert_eq!(backoff.step(0.0), Duration::from_secs(2));
    assert_eq!(backoff.step(1.0), Duration::from_secs(4));
}

#[test]
fn a_server_that_asks_for_more_gets_it_and_one_that_asks_for_less_does_not_shorten_the_wait() {
    let mut backoff = Backoff::EAGER;
    assert_eq!(backoff.after_failure(Some(Duration::from_secs(7))), Duration::from_secs(7));
    for _ in 0..20 {
        backoff.next_delay();
    }
    assert!(backoff.after_failure(Some(Duration::ZERO)) >= Duration::from_secs(5));
}

#[test]
fn a_reset_begins_anew() {
    let mut backoff = Backoff::EAGER;
    backoff.next_delay();
    backoff.reset();
    assert_eq!(backoff.step(1.0), Duration::from_millis(5));
}

#[test]
fn fractions_differ_and_stay_in_range() {
    let drawn: Vec<_> = (0..100).map(|_| fraction()).collect();
    assert!(drawn.iter().all(|f| (0.0..1.0).contains(f)));
    assert!(drawn.windows(2).any(|pair| (pair[0] - pair[1]).abs() > 0.01));
}

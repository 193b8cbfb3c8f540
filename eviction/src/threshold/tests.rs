use winddown_shared::FsLayout;

use super::*;

fn config(hard: &[(&str, &str)], soft: &[(&str, &str, &str)]) -> Vec<Threshold> {
    let text = |text: &str| text.to_owned();
    ThresholdConfig {
        hard: hard.iter().map(|(signal, value)| (text(signal), text(value))).collect(),
        soft: soft.iter().map(|(signal, value, _)| (text(signal), text(value))).collect(),
        soft_grace: soft.iter().map(|(signal, _, grace)| (text(signal), text(grace))).collect(),
        minimum_reclaim: BTreeMap::new(),
    }
    .thresholds()
    .unwrap()
}

fn values(thresholds: &[Threshold], signal: Signal) -> Vec<(String, bool)> {
    let found = thresholds.iter().filter(|threshold| threshold.signal == signal);
    found.map(|t| (t.quantity(1000, false).to_string(), t.is_hard())).collect()
}

#[test]
fn add_allocatable_thresholds_copies_hard_ones_on_memory_only() {
    let thresholds = with_allocatable(config(
        &[("memory.available", "1Gi"), ("nodefs.available", "1Gi")],
        &[("memory.available", "2Gi", "1m")],
    ));
    let copied = values(&thresholds, Signal::AllocatableMemoryAvailable);
    assert_eq!(copied, [("1Gi".to_owned(), true)]);
    assert_eq!(thresholds.len(), 4);
}

#[test]
fn add_container_fs_thresholds_from_where_the_writable_layers_are() {
    let thresholds = config(
        &[("nodefs.available", "10"), ("imagefs.available", "15"), ("imagefs.inodesFree", "5")],
        &[("nodefs.available", "20", "1m"), ("imagefs.inodesFree", "30", "1m")],
    );
    let derived = |layout| {
        let (all, overwritten) = with_container_fs(&thresholds, layout);
        assert!(overwritten.is_empty());
        let bytes = values(&all, Signal::ContainerFsAvailable);
        (bytes, values(&all, Signal::ContainerFsInodesFree))
    };
    let hard = |value: &str| (value.to_owned(), true);
    let soft = |value: &str| (value.to_owned(), false);
    assert_eq!(derived(FsLayout::One), (vec![hard("10"), soft("20")], vec![]));
    assert_eq!(derived(FsLayout::Split), (vec![hard("10"), soft("20")], vec![]));
    assert_eq!(derived(FsLayout::ImageFs), (vec![hard("15")], vec![hard("5"), soft("30")]));
}

#[test]
fn while_the_layout_is_not_known_everything_is_on_one_file_system() {
    let policy = crate::Policy::new(config(&[("nodefs.available", "10")], &[]), false);
    let derived = values(policy.thresholds(), Signal::ContainerFsAvailable);
    assert_eq!(derived, [("10".to_owned(), true)]);
}

#[test]
fn derived_thresholds_count_among_the_most_that_a_policy_has() {
    let disks = [("nodefs.available", "10"), ("imagefs.available", "15")];
    let policy = crate::Policy::new(config(&disks, &[]).repeat(13), false);
    for layout in [FsLayout::One, FsLayout::ImageFs, FsLayout::Split] {
        let thresholds = policy.for_layout(layout).0.thresholds().len();
        assert_eq!(thresholds, crate::Policy::MOST_THRESHOLDS, "{layout:?}");
    }
}

#[test]
fn add_container_fs_thresholds_over_those_that_were_configured_and_says_so() {
    let thresholds = config(
        &[("nodefs.available", "10"), ("containerfs.available", "99")],
        &[("containerfs.inodesFree", "99", "1m")],
    );
    let (all, overwritten) = with_container_fs(&thresholds, FsLayout::One);
    assert_eq!(values(&all, Signal::ContainerFsAvailable), [("10".to_owned(), true)]);
    assert_eq!(values(&all, Signal::ContainerFsInodesFree), []);
    let told = [
        IneffectiveThreshold { signal: Signal::ContainerFsAvailable, hard: true },
        IneffectiveThreshold { signal: Signal::ContainerFsInodesFree, hard: false },
    ];
    assert_eq!(overwritten, told);
}

#[test]
fn a_percentage_has_the_32_bits_that_messages_show() {
    let Ok(Some(tenth)) = parse_threshold("10%") else { panic!("10% is a threshold") };
    assert_eq!(tenth.of(16 << 30).to_string(), "1717986944");
    assert_eq!(parse_threshold("25.5%"), Ok(Some(ThresholdValue::Share(0.255))));
}

#[test]
fn what_is_no_number_is_no_percentage() {
    for text in ["NaN%", "nan%", "inf%", "1e40%", "foo%", "12%345", "blah", "%", "0x1p-2%"] {
        assert!(parse_threshold(text).is_err(), "{text}");
        assert!(parse_minimum_reclaim(text).is_err(), "{text}");
    }
}

#[test]
fn a_soft_grace_of_nothing_is_refused_where_it_is_read_strictly() {
    assert_eq!(parse_soft_grace("1m 30s"), Ok(Duration::from_secs(90)));
    assert_eq!(parse_soft_grace("0s"), Err(SoftGraceError::Zero));
    assert!(parse_soft_grace("30").is_err());
}

#[test]
fn all_that_is_wrong_is_said_at_once_with_the_signal_and_what_to_write_and_no_field_of_a_file() {
    let map = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let error = ThresholdConfig {
        hard: map(&[("memory", "1Gi"), ("memory.available", "-1")]),
        soft: map(&[("pid.available", "10")]),
        ..ThresholdConfig::default()
    }
    .thresholds()
    .unwrap_err();
    assert_eq!(error.0.len(), 3);
    let text = error.to_string();
    assert!(text.starts_with(
        "hard threshold: unsupported eviction signal memory: write one of memory.available, "
    ));
    assert!(text.contains("; hard threshold of memory.available: `-1` is out of range: write 0%"));
    let missing = "; soft threshold of pid.available: needs a grace period, for example 1m30s";
    assert!(text.ends_with(missing), "{text}");
    assert!(!text.contains("evictionHard") && !text.contains("evictionSoft"), "{text}");
}

#[test]
fn a_grace_that_cannot_be_read_is_complained_about_once() {
    let map = |value: &str| [("pid.available".to_owned(), value.to_owned())].into();
    let config =
        ThresholdConfig { soft: map("10"), soft_grace: map("soon"), ..ThresholdConfig::default() };
    let error = config.thresholds().unwrap_err();
    assert!(matches!(error.0[..], [ThresholdError::Grace { .. }]), "{error}");
}

#[test]
fn a_minimum_reclaim_may_be_nothing_but_no_share_of_nothing() {
    for (text, is_one) in [("0", true), ("1Gi", true), ("5%", true), ("0%", false), ("-1", false)] {
        assert_eq!(parse_minimum_reclaim(text).is_ok(), is_one, "{text}");
    }
}

#[test]
fn what_is_quoted_stays_on_its_line_and_moves_no_cursor() {
    for text in ["10\r\n%", "1\u{1b}[2J", "\u{202e}5", "-1\n%"] {
        for error in [parse_threshold(text).unwrap_err(), parse_minimum_reclaim(text).unwrap_err()]
        {
            let said = error.to_string();
            assert!(!said.contains(['\r', '\n', '\u{1b}', '\u{202e}']), "{said:?}");
        }
    }
    let said = parse_threshold("it's \"5\"").unwrap_err().to_string();
    assert!(said.starts_with("`it's \"5\"` is not"), "{said}");
}

#[test]
fn what_is_in_force_unless_something_is_configured_is_what_the_kubelet_has() {
    let text = |(signal, value): (&str, &str)| (signal.to_owned(), value.to_owned());
    let kubelets = [
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
        ("imagefs.available", "15%"),
        ("imagefs.inodesFree", "5%"),
    ];
    assert_eq!(default_hard(), kubelets.map(text).into());
}

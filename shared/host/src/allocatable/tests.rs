use super::*;

const GIB: i64 = 1 << 30;

fn name(text: &str) -> ResourceName {
    ResourceName::from(text)
}

fn machine() -> Capacity {
    Capacity {
        cpu_milli: 4000,
        memory: 16 * GIB,
        huge_pages: BTreeMap::new(),
        ephemeral_storage: 100 * GIB,
        pids: Some(32768),
    }
}

fn bytes(bytes: i64) -> ThresholdValue {
    ThresholdValue::Quantity(Quantity::new(bytes, QuantityFormat::BinarySi))
}

fn amounts(allotment: &AllocatableConfig, capacity: &Capacity) -> Vec<(String, i64)> {
    let all = allotment.allocatable(capacity);
    all.iter().map(|(name, amount)| (name.to_string(), amount)).collect()
}

fn amount(allotment: &AllocatableConfig, capacity: &Capacity, resource: &str) -> i64 {
    allotment.allocatable(capacity).get(&name(resource))
}

#[test]
fn a_node_that_keeps_nothing_gives_everything() {
    let expected =
        [("pods", 110), ("cpu", 4000), ("memory", 16 * GIB), ("ephemeral-storage", 100 * GIB)];
    let expected = expected.map(|(name, amount)| (name.to_owned(), amount));
    assert_eq!(amounts(&AllocatableConfig::default(), &machine()), expected);
}

#[test]
fn what_is_reserved_and_the_two_thresholds_are_kept() {
    let kept = AllocatableConfig {
        reserved: [(name("cpu"), 500), (name("memory"), GIB), (name("pid"), 1000)].into(),
        memory_available: bytes(100 << 20),
        nodefs_available: ThresholdValue::Share(0.5),
        ..AllocatableConfig::default()
    };
    assert_eq!(amount(&kept, &machine(), "cpu"), 3500);
    assert_eq!(amount(&kept, &machine(), "memory"), 15 * GIB - (100 << 20));
    assert_eq!(amount(&kept, &machine(), "ephemeral-storage"), 50 * GIB);
    assert_eq!(amount(&kept, &machine(), "pods"), 110);
    assert!(!kept.allocatable(&machine()).knows(&name("pid")), "no pod can ask for it");
}

#[test]
fn more_kept_than_there_is_leaves_nothing_and_is_no_error() {
    let kept = AllocatableConfig {
        reserved: [(name("cpu"), i64::MAX), (name("memory"), 17 * GIB)].into(),
        memory_available: bytes(i64::MAX),
        ..AllocatableConfig::default()
    };
    assert_eq!(amount(&kept, &machine(), "cpu"), 0);
    assert_eq!(amount(&kept, &machine(), "memory"), 0);
}

#[test]
fn huge_pages_are_a_resource_of_their_own_and_no_memory_any_more() {
    let capacity = Capacity {
        huge_pages: [(2 << 20, GIB), (1 << 30, 2 * GIB), (64 << 10, 0)].into(),
        ..machine()
    };
    let kept = AllocatableConfig {
        reserved: [(name("hugepages-2Mi"), GIB / 2)].into(),
        ..AllocatableConfig::default()
    };
    assert_eq!(amount(&kept, &capacity, "hugepages-2Mi"), GIB / 2);
    assert_eq!(amount(&kept, &capacity, "hugepages-1Gi"), 2 * GIB);
    assert!(kept.allocatable(&capacity).knows(&name("hugepages-64Ki")));
    assert_eq!(amount(&kept, &capacity, "memory"), 13 * GIB);
    assert_eq!(kept.capacity(&capacity).get(&name("memory")), 16 * GIB);
}

#[test]
fn a_resource_of_the_configuration_is_there_as_it_stands() {
    let extended = [(name("example.com/dongle"), 2)].into();
    let kept = AllocatableConfig { extended, ..AllocatableConfig::default() };
    assert_eq!(amount(&kept, &machine(), "example.com/dongle"), 2);
}

proptest::proptest! {
    #[test]
    fn no_amount_is_below_zero_or_above_the_capacity(
        cpu in 0..i64::MAX, memory in 0..i64::MAX, pages in 0..i64::MAX,
        kept in 0..i64::MAX, threshold in i64::MIN..=i64::MAX,
    ) {
        let capacity = Capacity {
            cpu_milli: cpu, memory, huge_pages: [(2 << 20, pages)].into(), ..machine()
        };
        let allotment = AllocatableConfig {
            reserved: [(ResourceName::Cpu, kept), (ResourceName::Memory, kept)].into(),
            memory_available: bytes(threshold),
            ..AllocatableConfig::default()
        };
        let whole = allotment.capacity(&capacity);
        for (name, amount) in allotment.allocatable(&capacity).iter() {
            proptest::prop_assert!((0..=whole.get(name)).contains(&amount), "{name}: {amount}");
        }
    }
}

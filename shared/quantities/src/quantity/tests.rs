use std::cmp::Ordering;

use proptest::prelude::*;

use super::{Quantity, QuantityFormat};

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_canonical_form_has_the_largest_suffix_that_loses_nothing() {
    for (text, canonical) in [
        ("0", "0"),
        ("-0", "0"),
        ("1.5Gi", "1536Mi"),
        ("1.5", "1500m"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1024Ki", "1Mi"),
        ("1023Ki", "1023Ki"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1.0001Ki", "1024102400u"),
        ("12e6", "12e6"),
        ("12000e3", "12e6"),
        ("1200e4", "12e6"),
        ("12e-3", "12e-3"),
        ("12e0", "12"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1000E", "1e21"),
        ("-2048Ki", "-2Mi"),
        ("8Ei", "9223372036854775807"),
        ("-8Ei", "-9223372036854775807"),
        ("1e-100", "1e-9"),
        ("0e999", "0"),
    ] {
        assert_eq!(quantity(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn whole_numbers_round_away_from_zero_and_saturate() {
    for (text, value, milli) in [
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("1001m", 2, 1001),
        ("-1001m", -2, -1001),
        ("1000001u", 2, 1001),
        ("100u", 1, 1),
        ("1E", 1_000_000_000_000_000_000, i64::MAX),
        ("10E", i64::MAX, i64::MAX),
        ("-10E", i64::MIN, i64::MIN),
        ("1e999999999999", i64::MAX, i64::MAX),
    ] {
        let quantity = quantity(text);
        assert_eq!((quantity.value(), quantity.milli_value()), (value, milli), "{text}");
    }
}

#[test]
fn text_that_is_no_quantity_is_refused_with_what_was_expected() {
    let suffixes = "expected none, one of n u m k M G T P E, one of Ki Mi Gi Ti Pi Ei, or an \
                    exponent such as e3";
    for (text, error) in [
        (
            "",
            "empty quantity: expected a number with an optional suffix, such as 500m or 2Gi".into(),
        ),
        (
            "lots",
            "quantity \"lots\" has no digits: expected a number first, such as 500m or 2Gi".into(),
        ),
        (
            "Pi",
            "quantity \"Pi\" has no digits: expected a number first, such as 500m or 2Gi".into(),
        ),
        ("1GiB", format!("quantity \"1GiB\" has the unknown suffix \"GiB\": {suffixes}")),
        ("1 Gi", format!("quantity \"1 Gi\" has the unknown suffix \" Gi\": {suffixes}")),
        ("10%", format!("quantity \"10%\" has the unknown suffix \"%\": {suffixes}")),
        ("1.2.3", format!("quantity \"1.2.3\" has the unknown suffix \".3\": {suffixes}")),
        ("1K", format!("quantity \"1K\" has the unknown suffix \"K\": {suffixes}")),
        ("1e", format!("quantity \"1e\" has the unknown suffix \"e\": {suffixes}")),
        ("1e+", format!("quantity \"1e+\" has the unknown suffix \"e+\": {suffixes}")),
    ] {
        assert_eq!(text.parse::<Quantity>().unwrap_err().to_string(), error);
    }
    let long = format!("1{}", "x".repeat(5000)).parse::<Quantity>().unwrap_err();
    assert!(long.to_string().len() < 400);
}

#[test]
fn digits_beyond_any_machine_number_still_count() {
    let tail = "0".repeat(5000);
    assert_eq!(quantity(&format!("1.{tail}1")).to_string(), "1000000001n");
    assert_eq!(quantity(&format!("1.{tail}")).to_string(), "1");
    assert_eq!(quantity(&format!("1.{tail}1Ki")).to_string(), "1024000000001n");
    assert_eq!(quantity(&format!("{tail}1")).to_string(), "1");
    assert_eq!(quantity(&format!("1{tail}")).value(), i64::MAX);
    assert_eq!(quantity(&format!("1{tail}e-5000")).to_string(), "1");
}

#[test]
fn sums_keep_the_format_of_the_first_that_is_not_zero() {
    let sum = |a: &str, b: &str| quantity(a).saturating_add(quantity(b)).to_string();
    assert_eq!(sum("1Gi", "512Mi"), "1536Mi");
    assert_eq!(sum("0", "512Mi"), "512Mi");
    assert_eq!(sum("1k", "1Ki"), "2024");
    assert_eq!(quantity("1Ki").saturating_sub(quantity("2Ki")).to_string(), "-1Ki");
    assert_eq!(quantity("100u").checked_add(quantity("100u")).map(Quantity::milli_value), Some(1));
    let most = Quantity::from_nanos(i128::MAX, QuantityFormat::DecimalSi);
    assert_eq!(most.checked_add(quantity("1")), None);
    assert_eq!(most.saturating_add(quantity("1")), most);
    assert_eq!(quantity("-1").checked_sub(most.saturating_add(most)), None);
}

#[test]
fn equality_and_sign_are_numeric() {
    assert_eq!(quantity("1Ki"), quantity("1024"));
    assert_eq!(quantity("1e3"), quantity("1k"));
    assert_eq!(quantity("-1").sign(), Ordering::Less);
    assert_eq!(quantity("0Gi").sign(), Ordering::Equal);
    assert!(quantity("0.0").is_zero());
    assert!(quantity("-1n").is_negative());
    assert_eq!(
        Quantity::new(2, QuantityFormat::BinarySi),
        Quantity::from_milli(2000, QuantityFormat::DecimalSi)
    );
}

#[test]
fn json_strings_and_bare_numbers_are_read_and_strings_are_written() {
    let read = |json: &str| serde_json::from_str::<Quantity>(json);
    assert_eq!(read("\"1.5Gi\"").unwrap().to_string(), "1536Mi");
    assert_eq!(read("2").unwrap().to_string(), "2");
    assert_eq!(read("-2").unwrap().to_string(), "-2");
    assert_eq!(read("0.1").unwrap().to_string(), "100m");
    assert_eq!(serde_json::to_string(&quantity("1024Mi")).unwrap(), "\"1Gi\"");
    let error = read("\"1GiB\"").unwrap_err().to_string();
    assert!(error.contains("unknown suffix \"GiB\""), "{error}");
    assert!(read("true").is_err());
}

const FORMATS: [QuantityFormat; 3] =
    [QuantityFormat::DecimalSi, QuantityFormat::BinarySi, QuantityFormat::DecimalExponent];

/// Suffixes with their factors in nano-units.
const SUFFIXES: [(&str, i128); 13] = [
    ("n", 1),
    ("u", 1_000),
    ("m", 1_000_000),
    ("", 1_000_000_000),
    ("k", 1_000_000_000_000),
    ("M", 1_000_000_000_000_000),
    ("G", 1_000_000_000_000_000_000),
    ("Ki", 1_024_000_000_000),
    ("Mi", 1_048_576_000_000_000),
    ("Gi", 1_073_741_824_000_000_000),
    ("e3", 1_000_000_000_000),
    ("E-6", 1_000),
    ("e+0", 1_000_000_000),
];

/// A number with its value as a fraction of nano-units.
#[derive(Clone, Debug)]
struct Written {
    text: String,
    numerator: i128,
    denominator: i128,
}

prop_compose! {
    fn written()(
        negative: bool,
        digits in 0_u64..10_000_000,
        // A binary amount of nine decimals is exact in nano-units.
        decimals in 0_u32..13,
        suffix in 0..SUFFIXES.len(),
    ) -> Written {
        let scale = 10_u64.pow(decimals);
        let (whole, part) = (digits / scale, digits % scale);
        let width = decimals as usize;
        let fraction = if width == 0 { String::new() } else { format!(".{part:0width$}") };
        let (suffix, nanos) = SUFFIXES[suffix];
        let sign = if negative { "-" } else { "" };
        let numerator = i128::from(digits) * nanos * if negative { -1 } else { 1 };
        let text = format!("{sign}{whole}{fraction}{suffix}");
        Written { text, numerator, denominator: scale.into() }
    }
}

proptest! {
    #[test]
    fn what_is_printed_reads_back_the_same(
        nanos in any::<i128>().prop_filter("not representable", |nanos| *nanos != i128::MIN),
        small: i64,
        format in 0..FORMATS.len(),
    ) {
        for nanos in [nanos, small.into(), i128::from(small) * 1_000_000_000] {
            let quantity = Quantity::from_nanos(nanos, FORMATS[format]);
            let text = quantity.to_string();
            // Sums of binary quantities may exceed the cap applied by parsing.
            let cap = Quantity::new(i64::MAX, QuantityFormat::BinarySi).as_nanos();
            let capped = text.ends_with('i') && quantity.as_nanos().abs() > cap;
            if !capped {
                prop_assert_eq!(text.parse::<Quantity>().unwrap(), quantity, "{}", text);
                // A binary quantity without a suffix is parsed as a decimal one.
                if FORMATS[format] != QuantityFormat::BinarySi {
                    prop_assert_eq!(text.parse::<Quantity>().unwrap().to_string(), text);
                }
            }
        }
    }

    /// Only short numbers take the fast path, and leading zeros make any number long.
    #[test]
    fn a_number_reads_the_same_however_many_digits_it_has(number: u64, suffix in "[numkMGTPE]?|[KMGTPE]i|e-?[0-9]{1,3}") {
        let (short, long) = (format!("{number}{suffix}"), format!("{:0>20}{number}{suffix}", 0));
        prop_assert_eq!(quantity(&short).as_nanos(), quantity(&long).as_nanos(), "{}", short);
        prop_assert_eq!(quantity(&short).format(), quantity(&long).format(), "{}", short);
    }

    #[test]
    fn order_and_value_agree_with_exact_fractions(a in written(), b in written()) {
        let exact = (a.numerator * b.denominator).cmp(&(b.numerator * a.denominator));
        let ours = quantity(&a.text).cmp(&quantity(&b.text));
        let is_whole = |w: &Written| w.numerator % w.denominator == 0;
        if is_whole(&a) && is_whole(&b) {
            prop_assert_eq!(ours, exact);
        } else {
            // Rounding to nano-units may make two equal, but never swaps them.
            prop_assert!(ours == exact || ours == Ordering::Equal);
        }
        let away = i128::from(!is_whole(&a)) * a.numerator.signum();
        prop_assert_eq!(quantity(&a.text).as_nanos(), a.numerator / a.denominator + away);
    }
}

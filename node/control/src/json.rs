//! The JSON format of responses: durations and other fractions have three decimals, and what would control a terminal is
//! escaped.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use winddown_shared::display::escaped;

/// Serializes `value` on one line.
///
/// # Errors
/// The value cannot be represented in JSON.
pub fn line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    written(value, CompactFormatter)
}

/// Serializes `value` on several lines, indented.
///
/// # Errors
/// The value cannot be represented in JSON.
pub fn pretty(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    written(value, PrettyFormatter::new())
}

fn written(value: &impl Serialize, form: impl Formatter) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Printable(form)))?;
    Ok(bytes)
}

/// A formatter that rounds fractions to three decimals, escapes characters of strings that are not safe to print, and
/// delegates everything else.
struct Printable<F>(F);

/// Defines methods that delegate to the inner formatter.
macro_rules! pass_on {
    ($($method:ident($($name:ident: $kind:ty),*)),* $(,)?) => {$(
        fn $method<W: ?Sized + Write>(&mut self, to: &mut W $(, $name: $kind)*) -> io::Result<()> {
            self.0.$method(to $(, $name)*)
        }
    )*};
}

impl<F: Formatter> Formatter for Printable<F> {
    fn write_f64<W: ?Sized + Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        self.0.write_f64(to, (value * 1000.0).round() / 1000.0)
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let units = |c: char| -> String {
            c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        };
        to.write_all(escaped(fragment, units).as_bytes())
    }

    pass_on! {
        begin_array(),
        end_array(),
        begin_array_value(first: bool),
        end_array_value(),
        begin_object(),
        end_object(),
        begin_object_key(first: bool),
        end_object_key(),
        begin_object_value(),
        end_object_value(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fractions_have_three_decimals_and_nothing_else_changes() {
        let value = json!({"a": [1.234_567_8, 30.0, -0.000_4], "b": {"c": 7, "d": "1.23456"}});
        let text = String::from_utf8(line(&value).unwrap()).unwrap();
        assert_eq!(text, r#"{"a":[1.235,30.0,-0.0],"b":{"c":7,"d":"1.23456"}}"#);
        let wanted = serde_json::to_string_pretty(&json!({"a": [1.5, []], "b": {}})).unwrap();
        let text = pretty(&json!({"a": [1.499_999, []], "b": {}})).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
    }

    /// A terminal shows it as it comes, and anyone who can put a pod on the node can write into it.
    #[test]
    fn what_would_control_a_terminal_or_reorder_its_line_is_escaped_and_means_the_same() {
        let value = json!({"a\u{202e}": "é 日本 \u{9b}31m \u{7f} \u{1b} \u{e0041}"});
        for text in [line(&value).unwrap(), pretty(&value).unwrap()] {
            let text = String::from_utf8(text).unwrap();
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
            assert!(text.contains(r"é 日本 \u009b31m \u007f \u001b \udb40\udc41"), "{text}");
            assert!(text.contains(r"a\u202e"), "{text}");
        }
    }
}

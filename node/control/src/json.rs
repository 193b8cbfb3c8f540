//! The JSON format of responses: durations and other fractions have three decimals.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

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
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Rounded(form)))?;
    Ok(bytes)
}

/// A formatter that rounds fractions to three decimals and delegates everything else.
struct Rounded<F>(F);

/// Defines methods that delegate to the inner formatter.
macro_rules! pass_on {
    ($($method:ident($($name:ident: $kind:ty),*)),* $(,)?) => {$(
        fn $method<W: ?Sized + Write>(&mut self, to: &mut W $(, $name: $kind)*) -> io::Result<()> {
            self.0.$method(to $(, $name)*)
        }
    )*};
}

impl<F: Formatter> Formatter for Rounded<F> {
    fn write_f64<W: ?Sized + Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        self.0.write_f64(to, (value * 1000.0).round() / 1000.0)
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
}

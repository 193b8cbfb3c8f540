//! Scalars and their meaning.

use super::path::Shortened;

/// A scalar as it is written in the file.
#[derive(Debug)]
pub struct Scalar {
    /// The text as it is written in the file, without its quotes.
    pub text: String,
    /// Whether it is written without quotes, so that YAML may read it as something else than text.
    pub plain: bool,
}

/// The value of a scalar according to YAML.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning<'a> {
    /// Null: empty, `null` or `~`.
    Null,
    /// A bool; YAML 1.1 also knows `yes`, `n` and `off`.
    Bool(bool),
    /// An integer, in any of YAML's bases, or with a fraction of zero.
    Int(i128),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// Anything else, and everything in quotes.
    Text(&'a str),
}

impl Scalar {
    /// The value of this scalar in YAML 1.1, which Kubernetes' tools use.
    pub fn meaning(&self) -> Meaning<'_> {
        let text = self.text.as_str();
        if !self.plain {
            return Meaning::Text(text);
        }
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
            "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => {
                Meaning::Bool(true)
            }
            "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off"
            | "OFF" => Meaning::Bool(false),
            _ => number(text).unwrap_or(Meaning::Text(text)),
        }
    }

    /// Says what to do about the quotes, if they are the only mistake. The text is quoted unless it may be a secret.
    pub fn hint(&self, text_is_wanted: bool, is_secret: bool) -> String {
        let unquoted = Scalar { text: self.text.clone(), plain: true };
        match (text_is_wanted, self.meaning(), unquoted.meaning()) {
            (true, Meaning::Bool(_) | Meaning::Int(_) | Meaning::Float(_), _) if is_secret => {
                ": write it in quotes".to_owned()
            }
            (true, Meaning::Bool(_) | Meaning::Int(_) | Meaning::Float(_), _) => {
                format!(": write it in quotes, \"{}\"", Shortened(&self.text))
            }
            (false, Meaning::Text(_), Meaning::Bool(_) | Meaning::Int(_)) => {
                ": remove the quotes".to_owned()
            }
            _ => String::new(),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self.meaning() {
            Meaning::Null => "nothing",
            Meaning::Bool(_) => "a bool",
            Meaning::Int(_) | Meaning::Float(_) => "a number",
            Meaning::Text(_) => "a string",
        }
    }

    /// Describes the value, in the words of an error message.
    pub fn describe(&self) -> String {
        let text = Shortened(&self.text);
        match self.meaning() {
            Meaning::Null => "nothing".to_owned(),
            Meaning::Bool(_) => format!("the bool `{text}`"),
            Meaning::Int(_) | Meaning::Float(_) => format!("the number `{text}`"),
            Meaning::Text("") => "an empty string".to_owned(),
            Meaning::Text(_) => format!("the text `{text}`"),
        }
    }
}

/// The number that the text is, if it is one. Digits may be grouped with `_`.
fn number(text: &str) -> Option<Meaning<'static>> {
    /// From here on, not every integer has a float of its own.
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    let grouped: String;
    let text = match text.contains('_')
        && text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
    {
        true => {
            grouped = text.replace('_', "");
            &grouped
        }
        false => text,
    };
    if let Some(value) = int(text) {
        return Some(Meaning::Int(value));
    }
    let value = float(text)?;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within the bounds")]
    Some(match value.fract() == 0.0 && value.abs() < WHOLE {
        true => Meaning::Int(value as i128),
        false => Meaning::Float(value),
    })
}

fn int(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x', ..] => (16, &digits[2..]),
        [b'0', b'o', ..] => (8, &digits[2..]),
        [b'0', b'b', ..] => (2, &digits[2..]),
        // Octal in YAML 1.1, as file modes are written.
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // from_str_radix would accept a second sign.
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    Some(if negative { -value } else { value })
}

fn float(text: &str) -> Option<f64> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Some(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
        _ => {}
    }
    let numeric = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    let has_digit = text.bytes().any(|b| b.is_ascii_digit());
    if !has_digit || !text.bytes().all(numeric) || text.starts_with(['e', 'E']) {
        return None;
    }
    text.parse().ok()
}

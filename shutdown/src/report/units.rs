//! Serialization of durations as numbers, with the unit in the field's name.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use winddown_shared::millis;

/// Defines a type for `#[serde(with)]` that has the schema of a number. Takes the JSON type, and how to write
/// and read it.
macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($field:ty): $json:ty, $write:expr, $read:expr) => {
        $(#[$doc])*
        pub struct $name;

        impl $name {
            #[allow(clippy::ptr_arg, reason = "serde passes a reference to the field's own type")]
            /// Writes the field.
            ///
            /// # Errors
            /// Those of the serializer.
            pub fn serialize<S: Serializer>(field: &$field, to: S) -> Result<S::Ok, S::Error> {
                let json: $json = $write(field);
                json.serialize(to)
            }

            /// Reads the field.
            ///
            /// # Errors
            /// The number is out of range, or there is none.
            pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$field, D::Error> {
                $read(<$json>::deserialize(from)?)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$json>::schema_name()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$json>::json_schema(generator)
            }
        }
    };
}

unit! {
    /// Seconds with three decimals.
    Seconds(Duration): f64, |field: &Duration| rounded(*field), read_seconds
}

unit! {
    /// Seconds with three decimals, or nothing.
    OptionalSeconds(Option<Duration>): Option<f64>,
    |field: &Option<Duration>| field.map(rounded),
    |json: Option<f64>| json.map(read_seconds).transpose()
}

unit! {
    /// Whole milliseconds, or nothing.
    OptionalMillis(Option<Duration>): Option<u64>,
    |field: &Option<Duration>| field.map(millis),
    |json: Option<u64>| Ok(json.map(Duration::from_millis))
}

unit! {
    /// A list of whole milliseconds.
    ListOfMillis(Vec<Duration>): Vec<u64>,
    |field: &Vec<Duration>| field.iter().copied().map(millis).collect(),
    |json: Vec<u64>| Ok(json.into_iter().map(Duration::from_millis).collect())
}

/// Durations from here on are stored in whole seconds, because an `f64` has no exact thousandths there. logind's
/// `infinity` is longer.
const WHOLE_SECONDS_FROM: Duration = Duration::from_secs(1 << 40);

fn rounded(duration: Duration) -> f64 {
    let seconds = duration.as_secs_f64();
    if duration < WHOLE_SECONDS_FROM {
        (seconds * 1000.0).round() / 1000.0
    } else {
        seconds.trunc()
    }
}

/// Reads seconds and rounds them as [`rounded`] does, so that numbers from other writers round-trip too.
fn read_seconds<E: serde::de::Error>(seconds: f64) -> Result<Duration, E> {
    let read = Duration::try_from_secs_f64(seconds).map_err(E::custom)?;
    if read >= WHOLE_SECONDS_FROM {
        return Ok(Duration::from_secs(read.as_secs()));
    }
    let millis = (read + Duration::from_micros(500)).as_millis();
    u64::try_from(millis).map(Duration::from_millis).map_err(E::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Json = serde_json::Error;

    #[test]
    fn what_was_read_is_written_and_read_again_as_it_is() {
        let read = |seconds| read_seconds::<Json>(seconds).unwrap();
        assert_eq!(read(32.077_777_777), Duration::from_millis(32_078));
        assert_eq!(read(0.000_4), Duration::ZERO);
        for seconds in [0.0, 0.001, 32.077_777_777, 1e9 + 0.123_4, 1.099e12 + 0.7, 1.8e13, 1e19] {
            let first = read(seconds);
            assert_eq!(read(rounded(first)), first, "{seconds}");
        }
        assert!(read_seconds::<Json>(-1.0).is_err() && read_seconds::<Json>(1e300).is_err());
    }
}

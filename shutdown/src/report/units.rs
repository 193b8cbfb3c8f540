//! Durations as numbers with the unit in the field's name.

use std::time::Duration;

/// Seconds with three decimals.
pub(super) mod seconds {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Duration, read_seconds, rounded};

    pub(in super::super) fn serialize<S: Serializer>(
        duration: &Duration,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_f64(rounded(*duration))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Duration, D::Error> {
        read_seconds(f64::deserialize(from)?)
    }
}

/// Seconds with three decimals, or nothing.
pub(super) mod optional_seconds {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Duration, read_seconds, rounded};

    pub(in super::super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => to.serialize_f64(rounded(*duration)),
            None => to.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<f64>::deserialize(from)?.map(read_seconds).transpose()
    }
}

/// Whole milliseconds, any number of them.
pub(super) mod list_of_millis {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Duration;

    pub(in super::super) fn serialize<S: Serializer>(
        durations: &[Duration],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(durations.iter().map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Duration>, D::Error> {
        let read = Vec::<u64>::deserialize(from)?;
        Ok(read.into_iter().map(Duration::from_millis).collect())
    }
}

/// Whole milliseconds, or nothing.
pub(super) mod optional_millis {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Duration;

    pub(in super::super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(d) => to.serialize_u64(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
            None => to.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
    }
}

/// From here on a number has no exact thousandths. logind's `infinity` is above it.
const COARSE: Duration = Duration::from_secs(1 << 40);

fn rounded(duration: Duration) -> f64 {
    let seconds = duration.as_secs_f64();
    if duration < COARSE { (seconds * 1000.0).round() / 1000.0 } else { seconds.trunc() }
}

/// Rounds what it reads as [`rounded`] does, so that a number from another writer round-trips.
fn read_seconds<E: serde::de::Error>(seconds: f64) -> Result<Duration, E> {
    let read = Duration::try_from_secs_f64(seconds).map_err(E::custom)?;
    if read >= COARSE {
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

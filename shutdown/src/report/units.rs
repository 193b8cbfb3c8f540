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

fn rounded(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

fn read_seconds<E: serde::de::Error>(seconds: f64) -> Result<Duration, E> {
    Duration::try_from_secs_f64(seconds).map_err(E::custom)
}

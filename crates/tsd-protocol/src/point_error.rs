//! Why a well-formed point cannot be stored, in OpenTSDB's words.
//!
//! Telnet prefixes these texts with `illegal argument: `; HTTP shows them as they are.

use tsd_model::{
    NameEncodeError, NameError, NameRole, NameRule, PointValue, decode_latin1, java_byte_list,
};

use crate::{TagPairs, java_map::JavaMapText};

/// A point that no table can take. `Display` is the text that clients see.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PointError {
    /// The value overflows a double.
    #[error("value is NaN or Infinite: {value} for metric={metric} timestamp={timestamp}")]
    NotFinite {
        /// `Infinity`, `-Infinity` or `NaN`.
        value: &'static str,
        /// Metric of the point.
        metric: String,
        /// Time as given.
        timestamp: i64,
    },
    /// The time has more than 13 digits.
    #[error(
        "bad timestamp={timestamp} when trying to add value={value} to metric={metric}, tags={tags}"
    )]
    BadTimestamp {
        /// Time as given.
        timestamp: i64,
        /// The value's bytes and flags, as `[42]/0`.
        value: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// A point without tags.
    #[error("Need at least one tag (metric={metric}, tags={{}})")]
    NoTags {
        /// Metric of the point.
        metric: String,
    },
    /// More tags than `tsd.storage.max_tags`.
    #[error("Too many tags: {count} maximum allowed: {allowed}, tags: {tags}")]
    TooManyTags {
        /// How many there are.
        count: usize,
        /// How many there may be.
        allowed: usize,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// A name that is empty or has a character names may not have.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A tag whose value is `null`.
    #[error("Invalid tag value with key [{key}]: null")]
    NullTagValue {
        /// The tag's key.
        key: String,
    },
    /// A name with a letter that tables cannot hold.
    #[error(transparent)]
    NotLatin1(#[from] NameEncodeError),
}

/// What the configuration says about the names of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRules {
    /// Most tags of a point (`tsd.storage.max_tags`).
    pub max_tags: usize,
    /// Which characters names may have.
    pub names: NameRule,
}

impl Default for SeriesRules {
    fn default() -> Self {
        Self { max_tags: 8, names: NameRule::default() }
    }
}

impl SeriesRules {
    /// The rules of a configuration.
    #[must_use]
    pub fn new(max_tags: usize, special_characters: &str) -> Self {
        Self { max_tags, names: NameRule::with_special_characters(special_characters) }
    }

    /// Checks a series, given in ISO-8859-1, as OpenTSDB does and in its order.
    pub fn check(&self, metric: &[u8], tags: &TagPairs<'_>) -> Result<(), PointError> {
        let metric = decode_latin1(metric);
        if tags.is_empty() {
            return Err(PointError::NoTags { metric });
        }
        if tags.len() > self.max_tags {
            return Err(PointError::TooManyTags {
                count: tags.len(),
                allowed: self.max_tags,
                tags: JavaMapText(tags).to_string(),
            });
        }
        self.names.check(NameRole::Metric, &metric)?;
        for (key, value) in tags {
            let (key, value) = (decode_latin1(key), decode_latin1(value));
            self.names.check(NameRole::TagKey(&value), &key)?;
            self.names.check(NameRole::TagValue(&key), &value)?;
        }
        Ok(())
    }
}

impl PointError {
    /// The fault of a value that overflowed.
    pub(crate) fn not_finite(value: &'static str, metric: &[u8], timestamp: i64) -> Self {
        Self::NotFinite { value, metric: decode_latin1(metric), timestamp }
    }

    /// The fault of a time of more than 13 digits.
    pub(crate) fn bad_timestamp(
        timestamp: i64,
        value: PointValue,
        metric: &[u8],
        tags: &TagPairs<'_>,
    ) -> Self {
        let (flags, bytes) = value.encode();
        let value = format!("{}/{}", java_byte_list(&bytes), flags.bits());
        Self::bad_timestamp_of(timestamp, value, metric, tags)
    }

    /// The same where the value is that of a cell other than a point.
    pub(crate) fn bad_timestamp_of_bytes(
        timestamp: i64,
        value: &[u8],
        metric: &[u8],
        tags: &TagPairs<'_>,
    ) -> Self {
        let value = format!("{}/0", java_byte_list(value));
        Self::bad_timestamp_of(timestamp, value, metric, tags)
    }

    fn bad_timestamp_of(timestamp: i64, value: String, metric: &[u8], tags: &TagPairs<'_>) -> Self {
        Self::BadTimestamp {
            timestamp,
            value,
            metric: decode_latin1(metric),
            tags: JavaMapText(tags).to_string(),
        }
    }
}

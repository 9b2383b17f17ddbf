//! Errors of well-formed points that cannot be stored. `Display` is OpenTSDB's text.
//!
//! Telnet prefixes these texts with `illegal argument: `; HTTP shows them unchanged.

use tsd_model::{
    NameEncodeError, NameError, NameRole, NameRule, PointValue, Timestamp, TimestampError,
    decode_latin1, java_byte_list,
};

use crate::{TagPairs, java_map::JavaMapText};

/// A point that cannot be stored.
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
        /// Time as sent.
        timestamp: i64,
    },
    /// The time has more than 13 digits.
    #[error(
        "bad timestamp={timestamp} when trying to add value={value} to metric={metric}, tags={tags}"
    )]
    BadTimestamp {
        /// Time as sent.
        timestamp: i64,
        /// The value's bytes and flags, as `[42]/0`.
        value: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// The time is after the last time that a row key can have.
    #[error(transparent)]
    AfterLastTime(TimestampError),
    /// A point without tags.
    #[error("Need at least one tag (metric={metric}, tags={{}})")]
    NoTags {
        /// Metric of the point.
        metric: String,
    },
    /// More tags than `tsd.storage.max_tags`.
    #[error("Too many tags: {count} maximum allowed: {allowed}, tags: {tags}")]
    TooManyTags {
        /// Number of tags.
        count: usize,
        /// Maximum number of tags.
        allowed: usize,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// A name that is empty or has an illegal character.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A tag whose value is `null`.
    #[error("Invalid tag value with key [{key}]: null")]
    NullTagValue {
        /// The tag's key.
        key: String,
    },
    /// A name with a letter outside ISO-8859-1.
    #[error(transparent)]
    NotLatin1(#[from] NameEncodeError),
}

/// Rules for the names of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRules {
    /// Maximum tags of a point (`tsd.storage.max_tags`).
    pub max_tags: usize,
    /// Characters allowed in names.
    pub names: NameRule,
}

impl Default for SeriesRules {
    fn default() -> Self {
        Self { max_tags: 8, names: NameRule::default() }
    }
}

impl SeriesRules {
    /// Creates the rules of a configuration.
    #[must_use]
    pub fn new(max_tags: usize, special_characters: &str) -> Self {
        Self { max_tags, names: NameRule::with_special_characters(special_characters) }
    }

    /// Validates a series, in ISO-8859-1, in OpenTSDB's order of checks.
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
    /// Returns the error for a value that overflows.
    pub(crate) fn not_finite(value: &'static str, metric: &[u8], timestamp: i64) -> Self {
        Self::NotFinite { value, metric: decode_latin1(metric), timestamp }
    }

    /// Returns the error for a time that no point can have.
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

    /// Like [`Self::bad_timestamp`], for the value of a cell other than a point.
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
        match Timestamp::try_new(timestamp) {
            Err(error @ TimestampError::AfterLast(_)) => Self::AfterLastTime(error),
            _ => Self::BadTimestamp {
                timestamp,
                value,
                metric: decode_latin1(metric),
                tags: JavaMapText(tags).to_string(),
            },
        }
    }
}

//! `put <metric> <timestamp> <value> <tagk>=<tagv> …`
//!
//! At millions of lines per second, nearly all lines have a cached series. So parsing has two stages.
//! [`PutLine::parse`] parses metric, time and value and keeps the tags raw. [`PutLine::tags`] parses
//! the tags only if `metric` and `tags_raw` are not cached. OpenTSDB checks the syntax of tags
//! *before* the value, so on any error the whole line is parsed again in OpenTSDB's order.

use tsd_model::{
    InputFormat, PointValue, Timestamp, TimestampTextError, ValueTextError, parse_common_value,
    parse_point_value, parse_telnet_timestamp,
};

use super::put_line_error::PutLineError;
use crate::{
    Latin1, PointError, SeriesRules, TagPairs, java_map::JavaMapText, tag_pairs::TagCollector,
};

/// One `put` line, as slices of the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PutLine<'l> {
    /// Metric, in ISO-8859-1. Not empty; its characters are not validated yet.
    pub metric: &'l [u8],
    /// Time, above zero.
    pub timestamp: Timestamp,
    /// Value, finite.
    pub value: PointValue,
    /// The raw tags: the rest of the line. Metric and tags are the key of the series cache.
    pub tags_raw: &'l [u8],
}

impl<'l> PutLine<'l> {
    /// Parses a whole line, including the command. Parses the tags only to report errors in order.
    #[inline]
    pub fn parse(line: &'l [u8]) -> Result<Self, PutLineError> {
        match Self::parse_plain(line) {
            Some(point) => Ok(point),
            None => Self::parse_in_order(line),
        }
    }

    /// Fast path for valid lines. `None` carries no reason; [`Self::parse`] finds it. Returns an `Option`,
    /// since a point inside a result with errors is copied once more.
    #[inline]
    #[must_use]
    pub fn parse_plain(line: &'l [u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"put ")?;
        let (metric, rest) = split_word(rest)?;
        let (time, rest) = split_word(rest)?;
        let (value, tags_raw) = split_word(rest)?;
        if metric.is_empty() || value.is_empty() {
            return None;
        }
        let timestamp = Timestamp::try_new(parse_telnet_timestamp(time).ok()?).ok()?;
        let value = match parse_common_value(value, InputFormat::Telnet) {
            Some(value) => value,
            None => parse_uncommon_value(value)?,
        };
        Some(Self { metric, timestamp, value, tags_raw })
    }

    /// Parses with every check in OpenTSDB's order.
    #[cold]
    fn parse_in_order(line: &'l [u8]) -> Result<Self, PutLineError> {
        let mut words = line.splitn(5, |b| *b == b' ');
        let (Some(_), Some(metric), Some(time), Some(value), Some(tags_raw)) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            let got = memchr::memchr_iter(b' ', line).count();
            return Err(PutLineError::NotEnoughArguments { needed: 4, got });
        };
        Self::check_words(metric, time, value, tags_raw)
    }

    /// Checks the words after their count; shared with `rollup`.
    pub(super) fn check_words(
        metric: &'l [u8],
        time: &[u8],
        value: &[u8],
        tags_raw: &'l [u8],
    ) -> Result<Self, PutLineError> {
        if metric.is_empty() {
            return Err(PutLineError::EmptyMetric);
        }
        let time = parse_time(time)?;
        if value.is_empty() {
            return Err(PutLineError::EmptyValue);
        }
        let tags = parse_tags(tags_raw)?;
        let value = parse_value(value, metric, time)?;
        let timestamp = Timestamp::try_new(time)
            .map_err(|_| PointError::bad_timestamp(time, value, metric, &tags))?;
        Ok(Self { metric, timestamp, value, tags_raw })
    }

    /// Parses and validates the tags; also validates the metric. For series that are not cached.
    pub fn tags(&self, rules: &SeriesRules) -> Result<TagPairs<'l>, PutLineError> {
        let tags = parse_tags(self.tags_raw)?;
        rules.check(self.metric, &tags)?;
        Ok(tags)
    }
}

/// Parses a value in an unusual but valid form.
#[inline(never)]
fn parse_uncommon_value(text: &[u8]) -> Option<PointValue> {
    parse_point_value(text, InputFormat::Telnet).ok()
}

/// Splits at the next blank.
#[inline]
fn split_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = find_blank(text)?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

/// Returns the position of the first blank. Words are short, so eight bytes at a time cost less than a call.
#[inline]
fn find_blank(text: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    const BLANKS: u64 = 0x2020_2020_2020_2020;
    let (words, rest) = text.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        // The lowest top bit marks the first blank; higher top bits may be wrong.
        let difference = u64::from_le_bytes(*word) ^ BLANKS;
        let blanks = difference.wrapping_sub(ONES) & !difference & TOPS;
        if blanks != 0 {
            return Some(at * 8 + blanks.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| *byte == b' ')?;
    Some(words.len() * 8 + at)
}

/// Parses the time of a telnet line.
pub(super) fn parse_time(text: &[u8]) -> Result<i64, PutLineError> {
    parse_telnet_timestamp(text).map_err(|e| match e {
        TimestampTextError::NotPositive(timestamp) => PutLineError::InvalidTimestamp { timestamp },
        other => PutLineError::TimestampText(other),
    })
}

/// Parses the value of a telnet line, which must be finite.
pub(super) fn parse_value(
    text: &[u8],
    metric: &[u8],
    timestamp: i64,
) -> Result<PointValue, PutLineError> {
    parse_point_value(text, InputFormat::Telnet).map_err(|e| match e {
        ValueTextError::NotFinite(value) => PointError::not_finite(value, metric, timestamp).into(),
        other => PutLineError::ValueText(other),
    })
}

/// Parses the tags of a telnet line: words `k=v`. Empty words and repeated pairs are ignored.
pub fn parse_tags(tags_raw: &[u8]) -> Result<TagPairs<'_>, PutLineError> {
    let mut tags = TagCollector::default();
    for word in tags_raw.split(|b| *b == b' ').filter(|word| !word.is_empty()) {
        let mut sides = word.split(|b| *b == b'=');
        let (Some(key), Some(value), None) = (sides.next(), sides.next(), sides.next()) else {
            return Err(PutLineError::InvalidTag { word: Latin1(word).to_string() });
        };
        if key.is_empty() || value.is_empty() {
            return Err(PutLineError::InvalidTag { word: Latin1(word).to_string() });
        }
        if tags.insert(key, value).is_some_and(|given| *given != value) {
            return Err(PutLineError::DuplicateTag {
                word: Latin1(word).to_string(),
                tags: JavaMapText(&tags.finish()).to_string(),
            });
        }
    }
    Ok(tags.finish())
}

#[cfg(test)]
mod tests;

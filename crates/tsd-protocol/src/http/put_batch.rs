//! The points of one put body.
//!
//! A body is read whole before anything is stored, since one syntax error anywhere refuses all of
//! it. What is kept of a point is small: its series as text (metric, then keys and values, in
//! ISO-8859-1, with [`SERIES_SEPARATOR`] between them), its time and its value. The series text is
//! made for a cache: the same spelling always gives the same bytes, and only when the cache does
//! not know them are they taken apart and checked ([`HttpPoint::series_names`]).
//!
//! A point that is refused later is read again from the body to be shown to the client, so a
//! million good points cost nothing for that.

use std::ops::Range;

use tsd_model::{
    Entrance, NameError, NameRole, NameRule, PointValue, Timestamp, ValueTextError, encode_latin1,
    parse_point_value,
};

use super::{
    point_fields::{PointFields, RawTags},
    put_error::{PutBodyError, PutPointError},
};
use crate::{
    PointFault, SeriesRules, TagPairs,
    json::{JsonError, JsonFault, JsonReader, RawText},
    tag_pairs::TagCollector,
};

/// Stands between the names of a series text. No name may contain it.
pub const SERIES_SEPARATOR: u8 = 1;

/// The points of one body, or of several. Reuse it: it keeps its allocations.
#[derive(Debug, Default)]
pub struct PutBatch {
    series: Vec<u8>,
    points: Vec<Point>,
    refused: Vec<RefusedPoint>,
}

#[derive(Debug)]
struct Point {
    series: Range<u32>,
    offset: u32,
    timestamp: Timestamp,
    value: PointValue,
}

/// One point that can be stored if its series can.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HttpPoint<'b> {
    /// Metric, then tag keys and values as given, separated by [`SERIES_SEPARATOR`].
    pub series: &'b [u8],
    /// Time, above zero.
    pub timestamp: Timestamp,
    /// Value, finite.
    pub value: PointValue,
    /// Where the point stands in the body.
    pub offset: u32,
}

/// One point that cannot be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedPoint {
    /// Where the point stands in the body.
    pub offset: u32,
    /// Why.
    pub error: PutPointError,
}

/// A tag that every point of a body is to carry besides its own (`tsd.http.header_tag`). It wins
/// over a point's tag of the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonTag {
    series_tail: Vec<u8>,
}

impl CommonTag {
    /// Reads the value of the header: `k=v`. `None` if it is not that, or not ISO-8859-1.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let (key, value) = header.trim().split_once('=')?;
        if key.is_empty() || value.is_empty() || value.contains('=') {
            return None;
        }
        let mut series_tail = Vec::new();
        for name in [key, value] {
            series_tail.push(SERIES_SEPARATOR);
            if !push_chars(&mut series_tail, name.chars()) {
                return None;
            }
        }
        Some(Self { series_tail })
    }
}

impl PutBatch {
    /// Forgets the points and keeps the memory.
    pub fn clear(&mut self) {
        self.series.clear();
        self.points.clear();
        self.refused.clear();
    }

    /// Reads a body. On an error no point of it is to be stored.
    pub fn read(&mut self, body: &str, common: Option<&CommonTag>) -> Result<(), PutBodyError> {
        self.clear();
        let mut reader = JsonReader::new(body);
        match reader.peek_token() {
            None => return Err(PutBodyError::Blank),
            Some(b'{' | b'[') => {}
            Some(_) => return Err(PutBodyError::NotAContainer),
        }
        if u32::try_from(body.len()).is_err() {
            return Err(reader.fault(JsonFault::TooLarge).into());
        }
        if reader.take(b'[') {
            if reader.take(b']') {
                return Err(PutBodyError::NoPoints);
            }
            loop {
                self.read_element(&mut reader, common)?;
                if !reader.more(b']', "a comma or ] after a data point")? {
                    break;
                }
            }
        } else {
            self.read_element(&mut reader, common)?;
        }
        Ok(())
    }

    /// Reads a point, or the `null` in its place.
    #[inline]
    fn read_element(
        &mut self,
        reader: &mut JsonReader<'_>,
        common: Option<&CommonTag>,
    ) -> Result<(), JsonError> {
        let token = reader.peek_token();
        let offset = reader.offset() as u32;
        if token != Some(b'{') {
            return self.read_null(reader, offset);
        }
        let fields = PointFields::read(reader)?;
        let series_start = self.series.len();
        match self.convert(&fields, common) {
            Ok((timestamp, value)) => {
                let series = series_start as u32..self.series.len() as u32;
                self.points.push(Point { series, offset, timestamp, value });
            }
            Err(error) => {
                self.series.truncate(series_start);
                self.refused.push(RefusedPoint { offset, error });
            }
        }
        Ok(())
    }

    #[cold]
    fn read_null(&mut self, reader: &mut JsonReader<'_>, offset: u32) -> Result<(), JsonError> {
        match reader.scalar("data point")?.text() {
            None => {
                self.refused.push(RefusedPoint { offset, error: PutPointError::NullPoint });
                Ok(())
            }
            Some(_) => Err(reader.fault_at(
                offset as usize,
                JsonFault::WrongType { field: "data point", found: "a number or text" },
            )),
        }
    }

    /// Checks a point in OpenTSDB's order and appends its series text.
    #[inline]
    fn convert(
        &mut self,
        fields: &PointFields<'_>,
        common: Option<&CommonTag>,
    ) -> Result<(Timestamp, PointValue), PutPointError> {
        let metric =
            fields.metric.filter(|m| !m.raw.is_empty()).ok_or(PutPointError::EmptyMetric)?;
        if fields.timestamp <= 0 {
            return Err(PutPointError::InvalidTimestamp);
        }
        let value = fields.value.filter(|v| !v.raw.is_empty()).ok_or(PutPointError::EmptyValue)?;
        let tags = fields.tags.as_ref().filter(|tags| !tags.is_empty());
        let tags = tags.ok_or(PutPointError::MissingTags)?;
        let parsed = parse_value(value);
        let (Ok(value), Ok(timestamp)) = (&parsed, Timestamp::try_new(fields.timestamp)) else {
            return Err(explain(metric, tags, fields.timestamp, parsed));
        };
        self.push_series(metric, tags)?;
        if let Some(tag) = common {
            self.series.extend_from_slice(&tag.series_tail);
        }
        Ok((timestamp, *value))
    }

    #[inline]
    fn push_series(&mut self, metric: RawText<'_>, tags: &RawTags<'_>) -> Result<(), PointFault> {
        if !push_name(&mut self.series, metric) {
            return Err(unstorable(NameRole::Metric, metric));
        }
        for (key, value) in tags {
            let Some(value) = value else {
                return Err(PointFault::NullTagValue { key: key.to_owned_string() });
            };
            self.series.push(SERIES_SEPARATOR);
            if !push_name(&mut self.series, *key) {
                return Err(unstorable(NameRole::TagKey(&value.to_owned_string()), *key));
            }
            self.series.push(SERIES_SEPARATOR);
            if !push_name(&mut self.series, *value) {
                return Err(unstorable(NameRole::TagValue(&key.to_owned_string()), *value));
            }
        }
        Ok(())
    }

    /// Points that can be stored, in the order of the body.
    pub fn points(&self) -> impl ExactSizeIterator<Item = HttpPoint<'_>> {
        self.points.iter().map(|point| HttpPoint {
            series: self
                .series
                .get(point.series.start as usize..point.series.end as usize)
                .unwrap_or_default(),
            timestamp: point.timestamp,
            value: point.value,
            offset: point.offset,
        })
    }

    /// Points that cannot be stored, in the order of the body.
    #[must_use]
    pub fn refused(&self) -> &[RefusedPoint] {
        &self.refused
    }
}

impl<'b> HttpPoint<'b> {
    /// Takes the series text apart and checks it. For series that are in no cache.
    pub fn series_names(
        &self,
        rules: &SeriesRules,
    ) -> Result<(&'b [u8], TagPairs<'b>), PointFault> {
        let (metric, tags) = split_series(self.series);
        rules.check(metric, &tags)?;
        Ok((metric, tags))
    }
}

/// Takes a series text apart: metric, and tags in the order of a Java hash map. Of a repeated key
/// the last value counts.
#[must_use]
pub fn split_series(series: &[u8]) -> (&[u8], TagPairs<'_>) {
    let mut names = series.split(|b| *b == SERIES_SEPARATOR);
    let metric = names.next().unwrap_or_default();
    let mut tags = TagCollector::default();
    while let (Some(key), Some(value)) = (names.next(), names.next()) {
        if let Some(given) = tags.insert(key, value) {
            *given = value;
        }
    }
    (metric, tags.finish())
}

#[inline]
fn parse_value(value: RawText<'_>) -> Result<PointValue, ValueTextError> {
    if value.plain {
        parse_point_value(value.raw, Entrance::Http)
    } else {
        parse_point_value(value.to_owned_string().as_bytes(), Entrance::Http)
    }
}

/// Why value or time of an otherwise complete point is refused.
#[cold]
fn explain(
    metric: RawText<'_>,
    tags: &RawTags<'_>,
    timestamp: i64,
    value: Result<PointValue, ValueTextError>,
) -> PutPointError {
    let mut series = Vec::new();
    push_lossy(&mut series, metric);
    for (key, tag) in tags {
        for name in [Some(*key), *tag] {
            series.push(SERIES_SEPARATOR);
            if let Some(name) = name {
                push_lossy(&mut series, name);
            }
        }
    }
    let (metric, tags) = split_series(&series);
    match value {
        Ok(value) => PointFault::bad_timestamp(timestamp, value, metric, &tags).into(),
        Err(ValueTextError::NotFinite(value)) => {
            PointFault::not_finite(value, metric, timestamp).into()
        }
        Err(_) => PutPointError::UnreadableValue,
    }
}

/// Why a name has no bytes: its character is illegal, or legal and beyond ISO-8859-1.
#[cold]
fn unstorable(role: NameRole<'_>, name: RawText<'_>) -> PointFault {
    let name = name.to_owned_string();
    match (NameRule::default().check(role, &name), encode_latin1(&name)) {
        (Ok(()), Err(letter)) => letter.into(),
        (Err(illegal), _) => illegal.into(),
        // Not reached: such a name is appended.
        (Ok(()), Ok(_)) => NameError::Empty { what: "name".to_owned() }.into(),
    }
}

/// Appends a name in ISO-8859-1; false if a character has no place there.
#[inline]
fn push_name(series: &mut Vec<u8>, name: RawText<'_>) -> bool {
    if name.plain {
        series.extend_from_slice(name.raw);
        return true;
    }
    push_chars(series, name.chars())
}

fn push_chars(series: &mut Vec<u8>, mut chars: impl Iterator<Item = char>) -> bool {
    chars.all(|c| match u8::try_from(c) {
        Ok(b) if b != SERIES_SEPARATOR => {
            series.push(b);
            true
        }
        _ => false,
    })
}

fn push_lossy(series: &mut Vec<u8>, name: RawText<'_>) {
    series.extend(name.chars().map(|c| match u8::try_from(c) {
        Ok(b) if b != SERIES_SEPARATOR => b,
        _ => b'?',
    }));
}

#[cfg(test)]
mod tests;

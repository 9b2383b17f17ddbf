//! Parses the points of one put body.
//!
//! The whole body is parsed before anything is stored, since one syntax error rejects all of it.
//! A parsed point is small: its names (metric, keys and values, in ISO-8859-1, separated by
//! [`NAME_SEPARATOR`]), its time and its value. The names are a cache key: equal spellings give
//! equal bytes. Only on a cache miss are they parsed and validated ([`HttpPoint::tags`]).
//!
//! The response parses a rejected point again from the body to echo it, so valid points have no
//! overhead.

use tsd_model::{
    InputFormat, NameError, NameRole, NameRule, PointValue, Timestamp, ValueTextError,
    decode_latin1, encode_latin1, parse_point_value,
};

use super::{
    parse_memory::{ParseMemory, grow, take_element, take_rejected},
    point_fields::{PointFields, RawTags},
    put_error::{PutBodyError, PutPointError},
};
use crate::{
    PointError, SeriesRules, TagPairs,
    json::{JsonError, JsonErrorKind, JsonReader, Scalar},
    tag_pairs::TagCollector,
};

/// Separates the names in [`HttpPoint::tags_raw`]. Neither a name nor a telnet line can contain it:
/// both protocols share a cache, in which their keys must differ.
pub const NAME_SEPARATOR: u8 = b'\n';

/// The points of one body. Keeps its allocations for the next body.
#[derive(Debug, Default)]
pub struct PutBatch {
    names: Vec<u8>,
    points: Vec<BatchPoint>,
    rejected: Vec<RejectedPoint>,
}

#[derive(Debug)]
struct BatchPoint {
    // Where the metric starts in `names`, the tags start, and the tags end.
    names: [u32; 3],
    offset: u32,
    timestamp: Timestamp,
    value: PointValue,
}

/// A parsed point. Its names are not validated yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HttpPoint<'b> {
    /// Metric, in ISO-8859-1. Not empty; its characters are not validated yet.
    pub metric: &'b [u8],
    /// Time, above zero.
    pub timestamp: Timestamp,
    /// Value, finite.
    pub value: PointValue,
    /// Tag keys and values as sent, in ISO-8859-1, separated by [`NAME_SEPARATOR`]. Metric and tags
    /// are the key of the series cache.
    pub tags_raw: &'b [u8],
    /// Offset of the point in the body.
    pub offset: u32,
}

/// A rejected point.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedPoint {
    /// Offset of the point in the body.
    pub offset: u32,
    /// The reason.
    pub error: PutPointError,
}

/// A tag added to every point of a body (`tsd.http.header_tag`). A point that has its key with another
/// value is rejected: replacing the value would store the point in a series that its sender did not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonTag {
    /// Key and value, each after a [`NAME_SEPARATOR`].
    names: Vec<u8>,
    /// Length of separator, key and separator in `names`.
    key_len: usize,
}

impl CommonTag {
    /// Parses a header value `k=v`. `None` if it is invalid or not ISO-8859-1.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let (key, value) = header.trim().split_once('=')?;
        if key.is_empty() || value.is_empty() || value.contains('=') {
            return None;
        }
        let mut names = vec![NAME_SEPARATOR];
        if !push_chars(&mut names, key.chars()) {
            return None;
        }
        names.push(NAME_SEPARATOR);
        let key_len = names.len();
        push_chars(&mut names, value.chars()).then_some(Self { names, key_len })
    }

    /// Fails if `names`, a tag of a point, has the same key and another value.
    #[inline]
    fn check(&self, names: &[u8]) -> Result<(), PutPointError> {
        let key = self.names.get(..self.key_len).unwrap_or_default();
        if !names.starts_with(key) || names == self.names {
            return Ok(());
        }
        let pair = |names: &[u8]| {
            let mut words = names.split(|b| *b == NAME_SEPARATOR).skip(1).map(decode_latin1);
            format!("{}={}", words.next().unwrap_or_default(), words.next().unwrap_or_default())
        };
        Err(PutPointError::HeaderTag { sent: pair(names), header: pair(&self.names) })
    }
}

impl PutBatch {
    /// Removes the points and keeps the allocations.
    pub fn clear(&mut self) {
        self.names.clear();
        self.points.clear();
        self.rejected.clear();
    }

    /// Parses a body within the available memory. After an error, the caller must store no point.
    pub fn read(
        &mut self,
        body: &str,
        common: Option<&CommonTag>,
        memory: &mut dyn ParseMemory,
    ) -> Result<(), PutBodyError> {
        self.clear();
        let mut fields = PointFields::default();
        self.rejected = read_body(body, memory, |reader, offset, memory| {
            fields.read(reader)?;
            self.reserve(reader.offset() - offset as usize, common, memory)?;
            Ok(self.take(&fields, offset, common))
        })?;
        Ok(())
    }

    /// Reserves the memory of a point of `bytes` bytes.
    #[inline]
    pub(super) fn reserve(
        &mut self,
        bytes: usize,
        common: Option<&CommonTag>,
        memory: &mut dyn ParseMemory,
    ) -> Result<(), PutBodyError> {
        take_element(memory, bytes)?;
        grow(&mut self.names, names_bound(bytes, common), memory)?;
        grow(&mut self.points, 1, memory)
    }

    /// Adds a point if it is valid.
    #[inline]
    pub(super) fn take(
        &mut self,
        fields: &PointFields<'_>,
        offset: u32,
        common: Option<&CommonTag>,
    ) -> Result<(), PutPointError> {
        let start = self.names.len();
        match self.convert(fields, common) {
            Ok((timestamp, value, tags_at)) => {
                let names = [start, tags_at, self.names.len()].map(|at| at as u32);
                self.points.push(BatchPoint { names, offset, timestamp, value });
                Ok(())
            }
            Err(error) => {
                self.names.truncate(start);
                Err(error)
            }
        }
    }

    /// Validates a point in OpenTSDB's order and appends its names; returns where its tags start.
    #[inline]
    fn convert(
        &mut self,
        fields: &PointFields<'_>,
        common: Option<&CommonTag>,
    ) -> Result<(Timestamp, PointValue, usize), PutPointError> {
        let metric = fields.require(true)?;
        let value = fields.value.ok_or(PutPointError::EmptyValue)?;
        let tags = &fields.tags;
        let parsed = parse_value(value);
        let (Ok(value), Ok(timestamp)) = (&parsed, Timestamp::try_new(fields.timestamp)) else {
            return Err(value_or_time_error(metric, tags, fields.timestamp, &parsed));
        };
        let tags_at = push_names(&mut self.names, metric, tags, common)?;
        Ok((timestamp, *value, tags_at))
    }

    /// Returns the accepted points, in the order of the body.
    #[must_use]
    pub fn points(&self) -> impl ExactSizeIterator<Item = HttpPoint<'_>> {
        let names = |from: usize, to: usize| self.names.get(from..to).unwrap_or_default();
        self.points.iter().map(move |point| {
            let [start, tags_at, end] = point.names.map(|at| at as usize);
            HttpPoint {
                metric: names(start, tags_at - 1),
                timestamp: point.timestamp,
                value: point.value,
                tags_raw: names(tags_at, end),
                offset: point.offset,
            }
        })
    }

    /// Returns the rejected points, in the order of the body.
    #[must_use]
    pub fn rejected(&self) -> &[RejectedPoint] {
        &self.rejected
    }
}

impl<'b> HttpPoint<'b> {
    /// Parses and validates tags and metric. For series that are not cached.
    pub fn tags(&self, rules: &SeriesRules) -> Result<TagPairs<'b>, PointError> {
        let tags = split_names(self.tags_raw);
        rules.check(self.metric, &tags)?;
        Ok(tags)
    }
}

/// Returns the maximum bytes of the names of an element of `bytes` bytes: each name has a quote or a
/// separator around it.
pub(super) fn names_bound(bytes: usize, common: Option<&CommonTag>) -> usize {
    bytes + common.map_or(0, |tag| tag.names.len())
}

/// Reads the elements of a body and returns the rejected elements. `object` reads the element at an
/// offset; this function reads `null` elements.
///
/// A body has one or more documents, each an array or a single element: senders that write a point a
/// line mean all of them. White space may separate documents.
#[inline]
pub(super) fn read_body<'t>(
    body: &'t str,
    memory: &mut dyn ParseMemory,
    mut object: impl FnMut(
        &mut JsonReader<'t>,
        u32,
        &mut dyn ParseMemory,
    ) -> Result<Result<(), PutPointError>, PutBodyError>,
) -> Result<Vec<RejectedPoint>, PutBodyError> {
    let mut rejected = Vec::new();
    let mut element = |reader: &mut JsonReader<'t>| {
        let token = reader.peek_token();
        let offset = reader.offset() as u32;
        let point = if token == Some(b'{') {
            let result = object(reader, offset, &mut *memory)?;
            result.err().map(|error| RejectedPoint { offset, error })
        } else {
            Some(read_null(reader, offset)?)
        };
        if let Some(point) = point {
            take_rejected(memory, reader.offset() - offset as usize)?;
            rejected.push(point);
        }
        Ok::<_, PutBodyError>(())
    };
    let mut reader = JsonReader::new(body);
    match reader.peek_token() {
        None => return Err(PutBodyError::Blank),
        Some(b'{' | b'[') => {}
        Some(_) => return Err(PutBodyError::NotAContainer),
    }
    let mut is_empty = true;
    if u32::try_from(body.len()).is_err() {
        return Err(reader.error(JsonErrorKind::TooLarge).into());
    }
    while let Some(b'{' | b'[') = reader.peek_token() {
        let is_list = reader.take(b'[');
        if is_list && reader.take(b']') {
            continue;
        }
        is_empty = false;
        loop {
            element(&mut reader)?;
            if !is_list || !reader.more(b']', "a comma or ] after a data point")? {
                break;
            }
        }
    }
    reader.expect_end()?;
    if is_empty { Err(PutBodyError::NoPoints) } else { Ok(rejected) }
}

/// Reads a `null` element; any other value is an error of the body.
#[cold]
fn read_null(reader: &mut JsonReader<'_>, offset: u32) -> Result<RejectedPoint, JsonError> {
    match reader.scalar("data point")?.text() {
        None => Ok(RejectedPoint { offset, error: PutPointError::NullPoint }),
        Some(_) => Err(reader.error_at(
            offset as usize,
            JsonErrorKind::WrongType { field: "data point", found: "a number or text" },
        )),
    }
}

/// Appends metric and tags to `names`; returns where the tags start.
#[inline]
pub(super) fn push_names(
    names: &mut Vec<u8>,
    metric: Scalar<'_>,
    tags: &RawTags<'_>,
    common: Option<&CommonTag>,
) -> Result<usize, PutPointError> {
    if !push_name(names, metric) {
        return Err(name_error(NameRole::Metric, metric).into());
    }
    let tags_at = names.len() + 1;
    for (key, value) in tags {
        let Some(value) = value else {
            return Err(PointError::NullTagValue { key: key.to_owned_string() }.into());
        };
        let tag_at = names.len();
        names.push(NAME_SEPARATOR);
        if !push_name(names, *key) {
            return Err(name_error(NameRole::TagKey(&value.to_owned_string()), *key).into());
        }
        names.push(NAME_SEPARATOR);
        if !push_name(names, *value) {
            return Err(name_error(NameRole::TagValue(&key.to_owned_string()), *value).into());
        }
        if let Some(tag) = common {
            tag.check(names.get(tag_at..).unwrap_or_default())?;
        }
    }
    if let Some(tag) = common {
        names.extend_from_slice(&tag.names);
    }
    Ok(tags_at)
}

/// Parses [`HttpPoint::tags_raw`]: tags in the order of a Java hash map. The last value of a
/// repeated key wins.
pub(super) fn split_names(tags_raw: &[u8]) -> TagPairs<'_> {
    let mut names = tags_raw.split(|b| *b == NAME_SEPARATOR);
    let mut tags = TagCollector::default();
    while let (Some(key), Some(value)) = (names.next(), names.next()) {
        if let Some(given) = tags.insert(key, value) {
            *given = value;
        }
    }
    tags.finish()
}

#[inline]
fn parse_value(value: Scalar<'_>) -> Result<PointValue, ValueTextError> {
    match value.as_is() {
        Some(text) => parse_point_value(text, InputFormat::Http),
        None => parse_point_value(value.to_owned_string().as_bytes(), InputFormat::Http),
    }
}

/// Returns the error for the value or time of an otherwise complete point.
#[cold]
fn value_or_time_error(
    metric: Scalar<'_>,
    tags: &RawTags<'_>,
    timestamp: i64,
    value: &Result<PointValue, ValueTextError>,
) -> PutPointError {
    let metric: Vec<u8> = encode_lossy(metric).collect();
    let mut names = Vec::new();
    for (key, tag) in tags {
        names.extend(encode_lossy(*key));
        names.push(NAME_SEPARATOR);
        names.extend(tag.iter().flat_map(|tag| encode_lossy(*tag)));
        names.push(NAME_SEPARATOR);
    }
    names.pop();
    let (metric, tags) = (metric.as_slice(), split_names(&names));
    match value {
        Ok(value) => PointError::bad_timestamp(timestamp, *value, metric, &tags).into(),
        Err(ValueTextError::NotFinite(value)) => {
            PointError::not_finite(value, metric, timestamp).into()
        }
        Err(_) => PutPointError::UnreadableValue,
    }
}

/// Returns the error for a name that cannot be encoded: illegal characters, or legal ones outside
/// ISO-8859-1.
#[cold]
fn name_error(role: NameRole<'_>, name: Scalar<'_>) -> PointError {
    let name = name.to_owned_string();
    match (NameRule::default().check(role, &name), encode_latin1(&name)) {
        (Ok(()), Err(letter)) => letter.into(),
        (Err(illegal), _) => illegal.into(),
        // Not reached: such a name can be encoded.
        (Ok(()), Ok(_)) => NameError::Empty { what: "name".to_owned() }.into(),
    }
}

/// Appends a name in ISO-8859-1; false if it cannot be encoded.
#[inline]
fn push_name(names: &mut Vec<u8>, name: Scalar<'_>) -> bool {
    match name.as_is() {
        Some(text) => {
            names.extend_from_slice(text);
            true
        }
        None => push_chars(names, name.chars()),
    }
}

fn push_chars(names: &mut Vec<u8>, mut chars: impl Iterator<Item = char>) -> bool {
    chars.all(|c| match u8::try_from(c) {
        Ok(b) if b != NAME_SEPARATOR => {
            names.push(b);
            true
        }
        _ => false,
    })
}

/// Encodes a name in ISO-8859-1, with `?` for other characters.
fn encode_lossy(name: Scalar<'_>) -> impl Iterator<Item = u8> {
    name.chars().map(|c| u8::try_from(c).ok().filter(|b| *b != NAME_SEPARATOR).unwrap_or(b'?'))
}

#[cfg(test)]
mod tests;

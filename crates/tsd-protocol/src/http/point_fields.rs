//! The raw fields of one data point of a put body.

use smallvec::SmallVec;
use tsd_model::{
    TimestampTextError, parse_http_timestamp_number, parse_http_timestamp_string,
    sort_as_grown_hash_map,
};

use super::{
    extra_fields::{ExtraFields, NoExtraFields, write_text},
    put_error::PutPointError,
};
use crate::json::{JsonError, JsonErrorKind, JsonObject, JsonReader, Scalar, ScalarKind};

/// Tag pairs in the order of the body, repeated keys included.
pub(crate) type RawTags<'t> = SmallVec<[(Scalar<'t>, Option<Scalar<'t>>); 8]>;

/// Maximum tags of one point, as sent. Exceeds the largest `tsd.storage.max_tags`.
const MAX_MEMBERS: usize = 4_096;

/// One data point. Missing and `null` fields are equal.
#[derive(Debug, Default)]
pub(crate) struct PointFields<'t> {
    pub(crate) metric: Option<Scalar<'t>>,
    /// Zero if missing; as sent if invalid.
    pub(crate) timestamp: i64,
    pub(crate) value: Option<Scalar<'t>>,
    /// The pairs of `tags`; empty if the field is missing.
    pub(crate) tags: RawTags<'t>,
    has_tags: bool,
    tsuid: Option<Scalar<'t>>,
}

impl<'t> PointFields<'t> {
    /// Reads an object from its opening brace, replacing all fields. The last of repeated fields
    /// wins.
    #[inline]
    pub(crate) fn read(&mut self, reader: &mut JsonReader<'t>) -> Result<(), JsonError> {
        self.read_with(reader, &mut NoExtraFields)
    }

    /// Like [`Self::read`], with additional fields.
    #[inline]
    pub(crate) fn read_with(
        &mut self,
        reader: &mut JsonReader<'t>,
        extra: &mut impl ExtraFields<'t>,
    ) -> Result<(), JsonError> {
        self.metric = None;
        self.timestamp = 0;
        self.value = None;
        self.has_tags = false;
        self.tags.clear();
        self.tsuid = None;
        reader.expect(b'{', "a data point")?;
        if reader.take(b'}') {
            return Ok(());
        }
        loop {
            let key = reader.key()?;
            match key.raw {
                b"metric" => self.metric = reader.scalar("metric")?.text(),
                b"timestamp" => self.timestamp = read_timestamp(reader)?,
                b"value" => self.value = reader.scalar("value")?.text(),
                b"tags" => self.read_tags(reader)?,
                b"tsuid" => self.tsuid = reader.scalar("tsuid")?.text(),
                other => {
                    if !extra.take(other, reader)? {
                        reader.skip_value()?;
                    }
                }
            }
            if !reader.more(b'}', "a comma or } after a field")? {
                return Ok(());
            }
        }
    }

    #[inline]
    fn read_tags(&mut self, reader: &mut JsonReader<'t>) -> Result<(), JsonError> {
        self.tags.clear();
        self.has_tags = false;
        if !reader.take(b'{') {
            return match reader.scalar("tags")?.kind {
                ScalarKind::Null => Ok(()),
                _ => Err(reader.error(JsonErrorKind::WrongType { field: "tags", found: "a text" })),
            };
        }
        self.has_tags = true;
        if reader.take(b'}') {
            return Ok(());
        }
        loop {
            let key = reader.key()?;
            if self.tags.len() == MAX_MEMBERS {
                return Err(reader
                    .error(JsonErrorKind::TooManyMembers { field: "tags", most: MAX_MEMBERS }));
            }
            self.tags.push((key, reader.scalar("tags")?.text()));
            if !reader.more(b'}', "a comma or } after a tag")? {
                return Ok(());
            }
        }
    }

    /// Checks the required fields in OpenTSDB's order; `value` requires a value. Returns the
    /// metric.
    #[inline]
    pub(crate) fn require(&self, value: bool) -> Result<Scalar<'t>, PutPointError> {
        let metric = self.metric.filter(|m| !m.raw.is_empty()).ok_or(PutPointError::EmptyMetric)?;
        if self.timestamp <= 0 {
            return Err(PutPointError::InvalidTimestamp);
        }
        if value && self.value.is_none_or(|value| value.raw.is_empty()) {
            return Err(PutPointError::EmptyValue);
        }
        if self.tags.is_empty() {
            return Err(PutPointError::MissingTags);
        }
        Ok(metric)
    }

    /// Writes the point as received, for the `errors` of a response.
    pub(crate) fn echo(&self, extra: &impl ExtraFields<'t>, out: &mut Vec<u8>) {
        let mut object = JsonObject::open(out);
        if let Some(metric) = self.metric {
            write_text(object.key("metric"), metric);
        }
        object.literal("timestamp", self.timestamp);
        if let Some(value) = self.value {
            write_text(object.key("value"), value);
        }
        if self.has_tags {
            write_tags(object.key("tags"), &self.tags);
        }
        if let Some(tsuid) = self.tsuid {
            write_text(object.key("tsuid"), tsuid);
        }
        extra.echo(&mut object);
        object.close();
    }
}

/// Reads the time like OpenTSDB; a time that is not positive is kept for the error text.
#[inline]
fn read_timestamp(reader: &mut JsonReader<'_>) -> Result<i64, JsonError> {
    reader.peek_token();
    let start = reader.offset();
    let scalar = reader.scalar("timestamp")?;
    let read = match scalar.kind {
        ScalarKind::Number => parse_http_timestamp_number(scalar.raw),
        ScalarKind::Plain => parse_http_timestamp_string(scalar.raw),
        ScalarKind::Escaped => parse_http_timestamp_string(scalar.to_owned_string().as_bytes()),
        ScalarKind::Null => return Ok(0),
        ScalarKind::Bool => {
            let error = JsonErrorKind::WrongType { field: "timestamp", found: "a boolean" };
            return Err(reader.error_at(start, error));
        }
    };
    match read {
        Ok(timestamp) | Err(TimestampTextError::NotPositive(timestamp)) => Ok(timestamp),
        Err(_) => {
            let head = scalar.raw.get(..scalar.raw.len().min(64)).unwrap_or(scalar.raw);
            let text = String::from_utf8_lossy(head).into_owned();
            Err(reader.error_at(start, JsonErrorKind::NotAnInteger { text }))
        }
    }
}

/// Writes tags in the order of a Java hash map, with the last value of each key.
fn write_tags(out: &mut Vec<u8>, tags: &RawTags<'_>) {
    let mut pairs: Vec<(String, Option<Scalar<'_>>)> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for (key, value) in tags {
        let key = key.to_owned_string();
        if let Some((_, given)) = index.get(&key).and_then(|at: &usize| pairs.get_mut(*at)) {
            *given = *value;
        } else {
            index.insert(key.clone(), pairs.len());
            pairs.push((key, *value));
        }
    }
    sort_as_grown_hash_map(&mut pairs, |(key, _)| key);
    let mut object = JsonObject::open(out);
    for (key, value) in &pairs {
        match value {
            Some(text) => write_text(object.key(key), *text),
            None => object.key(key).extend_from_slice(b"null"),
        }
    }
    object.close();
}

//! The fields of one data point of a put body, as they stand in it.

use smallvec::SmallVec;
use tsd_model::{
    TimestampTextError, parse_http_timestamp_number, parse_http_timestamp_string,
    sort_as_grown_hash_map,
};

use crate::json::{
    JsonError, JsonFault, JsonObject, JsonReader, RawText, Scalar, write_json_chars,
};

/// Tag pairs in the order of the body; a repeated key is still there.
pub(crate) type RawTags<'t> = SmallVec<[(RawText<'t>, Option<RawText<'t>>); 8]>;

/// One data point. Absent and `null` fields are the same.
#[derive(Debug, Default)]
pub(crate) struct PointFields<'t> {
    pub(crate) metric: Option<RawText<'t>>,
    /// Zero if there is none, and as given if it is no good.
    pub(crate) timestamp: i64,
    pub(crate) value: Option<RawText<'t>>,
    pub(crate) tags: Option<RawTags<'t>>,
    tsuid: Option<RawText<'t>>,
}

impl<'t> PointFields<'t> {
    /// Reads an object whose brace was not consumed yet. Of repeated fields the last one counts.
    #[inline]
    pub(crate) fn read(reader: &mut JsonReader<'t>) -> Result<Self, JsonError> {
        let mut fields = Self::default();
        reader.expect(b'{', "a data point")?;
        if reader.take(b'}') {
            return Ok(fields);
        }
        loop {
            let key = reader.key()?;
            match key.raw {
                b"metric" => fields.metric = reader.scalar("metric")?.text(),
                b"timestamp" => fields.timestamp = read_timestamp(reader)?,
                b"value" => fields.value = reader.scalar("value")?.text(),
                b"tags" => fields.read_tags(reader)?,
                b"tsuid" => fields.tsuid = reader.scalar("tsuid")?.text(),
                _ => reader.skip_value()?,
            }
            if !reader.more(b'}', "a comma or } after a field")? {
                return Ok(fields);
            }
        }
    }

    #[inline]
    fn read_tags(&mut self, reader: &mut JsonReader<'t>) -> Result<(), JsonError> {
        if reader.peek_token() != Some(b'{') {
            return match reader.scalar("tags")? {
                Scalar::Null => {
                    self.tags = None;
                    Ok(())
                }
                _ => Err(reader.fault(JsonFault::WrongType { field: "tags", found: "a text" })),
            };
        }
        let tags = self.tags.insert(RawTags::new());
        reader.take(b'{');
        if reader.take(b'}') {
            return Ok(());
        }
        loop {
            let key = reader.key()?;
            tags.push((key, reader.scalar("tags")?.text()));
            if !reader.more(b'}', "a comma or } after a tag")? {
                return Ok(());
            }
        }
    }

    /// Writes the point as it was received, for the `errors` of a reply.
    pub(crate) fn echo(&self, out: &mut Vec<u8>) {
        let mut object = JsonObject::open(out);
        if let Some(metric) = self.metric {
            write_text(object.key("metric"), metric);
        }
        object.literal("timestamp", self.timestamp);
        if let Some(value) = self.value {
            write_text(object.key("value"), value);
        }
        if let Some(tags) = &self.tags {
            write_tags(object.key("tags"), tags);
        }
        if let Some(tsuid) = self.tsuid {
            write_text(object.key("tsuid"), tsuid);
        }
        object.close();
    }
}

/// The time as OpenTSDB reads it; what is not above zero is kept for the error to show.
#[inline]
fn read_timestamp(reader: &mut JsonReader<'_>) -> Result<i64, JsonError> {
    reader.peek_token();
    let start = reader.offset();
    let (read, raw) = match reader.scalar("timestamp")? {
        Scalar::Number(raw) => (parse_http_timestamp_number(raw), raw),
        Scalar::Text(text) if text.plain => (parse_http_timestamp_string(text.raw), text.raw),
        Scalar::Text(text) => {
            (parse_http_timestamp_string(text.to_owned_string().as_bytes()), text.raw)
        }
        Scalar::Null => return Ok(0),
        Scalar::Bool(_) => {
            let fault = JsonFault::WrongType { field: "timestamp", found: "a boolean" };
            return Err(reader.fault_at(start, fault));
        }
    };
    match read {
        Ok(timestamp) | Err(TimestampTextError::NotPositive(timestamp)) => Ok(timestamp),
        Err(_) => {
            let head = raw.get(..raw.len().min(64)).unwrap_or_default();
            let text = String::from_utf8_lossy(head).into_owned();
            Err(reader.fault_at(start, JsonFault::NotAnInteger { text }))
        }
    }
}

fn write_text(out: &mut Vec<u8>, text: RawText<'_>) {
    out.push(b'"');
    write_json_chars(out, text.chars());
    out.push(b'"');
}

/// Writes tags in the order of a Java hash map, the last one of each key.
fn write_tags(out: &mut Vec<u8>, tags: &RawTags<'_>) {
    let mut pairs: Vec<(String, Option<RawText<'_>>)> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for (key, value) in tags {
        let key = key.to_owned_string();
        match index.get(&key).and_then(|at: &usize| pairs.get_mut(*at)) {
            Some((_, given)) => *given = *value,
            None => {
                index.insert(key.clone(), pairs.len());
                pairs.push((key, *value));
            }
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

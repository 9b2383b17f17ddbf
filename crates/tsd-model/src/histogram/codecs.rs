//! Codecs of histograms: `tsd.core.histograms.config`.
//!
//! The first byte of a stored histogram is the id of its codec. The operator assigns ids in a JSON
//! object of class names and ids. OpenTSDB loads any class; this module has one codec, under the
//! class name of OpenTSDB's built-in codec.

use serde_json::Value;

use super::{HistogramError, SimpleHistogram};

/// The configured codecs, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramCodecs {
    simple: u8,
}

/// An invalid configuration of codecs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistogramCodecsError {
    /// Not a JSON object.
    #[error("not a JSON object of codec names and ids: {0}")]
    Json(String),
    /// An unknown codec.
    #[error("no histogram codec named {0}")]
    UnknownCodec(String),
    /// An id outside 0 to 127.
    #[error("id {id} of histogram codec {name} is not within 0 to 127")]
    Id {
        /// Name of the codec.
        name: String,
        /// The id as written.
        id: String,
    },
    /// No codec.
    #[error("no histogram codec is named")]
    Empty,
}

impl HistogramCodecs {
    /// Parses the JSON object. Ids above 127 are rejected: OpenTSDB writes them and cannot read them.
    pub fn from_json(json: &[u8]) -> Result<Self, HistogramCodecsError> {
        let Value::Object(ids) = serde_json::from_slice(json)
            .map_err(|error| HistogramCodecsError::Json(error.to_string()))?
        else {
            return Err(HistogramCodecsError::Json("another kind of value".to_owned()));
        };
        let mut simple = None;
        for (name, id) in ids {
            if name != SimpleHistogram::CODEC {
                return Err(HistogramCodecsError::UnknownCodec(name));
            }
            match id.as_u64().and_then(|id| u8::try_from(id).ok()) {
                Some(id @ 0..128) => simple = Some(id),
                _ => return Err(HistogramCodecsError::Id { name, id: id.to_string() }),
            }
        }
        Ok(Self { simple: simple.ok_or(HistogramCodecsError::Empty)? })
    }

    /// Configuration that assigns this id to the built-in codec.
    #[must_use]
    pub const fn simple(id: u8) -> Self {
        Self { simple: id }
    }

    /// Id of the built-in codec, [`SimpleHistogram`].
    #[must_use]
    pub const fn simple_id(&self) -> u8 {
        self.simple
    }

    /// True if a codec has this id.
    #[must_use]
    pub const fn knows(&self, id: u8) -> bool {
        self.simple == id
    }

    /// Decodes a cell value; `None` if its codec is unknown.
    #[must_use]
    pub fn decode(&self, value: &[u8]) -> Option<Result<SimpleHistogram, HistogramError>> {
        match value.first() {
            Some(id) if !self.knows(*id) => None,
            _ => Some(SimpleHistogram::decode(value).map(|(_, histogram)| histogram)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(json: &str) -> Result<u8, String> {
        HistogramCodecs::from_json(json.as_bytes())
            .map(|codecs| codecs.simple_id())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn ids_belong_to_codecs_that_exist() {
        assert_eq!(read(r#"{"net.opentsdb.core.SimpleHistogramDecoder": 42}"#), Ok(42));
        for (json, message) in [
            (r#"{"x.Y": 1}"#, "no histogram codec named x.Y"),
            (
                r#"{"net.opentsdb.core.SimpleHistogramDecoder": 128}"#,
                "id 128 of histogram codec net.opentsdb.core.SimpleHistogramDecoder is not within \
                 0 to 127",
            ),
            ("{}", "no histogram codec is named"),
            ("[]", "not a JSON object of codec names and ids: another kind of value"),
        ] {
            assert_eq!(read(json), Err(message.to_owned()));
        }
        assert!(read("{").is_err());
    }

    #[test]
    fn values_of_other_codecs_are_ignored() {
        let histogram = SimpleHistogram::parse("u=1:0,10=2").unwrap();
        let value = histogram.encode(7).unwrap();
        assert_eq!(HistogramCodecs::simple(7).decode(&value), Some(Ok(histogram)));
        assert_eq!(HistogramCodecs::simple(8).decode(&value), None);
        assert!(HistogramCodecs::simple(7).decode(&[]).unwrap().is_err());
    }
}

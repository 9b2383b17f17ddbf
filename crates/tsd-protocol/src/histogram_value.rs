//! Histograms as clients send them, and their stored encoding.

use tsd_model::{HistogramCodecs, HistogramError, SimpleHistogram};

/// A histogram as sent by a client.
#[derive(Clone, Debug, PartialEq)]
pub enum HistogramValue {
    /// Bytes in the encoding of a codec. The id is not validated yet.
    Encoded {
        /// Id of the codec.
        codec: i64,
        /// The bytes, decoded from base64.
        bytes: Vec<u8>,
    },
    /// Buckets and counts as text.
    Simple(SimpleHistogram),
}

/// Why a histogram cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistogramValueError {
    /// No codec has this id.
    #[error("No codec found mapped to ID {0}")]
    UnknownCodec(i64),
    /// The codec cannot decode the bytes.
    #[error(transparent)]
    Unreadable(#[from] HistogramError),
}

impl HistogramValue {
    /// Encodes the cell value: id of the codec and the histogram in its shortest form.
    pub fn encode(&self, codecs: &HistogramCodecs) -> Result<Vec<u8>, HistogramValueError> {
        match self {
            Self::Simple(histogram) => Ok(histogram.encode(codecs.simple_id())?),
            Self::Encoded { codec, bytes } => {
                let id = u8::try_from(*codec)
                    .ok()
                    .filter(|id| codecs.knows(*id))
                    .ok_or(HistogramValueError::UnknownCodec(*codec))?;
                Ok(SimpleHistogram::decode_payload(bytes)?.encode(id)?)
            }
        }
    }
}

/// Decodes base64 like Java: skips other characters and an incomplete group at the end.
pub(crate) fn decode_base64(text: &[u8]) -> Vec<u8> {
    const PADDING: u8 = 64;
    let digits = text.iter().filter_map(|byte| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        b'=' => Some(PADDING),
        _ => None,
    });
    let digits: Vec<u8> = digits.collect();
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    for four in digits.chunks_exact(4) {
        if let [a, b, c, d] = *four {
            bytes.push(a << 2 | (b & 0x3F) >> 4);
            if c != PADDING {
                bytes.push(b << 4 | c >> 2);
                if d != PADDING {
                    bytes.push(c << 6 | d);
                }
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use base64::{Engine, prelude::BASE64_STANDARD};
    use proptest::prelude::*;

    use super::*;

    fn encode(codec: i64, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let value = HistogramValue::Encoded { codec, bytes: bytes.to_vec() };
        value.encode(&HistogramCodecs::simple(42)).map_err(|e| e.to_string())
    }

    #[test]
    fn every_input_form_has_one_stored_form() {
        let text = SimpleHistogram::parse("u=0:o=1:0,1=42:1,5=24").unwrap();
        let stored = HistogramValue::Simple(text).encode(&HistogramCodecs::simple(42)).unwrap();
        for sent in ["AAIAAAAAP4AAACo/gAAAQKAAABgAAQ==", "AAI/gAAAQKAAABgAAAAAP4AAACoAAQ=="] {
            assert_eq!(encode(42, &decode_base64(sent.as_bytes())), Ok(stored.clone()));
        }
    }

    #[test]
    fn errors_are_opentsdbs_texts() {
        assert_eq!(encode(7, &[0; 9]), Err("No codec found mapped to ID 7".to_owned()));
        assert_eq!(encode(298, &[0; 9]), Err("No codec found mapped to ID 298".to_owned()));
        assert_eq!(
            encode(42, &decode_base64(b"!!")),
            Err("Byte array shorter than 6 bytes detected: \"\"".to_owned())
        );
        assert!(encode(42, &decode_base64(b"AAIAAAAAP4AA")).is_err());
    }

    proptest! {
        #[test]
        fn base64_decoding_skips_other_characters(bytes: Vec<u8>) {
            let mut text = BASE64_STANDARD.encode(&bytes);
            prop_assert_eq!(&decode_base64(text.as_bytes()), &bytes);
            text = text.replace('A', "A\n!");
            text.push('x');
            prop_assert_eq!(decode_base64(text.as_bytes()), bytes);
        }

        #[test]
        fn base64_decoding_never_panics(text: Vec<u8>) {
            prop_assert!(decode_base64(&text).len() <= text.len());
        }
    }
}

//! Content codings: decompresses request bodies, compresses response bodies.

use std::io::{self, Read, Write};

use crate::ApiError;
use bytes::{Buf, Bytes};
use flate2::{
    Compression,
    read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};

/// Level that compresses time series JSON as well as the default level, in a third of the time.
const LEVEL: Compression = Compression::new(3);

/// A supported content coding of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, as the name `deflate` means in HTTP.
    Deflate,
}

impl Encoding {
    /// Value of `Content-Encoding`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// Parses the `Content-Encoding` of a request. `None` means a body without coding, also for the names of character
    /// sets, which some clients send here.
    ///
    /// # Errors
    ///
    /// Fails with a 415 for any other text.
    pub fn of_request(header: &str) -> Result<Option<Self>, ApiError> {
        match header.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Ok(Some(Self::Gzip)),
            "deflate" | "x-deflate" => Ok(Some(Self::Deflate)),
            "" | "identity" | "utf-8" | "utf8" => Ok(None),
            _ => Err(ApiError::new(415, "Unsupported Content-Encoding").with_details(format!(
                "The Content-Encoding of the body is {header:?}; send it with gzip, deflate or identity"
            ))),
        }
    }

    /// Selects a coding by `Accept-Encoding`: gzip on ties. `*` means gzip unless gzip is excluded.
    #[must_use]
    pub fn preferred(accept: &str) -> Option<Self> {
        let (mut star, mut gzip, mut deflate) = (None::<f32>, None::<f32>, None::<f32>);
        for part in accept.split(',') {
            let (name, parameters) = part.split_once(';').unwrap_or((part, ""));
            let quality = parameters
                .split_once('=')
                .map_or(1.0, |(_, q)| q.trim().parse::<f32>().unwrap_or(0.0));
            let slot = match name.trim().to_ascii_lowercase().as_str() {
                "*" => &mut star,
                "gzip" | "x-gzip" => &mut gzip,
                "deflate" | "x-deflate" => &mut deflate,
                _ => continue,
            };
            *slot = Some(slot.map_or(quality, |q| q.max(quality)));
        }
        let (g, d) = (gzip.unwrap_or(0.0), deflate.unwrap_or(0.0));
        if g > 0.0 || d > 0.0 {
            return Some(if g >= d { Self::Gzip } else { Self::Deflate });
        }
        if star.unwrap_or(0.0) > 0.0 {
            return match (gzip, deflate) {
                (None, _) => Some(Self::Gzip),
                (_, None) => Some(Self::Deflate),
                _ => None,
            };
        }
        None
    }
}

/// Decompresses a body step by step.
pub struct Decompressor {
    reader: Box<dyn Read + Send>,
}

impl Decompressor {
    /// Decompresses a body.
    #[must_use]
    pub fn new(encoding: Encoding, body: Bytes) -> Self {
        // Some clients send a raw deflate stream without the zlib header. A zlib header is a
        // multiple of 31.
        let has_zlib_header = matches!(
            *body,
            [a, b, ..] if a & 0x0F == 8 && u16::from_be_bytes([a, b]).is_multiple_of(31)
        );
        let body = body.reader();
        let reader: Box<dyn Read + Send> = match encoding {
            Encoding::Gzip => Box::new(MultiGzDecoder::new(body)),
            Encoding::Deflate if has_zlib_header => Box::new(ZlibDecoder::new(body)),
            Encoding::Deflate => Box::new(DeflateDecoder::new(body)),
        };
        Self { reader }
    }

    /// Appends at most `limit` bytes to `out`; returns their number, 0 at the end of the body.
    ///
    /// # Errors
    ///
    /// Fails if the body is not valid in its coding.
    pub fn read(&mut self, out: &mut Vec<u8>, limit: usize) -> io::Result<usize> {
        (&mut self.reader).take(limit as u64).read_to_end(out)
    }
}

/// Decompresses a body with the `Content-Encoding` of a request, to at most `limit` bytes, as the daemon does. Returns
/// `None` for an unknown encoding.
///
/// # Errors
///
/// Fails if the body is invalid in its encoding, or larger than `limit`.
pub fn inflate_body(encoding: &str, body: Bytes, limit: usize) -> Option<io::Result<Vec<u8>>> {
    /// Bytes to decompress at once.
    const STEP: usize = 64 << 10;
    let mut decompressor = Decompressor::new(Encoding::of_request(encoding).ok()??, body);
    let mut out = Vec::new();
    Some(loop {
        let step = STEP.min(limit + 1 - out.len());
        match decompressor.read(&mut out, step) {
            Ok(0) => break Ok(out),
            Ok(_) if out.len() > limit => break Err(io::ErrorKind::FileTooLarge.into()),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    })
}

/// Compresses a body chunk by chunk.
#[derive(Debug)]
pub enum Compressor {
    /// To gzip.
    Gzip(GzEncoder<Vec<u8>>),
    /// To zlib.
    Deflate(ZlibEncoder<Vec<u8>>),
}

impl Compressor {
    /// Compresses to an encoding.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), LEVEL)),
            Encoding::Deflate => Self::Deflate(ZlibEncoder::new(Vec::new(), LEVEL)),
        }
    }

    /// Compresses a chunk. Returns the output available so far, which may be empty.
    ///
    /// # Errors
    ///
    /// Fails as the encoder does.
    pub fn push(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        Ok(Bytes::from(std::mem::take(self.write(piece)?)))
    }

    /// Compresses a chunk; returns the buffer of the output.
    fn write(&mut self, piece: &[u8]) -> io::Result<&mut Vec<u8>> {
        match self {
            Self::Gzip(encoder) => {
                encoder.write_all(piece)?;
                Ok(encoder.get_mut())
            }
            Self::Deflate(encoder) => {
                encoder.write_all(piece)?;
                Ok(encoder.get_mut())
            }
        }
    }

    /// Compresses the last chunk; returns the remaining output.
    ///
    /// # Errors
    ///
    /// Fails as the encoder does.
    pub fn finish(mut self, last: &[u8]) -> io::Result<Bytes> {
        self.write(last)?;
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Deflate(encoder) => encoder.finish(),
        }
        .map(Bytes::from)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: Option<Encoding>) {
        assert_eq!(Encoding::preferred(accept), expected, "{accept}");
    }

    #[test]
    fn best_supported_encoding_is_selected() {
        check("", None);
        check("identity, br", None);
        check("gzip", Some(Encoding::Gzip));
        check("deflate, gzip", Some(Encoding::Gzip));
        check("gzip;q=0.2, deflate;q=0.3", Some(Encoding::Deflate));
        check("gzip;q=0, deflate", Some(Encoding::Deflate));
        check("gzip;q=0", None);
        check("*", Some(Encoding::Gzip));
        check("gzip;q=0, *", Some(Encoding::Deflate));
        check("*;q=0", None);
        check("gzip;q=nonsense", None);
    }

    fn decompress(encoding: Encoding, body: impl Into<Bytes>) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut decompressor = Decompressor::new(encoding, body.into());
        while decompressor.read(&mut out, 3)? > 0 {}
        Ok(out)
    }

    #[test]
    fn compressed_data_round_trips() {
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let mut compressor = Compressor::new(encoding);
            let mut sent = compressor.push(b"one, ").unwrap().to_vec();
            sent.extend(compressor.push(b"tw").unwrap());
            sent.extend(compressor.finish(b"o").unwrap());
            assert_eq!(decompress(encoding, sent.clone()).unwrap(), b"one, two");
            sent.truncate(sent.len() - 6);
            assert!(decompress(encoding, sent).is_err());
        }
    }

    #[test]
    fn raw_deflate_stream_is_accepted() {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), LEVEL);
        encoder.write_all(b"bare").unwrap();
        let sent = encoder.finish().unwrap();
        assert_eq!(decompress(Encoding::Deflate, sent).unwrap(), b"bare");
    }

    #[test]
    fn invalid_data_is_an_error() {
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            assert!(decompress(encoding, &b"\xff\xfe\x00no"[..]).is_err());
        }
    }
}

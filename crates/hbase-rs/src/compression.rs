//! Compression of cell blocks.
//!
//! The client names a Java class in the connection header, and cell blocks are compressed in both
//! directions. A server that lacks the native library accepts the class and then never responds to
//! calls with cells. Try a compressor with one Get first.
//!
//! Snappy and LZ4 use Hadoop's block stream: the uncompressed length of a block, then chunks with their
//! compressed lengths until the block is complete. The server decompresses a chunk into a buffer of
//! 256 KiB, so chunks are smaller than that.

use std::io::Read;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{
    Compression,
    read::{GzEncoder, MultiGzDecoder, ZlibDecoder, ZlibEncoder},
};

/// Compression of cell blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compressor {
    /// Snappy in a block stream. Available on every server since Hadoop 3.3.1.
    Snappy,
    /// LZ4 in a block stream. Needs a library that HBase does not include.
    Lz4,
    /// A gzip stream.
    Gzip,
    /// A zlib stream.
    Zlib,
}

impl Compressor {
    /// Returns the Java class for the connection header.
    #[must_use]
    pub const fn class_name(self) -> &'static str {
        match self {
            Self::Snappy => "org.apache.hadoop.io.compress.SnappyCodec",
            Self::Lz4 => "org.apache.hadoop.io.compress.Lz4Codec",
            Self::Gzip => "org.apache.hadoop.io.compress.GzipCodec",
            Self::Zlib => "org.apache.hadoop.io.compress.DefaultCodec",
        }
    }

    /// Returns the uncompressed size of a chunk, whose compressed size fits the server's buffer for any
    /// data.
    const fn chunk_size(self) -> usize {
        match self {
            Self::Lz4 => 261_104,
            _ => 218_421,
        }
    }

    /// Compresses a block.
    ///
    /// # Errors
    ///
    /// When the block is longer than 4 GiB.
    pub fn compress(self, block: &[u8]) -> Result<Bytes, CompressionError> {
        match self {
            Self::Snappy | Self::Lz4 => self.compress_stream(block),
            Self::Gzip => Ok(read_all(GzEncoder::new(block, Compression::fast()))?.into()),
            Self::Zlib => Ok(read_all(ZlibEncoder::new(block, Compression::fast()))?.into()),
        }
    }

    /// Decompresses a block of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// When the stream is invalid, or its output exceeds the limit.
    pub fn decompress(self, bytes: &[u8], limit: usize) -> Result<Bytes, CompressionError> {
        match self {
            Self::Snappy | Self::Lz4 => self.decompress_stream(bytes, limit),
            Self::Gzip => read_bounded(MultiGzDecoder::new(bytes), limit),
            Self::Zlib => read_bounded(ZlibDecoder::new(bytes), limit),
        }
    }

    fn compress_stream(self, block: &[u8]) -> Result<Bytes, CompressionError> {
        let length = u32::try_from(block.len()).map_err(|_| CompressionError::TooLong)?;
        let mut out = BytesMut::with_capacity(block.len() / 2 + 16);
        out.put_u32(length);
        for chunk in block.chunks(self.chunk_size()) {
            let packed = if self == Self::Lz4 {
                lz4_flex::block::compress(chunk)
            } else {
                snap::raw::Encoder::new()
                    .compress_vec(chunk)
                    .map_err(|error| CompressionError::Chunk(error.to_string()))?
            };
            out.put_u32(packed.len() as u32);
            out.put_slice(&packed);
        }
        Ok(out.freeze())
    }

    fn decompress_stream(self, mut bytes: &[u8], limit: usize) -> Result<Bytes, CompressionError> {
        let mut out = BytesMut::new();
        while !bytes.is_empty() {
            let block = take_length(&mut bytes)?;
            // An empty block marks the end of the stream.
            if block == 0 {
                break;
            }
            let end = out.len() + block;
            if end > limit {
                return Err(CompressionError::OverLimit(limit));
            }
            let mut filled = out.len();
            out.resize(end, 0);
            while filled < end {
                let length = take_length(&mut bytes)?;
                let chunk = bytes.split_off(..length).ok_or(CompressionError::Truncated)?;
                let rest = out.get_mut(filled..).unwrap_or_default();
                let written = self.decompress_chunk(chunk, rest)?;
                if written == 0 && length == 0 {
                    return Err(CompressionError::Truncated);
                }
                filled += written;
            }
        }
        Ok(out.freeze())
    }

    fn decompress_chunk(self, chunk: &[u8], out: &mut [u8]) -> Result<usize, CompressionError> {
        let written = if self == Self::Lz4 {
            lz4_flex::block::decompress_into(chunk, out).map_err(|error| error.to_string())
        } else {
            snap::raw::Decoder::new().decompress(chunk, out).map_err(|error| error.to_string())
        };
        written.map_err(CompressionError::Chunk)
    }
}

/// Removes and returns the next four bytes as a length.
fn take_length(bytes: &mut &[u8]) -> Result<usize, CompressionError> {
    bytes.try_get_u32().map(|length| length as usize).map_err(|_| CompressionError::Truncated)
}

fn read_all(mut reader: impl Read) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    reader.read_to_end(&mut out)?;
    Ok(out)
}

fn read_bounded(reader: impl Read, limit: usize) -> Result<Bytes, CompressionError> {
    let out = read_all(reader.take(limit as u64 + 1))?;
    if out.len() > limit {
        return Err(CompressionError::OverLimit(limit));
    }
    Ok(out.into())
}

/// A failed compression or decompression.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// The stream ends inside a block.
    #[error("compressed cell block ends early")]
    Truncated,
    /// The decompressed block exceeds the limit.
    #[error("decompressed cell block exceeds the limit of {0} bytes")]
    OverLimit(usize),
    /// The block's length exceeds its length field.
    #[error("cell block is too long to compress; the limit is 4 GiB")]
    TooLong,
    /// A chunk is damaged; the text is the library's.
    #[error("damaged chunk in a compressed cell block: {0}")]
    Chunk(String),
    /// A gzip or zlib stream is damaged.
    #[error("damaged compressed cell block")]
    Stream(#[from] std::io::Error),
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::recorded;

    const ALL: [Compressor; 4] =
        [Compressor::Snappy, Compressor::Lz4, Compressor::Gzip, Compressor::Zlib];

    #[track_caller]
    fn check(compressor: Compressor, name: &str) {
        let entry = recorded::entry(name);
        let expected = recorded::unhex(entry["fields"]["uncompressed"].as_str().unwrap());
        let bytes = recorded::vector(name);
        assert_eq!(compressor.decompress(&bytes, 1 << 20).unwrap(), expected);
        let again = compressor.compress(&expected).unwrap();
        assert_eq!(compressor.decompress(&again, 1 << 20).unwrap(), expected);
        let limited = compressor.decompress(&bytes, expected.len() - 1);
        assert!(matches!(limited, Err(CompressionError::OverLimit(_))), "{limited:?}");
    }

    #[test]
    fn recorded_streams_are_decompressed() {
        check(Compressor::Snappy, "cell-block-snappy");
        check(Compressor::Snappy, "cell-block-snappy-two-chunks");
        check(Compressor::Snappy, "cell-block-snappy-two-blocks");
        check(Compressor::Lz4, "cell-block-lz4");
    }

    #[test]
    fn compressed_chunks_fit_the_servers_buffer() {
        let block: Vec<u8> =
            (0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for compressor in [Compressor::Snappy, Compressor::Lz4] {
            let packed = compressor.compress(&block).unwrap();
            let mut rest = &packed[4..];
            while let Ok(length) = take_length(&mut rest) {
                assert!(length <= 262_144, "{compressor:?}: {length}");
                rest.split_off(..length).unwrap();
            }
            assert_eq!(compressor.decompress(&packed, block.len()).unwrap(), block);
        }
    }

    #[test]
    fn truncated_stream_is_an_error() {
        for compressor in ALL {
            let packed = compressor.compress(b"a block of some length").unwrap();
            for end in 1..packed.len() {
                assert!(
                    compressor.decompress(&packed[..end], 1 << 10).is_err(),
                    "{compressor:?} {end}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn decompress_undoes_compress_and_never_panics(bytes in vec(any::<u8>(), 0..200)) {
            for compressor in ALL {
                let _ = compressor.decompress(&bytes, 1 << 16);
                let packed = compressor.compress(&bytes).unwrap();
                prop_assert_eq!(&compressor.decompress(&packed, 200).unwrap()[..], &bytes[..]);
            }
        }
    }
}

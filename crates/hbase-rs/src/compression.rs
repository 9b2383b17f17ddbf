//! Compression of cell blocks.
//!
//! The client names a Java class in the connection header, and cell blocks are compressed in both
//! directions. A server that lacks the native library accepts the class and then never responds to
//! calls with cells. Try a compressor with one Get first.
//!
//! Snappy and LZ4 use Hadoop's block stream: the uncompressed length of a block, then chunks with their
//! compressed lengths until the block is complete. The server decompresses a chunk into a buffer of
//! 256 KiB, so chunks are smaller than that.
//!
//! Each library is a feature of this crate. A compressor without its feature is an error.

#[cfg(feature = "gzip")]
mod deflate;
mod error;
#[cfg(any(feature = "lz4", feature = "snappy"))]
mod stream;

use bytes::Bytes;

pub use self::error::CompressionError;

/// Compression of cell blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compressor {
    /// Snappy in a block stream. A server whose Hadoop is older than 3.3.1, such as those of HBase 2.4 and
    /// 3.0.0-alpha-4, needs Hadoop's native library: without it, the first compressed call ends the server.
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

    /// Returns the feature of this crate that has the library of the compressor.
    #[must_use]
    pub const fn feature(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Gzip | Self::Zlib => "gzip",
        }
    }

    /// Checks that this build has the library of the compressor.
    ///
    /// # Errors
    ///
    /// [`CompressionError::NotBuilt`].
    pub const fn check(self) -> Result<(), CompressionError> {
        let is_built = match self {
            Self::Snappy => cfg!(feature = "snappy"),
            Self::Lz4 => cfg!(feature = "lz4"),
            Self::Gzip | Self::Zlib => cfg!(feature = "gzip"),
        };
        if is_built { Ok(()) } else { Err(self.not_built()) }
    }

    const fn not_built(self) -> CompressionError {
        CompressionError::NotBuilt { class_name: self.class_name(), feature: self.feature() }
    }

    /// Compresses a block.
    ///
    /// # Errors
    ///
    /// When the block is longer than 4 GiB, or the compressor [is not built](Self::check).
    pub fn compress(self, block: &[u8]) -> Result<Bytes, CompressionError> {
        match self {
            #[cfg(feature = "snappy")]
            Self::Snappy => stream::compress::<stream::Snappy>(block),
            #[cfg(feature = "lz4")]
            Self::Lz4 => stream::compress::<stream::Lz4>(block),
            #[cfg(feature = "gzip")]
            Self::Gzip => deflate::gzip(block),
            #[cfg(feature = "gzip")]
            Self::Zlib => deflate::zlib(block),
            #[cfg(not(all(feature = "gzip", feature = "lz4", feature = "snappy")))]
            _ => {
                let _ = block;
                Err(self.not_built())
            }
        }
    }

    /// Decompresses a block of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// When the stream is invalid, its output exceeds the limit, or the compressor [is not built](Self::check).
    pub fn decompress(self, bytes: &[u8], limit: usize) -> Result<Bytes, CompressionError> {
        match self {
            #[cfg(feature = "snappy")]
            Self::Snappy => stream::decompress::<stream::Snappy>(bytes, limit),
            #[cfg(feature = "lz4")]
            Self::Lz4 => stream::decompress::<stream::Lz4>(bytes, limit),
            #[cfg(feature = "gzip")]
            Self::Gzip => deflate::gunzip(bytes, limit),
            #[cfg(feature = "gzip")]
            Self::Zlib => deflate::unzlib(bytes, limit),
            #[cfg(not(all(feature = "gzip", feature = "lz4", feature = "snappy")))]
            _ => {
                let _ = (bytes, limit);
                Err(self.not_built())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::recorded;

    const ALL: [Compressor; 4] =
        [Compressor::Snappy, Compressor::Lz4, Compressor::Gzip, Compressor::Zlib];

    fn built() -> impl Iterator<Item = Compressor> {
        ALL.into_iter().filter(|compressor| compressor.check().is_ok())
    }

    #[track_caller]
    fn check(compressor: Compressor, name: &str) {
        if compressor.check().is_err() {
            return;
        }
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
    fn compressor_without_its_feature_names_it() {
        for compressor in ALL.into_iter().filter(|compressor| compressor.check().is_err()) {
            let error = compressor.compress(b"block").unwrap_err().to_string();
            assert!(error.contains(compressor.feature()), "{error}");
            assert_eq!(compressor.decompress(b"block", 9).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn recorded_streams_are_decompressed() {
        check(Compressor::Snappy, "cell-block-snappy");
        check(Compressor::Snappy, "cell-block-snappy-two-chunks");
        check(Compressor::Snappy, "cell-block-snappy-two-blocks");
        check(Compressor::Lz4, "cell-block-lz4");
    }

    #[test]
    fn truncated_stream_is_an_error() {
        for compressor in built() {
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
            for compressor in built() {
                let _ = compressor.decompress(&bytes, 1 << 16);
                let packed = compressor.compress(&bytes).unwrap();
                prop_assert_eq!(&compressor.decompress(&packed, 200).unwrap()[..], &bytes[..]);
            }
        }
    }
}

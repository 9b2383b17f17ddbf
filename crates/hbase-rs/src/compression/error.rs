//! Errors of compression.

/// A failed compression or decompression.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// This build lacks the feature of the compressor.
    #[error("this build cannot use {class_name}; it needs the feature `{feature}` of hbase-rs")]
    NotBuilt {
        /// Java class of the compressor.
        class_name: &'static str,
        /// Feature of this crate.
        feature: &'static str,
    },
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

//! Gzip and zlib streams.

use std::io::Read;

use bytes::Bytes;
use flate2::{
    Compression,
    read::{GzEncoder, MultiGzDecoder, ZlibDecoder, ZlibEncoder},
};

use super::error::CompressionError;

pub(super) fn gzip(block: &[u8]) -> Result<Bytes, CompressionError> {
    read_all(GzEncoder::new(block, Compression::fast()))
}

pub(super) fn zlib(block: &[u8]) -> Result<Bytes, CompressionError> {
    read_all(ZlibEncoder::new(block, Compression::fast()))
}

pub(super) fn gunzip(bytes: &[u8], limit: usize) -> Result<Bytes, CompressionError> {
    read_bounded(MultiGzDecoder::new(bytes), limit)
}

pub(super) fn unzlib(bytes: &[u8], limit: usize) -> Result<Bytes, CompressionError> {
    read_bounded(ZlibDecoder::new(bytes), limit)
}

fn read_all(mut reader: impl Read) -> Result<Bytes, CompressionError> {
    let mut out = Vec::new();
    reader.read_to_end(&mut out)?;
    Ok(out.into())
}

fn read_bounded(reader: impl Read, limit: usize) -> Result<Bytes, CompressionError> {
    let out = read_all(reader.take(limit as u64 + 1))?;
    if out.len() > limit {
        return Err(CompressionError::OverLimit(limit));
    }
    Ok(out)
}

//! Hadoop's block streams of Snappy and LZ4.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::error::CompressionError;

/// Compression of the chunks of a stream.
pub(super) trait ChunkCodec {
    /// Uncompressed size of a chunk, whose compressed size fits the server's buffer for any data.
    const CHUNK_SIZE: usize;

    /// Compresses a chunk.
    fn compress(chunk: &[u8]) -> Result<Vec<u8>, CompressionError>;

    /// Decompresses a chunk to the start of `out`. Returns the number of bytes.
    fn decompress(chunk: &[u8], out: &mut [u8]) -> Result<usize, CompressionError>;
}

#[cfg(feature = "snappy")]
pub(super) struct Snappy;

#[cfg(feature = "snappy")]
impl ChunkCodec for Snappy {
    const CHUNK_SIZE: usize = 218_421;

    fn compress(chunk: &[u8]) -> Result<Vec<u8>, CompressionError> {
        snap::raw::Encoder::new().compress_vec(chunk).map_err(|error| damaged(&error))
    }

    fn decompress(chunk: &[u8], out: &mut [u8]) -> Result<usize, CompressionError> {
        snap::raw::Decoder::new().decompress(chunk, out).map_err(|error| damaged(&error))
    }
}

#[cfg(feature = "lz4")]
pub(super) struct Lz4;

#[cfg(feature = "lz4")]
impl ChunkCodec for Lz4 {
    const CHUNK_SIZE: usize = 261_104;

    fn compress(chunk: &[u8]) -> Result<Vec<u8>, CompressionError> {
        Ok(lz4_flex::block::compress(chunk))
    }

    fn decompress(chunk: &[u8], out: &mut [u8]) -> Result<usize, CompressionError> {
        lz4_flex::block::decompress_into(chunk, out).map_err(|error| damaged(&error))
    }
}

fn damaged(error: &impl std::error::Error) -> CompressionError {
    CompressionError::Chunk(error.to_string())
}

pub(super) fn compress<C: ChunkCodec>(block: &[u8]) -> Result<Bytes, CompressionError> {
    let length = u32::try_from(block.len()).map_err(|_| CompressionError::TooLong)?;
    let mut out = BytesMut::with_capacity(block.len() / 2 + 16);
    out.put_u32(length);
    for chunk in block.chunks(C::CHUNK_SIZE) {
        let packed = C::compress(chunk)?;
        out.put_u32(packed.len() as u32);
        out.put_slice(&packed);
    }
    Ok(out.freeze())
}

pub(super) fn decompress<C: ChunkCodec>(
    mut bytes: &[u8],
    limit: usize,
) -> Result<Bytes, CompressionError> {
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
            let written = C::decompress(chunk, rest)?;
            if written == 0 && length == 0 {
                return Err(CompressionError::Truncated);
            }
            filled += written;
        }
    }
    Ok(out.freeze())
}

/// Removes and returns the next four bytes as a length.
fn take_length(bytes: &mut &[u8]) -> Result<usize, CompressionError> {
    bytes.try_get_u32().map(|length| length as usize).map_err(|_| CompressionError::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<C: ChunkCodec>() {
        let block: Vec<u8> =
            (0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let packed = compress::<C>(&block).unwrap();
        let mut rest = &packed[4..];
        while let Ok(length) = take_length(&mut rest) {
            assert!(length <= 262_144, "{length}");
            rest.split_off(..length).unwrap();
        }
        assert_eq!(decompress::<C>(&packed, block.len()).unwrap(), block);
    }

    #[test]
    fn compressed_chunks_fit_the_servers_buffer() {
        #[cfg(feature = "snappy")]
        check::<Snappy>();
        #[cfg(feature = "lz4")]
        check::<Lz4>();
    }
}

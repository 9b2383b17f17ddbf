//! Format of the data files that trees and copies of single files write.

use std::path::PathBuf;

use lsm_tree::{CompressionType, config::BloomConstructionPolicy, table::Writer};

/// Size of a block of data, bytes.
pub(crate) const BLOCK_BYTES: u32 = 8 * 1024;
/// Bits per key of the bloom filters.
pub(crate) const FILTER: BloomConstructionPolicy = BloomConstructionPolicy::BitsPerKey(10.0);

/// Creates a writer of a data file with the tree's format.
pub(crate) fn file_writer(path: PathBuf, id: u64) -> lsm_tree::Result<Writer> {
    Ok(Writer::new(path, id, 0)?
        .use_data_block_compression(CompressionType::Lz4)
        .use_data_block_size(BLOCK_BYTES)
        .use_bloom_policy(FILTER)
        .use_partitioned_index()
        .use_partitioned_filter())
}

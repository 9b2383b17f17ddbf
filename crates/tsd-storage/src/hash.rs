//! Widening of stored 32-bit hashes for in-memory hash tables.

/// Distributes a 32-bit hash over the 64 bits that a hash table expects: it uses the highest bits as
/// tags and the lowest as positions.
#[must_use]
#[inline]
pub const fn widen_hash(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

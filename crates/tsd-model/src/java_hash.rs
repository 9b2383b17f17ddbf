//! Java's hash functions, on which OpenTSDB's bytes depend.
//!
//! Salt buckets are hashes of byte arrays, branches and leaves of trees are hashes of strings, and
//! JSON objects have the order of a hash map.

/// `Arrays.hashCode(byte[])`: bytes are signed, arithmetic wraps, the empty array is 1.
#[must_use]
#[inline]
pub fn java_bytes_hash(bytes: &[u8]) -> i32 {
    continue_bytes_hash(1, bytes)
}

/// Continues a hash, for an array in several parts.
#[must_use]
#[inline]
pub(crate) fn continue_bytes_hash(hash: i32, bytes: &[u8]) -> i32 {
    bytes.iter().fold(hash, |h, b| h.wrapping_mul(31).wrapping_add(i32::from(*b as i8)))
}

/// `String.hashCode`: over UTF-16 units.
#[must_use]
pub(crate) fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |h, unit| h.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Sorts entries in the iteration order of a Java hash map with `slots` slots (a power of two): by
/// slot, and within a slot in the given order.
fn sort_by_slot<T>(entries: &mut [T], slots: u32, key: impl Fn(&T) -> &str) {
    entries.sort_by_key(|entry| {
        let hash = java_string_hash(key(entry)) as u32;
        (hash ^ (hash >> 16)) & (slots - 1)
    });
}

/// Sorts entries in the order of a hash map that Java created by copying: the number of slots is the
/// smallest power of two that is at least `n / 0.75 + 1`.
pub fn sort_as_copied_hash_map<T>(entries: &mut [T], key: impl Fn(&T) -> &str) {
    let wanted = entries.len() as u64 * 4 / 3 + 1;
    let slots = u32::try_from(wanted.next_power_of_two()).unwrap_or(1 << 31);
    sort_by_slot(entries, slots, key);
}

/// Sorts entries in the order of a hash map that Java created for this number of entries and filled
/// one by one. Its slots are that number, rounded up to a power of two, and doubled if more than
/// three quarters full.
pub fn sort_as_sized_hash_map<T>(entries: &mut [T], key: impl Fn(&T) -> &str) {
    let slots = (entries.len() as u64).next_power_of_two();
    let slots = if entries.len() as u64 > slots * 3 / 4 { slots * 2 } else { slots };
    sort_by_slot(entries, u32::try_from(slots).unwrap_or(1 << 31), key);
}

/// Sorts entries in the order of a hash map that Java filled one by one: 16 slots, doubled while more
/// than three quarters full. OpenTSDB looks up and assigns the tags of a put in this order.
pub fn sort_as_grown_hash_map<T>(entries: &mut [T], key: impl Fn(&T) -> &str) {
    let mut slots = 16_u32;
    while entries.len() as u64 > u64::from(slots) * 3 / 4 && slots < 1 << 30 {
        slots *= 2;
    }
    sort_by_slot(entries, slots, key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(java_bytes_hash(&[]), 1);
        assert_eq!(java_bytes_hash(&[0, 0, 4, 0, 0, 1, 0, 0, 1]), -941_436_285);
        assert_eq!(java_string_hash(""), 0);
        assert_eq!(java_string_hash("sys"), 0x0001_BECD);
        assert_eq!(java_string_hash("bytes_sent"), 0x5301_52EC);
    }

    #[test]
    fn parts_have_the_hash_of_the_whole() {
        let whole = java_bytes_hash(&[1, 2, 0xFF, 4]);
        assert_eq!(continue_bytes_hash(java_bytes_hash(&[1, 2]), &[0xFF, 4]), whole);
    }

    #[test]
    fn host_comes_before_cpu() {
        let mut tags = ["cpu", "host"];
        sort_as_grown_hash_map(&mut tags, |t| t);
        assert_eq!(tags, ["host", "cpu"]);
    }

    #[test]
    fn maps_of_a_given_size_grow_when_full() {
        // With 4 slots "a" and "e" share one, with 16 "e" is behind "b" and "c2" last.
        let mut ids = ["a", "b", "e"];
        sort_as_sized_hash_map(&mut ids, |id| id);
        assert_eq!(ids, ["a", "e", "b"]);
        let mut ids = ["c2", "b", "e", "a"];
        sort_as_grown_hash_map(&mut ids, |id| id);
        assert_eq!(ids, ["a", "b", "e", "c2"]);
    }

    #[test]
    fn copied_maps_are_sized_by_their_length() {
        let mut keys = ["owner", "dept", "zeta", "alpha", "Beta", "k1", "k2", "k3"];
        sort_as_copied_hash_map(&mut keys, |k| k);
        assert_eq!(keys, ["owner", "zeta", "k1", "alpha", "k2", "k3", "dept", "Beta"]);
    }
}

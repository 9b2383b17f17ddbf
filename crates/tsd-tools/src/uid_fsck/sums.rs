//! Sums of fingerprints of mappings: find mappings without a counterpart, without holding any mapping.
//!
//! A mapping from a name adds its fingerprint, and the mapping back subtracts it, so names that are mapped in both
//! directions cancel out. Fingerprints are divided by hash into [`SUMS`] sums. A sum other than 0 includes a mapping
//! without a counterpart, so all its mappings are read again. Two such mappings cancel each other out with a
//! probability below 2⁻⁴⁰; the seed differs from run to run.

use std::hash::{BuildHasher as _, RandomState};

use tsd_model::UidKind;

/// Number of sums, a power of two. With 100 million names, one damaged name causes about 760 names to be read again.
const SUMS: usize = 1 << 17;

/// The sums of all kinds.
pub(super) struct MappingSums {
    seed: RandomState,
    sums: Vec<u64>,
}

impl MappingSums {
    pub(super) fn new() -> Self {
        Self { seed: RandomState::new(), sums: vec![0; SUMS] }
    }

    /// Adds a mapping from a name.
    pub(super) fn add(&mut self, kind: UidKind, name: &[u8], uid: &[u8]) {
        let fingerprint = self.fingerprint(kind, name, uid);
        if let Some(sum) = self.sums.get_mut(place(fingerprint)) {
            *sum = sum.wrapping_add(fingerprint);
        }
    }

    /// Subtracts a mapping from a UID.
    pub(super) fn subtract(&mut self, kind: UidKind, name: &[u8], uid: &[u8]) {
        let fingerprint = self.fingerprint(kind, name, uid);
        if let Some(sum) = self.sums.get_mut(place(fingerprint)) {
            *sum = sum.wrapping_sub(fingerprint);
        }
    }

    /// True if a mapping has no counterpart.
    pub(super) fn differ(&self) -> bool {
        self.sums.iter().any(|sum| *sum != 0)
    }

    /// True if this mapping, or another one in the same sum, has no counterpart.
    pub(super) fn differ_at(&self, kind: UidKind, name: &[u8], uid: &[u8]) -> bool {
        let fingerprint = self.fingerprint(kind, name, uid);
        self.sums.get(place(fingerprint)).is_some_and(|sum| *sum != 0)
    }

    fn fingerprint(&self, kind: UidKind, name: &[u8], uid: &[u8]) -> u64 {
        self.seed.hash_one((kind, name, uid))
    }
}

const fn place(fingerprint: u64) -> usize {
    fingerprint as usize & (SUMS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_in_one_direction_differ() {
        let mut sums = MappingSums::new();
        for n in 0..10_000_u32 {
            sums.add(UidKind::Tagk, format!("name {n}").as_bytes(), &n.to_be_bytes());
        }
        for n in (0..10_000_u32).rev() {
            sums.subtract(UidKind::Tagk, format!("name {n}").as_bytes(), &n.to_be_bytes());
        }
        assert!(!sums.differ());
        sums.add(UidKind::Metric, b"a", &[1]);
        sums.subtract(UidKind::Tagv, b"a", &[1]);
        for (kind, name, uid, differs) in [
            (UidKind::Metric, b"a", [1], true),
            (UidKind::Tagv, b"a", [1], true),
            (UidKind::Tagk, b"a", [1], false),
            (UidKind::Metric, b"a", [2], false),
            (UidKind::Metric, b"b", [1], false),
        ] {
            assert_eq!(sums.differ_at(kind, name, &uid), differs, "{kind} {name:?} {uid:?}");
        }
        assert!(sums.differ());
    }
}

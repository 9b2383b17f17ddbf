//! All configuration keys: one row per key, with its values, default, scope and meaning.
//!
//! `tsdb config list`, the checks of values, `/api/config` and `docs/configuration-reference.md` come from the rows.
//!
//! OpenTSDB's keys are kept verbatim, so an existing `opentsdb.conf` works. Keys without an effect
//! here have rows too, so that warnings can distinguish them from misspelt ones.

mod row;
mod table;

pub use self::{
    row::{Key, KeyEffect, Scope, Unit, ValueKind},
    table::KEYS,
};

/// Finds a key by name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.binary_search_by(|key| key.name.cmp(name)).ok().and_then(|at| KEYS.get(at))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_sorted_and_unique() {
        assert!(KEYS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn no_two_keys_share_an_environment_variable() {
        let names: HashSet<_> = KEYS.iter().map(Key::environment_variable).collect();
        assert_eq!(names.len(), KEYS.len());
    }

    #[test]
    fn every_default_is_a_value_its_kind_allows() {
        for key in KEYS {
            if let Some(default) = key.default {
                assert_eq!(key.kind.check(default), Ok(()), "{}", key.name);
            }
        }
    }

    #[test]
    fn every_key_has_a_meaning_in_a_line() {
        for Key { name, meaning, .. } in KEYS {
            assert!(!meaning.is_empty() && meaning.len() <= 125, "{name}: {meaning}");
            assert!(!meaning.contains('\n') && !meaning.ends_with('.'), "{name}: {meaning}");
        }
    }

    #[test]
    fn values_have_their_unit() {
        let values = |name| find(name).map(Key::values);
        for (name, expected) in [
            ("tsd.network.port", "0 to 65535"),
            ("tsd.network.max_line_length", "bytes, 64 to 1048576"),
            ("tsd.query.limits.bytes.default", "bytes, 0 or more"),
            ("tsd.storage.hold_seconds", "seconds, 0.1 to 3600"),
            ("tsd.mode", "rw, ro, wo"),
        ] {
            assert_eq!(values(name).as_deref(), Some(expected), "{name}");
        }
    }
}

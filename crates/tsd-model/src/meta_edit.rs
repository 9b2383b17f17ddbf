//! Edits of TSMeta and UIDMeta, and their merge with the stored objects.
//!
//! As in OpenTSDB, a field is set if it differs from its default: an empty text or a retention of 0
//! sets nothing. An empty `Some` text resets a field; it comes from `null` in a body.

use crate::{
    json_object::CustomFields,
    meta::{TsMeta, UidMeta},
    uid::UidKind,
};

/// Fields to set in a UIDMeta; `None` sets nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UidMetaEdit {
    /// Display name.
    pub display_name: Option<String>,
    /// Short text.
    pub description: Option<String>,
    /// Long text.
    pub notes: Option<String>,
    /// Epoch seconds.
    pub created: Option<i64>,
    /// User-defined fields; they replace all stored ones.
    pub custom: Option<CustomFields>,
}

/// Fields to set in a TSMeta; `None` sets nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TsMetaEdit {
    /// Display name.
    pub display_name: Option<String>,
    /// Short text.
    pub description: Option<String>,
    /// Long text.
    pub notes: Option<String>,
    /// Epoch seconds.
    pub created: Option<i64>,
    /// User-defined fields; they replace all stored ones.
    pub custom: Option<CustomFields>,
    /// Unit of the values.
    pub units: Option<String>,
    /// Type of the data.
    pub data_type: Option<String>,
    /// Retention in days.
    pub retention: Option<i64>,
    /// Largest expected value.
    pub max: Option<f64>,
    /// Smallest expected value.
    pub min: Option<f64>,
}

impl UidMetaEdit {
    /// True if no field is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The object after the edit. Fields that are not set keep their stored values, unless the edit
    /// replaces all. The earlier creation time is kept.
    #[must_use]
    pub fn merged(&self, kind: UidKind, stored: Option<UidMeta>, replace: bool) -> UidMeta {
        let stored = stored.unwrap_or_else(|| UidMeta::new(kind, 0));
        let created = earlier(stored.created, self.created);
        let kept = if replace { UidMeta::new(kind, 0) } else { stored };
        UidMeta {
            kind,
            display_name: set_or(self.display_name.as_ref(), kept.display_name),
            description: set_or(self.description.as_ref(), kept.description),
            notes: set_or(self.notes.as_ref(), kept.notes),
            created,
            custom: self.custom.clone().or(kept.custom),
        }
    }
}

impl TsMetaEdit {
    /// True if no field is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The object after the edit; see [`UidMetaEdit::merged`]. `stored` is the stored object or a
    /// new object.
    #[must_use]
    pub fn merged(&self, stored: TsMeta, replace: bool) -> TsMeta {
        let created = earlier(stored.created, self.created);
        let new = TsMeta::new(&stored.tsuid, 0);
        let kept = if replace { new } else { stored };
        TsMeta {
            tsuid: kept.tsuid,
            display_name: set_or(self.display_name.as_ref(), kept.display_name),
            description: set_or(self.description.as_ref(), kept.description),
            notes: set_or(self.notes.as_ref(), kept.notes),
            created,
            custom: self.custom.clone().or(kept.custom),
            units: set_or(self.units.as_ref(), kept.units),
            data_type: set_or(self.data_type.as_ref(), kept.data_type),
            retention: self.retention.unwrap_or(kept.retention),
            max: self.max.unwrap_or(kept.max),
            min: self.min.unwrap_or(kept.min),
        }
    }
}

fn set_or(set: Option<&String>, kept: String) -> String {
    set.cloned().unwrap_or(kept)
}

/// The creation time after an edit; 0 is unknown.
fn earlier(stored: i64, set: Option<i64>) -> i64 {
    match set {
        None | Some(0) => stored,
        Some(set) if stored > 0 => set.min(stored),
        Some(set) => set,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> UidMeta {
        UidMeta {
            display_name: "D".to_owned(),
            notes: "n".to_owned(),
            custom: Some(vec![("a".to_owned(), Some("b".into()))]),
            ..UidMeta::new(UidKind::Tagk, 100)
        }
    }

    #[test]
    fn fields_that_are_not_set_keep_their_values_unless_all_are_replaced() {
        let edit = UidMetaEdit { description: Some("d".into()), ..UidMetaEdit::default() };
        let merged = edit.merged(UidKind::Tagk, Some(stored()), false);
        assert_eq!(merged, UidMeta { description: "d".to_owned(), ..stored() });
        let replaced = edit.merged(UidKind::Tagk, Some(stored()), true);
        let expected = UidMeta { description: "d".to_owned(), ..UidMeta::new(UidKind::Tagk, 100) };
        assert_eq!(replaced, expected);
        let reset = UidMetaEdit { notes: Some(String::new()), ..UidMetaEdit::default() };
        assert!(!reset.is_empty() && UidMetaEdit::default().is_empty());
        assert_eq!(reset.merged(UidKind::Tagk, Some(stored()), false).notes, "");
    }

    #[test]
    fn the_earlier_creation_time_is_kept() {
        for (stored, set, expected) in [
            (0, None, 0),
            (0, Some(5), 5),
            (7, None, 7),
            (7, Some(0), 7),
            (7, Some(5), 5),
            (5, Some(7), 5),
        ] {
            assert_eq!(earlier(stored, set), expected, "{stored} {set:?}");
        }
    }

    #[test]
    fn a_series_keeps_its_tsuid_and_numbers() {
        let stored = TsMeta {
            max: 2.0,
            retention: 7,
            units: "s".to_owned(),
            ..TsMeta::new("000001000001000001", 9)
        };
        let edit = TsMetaEdit { min: Some(0.5), ..TsMetaEdit::default() };
        let merged = edit.merged(stored.clone(), false);
        assert_eq!(merged, TsMeta { min: 0.5, ..stored.clone() });
        let replaced = edit.merged(stored, true);
        assert!(replaced.max.is_nan(), "{replaced:?}");
        assert_eq!((replaced.retention, replaced.created, replaced.min), (0, 9, 0.5));
        assert_eq!(replaced.tsuid, "000001000001000001");
        // NaN is not equal to the default either.
        assert!(!TsMetaEdit { max: Some(f64::NAN), ..TsMetaEdit::default() }.is_empty());
        assert!(TsMetaEdit::default().is_empty());
    }
}

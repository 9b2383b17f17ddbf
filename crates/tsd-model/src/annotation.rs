//! Annotations of a series, and global ones: cell qualifier and JSON value.
//!
//! The qualifier reproduces a quirk of OpenTSDB: a start time divisible by 1000 is divided by 1000
//! whatever its unit, and offset and width follow from the quotient. For whole seconds given in
//! milliseconds that is correct; for seconds divisible by 1000 the offset is unrelated to the row.
//! Lookups repeat this computation, so it must match OpenTSDB's. Readers take the times from the
//! JSON.

use smallvec::SmallVec;

use crate::{
    base_time::BaseTime,
    column_kind::ANNOTATION_PREFIX,
    json_object::{CustomFields, CustomOrder, JsonError, ObjectReader, ObjectWriter},
    timestamp::{Timestamp, TimestampError},
};

/// An annotation. Times are in the client's unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotation {
    /// TSUID in hex; empty for a global annotation.
    pub tsuid: String,
    /// Start time; at least 1.
    pub start_time: i64,
    /// End time; 0 for an open end.
    pub end_time: i64,
    /// Short text.
    pub description: String,
    /// Long text.
    pub notes: String,
    /// User-defined fields.
    pub custom: Option<CustomFields>,
}

/// Row and column of an annotation with a given start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationKey {
    /// Hour of the row, from the start time as given.
    pub base: BaseTime,
    /// Three or five bytes.
    pub qualifier: SmallVec<[u8; 8]>,
}

impl AnnotationKey {
    /// Computes the place of an annotation; `start_time` must be at least 1.
    pub fn of(start_time: i64) -> Result<Self, TimestampError> {
        let time = match start_time {
            ..1 => return Err(TimestampError::OutOfRange(start_time)),
            _ => Timestamp::try_new(start_time)?,
        };
        let mut qualifier: SmallVec<[u8; 8]> = SmallVec::new();
        qualifier.push(ANNOTATION_PREFIX);
        let number = if start_time % 1_000 == 0 { start_time / 1_000 } else { start_time };
        if number > Timestamp::MAX_SECS {
            let offset_ms = number % (i64::from(BaseTime::SPAN_SECONDS) * 1_000);
            qualifier.extend_from_slice(&(offset_ms as u32).to_be_bytes());
        } else {
            let offset_secs = number % i64::from(BaseTime::SPAN_SECONDS);
            qualifier.extend_from_slice(&(offset_secs as u16).to_be_bytes());
        }
        Ok(Self { base: time.base_time(), qualifier })
    }
}

impl Annotation {
    /// Encodes the cell value.
    #[must_use]
    pub fn to_json(&self) -> String {
        let object = ObjectWriter::new();
        let object =
            if self.tsuid.is_empty() { object } else { object.string("tsuid", &self.tsuid) };
        object
            .integer("startTime", self.start_time)
            .integer("endTime", self.end_time)
            .string("description", &self.description)
            .string("notes", &self.notes)
            .custom("custom", self.custom.as_ref(), CustomOrder::Sorted)
            .finish()
    }

    /// Parses a cell value: any field order, unknown fields ignored.
    pub fn from_json(value: &[u8]) -> Result<Self, JsonError> {
        let object = ObjectReader::new(value)?;
        Ok(Self {
            tsuid: object.string("tsuid")?,
            start_time: object.integer("startTime")?,
            end_time: object.integer("endTime")?,
            description: object.string("description")?,
            notes: object.string("notes")?,
            custom: object.custom("custom")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::column_kind::ColumnKind;

    #[test]
    fn start_times_below_one_have_no_position() {
        for start in [0, i64::MIN] {
            assert_eq!(AnnotationKey::of(start), Err(TimestampError::OutOfRange(start)));
        }
    }

    /// Issue 37: such a start time was stored 2^32 seconds earlier.
    #[test]
    fn start_times_after_2106_have_no_position() {
        assert!(AnnotationKey::of(4_294_967_295_999).is_ok());
        for start in [4_294_967_296_000, 9_999_999_999_999] {
            assert_eq!(AnnotationKey::of(start), Err(TimestampError::AfterLast(start)));
        }
    }

    #[test]
    fn custom_fields_are_sorted_by_utf_16() {
        let custom = ["z", "\u{FFFD}", "😀", "a"].map(|k| (k.to_owned(), Some("v".to_owned())));
        let annotation = Annotation { custom: Some(custom.to_vec()), ..Annotation::default() };
        assert!(
            annotation.to_json().ends_with(r#"{"a":"v","z":"v","\uD83D\uDE00":"v","�":"v"}}"#),
            "{}",
            annotation.to_json()
        );
    }

    #[test]
    fn json_of_other_writers_is_read() {
        let json = br#" { "x": [1], "endTime" : "7", "custom": {"a": null, "b": 1},
            "startTime": 1356998400.9, "notes": null } "#;
        let expected = Annotation {
            start_time: 1_356_998_400,
            end_time: 7,
            custom: Some(vec![("a".into(), None), ("b".into(), Some("1".into()))]),
            ..Annotation::default()
        };
        assert_eq!(Annotation::from_json(json), Ok(expected));
        assert_eq!(Annotation::from_json(b"[]"), Err(JsonError::NotAnObject));
        assert_eq!(
            Annotation::from_json(br#"{"startTime":{}}"#),
            Err(JsonError::Field("startTime"))
        );
        assert!(Annotation::from_json(b"{").is_err());
        let followed = Annotation::from_json(br#"{"startTime":7} {"#);
        assert_eq!(followed.map(|annotation| annotation.start_time), Ok(7));
        for beyond in ["9223372036854775808", "-9223372036854777000", "1e300"] {
            let json = format!(r#"{{"startTime":{beyond}}}"#);
            let read = Annotation::from_json(json.as_bytes());
            assert_eq!(read, Err(JsonError::Field("startTime")), "{beyond}");
        }
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(
            tsuid in "[0-9A-F]{0,18}", start_time: i64, end_time: i64, description: String,
            notes: String, custom in prop::option::of(prop::collection::btree_map(
                any::<String>(), prop::option::of(any::<String>()), 0..6)),
        ) {
            let mut custom: Option<CustomFields> = custom.map(|c| c.into_iter().collect());
            if let Some(fields) = &mut custom {
                fields.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
            }
            let annotation = Annotation { tsuid, start_time, end_time, description, notes, custom };
            prop_assert_eq!(Annotation::from_json(annotation.to_json().as_bytes()), Ok(annotation));
        }

        #[test]
        fn positions_are_annotation_columns(start_time in 1..Timestamp::MAX.as_given()) {
            let kind = AnnotationKey::of(start_time).map(|p| ColumnKind::of(&p.qualifier));
            prop_assert_eq!(kind, Ok(ColumnKind::Annotation));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Annotation::from_json(&value);
        }
    }
}

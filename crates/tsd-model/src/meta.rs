//! User-defined descriptions of series (TSMeta) and names (UIDMeta).

use crate::{
    json_object::{CustomFields, CustomOrder, JsonError, ObjectReader, ObjectWriter},
    uid::UidKind,
};

/// Qualifiers of the meta table, family `name`.
pub const TS_META_QUALIFIER: &str = "ts_meta";
/// Qualifier of the counter of a series: a big-endian `i64`.
pub const TS_COUNTER_QUALIFIER: &str = "ts_ctr";

/// Meta data of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct TsMeta {
    /// TSUID in hex.
    pub tsuid: String,
    /// Display name.
    pub display_name: String,
    /// Short text.
    pub description: String,
    /// Long text.
    pub notes: String,
    /// Epoch seconds.
    pub created: i64,
    /// User-defined fields.
    pub custom: Option<CustomFields>,
    /// Unit of the values.
    pub units: String,
    /// Type of the data.
    pub data_type: String,
    /// Retention in days; not enforced.
    pub retention: i64,
    /// Largest expected value; NaN if unknown.
    pub max: f64,
    /// Smallest expected value; NaN if unknown.
    pub min: f64,
}

impl TsMeta {
    /// The object of a new series. A creation time in milliseconds is truncated to seconds.
    #[must_use]
    pub fn new(tsuid: &str, created: i64) -> Self {
        Self {
            tsuid: tsuid.to_owned(),
            display_name: String::new(),
            description: String::new(),
            notes: String::new(),
            created: if created > 9_999_999_999 { created / 1_000 } else { created },
            custom: None,
            units: String::new(),
            data_type: String::new(),
            retention: 0,
            max: f64::NAN,
            min: f64::NAN,
        }
    }

    /// Encodes the cell value.
    #[must_use]
    pub fn to_json(&self) -> String {
        ObjectWriter::new()
            .string("tsuid", &self.tsuid)
            .string("displayName", &self.display_name)
            .string("description", &self.description)
            .string("notes", &self.notes)
            .integer("created", self.created)
            .custom("custom", self.custom.as_ref(), CustomOrder::HashMap)
            .string("units", &self.units)
            .string("dataType", &self.data_type)
            .integer("retention", self.retention)
            .double("max", self.max)
            .double("min", self.min)
            .finish()
    }

    /// Parses a cell value.
    pub fn from_json(value: &[u8]) -> Result<Self, JsonError> {
        let object = ObjectReader::new(value)?;
        Ok(Self {
            display_name: object.string("displayName")?,
            description: object.string("description")?,
            notes: object.string("notes")?,
            custom: object.custom("custom")?,
            units: object.string("units")?,
            data_type: object.string("dataType")?,
            retention: object.integer("retention")?,
            max: object.double("max", f64::NAN)?,
            min: object.double("min", f64::NAN)?,
            ..Self::new(&object.string("tsuid")?, object.integer("created")?)
        })
    }
}

/// Meta data of a name. UID and name are in the row of the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UidMeta {
    /// Kind of the name.
    pub kind: UidKind,
    /// Display name.
    pub display_name: String,
    /// Short text.
    pub description: String,
    /// Long text.
    pub notes: String,
    /// Epoch seconds; 0 if unknown.
    pub created: i64,
    /// User-defined fields.
    pub custom: Option<CustomFields>,
}

impl UidMeta {
    /// The object of a newly assigned name; with time 0, the meaning of an absent cell.
    #[must_use]
    pub const fn new(kind: UidKind, created: i64) -> Self {
        Self {
            kind,
            display_name: String::new(),
            description: String::new(),
            notes: String::new(),
            created,
            custom: None,
        }
    }

    /// Encodes the cell value.
    #[must_use]
    pub fn to_json(&self) -> String {
        ObjectWriter::new()
            .string("type", self.kind.type_name())
            .string("displayName", &self.display_name)
            .string("description", &self.description)
            .string("notes", &self.notes)
            .integer("created", self.created)
            .custom("custom", self.custom.as_ref(), CustomOrder::HashMap)
            .finish()
    }

    /// Parses a cell value. `kind` comes from the qualifier and applies if the object names no
    /// kind.
    pub fn from_json(kind: UidKind, value: &[u8]) -> Result<Self, JsonError> {
        let object = ObjectReader::new(value)?;
        let name = object.string("type")?;
        let kind = match UidKind::from_name(&name) {
            Some(kind) => kind,
            None if name.is_empty() => kind,
            None => return Err(JsonError::Field("type")),
        };
        Ok(Self {
            kind,
            display_name: object.string("displayName")?,
            description: object.string("description")?,
            notes: object.string("notes")?,
            created: object.integer("created")?,
            custom: object.custom("custom")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn creation_in_milliseconds_is_truncated_to_seconds() {
        assert_eq!(TsMeta::new("01", 1_356_998_400_123).created, 1_356_998_400);
        assert_eq!(TsMeta::new("01", 9_999_999_999).created, 9_999_999_999);
    }

    #[test]
    fn an_unknown_type_is_an_error() {
        assert!(UidMeta::from_json(UidKind::Tagk, br#"{"type":"X"}"#).is_err());
        let meta = UidMeta::from_json(UidKind::Tagk, b"{}");
        assert_eq!(meta, Ok(UidMeta::new(UidKind::Tagk, 0)));
    }

    fn custom() -> impl Strategy<Value = Option<CustomFields>> {
        let fields = prop::collection::btree_map(any::<String>(), any::<Option<String>>(), 0..20);
        prop::option::of(fields.prop_map(|c| {
            let mut fields: CustomFields = c.into_iter().collect();
            crate::java_hash::sort_as_copied_hash_map(&mut fields, |f| &f.0);
            fields
        }))
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(value in "[{]?[\"a-zN:0-9,. -]{0,30}[}]?") {
            let _ = TsMeta::from_json(value.as_bytes());
            let _ = UidMeta::from_json(UidKind::Metric, value.as_bytes());
        }

        #[test]
        fn decode_inverts_encode(
            display_name: String, created in 0..9_999_999_999_i64, custom in custom(), max: f64, min: f64,
            retention: i32,
        ) {
            let meta = TsMeta {
                display_name: display_name.clone(),
                custom: custom.clone(),
                retention: retention.into(),
                max,
                min,
                ..TsMeta::new("00000A", created)
            };
            let json = meta.to_json();
            prop_assert_eq!(TsMeta::from_json(json.as_bytes()).map(|m| m.to_json()), Ok(json));
            let meta = UidMeta { display_name, custom, ..UidMeta::new(UidKind::Tagv, created) };
            prop_assert_eq!(
                UidMeta::from_json(UidKind::Metric, meta.to_json().as_bytes()),
                Ok(meta)
            );
        }
    }
}

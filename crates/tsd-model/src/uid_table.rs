//! Cells of the UID table.
//!
//! ```text
//! 00          id:<kind>        i64, the highest number assigned
//! name bytes  id:<kind>        UID
//! UID bytes   name:<kind>      name bytes
//! UID bytes   name:<kind>_meta JSON
//! ```

use bytes::Bytes;

use crate::{
    cell::Family,
    json_object::JsonError,
    meta::UidMeta,
    table_schema::TableSchema,
    uid::{Uid, UidError, UidKind},
};

/// Row of the three counters.
pub const UID_COUNTER_ROW: [u8; 1] = [0];

/// A decoded cell of the UID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UidCell {
    /// Number of assigned UIDs of a kind.
    Counter(UidKind, i64),
    /// A name has a UID.
    Forward(UidKind, Bytes, Uid),
    /// A UID has a name.
    Reverse(UidKind, Uid, Bytes),
    /// Meta data of a name.
    Meta(UidKind, Uid, UidMeta),
}

/// An invalid cell of the UID table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UidCellError {
    /// An unknown column.
    #[error("unknown column of the UID table")]
    Column,
    /// A counter that is not eight bytes.
    #[error("UID counter of {0} bytes")]
    Counter(usize),
    /// A UID of another width than configured.
    #[error(transparent)]
    Uid(#[from] UidError),
    /// Invalid meta data.
    #[error("meta data of a UID")]
    Meta(#[source] JsonError),
}

impl UidCell {
    /// Decodes a cell.
    pub fn decode(
        schema: &TableSchema,
        row: &Bytes,
        family: Family,
        qualifier: &[u8],
        value: &Bytes,
    ) -> Result<Self, UidCellError> {
        let of = |name: fn(UidKind) -> &'static str| {
            UidKind::ALL.into_iter().find(|kind| name(*kind).as_bytes() == qualifier)
        };
        let uid = |kind: UidKind, bytes: &[u8]| Uid::with_width(bytes, kind.width(schema));
        match family {
            Family::Id => {
                let kind = of(UidKind::as_str).ok_or(UidCellError::Column)?;
                if row.as_ref() == UID_COUNTER_ROW {
                    let count = decode_counter(value).ok_or(UidCellError::Counter(value.len()))?;
                    return Ok(Self::Counter(kind, count));
                }
                Ok(Self::Forward(kind, row.clone(), uid(kind, value)?))
            }
            Family::Name => {
                if let Some(kind) = of(UidKind::as_str) {
                    return Ok(Self::Reverse(kind, uid(kind, row)?, value.clone()));
                }
                let kind = of(UidKind::meta_qualifier).ok_or(UidCellError::Column)?;
                let meta = UidMeta::from_json(kind, value).map_err(UidCellError::Meta)?;
                Ok(Self::Meta(kind, uid(kind, row)?, meta))
            }
            Family::T => Err(UidCellError::Column),
        }
    }

    /// Row, family, qualifier and value.
    #[must_use]
    pub fn encode(&self) -> (Bytes, Family, &'static str, Bytes) {
        let bytes = Bytes::copy_from_slice;
        match self {
            Self::Counter(kind, count) => {
                (bytes(&UID_COUNTER_ROW), Family::Id, kind.as_str(), bytes(&encode_counter(*count)))
            }
            Self::Forward(kind, name, uid) => {
                (name.clone(), Family::Id, kind.as_str(), bytes(uid.as_bytes()))
            }
            Self::Reverse(kind, uid, name) => {
                (bytes(uid.as_bytes()), Family::Name, kind.as_str(), name.clone())
            }
            Self::Meta(kind, uid, meta) => {
                (bytes(uid.as_bytes()), Family::Name, kind.meta_qualifier(), meta.to_json().into())
            }
        }
    }
}

/// Bytes of a counter cell.
#[must_use]
pub const fn encode_counter(count: i64) -> [u8; 8] {
    count.to_be_bytes()
}

/// Number of a counter cell; `None` unless it has eight bytes.
#[must_use]
pub fn decode_counter(value: &[u8]) -> Option<i64> {
    value.try_into().ok().map(i64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decode_inverts_encode(
            which in 0..3_usize, width in 1..=8_usize, number in 1..=255_u64, count: i64,
            name in prop::collection::vec(any::<u8>(), 2..20),
        ) {
            let schema = TableSchema::try_new(width, width, width, 0, 20).unwrap();
            let kind = *UidKind::ALL.get(which).unwrap();
            let uid = Uid::from_number(number, width).unwrap();
            let name = Bytes::from(name);
            for cell in [
                UidCell::Counter(kind, count),
                UidCell::Forward(kind, name.clone(), uid),
                UidCell::Reverse(kind, uid, name.clone()),
                UidCell::Meta(kind, uid, UidMeta::new(kind, count)),
            ] {
                let (row, family, qualifier, value) = cell.encode();
                let decoded =
                    UidCell::decode(&schema, &row, family, qualifier.as_bytes(), &value);
                prop_assert_eq!(decoded, Ok(cell));
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            row in prop::collection::vec(any::<u8>(), 0..9),
            value in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let schema = TableSchema::opentsdb_default();
            for family in [Family::Id, Family::Name, Family::T] {
                for qualifier in ["metrics", "tagk_meta", "x"] {
                    let (row, value) = (row.clone().into(), value.clone().into());
                    let _ = UidCell::decode(&schema, &row, family, qualifier.as_bytes(), &value);
                }
            }
        }
    }
}

//! TSUID: the identity of a series, without salt and time.

use std::{fmt, sync::Arc};

use crate::{hex, table_schema::TableSchema};

/// Metric UID followed by the tag pairs in the order of their tag key UIDs.
///
/// The text form is upper-case hex. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tsuid(Arc<[u8]>);

/// Bytes or text that are not a TSUID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TsuidError {
    /// Not a metric UID and whole tag pairs.
    #[error("TSUID of {0} bytes")]
    Length(usize),
    /// Not hexadecimal.
    #[error("\"{0}\" is no hexadecimal TSUID")]
    Hex(String),
}

impl Tsuid {
    /// Validates the bytes of a TSUID: a metric UID and at least one tag pair.
    pub fn try_new(schema: &TableSchema, bytes: &[u8]) -> Result<Self, TsuidError> {
        let tags = bytes.len().wrapping_sub(schema.metric_width());
        if bytes.len() <= schema.metric_width() || !tags.is_multiple_of(schema.tag_pair_width()) {
            return Err(TsuidError::Length(bytes.len()));
        }
        Ok(Self(Arc::from(bytes)))
    }

    /// Parses hex of either case.
    pub fn parse_hex(schema: &TableSchema, text: &str) -> Result<Self, TsuidError> {
        let bytes =
            hex::from_hex(text.as_bytes()).ok_or_else(|| TsuidError::Hex(text.to_owned()))?;
        Self::try_new(schema, &bytes)
    }

    pub(crate) fn from_parts(metric: &[u8], tags: &[u8]) -> Self {
        Self(metric.iter().chain(tags).copied().collect())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Tsuid {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Tsuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::to_hex(&self.0))
    }
}

impl fmt::Debug for Tsuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tsuid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_upper_case_hex() {
        let schema = TableSchema::opentsdb_default();
        let tsuid = Tsuid::parse_hex(&schema, "00000a00000100000b").map(|t| t.to_string());
        assert_eq!(tsuid.as_deref(), Ok("00000A00000100000B"));
    }

    #[test]
    fn incomplete_tsuids_are_rejected() {
        let schema = TableSchema::opentsdb_default();
        for length in [0, 2, 3, 8, 10] {
            assert_eq!(Tsuid::try_new(&schema, &vec![1; length]), Err(TsuidError::Length(length)));
        }
        assert!(Tsuid::parse_hex(&schema, "zz").is_err());
    }
}

//! Descriptors of tables and column families.
//!
//! Properties are text; absent properties have the server's default. Common properties have methods;
//! [`FamilyDescriptor::attribute`] sets any property.

use std::collections::BTreeMap;

use bytes::Bytes;
use hbase_rs_protobuf as pb;

use crate::table_name::{TableName, TableNameError};

/// Descriptor of a column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyDescriptor {
    name: Bytes,
    attributes: BTreeMap<String, String>,
}

impl FamilyDescriptor {
    /// Starts with the server's defaults.
    pub fn new(name: impl Into<Bytes>) -> Self {
        Self { name: name.into(), attributes: BTreeMap::new() }
    }

    /// Sets a property by its HBase name.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: impl Into<String>) -> Self {
        self.attributes.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the maximum number of versions per column.
    #[must_use]
    pub fn versions(self, versions: u32) -> Self {
        self.attribute("VERSIONS", versions.to_string())
    }

    /// Sets the cells' time to live in seconds.
    #[must_use]
    pub fn ttl_secs(self, ttl: u32) -> Self {
        self.attribute("TTL", ttl.to_string())
    }

    /// Sets the compression of store files: `NONE`, `SNAPPY`, `LZ4`, `ZSTD`, `GZ` or another algorithm
    /// that the servers support.
    #[must_use]
    pub fn compression(self, algorithm: &str) -> Self {
        self.attribute("COMPRESSION", algorithm)
    }

    /// Sets the Bloom filter: `NONE`, `ROW`, `ROWCOL`.
    #[must_use]
    pub fn bloom_filter(self, kind: &str) -> Self {
        self.attribute("BLOOMFILTER", kind)
    }

    /// Sets the data block encoding: `NONE`, `PREFIX`, `DIFF`, `FAST_DIFF`, `ROW_INDEX_V1`.
    #[must_use]
    pub fn data_block_encoding(self, encoding: &str) -> Self {
        self.attribute("DATA_BLOCK_ENCODING", encoding)
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &Bytes {
        &self.name
    }

    /// Returns a property if it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

/// Descriptor of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDescriptor {
    name: TableName,
    families: Vec<FamilyDescriptor>,
    attributes: BTreeMap<String, String>,
}

impl TableDescriptor {
    /// Starts without column families; a table needs at least one.
    #[must_use]
    pub const fn new(name: TableName) -> Self {
        Self { name, families: Vec::new(), attributes: BTreeMap::new() }
    }

    /// Adds a column family.
    #[must_use]
    pub fn family(mut self, family: FamilyDescriptor) -> Self {
        self.families.push(family);
        self
    }

    /// Sets a property by its HBase name.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: impl Into<String>) -> Self {
        self.attributes.insert(name.to_owned(), value.into());
        self
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &TableName {
        &self.name
    }

    /// Returns the column families.
    #[must_use]
    pub fn families(&self) -> &[FamilyDescriptor] {
        &self.families
    }

    /// Returns a property if it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    pub(super) fn to_message(&self) -> pb::TableSchema {
        let family = |family: &FamilyDescriptor| pb::ColumnFamilySchema {
            name: family.name.clone(),
            attributes: pairs(&family.attributes),
            configuration: Vec::new(),
        };
        pb::TableSchema {
            table_name: Some(self.name.to_message()),
            attributes: pairs(&self.attributes),
            column_families: self.families.iter().map(family).collect(),
            configuration: Vec::new(),
        }
    }

    pub(super) fn from_message(message: &pb::TableSchema) -> Result<Self, TableNameError> {
        let name = TableName::from_message(&message.table_name.clone().unwrap_or_default())?;
        let family = |family: &pb::ColumnFamilySchema| FamilyDescriptor {
            name: family.name.clone(),
            attributes: texts(&family.attributes),
        };
        let families = message.column_families.iter().map(family).collect();
        Ok(Self { name, families, attributes: texts(&message.attributes) })
    }
}

fn pairs(attributes: &BTreeMap<String, String>) -> Vec<pb::BytesBytesPair> {
    let pair = |(name, value): (&String, &String)| pb::BytesBytesPair {
        first: name.clone().into(),
        second: value.clone().into(),
    };
    attributes.iter().map(pair).collect()
}

fn texts(pairs: &[pb::BytesBytesPair]) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    pairs.iter().map(|pair| (text(&pair.first), text(&pair.second))).collect()
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::recorded;

    #[test]
    fn table_descriptor_decodes_as_recorded() {
        let mut frame = recorded::vector("create-table").slice(4..);
        let header = prost::decode_length_delimiter(&mut frame).unwrap();
        let request =
            pb::CreateTableRequest::decode_length_delimited(frame.slice(header..)).unwrap();
        let decoded = TableDescriptor::from_message(&request.table_schema).unwrap();
        let family = FamilyDescriptor::new("t")
            .versions(1)
            .compression("NONE")
            .bloom_filter("ROW")
            .data_block_encoding("DIFF")
            .attribute("TTL", i32::MAX.to_string());
        let table = TableDescriptor::new("tsdb".parse().unwrap()).family(family);
        assert_eq!(decoded, table);
        assert_eq!(TableDescriptor::from_message(&table.to_message()).unwrap(), table);
        assert_eq!(table.families()[0].get("VERSIONS"), Some("1"));
    }
}

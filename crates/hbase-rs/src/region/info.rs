//! A region and its location.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use hbase_rs_protobuf as pb;

use super::name::{encoded_name, region_name};
use crate::{server_name::ServerName, table_name::TableName};

/// A range of a table's rows that one server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    name: Bytes,
    table: TableName,
    start_key: Bytes,
    end_key: Bytes,
    id: u64,
    replica: u16,
    split: bool,
    offline: bool,
}

impl Region {
    /// Returns the single region of hbase:meta.
    #[must_use]
    pub fn meta() -> Self {
        Self::new(TableName::meta(), Bytes::new(), Bytes::new(), 1)
    }

    /// Returns the region with these boundaries and id.
    #[must_use]
    pub fn new(table: TableName, start_key: Bytes, end_key: Bytes, id: u64) -> Self {
        let name = region_name(&table, &start_key, id, 0);
        Self { name, table, start_key, end_key, id, replica: 0, split: false, offline: false }
    }

    /// Decodes the message. Keys are copied, since regions outlive the response.
    #[must_use]
    pub(crate) fn from_message(message: &pb::RegionInfo) -> Option<Self> {
        let table = TableName::from_message(&message.table_name).ok()?;
        let replica = u16::try_from(message.replica_id()).ok()?;
        let start_key = Bytes::copy_from_slice(message.start_key());
        let end_key = Bytes::copy_from_slice(message.end_key());
        let name = region_name(&table, &start_key, message.region_id, replica);
        let (split, offline) = (message.split(), message.offline());
        Some(Self {
            name,
            table,
            start_key,
            end_key,
            id: message.region_id,
            replica,
            split,
            offline,
        })
    }

    /// Returns the region as a message.
    #[must_use]
    #[doc(hidden)]
    pub fn to_message(&self) -> pb::RegionInfo {
        pb::RegionInfo {
            region_id: self.id,
            table_name: self.table.to_message(),
            start_key: Some(self.start_key.clone()),
            end_key: Some(self.end_key.clone()),
            offline: Some(self.offline),
            split: Some(self.split),
            replica_id: Some(self.replica.into()),
        }
    }

    /// Full name, as region servers expect it.
    #[must_use]
    pub const fn name(&self) -> &Bytes {
        &self.name
    }

    /// Hash in the name, as the master expects it.
    #[must_use]
    pub fn encoded_name(&self) -> String {
        encoded_name(&self.name)
    }

    /// Table of the region.
    #[must_use]
    pub const fn table(&self) -> &TableName {
        &self.table
    }

    /// First row; empty for the start of the table.
    #[must_use]
    pub const fn start_key(&self) -> &Bytes {
        &self.start_key
    }

    /// Row after the last; empty for the end of the table.
    #[must_use]
    pub const fn end_key(&self) -> &Bytes {
        &self.end_key
    }

    /// Time of creation in epoch milliseconds. Daughters have a higher id than their parents.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// True if it is the replica that accepts writes.
    #[must_use]
    pub const fn is_default_replica(&self) -> bool {
        self.replica == 0
    }

    /// True if it was split and only its row in hbase:meta remains.
    #[must_use]
    pub const fn is_split_parent(&self) -> bool {
        self.split && self.offline
    }

    /// True if the row is in the region.
    #[must_use]
    pub fn contains(&self, row: &[u8]) -> bool {
        row >= &self.start_key[..] && self.ends_after(row)
    }

    /// True if the region ends after `row`.
    pub(crate) fn ends_after(&self, row: &[u8]) -> bool {
        self.end_key.is_empty() || row < &self.end_key[..]
    }
}

impl fmt::Display for Region {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.name.escape_ascii())
    }
}

/// Location of a region, as of a sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionLocation {
    /// The region.
    pub region: Arc<Region>,
    /// Server of the region.
    pub server: ServerName,
    /// Sequence number, which grows each time the region is opened.
    pub seq_num: i64,
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::recorded;

    #[test]
    fn region_contains_rows_between_its_keys() {
        let region = Region::new("t".parse().unwrap(), "b".into(), "d".into(), 1);
        for (row, inside) in
            [("a", false), ("b", true), ("c\u{7f}", true), ("d", false), ("e", false)]
        {
            assert_eq!(region.contains(row.as_bytes()), inside, "{row}");
        }
        let whole = Region::new("t".parse().unwrap(), Bytes::new(), Bytes::new(), 1);
        assert!(whole.contains(b"") && whole.contains(b"zzz"));
    }

    #[test]
    fn stored_message_decodes_to_the_name() {
        let value = recorded::vector("regioninfo-value").slice(4..);
        let region = Region::from_message(&pb::RegionInfo::decode(value.clone()).unwrap()).unwrap();
        assert_eq!(region.name(), &recorded::vector("region-name-first"));
        assert_eq!(region.encoded_name(), "e636cd1390a616149c5dec0be0259ffb");
        assert_eq!(region.to_message().encode_to_vec(), value);
        assert!(!region.is_split_parent() && region.is_default_replica());
        let parent =
            pb::RegionInfo::decode(recorded::vector("regioninfo-split-parent").slice(4..)).unwrap();
        assert!(Region::from_message(&parent).unwrap().is_split_parent());
    }

    #[test]
    fn meta_has_one_region() {
        let meta = Region::meta();
        assert_eq!(meta.name(), &recorded::vector("region-name-meta"));
        assert_eq!(meta.encoded_name(), "1588230740");
        assert_eq!(meta.to_string(), "hbase:meta,,1");
    }
}

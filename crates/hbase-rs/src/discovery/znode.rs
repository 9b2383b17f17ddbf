//! Values of the znodes that HBase writes to ZooKeeper.

use bytes::{Buf, Bytes};
use hbase_rs_protobuf as pb;
use prost::Message;

use super::DiscoveryError;
use crate::server_name::ServerName;

/// Maximum length of the writer's metadata before a value.
const MAX_METADATA: usize = 65_000;

/// Subjects of lookups, in errors.
pub(super) const META_SERVER: &str = "the server of hbase:meta";
pub(super) const MASTER: &str = "the active master";

/// Reads the server of hbase:meta from the value of its znode.
///
/// # Errors
///
/// [`DiscoveryError::Unknown`] for a value that is not written yet, [`DiscoveryError::Damaged`] for one that
/// names no server.
pub fn read_meta_server_znode(value: &Bytes) -> Result<ServerName, DiscoveryError> {
    let node: pb::MetaRegionServer = decode(value, META_SERVER)?;
    ServerName::from_message(&node.server).ok_or(DiscoveryError::Damaged { what: META_SERVER })
}

/// Reads the active master from the value of its znode.
///
/// # Errors
///
/// As [`read_meta_server_znode`].
pub fn read_master_znode(value: &Bytes) -> Result<ServerName, DiscoveryError> {
    let node: pb::Master = decode(value, MASTER)?;
    ServerName::from_message(&node.master).ok_or(DiscoveryError::Damaged { what: MASTER })
}

/// Decodes a znode's value: optional metadata of its writer, `PBUF`, the message. An empty value is not
/// written yet.
fn decode<M: Message + Default>(data: &Bytes, what: &'static str) -> Result<M, DiscoveryError> {
    let mut data = data.clone();
    let Some(first) = data.first() else { return Err(DiscoveryError::Unknown { what }) };
    let damaged = || DiscoveryError::Damaged { what };
    if *first == 0xff {
        data.advance(1);
        let metadata = data.try_get_u32().map_err(|_| damaged())? as usize;
        if metadata > MAX_METADATA || metadata > data.len() {
            return Err(damaged());
        }
        data.advance(metadata);
    }
    let message = data.strip_prefix(b"PBUF").ok_or_else(damaged)?;
    M::decode(message).map_err(|_| damaged())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::recorded;

    #[test]
    fn recorded_znodes_are_decoded() {
        for vector in ["znode-meta-region-server", "znode-without-metadata"] {
            let node: pb::MetaRegionServer = decode(&recorded::vector(vector), "x").unwrap();
            assert_eq!(node.server.host_name, "rs1.example.org");
        }
        let master: pb::Master = decode(&recorded::vector("znode-master"), "x").unwrap();
        assert_eq!(ServerName::from_message(&master.master).unwrap().host(), "m1.example.org");
        let id: pb::ClusterId = decode(&recorded::vector("znode-hbaseid"), "x").unwrap();
        assert_eq!(id.cluster_id.len(), 36);
    }

    #[test]
    fn empty_value_is_unknown_and_junk_is_damaged() {
        let empty = decode::<pb::Master>(&Bytes::new(), "x");
        assert!(matches!(empty, Err(DiscoveryError::Unknown { .. })), "{empty:?}");
        for bytes in [&b"junk"[..], b"\xff\xff\xff\xff\xffPBUF", b"\xff\0\0", b"PBUF\xff"] {
            let junk = decode::<pb::Master>(&Bytes::from_static(bytes), "x");
            assert!(matches!(junk, Err(DiscoveryError::Damaged { .. })), "{junk:?}");
        }
    }

    proptest! {
        #[test]
        fn decoding_arbitrary_bytes_does_not_panic(bytes in vec(any::<u8>(), 0..40)) {
            let _ = decode::<pb::Master>(&bytes.into(), "x");
        }
    }
}

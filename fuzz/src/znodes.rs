//! Values that HBase writes to ZooKeeper.

use bytes::Bytes;
use hbase_rs::{ServerName, discovery::DiscoveryError, protocol};

type Read = fn(&Bytes) -> Result<ServerName, DiscoveryError>;

/// The value of a znode that names a server, which must be equal with and without the metadata of
/// its writer.
pub(crate) fn znode(input: &[u8]) {
    for read in [protocol::read_meta_server_znode as Read, protocol::read_master_znode as Read] {
        let read = |value: &[u8]| read(&Bytes::copy_from_slice(value));
        match read(input) {
            Ok(name) => {
                assert!(!name.host().is_empty() && name.host().len() <= input.len(), "a host");
                assert!(name.port() != 0, "a port");
                assert_eq!(ServerName::parse(&name.to_string()), Some(name), "a name");
            }
            Err(error) => assert!(!error.to_string().is_empty(), "an error says what"),
        }
        if input.starts_with(b"PBUF") {
            let with_metadata = [&b"\xFF\0\0\0\x03abc"[..], input].concat();
            assert_eq!(read(&with_metadata).ok(), read(input).ok(), "metadata does not count");
        }
    }
}

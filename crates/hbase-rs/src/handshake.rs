//! Preamble and header of a connection.
//!
//! With simple authentication the server sends no reply, so preamble, header and the first request
//! are one write. The server rejects a header (unknown service, codec or compressor) by closing the
//! connection without sending a byte.
//!
//! The header always has a version. Without it the server would never limit the size of Multi
//! responses, and would return the cells of a Get in protobuf.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

use crate::compression::Compressor;

/// Java class of the supported cell codec.
pub const CELL_CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";

/// Authentication method of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthMethod {
    /// User name without proof.
    Simple,
    /// Kerberos: SASL GSSAPI.
    Kerberos,
    /// Delegation token: SASL DIGEST-MD5.
    Digest,
}

impl AuthMethod {
    /// Returns the six bytes that start a connection.
    #[must_use]
    pub const fn preamble(self) -> [u8; 6] {
        let method = match self {
            Self::Simple => 0x50,
            Self::Kerberos => 0x51,
            Self::Digest => 0x52,
        };
        [b'H', b'B', b'a', b's', 0, method]
    }
}

/// RPC service. A connection serves one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Service {
    /// Reads and writes; region server.
    Client,
    /// Flush and compaction; region server.
    Admin,
    /// Tables and procedures; master.
    Master,
    /// Discovery without ZooKeeper; master and, since HBase 2.5, region server.
    ClientMeta,
}

impl Service {
    /// Returns the name in the connection header.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "ClientService",
            Self::Admin => "AdminService",
            Self::Master => "MasterService",
            Self::ClientMeta => "ClientMetaService",
        }
    }
}

/// Encodes the connection header with its length prefix; it follows the preamble. Without a user, the
/// server uses the authenticated one.
#[must_use]
pub fn connection_header(
    user: Option<&str>,
    service: Service,
    compressor: Option<Compressor>,
) -> Bytes {
    let user_info =
        user.map(|user| pb::UserInformation { effective_user: user.to_owned(), real_user: None });
    let header = pb::ConnectionHeader {
        user_info,
        service_name: Some(service.name().to_owned()),
        cell_block_codec_class: Some(CELL_CODEC.to_owned()),
        cell_block_compressor_class: compressor
            .map(|compressor| compressor.class_name().to_owned()),
        version_info: Some(pb::VersionInfo {
            version: "2.6.0".to_owned(),
            version_major: Some(2),
            version_minor: Some(6),
            ..pb::VersionInfo::default()
        }),
        ..pb::ConnectionHeader::default()
    };
    let length = (header.encoded_len() as u32).to_be_bytes();
    [&length[..], &header.encode_to_vec()].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded;

    #[test]
    fn preambles_encode_as_recorded() {
        for (method, vector) in [
            (AuthMethod::Simple, "preamble-simple"),
            (AuthMethod::Kerberos, "preamble-kerberos"),
            (AuthMethod::Digest, "preamble-digest"),
        ] {
            assert_eq!(method.preamble()[..], recorded::vector(vector));
        }
    }

    #[test]
    fn connection_headers_encode_as_recorded() {
        let full = connection_header(Some("tsd"), Service::Client, Some(Compressor::Snappy));
        assert_eq!(full, recorded::vector("connection-header-full"));
        let master = connection_header(Some("tsd"), Service::Master, None);
        assert_eq!(master, recorded::vector("connection-header-master"));
    }
}

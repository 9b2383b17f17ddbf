//! First bytes of a connection.
//!
//! With simple authentication the server says nothing back, so preamble, header and the first
//! request leave together. A header that it does not like (unknown service, codec or compressor) is
//! met with a silent close: "closed before any byte came" is the only sign.
//!
//! The header always carries a version. Without one the server takes the client for an ancient one:
//! answers to Multi are then never cut at the size limit, and a Get carries its cells in protobuf.

use bytes::{BufMut, Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use prost::Message;

use crate::compression::Compressor;

/// Java class of the one cell codec that is spoken.
pub const CELL_CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";

/// How a connection proves who it acts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthMethod {
    /// By saying a name.
    Simple,
    /// Kerberos, through SASL's GSSAPI.
    Kerberos,
    /// A delegation token, through SASL's DIGEST-MD5.
    Digest,
}

impl AuthMethod {
    /// The six bytes every connection begins with.
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

/// What a port offers. A connection is bound to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Service {
    /// Reads and writes, at a region server.
    Client,
    /// Flush and compaction, at a region server.
    Admin,
    /// Tables and procedures, at the master.
    Master,
    /// Discovery without ZooKeeper, at either.
    ClientMeta,
}

impl Service {
    /// Name in the connection header.
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

/// The header behind the preamble, with its length.
#[must_use]
pub fn connection_header(user: &str, service: Service, compressor: Option<Compressor>) -> Bytes {
    let header = pb::ConnectionHeader {
        user_info: Some(pb::UserInformation { effective_user: user.to_owned(), real_user: None }),
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
    let mut out = BytesMut::with_capacity(4 + header.encoded_len());
    out.put_u32(header.encoded_len() as u32);
    out.put_slice(&header.encode_to_vec());
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded;

    #[test]
    fn preambles_are_those_of_the_protocol() {
        for (method, vector) in [
            (AuthMethod::Simple, "preamble-simple"),
            (AuthMethod::Kerberos, "preamble-kerberos"),
            (AuthMethod::Digest, "preamble-digest"),
        ] {
            assert_eq!(method.preamble()[..], recorded::vector(vector));
        }
    }

    #[test]
    fn headers_name_user_service_codec_and_version() {
        let full = connection_header("tsd", Service::Client, Some(Compressor::Snappy));
        assert_eq!(full, recorded::vector("connection-header-full"));
        let master = connection_header("tsd", Service::Master, None);
        assert_eq!(master, recorded::vector("connection-header-master"));
    }
}

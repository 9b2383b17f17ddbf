//! Certificates and keys of files, and the TLS settings made of them, by rustls.
//!
//! The connections between nodes, the port of clients, and the connections that the daemon and its tools open share
//! this code. It reads files when it is told to; its users decide when. The HBase client has its own code, because it
//! is published without the daemon's crates.

mod certificate;
mod client;
mod pem_file;
mod server;

pub use self::{
    certificate::{CertificateValidity, client_name},
    client::{ClientFiles, ClientTls},
    pem_file::{PemFile, TlsFileError},
    server::{ClientAuth, LeastVersion, ServerFiles, ServerOptions, ServerTls},
};

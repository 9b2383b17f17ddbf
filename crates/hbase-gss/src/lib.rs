//! Kerberos authentication of an HBase client, by the GSS-API of MIT Kerberos.
//!
//! The library `libgssapi_krb5.so.2` is loaded at the first login, so that a build needs no headers and
//! a daemon without Kerberos needs no library. This is the only crate with `unsafe` code; its surface is
//! safe.
//!
//! * [`Credentials`] are the client's tickets, from a keytab or from a cache that somebody else renews.
//! * [`Context`] is one authenticated connection: it produces and checks the tokens of the handshake,
//!   then wraps and unwraps messages.
//! * [`Keytab`] reads a keytab without the library, because the library has one text for a missing file and a
//!   missing principal.
//!
//! Calls that need tickets block on the network: [`Credentials::keytab`], [`Credentials::renewed`] and the
//! first [`Context::step`]. A KDC that does not answer holds them for up to a minute.
//!
//! The library reads `KRB5_CONFIG`, `KRB5CCNAME` and `KRB5_TRACE` from the environment. Set them before the
//! process has threads.

#![cfg_attr(
    test,
    expect(
        clippy::expect_used,
        clippy::indexing_slicing,
        reason = "tests and their helpers fail by panicking"
    )
)]

mod api;
mod buffer;
mod context;
mod credentials;
mod error;
mod keytab;
mod memory_cache;
mod name;
#[cfg(feature = "testing")]
pub mod testing;

pub use self::{
    context::{Context, StepOutput, Unwrapped},
    credentials::Credentials,
    error::{Error, ErrorKind},
    keytab::{Keytab, KeytabError},
};

/// Loads the library, so that a missing one is reported before the first login.
///
/// # Errors
///
/// [`ErrorKind::LibraryMissing`].
pub fn load() -> Result<(), Error> {
    api::Api::get()?;
    Ok(())
}

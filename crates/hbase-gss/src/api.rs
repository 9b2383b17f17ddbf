//! The functions of the library and the layouts of their arguments (RFC 2744, RFC 5588).
//!
//! Only Linux is supported: on other systems the layouts are packed differently.

use std::{
    ffi::{c_char, c_int, c_void},
    mem,
    sync::OnceLock,
};

use libloading::Library;

/// File name of the library; its major version has been 2 since 2002.
pub(crate) const LIBRARY: &str = "libgssapi_krb5.so.2";

/// Usage of credentials: to initiate contexts, to accept them.
pub(crate) const INITIATE: c_int = 1;
#[cfg(feature = "testing")]
pub(crate) const ACCEPT: c_int = 2;

/// Time requested or returned: no limit.
pub(crate) const INDEFINITE: u32 = u32::MAX;

/// A status or a number (`OM_uint32`).
type Status = u32;

/// Bytes of the caller or of the library (`gss_buffer_desc`).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawBuffer {
    pub(crate) length: usize,
    pub(crate) value: *mut c_void,
}

/// Object identifier (`gss_OID_desc`).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawOid {
    length: u32,
    elements: *const c_void,
}

impl RawOid {
    const fn of(encoded: &'static [u8]) -> Self {
        Self { length: encoded.len() as u32, elements: encoded.as_ptr().cast() }
    }
}

// SAFETY: an identifier points to bytes of the program that nothing writes.
unsafe impl Sync for RawOid {}

/// The mechanism Kerberos 5.
pub(crate) static KERBEROS: RawOid =
    RawOid::of(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02]);

/// Names that are principals, taken as they are written. Names of services would be changed by DNS.
pub(crate) static PRINCIPAL_NAME: RawOid =
    RawOid::of(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 0x01]);

/// Identifiers (`gss_OID_set_desc`).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawOidSet {
    count: usize,
    elements: *const RawOid,
}

// SAFETY: a set points to a static identifier that nothing writes.
unsafe impl Sync for RawOidSet {}

/// The mechanisms of credentials: Kerberos only. All mechanisms would ask an unreachable KDC twice.
pub(crate) static MECHANISMS: RawOidSet = RawOidSet { count: 1, elements: &raw const KERBEROS };

/// An entry of a [`RawStore`]; both are C strings.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawElement {
    pub(crate) key: *const c_char,
    pub(crate) value: *const c_char,
}

/// Where credentials are (`gss_key_value_set_desc`).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawStore {
    pub(crate) count: u32,
    pub(crate) elements: *const RawElement,
}

/// Types that only the library looks into.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub(crate) struct $name {
            content: [u8; 0],
        }
    )*};
}

opaque! {
    /// What `gss_name_t` points to.
    RawName;
    /// What `gss_cred_id_t` points to.
    RawCredential;
    /// What `gss_ctx_id_t` points to.
    RawContext;
    /// What `krb5_context` points to.
    RawKrb5;
    /// What `krb5_ccache` points to.
    RawCache;
}

/// Opens a library of MIT Kerberos.
pub(crate) fn open(name: &str) -> Result<Library, LoadError> {
    if cfg!(target_feature = "crt-static") {
        return Err(LoadError(format!(
            "this program is linked statically, so it cannot load {name}: install the .deb or .rpm package, or build \
             it without crt-static"
        )));
    }
    // SAFETY: the initialisers of MIT Kerberos have no requirements on the caller.
    unsafe { Library::new(name) }.map_err(|e| {
        LoadError(format!(
            "cannot load {name}: install the package libgssapi-krb5-2 (Debian, Ubuntu) or krb5-libs \
             (RHEL, Fedora): {e}"
        ))
    })
}

/// Declares a struct of functions and how they are loaded.
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The loaded functions. They stay loaded until the process ends.
        #[derive(Debug)]
        pub(crate) struct Api {
            $($(#[$doc])* pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            fn load(name: &str) -> Result<Self, LoadError> {
                let library = open(name)?;
                let api = Self {
                    $($name: {
                        // SAFETY: the type is the function's declaration in the library's public headers.
                        *unsafe { library.get(stringify!($name).as_bytes()) }.map_err(|e| {
                            LoadError(format!("{name} is not MIT Kerberos 1.11 or newer: {e}"))
                        })?
                    },)*
                };
                // Unloading would leave the pointers dangling.
                mem::forget(library);
                Ok(api)
            }
        }
    };
}

functions! {
    fn gss_import_name(*mut Status, *const RawBuffer, *const RawOid, *mut *mut RawName) -> Status;
    fn gss_canonicalize_name(
        *mut Status, *mut RawName, *const RawOid, *mut *mut RawName
    ) -> Status;
    fn gss_display_name(*mut Status, *mut RawName, *mut RawBuffer, *mut *mut RawOid) -> Status;
    fn gss_release_name(*mut Status, *mut *mut RawName) -> Status;
    fn gss_acquire_cred_from(
        *mut Status, *mut RawName, u32, *const RawOidSet, c_int, *const RawStore,
        *mut *mut RawCredential, *mut *mut RawOidSet, *mut u32
    ) -> Status;
    fn gss_inquire_cred(
        *mut Status, *mut RawCredential, *mut *mut RawName, *mut u32, *mut c_int, *mut *mut RawOidSet
    ) -> Status;
    fn gss_release_cred(*mut Status, *mut *mut RawCredential) -> Status;
    fn gss_init_sec_context(
        *mut Status, *mut RawCredential, *mut *mut RawContext, *mut RawName, *const RawOid, u32, u32,
        *mut c_void, *const RawBuffer, *mut *mut RawOid, *mut RawBuffer, *mut u32, *mut u32
    ) -> Status;
    fn gss_delete_sec_context(*mut Status, *mut *mut RawContext, *mut RawBuffer) -> Status;
    fn gss_wrap(
        *mut Status, *mut RawContext, c_int, u32, *const RawBuffer, *mut c_int, *mut RawBuffer
    ) -> Status;
    fn gss_unwrap(
        *mut Status, *mut RawContext, *const RawBuffer, *mut RawBuffer, *mut c_int, *mut u32
    ) -> Status;
    fn gss_wrap_size_limit(*mut Status, *mut RawContext, c_int, u32, u32, *mut u32) -> Status;
    fn gss_release_buffer(*mut Status, *mut RawBuffer) -> Status;
    fn gss_display_status(
        *mut Status, u32, c_int, *const RawOid, *mut u32, *mut RawBuffer
    ) -> Status;
    /// Of libkrb5, which the library depends on: a search for a symbol includes it.
    fn krb5_init_context(*mut *mut RawKrb5) -> i32;
    fn krb5_free_context(*mut RawKrb5);
    fn krb5_cc_resolve(*mut RawKrb5, *const c_char, *mut *mut RawCache) -> i32;
    fn krb5_cc_destroy(*mut RawKrb5, *mut RawCache) -> i32;
}

/// Why the library is not loaded, and what to do.
#[derive(Clone, Debug)]
pub(crate) struct LoadError(pub(crate) String);

impl Api {
    /// Returns the library, which is loaded at the first call.
    pub(crate) fn get() -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Result<Api, LoadError>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| {
            if cfg!(target_feature = "crt-static") {
                let text = "this program is statically linked and cannot load libraries: Kerberos needs a \
                            dynamically linked build";
                return Err(LoadError(text.to_owned()));
            }
            Self::load(LIBRARY)
        });
        loaded.as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(library: &str, expected: &str) {
        let LoadError(text) = Api::load(library).expect_err("an error");
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn what_to_install_is_named() {
        check("libno-such-kerberos.so.2", "package libgssapi-krb5-2 (Debian");
        check("libc.so.6", "libc.so.6 is not MIT Kerberos 1.11 or newer");
    }
}

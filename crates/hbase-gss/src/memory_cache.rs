//! Ticket caches in the memory of the process, for logins by keytab.

use std::{
    ffi::{CStr, CString},
    process, ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{api::Api, error::Error};

/// A cache with a name that no other login of the process uses; its tickets are destroyed when it is dropped.
///
/// Credentials keep it until they are released: before MIT Kerberos 1.16, destroying a cache that was open
/// elsewhere was not safe.
#[derive(Debug)]
pub(crate) struct MemoryCache {
    api: &'static Api,
    name: CString,
}

impl MemoryCache {
    pub(crate) fn unique(api: &'static Api) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("MEMORY:hbase-gss-{}-{number}", process::id());
        let name = CString::new(name).map_err(|_| Error::invalid("the name of a ticket cache"))?;
        Ok(Self { api, name })
    }

    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }
}

impl Drop for MemoryCache {
    fn drop(&mut self) {
        let mut krb5 = ptr::null_mut();
        // SAFETY: the pointer is valid for the call. Failure leaves nothing to release.
        if unsafe { (self.api.krb5_init_context)(&raw mut krb5) } != 0 {
            return;
        }
        let mut cache = ptr::null_mut();
        // SAFETY: the context is valid, the name is a C string, and `cache` takes the result.
        if unsafe { (self.api.krb5_cc_resolve)(krb5, self.name.as_ptr(), &raw mut cache) } == 0 {
            // SAFETY: the cache was opened above; destroying it also closes it. Credentials that used it
            // are released, because each holds this value.
            unsafe { (self.api.krb5_cc_destroy)(krb5, cache) };
        }
        // SAFETY: the context was created above, and nothing uses it any more.
        unsafe { (self.api.krb5_free_context)(krb5) };
    }
}

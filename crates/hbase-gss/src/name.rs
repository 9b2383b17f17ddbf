//! Principals as the library knows them.

use std::ptr;

use crate::{
    api::{Api, KERBEROS, PRINCIPAL_NAME, RawBuffer, RawName},
    buffer::OutputBuffer,
    error::{Error, Operation},
};

/// A principal that the library has parsed.
#[derive(Debug)]
pub(crate) struct Name {
    api: &'static Api,
    raw: *mut RawName,
}

// SAFETY: a name belongs to no thread, and the library does not change it after its creation.
unsafe impl Send for Name {}
// SAFETY: as above.
unsafe impl Sync for Name {}

impl Name {
    /// Parses a principal. Without a realm it gets the default realm of the configuration. DNS is not asked.
    pub(crate) fn principal(api: &'static Api, principal: &str) -> Result<Self, Error> {
        let mut imported = Self { api, raw: ptr::null_mut() };
        let text = RawBuffer::of(principal.as_bytes());
        let mut minor = 0;
        // SAFETY: all pointers are valid for the call, and `imported` takes ownership of the result.
        let major = unsafe {
            (api.gss_import_name)(
                &raw mut minor,
                &raw const text,
                &raw const PRINCIPAL_NAME,
                &raw mut imported.raw,
            )
        };
        Error::check(api, Operation::Name, major, minor)?;
        let mut name = Self { api, raw: ptr::null_mut() };
        // SAFETY: the imported name is valid, and `name` takes ownership of the result.
        let major = unsafe {
            (api.gss_canonicalize_name)(
                &raw mut minor,
                imported.raw,
                &raw const KERBEROS,
                &raw mut name.raw,
            )
        };
        Error::check(api, Operation::Name, major, minor)?;
        Ok(name)
    }

    /// Takes ownership of a name that the library has returned; it may be null.
    ///
    /// # Safety
    ///
    /// `raw` is null or a name of this library, and nothing else releases it.
    pub(crate) unsafe fn from_raw(api: &'static Api, raw: *mut RawName) -> Self {
        Self { api, raw }
    }

    pub(crate) fn as_ptr(&self) -> *mut RawName {
        self.raw
    }

    /// Returns the principal with its realm, or "" for no name.
    pub(crate) fn text(&self) -> Result<String, Error> {
        if self.raw.is_null() {
            return Ok(String::new());
        }
        let mut text = OutputBuffer::new(self.api);
        let mut minor = 0;
        // SAFETY: the name is valid, `text` takes ownership of the result, and the type is not requested.
        let major = unsafe {
            (self.api.gss_display_name)(
                &raw mut minor,
                self.raw,
                text.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        Error::check(self.api, Operation::Name, major, minor)?;
        Ok(text.to_text())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the name is null or owned by this value, and nothing uses it any more.
        unsafe { (self.api.gss_release_name)(&raw mut minor, &raw mut self.raw) };
    }
}

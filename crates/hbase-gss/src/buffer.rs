//! Buffers that cross the boundary to the library.

use std::{ffi::c_void, ptr, slice};

use crate::api::{Api, RawBuffer};

impl RawBuffer {
    /// Points to bytes of the caller, who keeps them until the call returns. The library only reads them.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { length: bytes.len(), value: bytes.as_ptr().cast::<c_void>().cast_mut() }
    }
}

/// A buffer that the library fills; it is given back to the library when dropped.
#[derive(Debug)]
pub(crate) struct OutputBuffer {
    api: &'static Api,
    raw: RawBuffer,
}

impl OutputBuffer {
    pub(crate) fn new(api: &'static Api) -> Self {
        Self { api, raw: RawBuffer { length: 0, value: ptr::null_mut() } }
    }

    /// Returns where the library writes address and length. Use it for one call only.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut RawBuffer {
        &raw mut self.raw
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        if self.raw.value.is_null() || self.raw.length == 0 {
            return &[];
        }
        // SAFETY: the library has set `value` to `length` initialised bytes, which stay until this is dropped.
        unsafe { slice::from_raw_parts(self.raw.value.cast::<u8>(), self.raw.length) }
    }

    pub(crate) fn to_text(&self) -> String {
        String::from_utf8_lossy(self.as_bytes()).into_owned()
    }
}

impl Drop for OutputBuffer {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the buffer is empty or allocated by the library, and nothing uses it any more.
        unsafe { (self.api.gss_release_buffer)(&raw mut minor, &raw mut self.raw) };
    }
}

//! The server's side of a context.

use std::{
    ffi::{CString, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

use crate::{
    api::{self, Api, RawBuffer, RawContext, RawCredential, RawName, RawOid},
    buffer::OutputBuffer,
    context::{CONTINUE, SecurityContext, StepOutput, Unwrapped},
    credentials::CredentialHandle,
    error::{Error, ErrorKind, Operation},
    name::Name,
};

/// `gss_accept_sec_context`.
type Accept = unsafe extern "C" fn(
    *mut u32,
    *mut *mut RawContext,
    *mut RawCredential,
    *const RawBuffer,
    *mut c_void,
    *mut *mut RawName,
    *mut *mut RawOid,
    *mut RawBuffer,
    *mut u32,
    *mut u32,
    *mut *mut RawCredential,
) -> u32;

/// Accepts one context with the keys of a keytab.
#[derive(Debug)]
pub struct Acceptor {
    security: SecurityContext,
    credentials: CredentialHandle,
    client: String,
}

impl Acceptor {
    /// Reads the keys.
    pub fn new(keytab: &Path) -> Result<Self, Error> {
        let api = Api::get()?;
        let file = [b"FILE:", keytab.as_os_str().as_bytes()].concat();
        let file = CString::new(file).map_err(|_| Error::invalid("the path of a keytab"))?;
        let credentials = CredentialHandle::acquire_to_accept(api, &[(c"keytab", &file)])?;
        Ok(Self { security: SecurityContext::new(api), credentials, client: String::new() })
    }

    /// Handles a token of the client and returns the next one.
    pub fn step(&mut self, token: &[u8]) -> Result<StepOutput, Error> {
        let api = self.security.api;
        let library = api::open(api::LIBRARY)?;
        // SAFETY: the type is the function's declaration in the library's public headers.
        let accept = unsafe { library.get::<Accept>(b"gss_accept_sec_context") }
            .map_err(|e| Error::own(ErrorKind::Other, e.to_string()))?;
        let input = RawBuffer::of(token);
        let mut output = OutputBuffer::new(api);
        let (mut minor, mut client) = (0, ptr::null_mut());
        // SAFETY: credentials and context are valid or null. All other pointers are valid for the call or null,
        // which requests nothing.
        let major = unsafe {
            accept(
                &raw mut minor,
                &raw mut self.security.raw,
                self.credentials.as_ptr(),
                &raw const input,
                ptr::null_mut(),
                &raw mut client,
                ptr::null_mut(),
                output.as_mut_ptr(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        // SAFETY: the library has set `client` to null or to a name that the caller releases.
        let client = unsafe { Name::from_raw(api, client) };
        Error::check(api, Operation::NextToken, major, minor)?;
        self.client = client.text()?;
        Ok(StepOutput { token: output.as_bytes().to_vec(), complete: major & CONTINUE == 0 })
    }

    /// Principal of the client; empty before the first step.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Protects a message, as [`Context::wrap`](crate::Context::wrap) does.
    pub fn wrap(&mut self, plain: &[u8], confidential: bool) -> Result<Vec<u8>, Error> {
        self.security.wrap(plain, confidential)
    }

    /// Checks a message, as [`Context::unwrap`](crate::Context::unwrap) does.
    pub fn unwrap(&mut self, message: &[u8]) -> Result<Unwrapped, Error> {
        self.security.unwrap(message)
    }
}

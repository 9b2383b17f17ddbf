//! Security contexts: the handshake of a connection and the protection of its messages.

use std::{ffi::c_int, ptr, sync::Arc};

use crate::{
    api::{Api, KERBEROS, RawBuffer, RawContext},
    buffer::OutputBuffer,
    credentials::{CredentialHandle, Credentials},
    error::{Error, ErrorKind, Operation},
    name::Name,
};

// Properties of a context (RFC 2744).
const MUTUAL: u32 = 2;
const REPLAY: u32 = 4;
const SEQUENCE: u32 = 8;
const CONFIDENTIAL: u32 = 16;
const INTEGRITY: u32 = 32;

/// What every context requests: a server that proves its identity, and messages that can be protected and
/// cannot be repeated, left out or reordered. Tickets are never forwarded to the server.
const REQUESTED: u32 = MUTUAL | REPLAY | SEQUENCE | CONFIDENTIAL | INTEGRITY;

/// Bit of a status: the handshake needs another token.
pub(crate) const CONTINUE: u32 = 1;

/// Bits of a status: a message was repeated, is too old, or is out of order.
const OUT_OF_ORDER: u32 = 2 | 4 | 8 | 16;

/// Result of one step of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOutput {
    /// Token for the peer; may be empty.
    pub token: Vec<u8>,
    /// True if the handshake is complete and messages can be wrapped.
    pub complete: bool,
}

/// A message of the peer without its protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwrapped {
    /// The message.
    pub data: Vec<u8>,
    /// True if it was encrypted.
    pub confidential: bool,
}

/// The client's side of one authenticated connection.
///
/// Messages have sequence numbers in each direction: wrap them in the order in which they are sent, unwrap them
/// in the order in which they arrive.
#[derive(Debug)]
pub struct Context {
    security: SecurityContext,
    target: Name,
    credentials: Arc<CredentialHandle>,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    New,
    Continuing,
    Complete,
    Failed,
}

impl Context {
    /// Prepares a context with the service `principal/host@REALM`, taken as it is written. Without a realm it is
    /// of the default realm.
    pub fn initiate(credentials: &Credentials, service_principal: &str) -> Result<Self, Error> {
        let api = Api::get()?;
        Ok(Self {
            security: SecurityContext::new(api),
            target: Name::principal(api, service_principal)?,
            credentials: credentials.handle(),
            progress: Progress::New,
        })
    }

    /// Handles a token of the server and returns the next one. The first step has an empty token and may block
    /// on the network for a service ticket; later steps do no I/O.
    ///
    /// An error ends the context.
    pub fn step(&mut self, token: &[u8]) -> Result<StepOutput, Error> {
        let operation = match self.progress {
            Progress::New => Operation::FirstToken,
            Progress::Continuing => Operation::NextToken,
            Progress::Complete | Progress::Failed => {
                return Err(Error::own(
                    ErrorKind::Other,
                    "Kerberos handshake: a token after its end".to_owned(),
                ));
            }
        };
        self.progress = Progress::Failed;
        let output = self.init(operation, token)?;
        self.progress = if output.complete { Progress::Complete } else { Progress::Continuing };
        Ok(output)
    }

    fn init(&mut self, operation: Operation, token: &[u8]) -> Result<StepOutput, Error> {
        let api = self.security.api;
        let input = RawBuffer::of(token);
        let input = if token.is_empty() { ptr::null() } else { &raw const input };
        let mut output = OutputBuffer::new(api);
        let (mut minor, mut properties) = (0, 0);
        // SAFETY: credentials, name and context are valid or null. All other pointers are valid for the call.
        // The library sets the context to null if it has released it.
        let major = unsafe {
            (api.gss_init_sec_context)(
                &raw mut minor,
                self.credentials.as_ptr(),
                &raw mut self.security.raw,
                self.target.as_ptr(),
                &raw const KERBEROS,
                REQUESTED,
                0,
                ptr::null_mut(),
                input,
                ptr::null_mut(),
                output.as_mut_ptr(),
                &raw mut properties,
                ptr::null_mut(),
            )
        };
        Error::check(api, operation, major, minor)?;
        let complete = major & CONTINUE == 0;
        if complete && properties & (MUTUAL | INTEGRITY) != MUTUAL | INTEGRITY {
            return Err(Error::own(
                ErrorKind::Other,
                "Kerberos handshake: the server has not proved its identity".to_owned(),
            ));
        }
        Ok(StepOutput { token: output.as_bytes().to_vec(), complete })
    }

    /// True after the last step.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.progress == Progress::Complete
    }

    /// Protects a message by a checksum and, if `confidential`, by encryption.
    pub fn wrap(&mut self, plain: &[u8], confidential: bool) -> Result<Vec<u8>, Error> {
        self.check_complete()?;
        self.security.wrap(plain, confidential)
    }

    /// Checks a protected message and returns its content. A message that is damaged, repeated or out of order is
    /// an error of the kind [`ErrorKind::InvalidToken`].
    pub fn unwrap(&mut self, message: &[u8]) -> Result<Unwrapped, Error> {
        self.check_complete()?;
        self.security.unwrap(message)
    }

    /// Returns the size of the largest message that wraps into `max` bytes.
    pub fn wrap_size_limit(&self, max: u32, confidential: bool) -> Result<u32, Error> {
        self.check_complete()?;
        self.security.wrap_size_limit(max, confidential)
    }

    fn check_complete(&self) -> Result<(), Error> {
        if self.is_complete() {
            return Ok(());
        }
        Err(Error::own(ErrorKind::Other, "the Kerberos handshake is not complete".to_owned()))
    }
}

/// A context of the library, of either side.
#[derive(Debug)]
pub(crate) struct SecurityContext {
    pub(crate) api: &'static Api,
    pub(crate) raw: *mut RawContext,
}

// SAFETY: the library keeps no state of a context in a thread, so another thread may continue it. It does not lock
// contexts: every call that changes one takes `&mut self`, and no method lends the pointer to safe code.
unsafe impl Send for SecurityContext {}

impl SecurityContext {
    pub(crate) const fn new(api: &'static Api) -> Self {
        Self { api, raw: ptr::null_mut() }
    }

    pub(crate) fn wrap(&mut self, plain: &[u8], confidential: bool) -> Result<Vec<u8>, Error> {
        let input = RawBuffer::of(plain);
        let mut output = OutputBuffer::new(self.api);
        let (mut minor, mut encrypted) = (0, 0);
        // SAFETY: the context is valid or null, which is an error. All other pointers are valid for the call, and
        // `output` takes ownership of the result.
        let major = unsafe {
            (self.api.gss_wrap)(
                &raw mut minor,
                self.raw,
                c_int::from(confidential),
                0,
                &raw const input,
                &raw mut encrypted,
                output.as_mut_ptr(),
            )
        };
        Error::check(self.api, Operation::Wrap, major, minor)?;
        if confidential && encrypted == 0 {
            let text = "protect a message: the library has not encrypted it";
            return Err(Error::own(ErrorKind::Other, text.to_owned()));
        }
        Ok(output.as_bytes().to_vec())
    }

    pub(crate) fn unwrap(&mut self, message: &[u8]) -> Result<Unwrapped, Error> {
        let input = RawBuffer::of(message);
        let mut output = OutputBuffer::new(self.api);
        let (mut minor, mut encrypted) = (0, 0);
        // SAFETY: as in `wrap`.
        let major = unsafe {
            (self.api.gss_unwrap)(
                &raw mut minor,
                self.raw,
                &raw const input,
                output.as_mut_ptr(),
                &raw mut encrypted,
                ptr::null_mut(),
            )
        };
        Error::check(self.api, Operation::Unwrap, major, minor)?;
        if major & OUT_OF_ORDER != 0 {
            return Err(Error::own(
                ErrorKind::InvalidToken,
                "check a message: it was repeated or is out of order".to_owned(),
            ));
        }
        Ok(Unwrapped { data: output.as_bytes().to_vec(), confidential: encrypted != 0 })
    }

    fn wrap_size_limit(&self, max: u32, confidential: bool) -> Result<u32, Error> {
        let (mut minor, mut limit) = (0, 0);
        // SAFETY: the context is valid or null, which is an error. All other pointers are valid for the call. The
        // call only reads the context, and `self` is not shared between threads.
        let major = unsafe {
            (self.api.gss_wrap_size_limit)(
                &raw mut minor,
                self.raw,
                c_int::from(confidential),
                0,
                max,
                &raw mut limit,
            )
        };
        Error::check(self.api, Operation::Wrap, major, minor)?;
        Ok(limit)
    }
}

impl Drop for SecurityContext {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let mut minor = 0;
        // SAFETY: the context is owned by this value, and nothing uses it any more. No token is requested.
        unsafe {
            (self.api.gss_delete_sec_context)(&raw mut minor, &raw mut self.raw, ptr::null_mut())
        };
    }
}

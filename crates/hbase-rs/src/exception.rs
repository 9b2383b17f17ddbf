//! Exceptions of servers, and how to recover from them.
//!
//! The Java class decides first and the `do_not_retry` flag second. Scanner exceptions, a stopping
//! master and a moving hbase:meta set the flag although another kind of attempt succeeds. Exceptions
//! inside a Multi have no flag at all. If the class is ambiguous, the text decides.

mod class;
mod recovery;
mod text;

use hbase_rs_protobuf as pb;

use self::class::Execution;
pub use self::{
    class::ExceptionClass,
    recovery::{MovedTo, Recovery},
};

/// An exception in a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", self.short_name(), self.message())]
pub struct RemoteException {
    class: ExceptionClass,
    class_name: String,
    text: String,
    do_not_retry: bool,
    overloaded: bool,
}

impl RemoteException {
    /// Decodes the exception of a call.
    #[must_use]
    pub(crate) fn from_response(response: &pb::ExceptionResponse) -> Self {
        Self {
            do_not_retry: response.do_not_retry(),
            overloaded: response.server_overloaded(),
            ..Self::new(response.exception_class_name(), response.stack_trace())
        }
    }

    /// Decodes the exception of an action or region in a Multi.
    #[must_use]
    pub(crate) fn from_pair(pair: &pb::NameBytesPair) -> Self {
        Self::new(&pair.name, &String::from_utf8_lossy(pair.value()))
    }

    /// Decodes the exception of a procedure.
    #[must_use]
    pub(crate) fn from_foreign(message: &pb::ForeignExceptionMessage) -> Self {
        let generic = message.generic_exception.clone().unwrap_or_default();
        Self::new(generic.class_name(), generic.message())
    }

    /// An exception of the authentication.
    pub(crate) fn from_sasl(class_name: &str, text: &str) -> Self {
        Self { do_not_retry: true, ..Self::new(class_name, text) }
    }

    fn new(class_name: &str, text: &str) -> Self {
        Self {
            class: ExceptionClass::of(class_name, text),
            class_name: class_name.to_owned(),
            text: text.to_owned(),
            do_not_retry: false,
            overloaded: false,
        }
    }

    /// Returns how to recover.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        match self.class {
            ExceptionClass::RegionMoved => {
                text::moved_to(&self.text).map_or(Recovery::Relocate, Recovery::Moved)
            }
            ExceptionClass::Throttling => {
                text::wait(&self.text).map_or(Recovery::Overloaded, Recovery::Wait)
            }
            ExceptionClass::Other if self.overloaded => Recovery::Overloaded,
            ExceptionClass::Other if !self.do_not_retry => Recovery::Relocate,
            class => class.recovery(),
        }
    }

    /// Returns the class.
    #[must_use]
    pub const fn class(&self) -> ExceptionClass {
        self.class
    }

    /// Returns the full name of the Java class.
    #[must_use]
    pub fn class_name(&self) -> &str {
        &self.class_name
    }

    /// Returns the first line of the text, without the class name.
    #[must_use]
    pub fn message(&self) -> &str {
        text::message(&self.class_name, &self.text)
    }

    /// Returns the whole text, including stack lines.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if the server may have executed the operation despite the exception: a change may be in
    /// its log. An exception of an unknown class is ambiguous.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        !self.overloaded && self.class.execution() == Execution::Unknown
    }

    /// As [`Self::is_ambiguous`], for one action of several in one region.
    pub(crate) fn is_ambiguous_in_batch(&self) -> bool {
        self.is_ambiguous() || self.class.execution() == Execution::NotExecutedAlone
    }

    /// True if the server is overloaded.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        self.overloaded || self.class.recovery() == Recovery::Overloaded
    }

    /// True if the server does not implement the method. The connection remains usable.
    #[must_use]
    pub fn is_unknown_method(&self) -> bool {
        self.class == ExceptionClass::Permanent
            && self.text.contains("java.lang.UnsupportedOperationException: ")
    }

    fn short_name(&self) -> &str {
        self.class_name.rsplit('.').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;

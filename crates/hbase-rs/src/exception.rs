//! What servers say when they do not do what was asked, and what to do then.
//!
//! The Java class decides, by name first and the `do_not_retry` flag second: scanner classes, a
//! stopping master and a moving hbase:meta set the flag and yet mean "try in another way". Inside
//! Multi there is no flag at all. The text is looked at where a class alone says too little.

mod class;
mod text;

use std::time::Duration;

use hbase_rs_protobuf as pb;

pub use self::class::ExceptionClass;
use crate::server_name::ServerName;

/// What to do about a failure. Retry loops ask for this and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// Drop the location, look it up again, repeat after the pause.
    Relocate,
    /// The same, but only one time: it may be the request's own fault.
    RelocateOnce,
    /// Take the location from the answer if it is younger than the known one and repeat at once;
    /// else look it up after the pause.
    Moved(MovedTo),
    /// Keep the location, repeat after the pause.
    SamePlace,
    /// Keep the location, repeat after the longer pause; all of the server is meant.
    Overloaded,
    /// Drop every location on the server, close its connection, look up, repeat after the pause.
    ServerGone,
    /// Ask discovery for the active master again, repeat after the pause.
    FindMaster,
    /// Open the scanner again behind the last whole row.
    ReopenScanner,
    /// Nothing was executed: send it again now; no attempt is charged.
    ResendNow,
    /// Wait exactly so long, then repeat at the same place.
    Wait(Duration),
    /// Send the actions in smaller parts; a single one fails.
    SplitBatch,
    /// The connection is over; every call on it fails.
    CloseConnection,
    /// Tell the caller.
    Fail,
}

/// Where a region went, as its former server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedTo {
    /// Server that should have it now.
    pub server: ServerName,
    /// Age of that knowledge. Two servers can point at each other for minutes: only a number above
    /// the known one is news.
    pub seq_num: i64,
}

/// An exception that a server answered with.
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
    /// Reads the exception of a call.
    #[must_use]
    pub fn from_response(response: &pb::ExceptionResponse) -> Self {
        Self {
            do_not_retry: response.do_not_retry(),
            overloaded: response.server_overloaded(),
            ..Self::new(response.exception_class_name(), response.stack_trace())
        }
    }

    /// Reads the exception of an action or region inside Multi.
    #[must_use]
    pub fn from_pair(pair: &pb::NameBytesPair) -> Self {
        Self::new(&pair.name, &String::from_utf8_lossy(pair.value()))
    }

    /// Reads the exception of a procedure.
    #[must_use]
    pub fn from_foreign(message: &pb::ForeignExceptionMessage) -> Self {
        let generic = message.generic_exception.clone().unwrap_or_default();
        Self::new(generic.class_name(), generic.message())
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

    /// What to do about it.
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

    /// Which it is.
    #[must_use]
    pub const fn class(&self) -> ExceptionClass {
        self.class
    }

    /// Full name of the Java class.
    #[must_use]
    pub fn class_name(&self) -> &str {
        &self.class_name
    }

    /// First line of the text, without the class in front.
    #[must_use]
    pub fn message(&self) -> &str {
        text::message(&self.class_name, &self.text)
    }

    /// Everything the server said, with stack lines where it sent some.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the server had too much to do.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        self.overloaded || self.class.recovery() == Recovery::Overloaded
    }

    /// Whether the server does not know the method that was called. The connection stays usable.
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

//! Errors of queries: the HTTP status and OpenTSDB's exact text.
//!
//! Dashboards show these texts and some clients match on them, so they are part of the interface.
//! A message is the whole text, causes included, as OpenTSDB writes it.

use std::fmt;

/// Class of an error; maps one to one to the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueryErrorClass {
    /// 400: the request is invalid.
    BadRequest,
    /// 404: something named in the request does not exist.
    NotFound,
    /// 413: the query exceeds a limit.
    TooLarge,
    /// 500: client mistakes that OpenTSDB reports as internal errors.
    Internal,
}

impl QueryErrorClass {
    /// The HTTP status.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::NotFound => 404,
            Self::TooLarge => 413,
            Self::Internal => 500,
        }
    }
}

/// Content of `details` beside the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorDetails {
    /// No `details` key.
    None,
    /// The message again.
    SameAsMessage,
    /// A textual dump of the whole query.
    QueryDump,
    /// This text.
    Text(String),
}

/// A query that cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    /// Class, and thereby HTTP status, of the response.
    pub class: QueryErrorClass,
    /// `message` of the response.
    pub message: String,
    /// `details` of the response.
    pub details: ErrorDetails,
}

impl QueryError {
    /// A 400 without details.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self {
            class: QueryErrorClass::BadRequest,
            message: message.into(),
            details: ErrorDetails::None,
        }
    }

    /// A 400 of the validation step, with a dump of the query as details.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { details: ErrorDetails::QueryDump, ..Self::bad_request(message) }
    }

    /// A 400 raised during execution; message and details are the same text.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self { details: ErrorDetails::SameAsMessage, ..Self::bad_request(message) }
    }

    /// A 500.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self { class: QueryErrorClass::Internal, ..Self::bad_request(message) }
    }

    /// A 413.
    #[must_use]
    pub fn too_large(message: impl Into<String>) -> Self {
        Self { class: QueryErrorClass::TooLarge, ..Self::bad_request(message) }
    }

    /// A 400 for a JSON body that is not a query, with `cause` as details.
    #[must_use]
    pub fn unreadable_json(cause: impl Into<String>) -> Self {
        Self {
            details: ErrorDetails::Text(cause.into()),
            ..Self::bad_request("Unable to parse the given JSON")
        }
    }

    /// A name without a UID. `kind` is `metrics`, `tagk` or `tagv`.
    #[must_use]
    pub fn no_such_name(kind: &str, name: &str) -> Self {
        Self::failed(format!("No such name for '{kind}': '{name}'"))
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for QueryError {}

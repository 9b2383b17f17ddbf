//! Classes of exceptions, and the recovery of each.

use super::{recovery::Recovery, text};

/// What an exception says about the execution of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Execution {
    /// The server throws it before it executes anything.
    NotExecuted,
    /// As [`Self::NotExecuted`] for a single operation. A region executes a batch in parts, and a
    /// part that was executed before the exception is reported with it.
    NotExecutedAlone,
    /// The operation may have been executed, or may be by the replay of the log.
    Unknown,
}

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $class:ident: $($name:literal)|+ => $recovery:ident, $execution:ident;)+) => {
        /// Java class of a server's exception, as far as it matters for recovery.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ExceptionClass {
            $($(#[doc = $doc])+ $class,)+
            /// A plain `IOException` whose text reports an invalid request.
            BadRequest,
            /// The server could not decode the request: an error of the client.
            Unreadable,
            /// The log of a closing region.
            ClosedLog,
            /// The server rejects calls of this many actions.
            BatchTooLong,
            /// A failed sanity check whose text reports a row outside its region.
            RowOutOfRange,
            /// Any other class; the flag of the response decides.
            Other,
        }

        impl ExceptionClass {
            /// Returns the class with this name, without its package.
            fn named(short: &str) -> Option<Self> {
                Some(match short {
                    $($($name)|+ => Self::$class,)+
                    _ => return None,
                })
            }

            /// Returns the recovery, unless flag or text decide otherwise.
            pub(super) const fn recovery(self) -> Recovery {
                match self {
                    $(Self::$class => Recovery::$recovery,)+
                    Self::ClosedLog => Recovery::Relocate,
                    Self::BatchTooLong => Recovery::SplitBatch,
                    Self::RowOutOfRange => Recovery::RelocateOnce,
                    Self::BadRequest | Self::Unreadable | Self::Other => Recovery::Fail,
                }
            }

            /// Returns whether the operation may have been executed.
            ///
            /// Only for known classes is it certain that the server throws them before the execution.
            /// An unknown class may come from the log, after the edit was appended to it.
            pub(super) const fn execution(self) -> Execution {
                match self {
                    $(Self::$class => Execution::$execution,)+
                    Self::BatchTooLong
                    | Self::RowOutOfRange
                    | Self::BadRequest
                    | Self::Unreadable => Execution::NotExecuted,
                    // The log may have an earlier part of the same batch.
                    Self::ClosedLog | Self::Other => Execution::Unknown,
                }
            }
        }
    };
}

classes! {
    /// The region is not on this server, or is closing.
    NotServingRegion: "NotServingRegionException" => Relocate, NotExecuted;
    /// The region was moved; the text has its new location.
    RegionMoved: "RegionMovedException" => Relocate, NotExecuted;
    /// The region is on this server, but not open yet.
    RegionOpening: "RegionOpeningException" => SamePlace, NotExecuted;
    /// The region's memstore is full, or a row lock was not acquired in time.
    RegionTooBusy: "RegionTooBusyException" => SamePlace, NotExecutedAlone;
    /// The call queue is full.
    CallQueueTooBig: "CallQueueTooBigException" => Overloaded, NotExecuted;
    /// The call was dropped from the queue.
    CallDropped: "CallDroppedException" => Overloaded, NotExecuted;
    /// The server is stopping.
    ServerStopped: "RegionServerStoppedException" | "RegionServerAbortedException" => ServerGone, NotExecuted;
    /// The server fails to flush a memstore, and stops.
    FlushFailed: "DroppedSnapshotException" => ServerGone, Unknown;
    /// The edit was appended to the log, and the log was not synced in time or is damaged. The server
    /// usually stops, and the replay of its log may execute the edit.
    LogFailed: "WALSyncTimeoutIOException" | "TimeoutIOException" | "DamagedWALException"
        | "FailedSyncBeforeLogCloseException" | "FailedLogCloseException" | "WALClosedException" => Relocate, Unknown;
    /// A thread of the server was interrupted, perhaps while it waited for the log.
    Interrupted: "InterruptedIOException" => Relocate, Unknown;
    /// The server is starting; also a standby master.
    ServerNotRunning: "ServerNotRunningYetException" => Relocate, NotExecuted;
    /// The master is starting, stopping, or not the active one.
    MasterNotRunning: "MasterNotRunningException" | "PleaseHoldException" | "MasterStoppedException" => FindMaster, NotExecuted;
    /// The scanner does not exist: its lease expired or its region was closed.
    ScannerGone: "UnknownScannerException" | "ScannerResetException" | "LeaseException" => ReopenScanner, NotExecuted;
    /// A response of the scanner was lost.
    ScannerOutOfOrder: "OutOfOrderScannerNextException" => ReopenScanner, NotExecuted;
    /// Not executed because the response was full.
    NotExecuted: "RetryImmediatelyException" | "MultiActionResultTooLarge" => ResendNow, NotExecuted;
    /// A rate quota; the text has the time to wait.
    Throttling: "RpcThrottlingException" => Overloaded, NotExecuted;
    /// A permanent quota.
    QuotaExceeded: "QuotaExceededException" | "SpaceLimitingException" => Fail, NotExecuted;
    /// The row does not belong to this region.
    WrongRegion: "WrongRegionException" => Relocate, NotExecuted;
    /// hbase:meta is in transition.
    MetaInTransition: "NotAllMetaRegionsOnlineException" => Relocate, NotExecuted;
    /// No such family.
    NoSuchFamily: "NoSuchColumnFamilyException" => Fail, NotExecuted;
    /// No such table.
    TableNotFound: "TableNotFoundException" => Fail, NotExecuted;
    /// The table is disabled.
    TableNotEnabled: "TableNotEnabledException" => Fail, NotExecuted;
    /// The table is enabled.
    TableNotDisabled: "TableNotDisabledException" => Fail, NotExecuted;
    /// The table exists.
    TableExists: "TableExistsException" => Fail, NotExecuted;
    /// The namespace does not exist.
    NamespaceNotFound: "NamespaceNotFoundException" => Fail, NotExecuted;
    /// The namespace exists.
    NamespaceExists: "NamespaceExistException" => Fail, NotExecuted;
    /// The region is unknown to the master.
    UnknownRegion: "UnknownRegionException" => Fail, NotExecuted;
    /// Not allowed.
    AccessDenied: "AccessDeniedException" => Fail, NotExecuted;
    /// Invalid values in a descriptor or mutation.
    FailedSanityCheck: "FailedSanityCheckException" => Fail, NotExecuted;
    /// The request exceeds the limit of the server, which closes the connection.
    RequestTooBig: "RequestTooBigException" => SplitBatch, NotExecuted;
    /// The server rejects the connection.
    Connection: "FatalConnectionException" | "BadAuthException" | "WrongVersionException" | "UnsupportedCellCodecException"
        | "UnsupportedCompressionCodecException" | "UnsupportedCryptoException" | "EmptyServiceNameException"
        | "UnknownServiceException" => CloseConnection, NotExecuted;
    /// The server has no security features.
    SecurityNotEnabled: "SecurityNotEnabledException" => Fail, NotExecuted;
    /// A feature or coprocessor that is not installed.
    UnknownProtocol: "UnknownProtocolException" => Fail, NotExecuted;
    /// Other permanent errors.
    Permanent: "DoNotRetryIOException" | "InvalidFamilyOperationException" | "ConstraintException"
        | "ConcurrentTableModificationException" | "WrongRowIOException" | "CorruptHFileException"
        | "RowTooBigException" | "MergeRegionException" | "RegionServerRunningException" | "DeserializationException" => Fail, NotExecuted;
    /// A coprocessor failed, before the operation or after it.
    Coprocessor: "CoprocessorException" => Fail, Unknown;
}

impl ExceptionClass {
    /// Returns the class by name, and by text where the name is ambiguous.
    pub(super) fn of(class_name: &str, text: &str) -> Self {
        if text.contains("is unable to read call parameter")
            && !text.contains("UnsupportedOperationException")
            || class_name.ends_with("InvalidProtocolBufferException")
            || class_name.ends_with("UninitializedMessageException")
        {
            return Self::Unreadable;
        }
        let message = text::message(class_name, text);
        if class_name == "java.io.IOException" {
            return Self::of_plain(message);
        }
        let short = class_name.rsplit('.').next().unwrap_or_default();
        match Self::named(short).unwrap_or(Self::Other) {
            Self::FailedSanityCheck if message.starts_with("Requested row out of range") => {
                Self::RowOutOfRange
            }
            class => class,
        }
    }

    /// Returns the class of a plain `IOException` by its text. Some of its causes are permanent.
    fn of_plain(message: &str) -> Self {
        const BAD: [&str; 3] = ["Row length", "versions must be positive", "Unknown Compare op"];
        let lower = message.to_ascii_lowercase();
        if BAD.iter().any(|prefix| message.contains(prefix)) {
            Self::BadRequest
        } else if message.contains("Rejecting large batch operation") {
            Self::BatchTooLong
        } else if lower.contains("append") && lower.contains("closed") {
            Self::ClosedLog
        } else {
            Self::Other
        }
    }
}

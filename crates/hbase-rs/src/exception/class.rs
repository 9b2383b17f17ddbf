//! Classes of exceptions, and the recovery of each.

use super::{Recovery, text};

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $class:ident: $($name:literal)|+ => $recovery:ident,)+) => {
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
                    Self::RowOutOfRange => Recovery::RelocateOnce,
                    Self::BadRequest | Self::Unreadable | Self::Other => Recovery::Fail,
                }
            }
        }
    };
}

classes! {
    /// The region is not on this server, or is closing.
    NotServingRegion: "NotServingRegionException" => Relocate,
    /// The region was moved; the text has its new location.
    RegionMoved: "RegionMovedException" => Relocate,
    /// The region is on this server, but not open yet.
    RegionOpening: "RegionOpeningException" => SamePlace,
    /// The region's memstore is full, or a row lock was not acquired in time.
    RegionTooBusy: "RegionTooBusyException" => SamePlace,
    /// The call queue is full.
    CallQueueTooBig: "CallQueueTooBigException" => Overloaded,
    /// The call was dropped from the queue.
    CallDropped: "CallDroppedException" => Overloaded,
    /// The server is stopping.
    ServerStopped: "RegionServerStoppedException" | "RegionServerAbortedException" | "DroppedSnapshotException" => ServerGone,
    /// The server is starting; also a standby master.
    ServerNotRunning: "ServerNotRunningYetException" => Relocate,
    /// The master is starting, stopping, or not the active one.
    MasterNotRunning: "MasterNotRunningException" | "PleaseHoldException" | "MasterStoppedException" => FindMaster,
    /// The scanner does not exist: its lease expired or its region was closed.
    ScannerGone: "UnknownScannerException" | "ScannerResetException" | "LeaseException" => ReopenScanner,
    /// A response of the scanner was lost.
    ScannerOutOfOrder: "OutOfOrderScannerNextException" => ReopenScanner,
    /// Not executed because the response was full.
    NotExecuted: "RetryImmediatelyException" | "MultiActionResultTooLarge" => ResendNow,
    /// A rate quota; the text has the time to wait.
    Throttling: "RpcThrottlingException" => Overloaded,
    /// A permanent quota.
    QuotaExceeded: "QuotaExceededException" | "SpaceLimitingException" => Fail,
    /// The row is not of this region.
    WrongRegion: "WrongRegionException" => Relocate,
    /// hbase:meta is in transition.
    MetaInTransition: "NotAllMetaRegionsOnlineException" => Relocate,
    /// No such family.
    NoSuchFamily: "NoSuchColumnFamilyException" => Fail,
    /// No such table.
    TableNotFound: "TableNotFoundException" => Fail,
    /// The table is disabled.
    TableNotEnabled: "TableNotEnabledException" => Fail,
    /// The table is enabled.
    TableNotDisabled: "TableNotDisabledException" => Fail,
    /// The table exists.
    TableExists: "TableExistsException" => Fail,
    /// The namespace does not exist.
    NamespaceNotFound: "NamespaceNotFoundException" => Fail,
    /// The namespace exists.
    NamespaceExists: "NamespaceExistException" => Fail,
    /// The region is unknown to the master.
    UnknownRegion: "UnknownRegionException" => Fail,
    /// Not allowed.
    AccessDenied: "AccessDeniedException" => Fail,
    /// Invalid values in a descriptor or mutation.
    FailedSanityCheck: "FailedSanityCheckException" => Fail,
    /// The request exceeds the limit of the server, which closes the connection.
    RequestTooBig: "RequestTooBigException" => SplitBatch,
    /// The server rejects the connection.
    Connection: "FatalConnectionException" | "BadAuthException" | "WrongVersionException" | "UnsupportedCellCodecException"
        | "UnsupportedCompressionCodecException" | "UnsupportedCryptoException" | "EmptyServiceNameException"
        | "UnknownServiceException" => CloseConnection,
    /// The server has no security features.
    SecurityNotEnabled: "SecurityNotEnabledException" => Fail,
    /// A feature or coprocessor that is not installed.
    UnknownProtocol: "UnknownProtocolException" => Fail,
    /// Other permanent errors.
    Permanent: "DoNotRetryIOException" | "InvalidFamilyOperationException" | "ConstraintException"
        | "ConcurrentTableModificationException" | "WrongRowIOException" | "CoprocessorException" | "CorruptHFileException"
        | "RowTooBigException" | "MergeRegionException" | "RegionServerRunningException" | "DeserializationException" => Fail,
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
        const BAD: [&str; 4] = [
            "Row length",
            "versions must be positive",
            "Rejecting large batch operation",
            "Unknown Compare op",
        ];
        let lower = message.to_ascii_lowercase();
        if BAD.iter().any(|prefix| message.contains(prefix)) {
            Self::BadRequest
        } else if lower.contains("append") && lower.contains("closed") {
            Self::ClosedLog
        } else {
            Self::Other
        }
    }
}

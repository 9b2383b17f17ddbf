//! Classes of exceptions, and what each means for a retry.

use super::{Recovery, text};

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $class:ident: $($name:literal)|+ => $recovery:ident,)+) => {
        /// Java class of a server's exception, as far as the difference matters here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ExceptionClass {
            $($(#[doc = $doc])+ $class,)+
            /// A plain `IOException` whose text says that the request itself is wrong.
            BadRequest,
            /// The server could not read the request: a fault of the client.
            Unreadable,
            /// The log of a closing region.
            ClosedLog,
            /// A row outside its region, in the words of a failed sanity check.
            RowOutOfRange,
            /// None of the others; the flag of the answer decides.
            Other,
        }

        impl ExceptionClass {
            /// By the class's own name without its package.
            fn named(short: &str) -> Option<Self> {
                Some(match short {
                    $($($name)|+ => Self::$class,)+
                    _ => return None,
                })
            }

            /// What the class alone says to do.
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
    /// The region is not here, or closing.
    NotServingRegion: "NotServingRegionException" => Relocate,
    /// The region is elsewhere; the text says where.
    RegionMoved: "RegionMovedException" => Relocate,
    /// Right server, not open yet.
    RegionOpening: "RegionOpeningException" => SamePlace,
    /// The region's memory is full or a row lock was not to be had.
    RegionTooBusy: "RegionTooBusyException" => SamePlace,
    /// The call queue is full.
    CallQueueTooBig: "CallQueueTooBigException" => Overloaded,
    /// The call was dropped from the queue.
    CallDropped: "CallDroppedException" => Overloaded,
    /// The server is going down.
    ServerStopped: "RegionServerStoppedException" | "RegionServerAbortedException" | "DroppedSnapshotException" => ServerGone,
    /// The server is coming up; also a standby master.
    ServerNotRunning: "ServerNotRunningYetException" => Relocate,
    /// The master is coming up, going down, or another one is active.
    MasterNotRunning: "MasterNotRunningException" | "PleaseHoldException" | "MasterStoppedException" => FindMaster,
    /// The scanner is gone: its lease ended or its region closed.
    ScannerGone: "UnknownScannerException" | "ScannerResetException" | "LeaseException" => ReopenScanner,
    /// An answer of the scanner was lost.
    ScannerOutOfOrder: "OutOfOrderScannerNextException" => ReopenScanner,
    /// Not executed because the answer was full.
    NotExecuted: "RetryImmediatelyException" | "MultiActionResultTooLarge" => ResendNow,
    /// A quota; the text says how long to wait.
    Throttling: "RpcThrottlingException" => Overloaded,
    /// A quota for good.
    QuotaExceeded: "QuotaExceededException" | "SpaceLimitingException" => Fail,
    /// The row is not of this region.
    WrongRegion: "WrongRegionException" => Relocate,
    /// hbase:meta is on its way.
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
    /// The master knows no such region.
    UnknownRegion: "UnknownRegionException" => Fail,
    /// Not allowed.
    AccessDenied: "AccessDeniedException" => Fail,
    /// Odd values in a descriptor or mutation.
    FailedSanityCheck: "FailedSanityCheckException" => Fail,
    /// The request is longer than the server takes; it closes the connection.
    RequestTooBig: "RequestTooBigException" => SplitBatch,
    /// The connection is not to the server's liking.
    Connection: "FatalConnectionException" | "BadAuthException" | "WrongVersionException" | "UnsupportedCellCodecException"
        | "UnsupportedCompressionCodecException" | "UnsupportedCryptoException" | "EmptyServiceNameException"
        | "UnknownServiceException" => CloseConnection,
    /// The server answers no questions about its principal.
    SecurityNotEnabled: "SecurityNotEnabledException" => Fail,
    /// A feature or coprocessor that is not there.
    UnknownProtocol: "UnknownProtocolException" => Fail,
    /// Other faults that a repetition does not heal.
    Permanent: "DoNotRetryIOException" | "InvalidFamilyOperationException" | "ConstraintException"
        | "ConcurrentTableModificationException" | "WrongRowIOException" | "CoprocessorException" | "CorruptHFileException"
        | "RowTooBigException" | "MergeRegionException" | "RegionServerRunningException" | "DeserializationException" => Fail,
}

impl ExceptionClass {
    /// By name, and by text where the name says too little.
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

    /// `IOException` itself says all kinds of things, some of which no repetition heals.
    fn of_plain(message: &str) -> Self {
        const BAD: [&str; 4] = [
            "Row length",
            "versions must be positive",
            "Rejecting large batch operation",
            "Unknown Compare op",
        ];
        let lower = message.to_ascii_lowercase();
        if BAD.iter().any(|words| message.contains(words)) {
            Self::BadRequest
        } else if lower.contains("append") && lower.contains("closed") {
            Self::ClosedLog
        } else {
            Self::Other
        }
    }
}

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{recorded, server_name::ServerName};

const HBASE: &str = "org.apache.hadoop.hbase.";

fn exception(class: &str, text: &str, do_not_retry: bool) -> RemoteException {
    RemoteException::from_response(&pb::ExceptionResponse {
        exception_class_name: Some(class.to_owned()),
        stack_trace: Some(text.to_owned()),
        do_not_retry: Some(do_not_retry),
        ..pb::ExceptionResponse::default()
    })
}

#[track_caller]
fn check(class: &str, text: &str, do_not_retry: bool, expected: &Recovery) {
    let exception = exception(class, text, do_not_retry);
    assert_eq!(exception.recovery(), *expected, "{exception}");
}

#[test]
fn class_takes_precedence_over_the_flag() {
    for (class, expected) in [
        ("NotServingRegionException", Recovery::Relocate),
        ("exceptions.RegionOpeningException", Recovery::SamePlace),
        ("RegionTooBusyException", Recovery::SamePlace),
        ("CallQueueTooBigException", Recovery::Overloaded),
        ("CallDroppedException", Recovery::Overloaded),
        ("regionserver.RegionServerStoppedException", Recovery::ServerGone),
        ("regionserver.RegionServerAbortedException", Recovery::ServerGone),
        ("DroppedSnapshotException", Recovery::ServerGone),
        ("ipc.ServerNotRunningYetException", Recovery::Relocate),
        ("PleaseHoldException", Recovery::FindMaster),
        ("exceptions.MasterStoppedException", Recovery::FindMaster),
        ("UnknownScannerException", Recovery::ReopenScanner),
        ("exceptions.ScannerResetException", Recovery::ReopenScanner),
        ("regionserver.LeaseException", Recovery::ReopenScanner),
        ("exceptions.OutOfOrderScannerNextException", Recovery::ReopenScanner),
        ("RetryImmediatelyException", Recovery::ResendNow),
        ("MultiActionResultTooLarge", Recovery::ResendNow),
        ("quotas.QuotaExceededException", Recovery::Fail),
        ("regionserver.WrongRegionException", Recovery::Relocate),
        ("NotAllMetaRegionsOnlineException", Recovery::Relocate),
        ("regionserver.NoSuchColumnFamilyException", Recovery::Fail),
        ("TableNotFoundException", Recovery::Fail),
        ("security.AccessDeniedException", Recovery::Fail),
        ("exceptions.RequestTooBigException", Recovery::SplitBatch),
        ("ipc.FatalConnectionException", Recovery::CloseConnection),
        ("client.WrongRowIOException", Recovery::Fail),
        ("DoNotRetryIOException", Recovery::Fail),
    ] {
        for flag in [false, true] {
            check(&format!("{HBASE}{class}"), "text", flag, &expected);
        }
    }
}

#[test]
fn unknown_class_is_retried_unless_the_flag_forbids_it() {
    check("org.example.StrangeException", "text", false, &Recovery::Relocate);
    check("org.example.StrangeException", "text", true, &Recovery::Fail);
    check("", "", false, &Recovery::Relocate);
    let overloaded = pb::ExceptionResponse {
        exception_class_name: Some("org.example.Busy".to_owned()),
        server_overloaded: Some(true),
        ..pb::ExceptionResponse::default()
    };
    assert_eq!(RemoteException::from_response(&overloaded).recovery(), Recovery::Overloaded);
}

#[test]
fn plain_io_exceptions_are_classified_by_text() {
    let io = "java.io.IOException";
    for text in [
        "Row length is 0",
        "java.io.IOException: Row length 32768 is > 32767\n\tat x",
        "java.io.IOException: versions must be positive",
        "Unknown Compare op NO_OP",
    ] {
        check(io, text, false, &Recovery::Fail);
    }
    check(
        io,
        "Rejecting large batch operation for current batch with",
        false,
        &Recovery::SplitBatch,
    );
    check(io, "Cannot append; log is closed, regionName = x", false, &Recovery::Relocate);
    check(io, "something else", false, &Recovery::Relocate);
    // Stack lines are not part of the message.
    check(io, "something else\n\tat Row length", false, &Recovery::Relocate);
}

#[test]
fn exceptions_after_the_edit_may_be_logged_are_in_doubt() {
    let of = |class: &str| exception(class, "text", false);
    for class in [
        "regionserver.wal.WALSyncTimeoutIOException",
        "regionserver.wal.DamagedWALException",
        "regionserver.wal.FailedSyncBeforeLogCloseException",
        "regionserver.wal.FailedLogCloseException",
        "regionserver.wal.WALClosedException",
        "exceptions.TimeoutIOException",
        "DroppedSnapshotException",
        "coprocessor.CoprocessorException",
    ] {
        assert!(of(&format!("{HBASE}{class}")).is_ambiguous(), "{class}");
    }
    for class in ["java.io.InterruptedIOException", "java.io.IOException", "org.example.Strange"] {
        assert!(of(class).is_ambiguous(), "{class}");
    }
    for class in [
        "NotServingRegionException",
        "exceptions.RegionMovedException",
        "exceptions.RegionOpeningException",
        "CallQueueTooBigException",
        "CallDroppedException",
        "quotas.RpcThrottlingException",
        "regionserver.RegionServerStoppedException",
        "regionserver.RegionServerAbortedException",
        "ipc.ServerNotRunningYetException",
        "regionserver.NoSuchColumnFamilyException",
        "exceptions.FailedSanityCheckException",
        "exceptions.RequestTooBigException",
        "DoNotRetryIOException",
    ] {
        let exception = of(&format!("{HBASE}{class}"));
        assert!(!exception.is_ambiguous() && !exception.is_ambiguous_in_batch(), "{class}");
    }
    // A region executes a batch in parts, and checks its memstore before each of them.
    let busy = of(&format!("{HBASE}RegionTooBusyException"));
    assert!(!busy.is_ambiguous() && busy.is_ambiguous_in_batch());
}

#[test]
fn undecodable_request_is_not_retried() {
    let text = "/127.0.0.1:17521 is unable to read call parameter from client 127.0.0.1; newLimit > capacity";
    check("java.lang.IllegalArgumentException", text, false, &Recovery::Fail);
    for name in ["InvalidProtocolBufferException", "UninitializedMessageException"] {
        let class = format!("org.apache.hbase.thirdparty.com.google.protobuf.{name}");
        check(&class, "text", false, &Recovery::Fail);
    }
}

#[test]
fn row_outside_its_region_is_relocated_once() {
    let class = format!("{HBASE}exceptions.FailedSanityCheckException");
    check(&class, "Requested row out of range for x", true, &Recovery::RelocateOnce);
    check(&class, &format!("{class}: Requested row out of range"), true, &Recovery::RelocateOnce);
    check(&class, "Timestamp for KV out of range", true, &Recovery::Fail);
}

#[test]
fn throttling_has_a_wait_time() {
    let class = format!("{HBASE}quotas.RpcThrottlingException");
    for row in recorded::table("throttling_text") {
        let wait = Duration::from_millis(row["wait_ms"].as_u64().unwrap());
        check(&class, row["text"].as_str().unwrap(), false, &Recovery::Wait(wait));
    }
    check(&class, "number of requests exceeded", false, &Recovery::Overloaded);
    check(&class, "x - wait 99999999999999999999hrs", false, &Recovery::Overloaded);
}

#[test]
fn moved_region_has_a_new_location() {
    let class = format!("{HBASE}exceptions.RegionMovedException");
    for row in recorded::table("region_moved_text") {
        let port = u16::try_from(row["port"].as_u64().unwrap()).unwrap();
        let server = ServerName::new(
            row["host"].as_str().unwrap(),
            port,
            row["start_code"].as_u64().unwrap(),
        );
        let moved = MovedTo { server, seq_num: row["seq"].as_i64().unwrap() };
        check(&class, row["text"].as_str().unwrap(), false, &Recovery::Moved(moved));
    }
    check(&class, "Region moved to: nowhere", false, &Recovery::Relocate);
}

#[test]
fn message_is_one_line_and_text_is_complete() {
    let class = format!("{HBASE}TableNotFoundException");
    let text = format!("{class}: tsdb\n\tat line one\n\tat line two\n");
    let exception = exception(&class, &text, true);
    assert_eq!(exception.to_string(), "TableNotFoundException: tsdb");
    assert_eq!(exception.text(), text);
    assert_eq!(exception.class(), ExceptionClass::TableNotFound);
}

#[test]
fn exception_inside_multi_is_classified_without_flag() {
    let pair = pb::NameBytesPair {
        name: format!("{HBASE}RegionTooBusyException"),
        value: Some("busy".into()),
    };
    let exception = RemoteException::from_pair(&pair);
    assert_eq!(exception.recovery(), Recovery::SamePlace);
    assert!(!exception.is_overload());
}

proptest! {
    #[test]
    fn any_text_has_a_recovery(text in "(hostname=| port=| startCode=|\\. As of locationSeqNum=| - wait |[0-9]{1,30}|sec|ms|, |.){0,12}") {
        for class in ["exceptions.RegionMovedException", "quotas.RpcThrottlingException"] {
            let _ = exception(&format!("{HBASE}{class}"), &text, false).recovery();
        }
    }
}

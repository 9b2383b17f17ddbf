//! Failing RPCs.

use std::{sync::Arc, time::Duration};

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{
    Append, Client, Delete, Increment, OperationError, SERVER_TIME, ServerName,
    condition::Condition,
    discovery::FixedDiscovery,
    errors::{CallError, DisconnectReason, ExceptionClass, Failure},
};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpSocket},
};

use super::{config, get, put, start, start_with, value};

fn exception(class: &'static str, text: &'static str) -> FaultKind {
    FaultKind::Exception { class, text }
}

/// Formats an error with its sources.
fn error_chain(error: &OperationError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[tokio::test]
async fn transient_failures_are_retried() {
    let (cluster, table) = start().await;
    table.mutate(put("a", "1")).await.unwrap();
    for fault in [
        exception("RegionTooBusyException", "busy"),
        exception("exceptions.RegionOpeningException", "opening"),
        exception("CallQueueTooBigException", "full"),
        exception("CallDroppedException", "dropped"),
        exception("NotServingRegionException", "closing"),
        exception("ipc.ServerNotRunningYetException", "starting"),
        exception("regionserver.RegionServerStoppedException", "stopping"),
        exception("quotas.RpcThrottlingException", "too much - wait 3ms"),
        exception("java.io.IOException", "Cannot append; log is closed"),
        exception("regionserver.WrongRegionException", "not mine"),
        FaultKind::Close,
        FaultKind::CloseAfter(7),
        FaultKind::UnknownCallIdFirst,
        FaultKind::OversizedFrame,
    ] {
        cluster.inject(InjectedFault::once("Get", fault.clone()).times(2));
        let row = table
            .get(&get("a"))
            .await
            .unwrap_or_else(|error| panic!("{fault:?}: {}", error_chain(&error)));
        assert_eq!(value(&row), "1", "{fault:?}");
    }
}

#[tokio::test]
async fn permanent_failures_are_not_retried() {
    let (cluster, table) = start().await;
    for (class, expected) in [
        ("regionserver.NoSuchColumnFamilyException", ExceptionClass::NoSuchFamily),
        ("DoNotRetryIOException", ExceptionClass::Permanent),
        ("security.AccessDeniedException", ExceptionClass::AccessDenied),
        ("exceptions.RequestTooBigException", ExceptionClass::RequestTooBig),
    ] {
        cluster.inject(InjectedFault::once("Mutate", exception(class, "the cause")));
        let error = table.mutate(put("a", "1")).await.unwrap_err();
        assert_eq!(error.class(), Some(expected));
        assert!(!error.in_doubt);
        assert_eq!(error.attempts, 1);
        assert!(error_chain(&error).ends_with(": the cause"), "{}", error_chain(&error));
    }
}

#[tokio::test]
async fn undecodable_response_fails_only_its_call() {
    let (cluster, table) = start().await;
    table.mutate(put("a", "1")).await.unwrap();
    let connections = cluster.connections();
    for fault in [FaultKind::GarbageResponse, FaultKind::WrongCellCount] {
        cluster.inject(InjectedFault::once("Get", fault));
        let error = table.get(&get("a")).await.unwrap_err();
        let expected = matches!(
            &*error.cause,
            Failure::Call(CallError::InvalidResponse { .. }) | Failure::Cells(_)
        );
        assert!(expected, "{error:?}");
        assert_eq!(value(&table.get(&get("a")).await.unwrap()), "1");
    }
    assert_eq!(cluster.connections(), connections);
}

#[tokio::test]
async fn unanswered_call_is_retried_after_the_call_timeout() {
    let mut config = config();
    config.call_timeout = Duration::from_millis(60);
    let (cluster, table) = start_with(config).await;
    table.mutate(put("a", "1")).await.unwrap();
    for fault in [
        FaultKind::NoResponse,
        FaultKind::GarbageHeader,
        FaultKind::Delay(Duration::from_millis(200)),
    ] {
        cluster.inject(InjectedFault::once("Get", fault));
        assert_eq!(value(&table.get(&get("a")).await.unwrap()), "1");
    }
}

#[tokio::test]
async fn responses_arrive_in_any_order() {
    let (cluster, table) = start().await;
    super::fill(&table, &["a", "b", "c"]).await;
    cluster.inject(InjectedFault::once("Get", FaultKind::Delay(Duration::from_millis(50))));
    let (a, b, c) = (get("a"), get("b"), get("c"));
    let (a, b, c) = tokio::join!(table.get(&a), table.get(&b), table.get(&c));
    for (row, expected) in [(a, "a"), (b, "b"), (c, "c")] {
        assert_eq!(value(&row.unwrap()), expected);
    }
}

#[tokio::test]
async fn non_idempotent_mutations_are_not_retried_in_doubt() {
    let (cluster, table) = start().await;
    table.mutate(put("a", "1")).await.unwrap();
    let calls = cluster.calls("Mutate");
    cluster.inject(InjectedFault::once("Mutate", FaultKind::CloseAfter(3)));
    let newest = Delete::try_new("a").unwrap().version(b"f", b"q", SERVER_TIME).unwrap();
    let error = table.mutate(newest).await.unwrap_err();
    assert!(error.in_doubt, "{error:?}");
    cluster.inject(InjectedFault::once("Mutate", FaultKind::CloseAfter(3)));
    let error =
        table.check_and_mutate(&Condition::absent("f", "q"), put("a", "2")).await.unwrap_err();
    assert!(error.in_doubt, "{error:?}");
    assert_eq!(cluster.calls("Mutate"), calls + 2);
    // The server executed the mutation.
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "2");
}

#[tokio::test]
async fn nonce_makes_increments_idempotent() {
    let (cluster, table) = start().await;
    cluster.inject(InjectedFault::once("Mutate", FaultKind::CloseAfter(3)).times(3));
    let increment = Increment::try_new("a").unwrap().counter(b"f", b"n", 1).unwrap();
    let row = table.mutate(increment).await.unwrap();
    assert_eq!(row.value(b"f", b"n").unwrap(), 1_i64.to_be_bytes());
    cluster.inject(InjectedFault::once("Mutate", FaultKind::CloseAfter(0)).times(2));
    let append = Append::try_new("a").unwrap().value(b"f", b"q", b"x").unwrap();
    assert_eq!(value(&table.mutate(append).await.unwrap()), "x");
}

#[tokio::test]
async fn refused_connection_fails_its_calls_with_the_servers_exception() {
    let (cluster, table) = start().await;
    table.locate("a".into()).await.unwrap();
    cluster.inject(InjectedFault::once("Get", FaultKind::FatalConnectionException));
    let error = table.get(&get("a")).await.unwrap_err();
    let refused = matches!(
        &*error.cause,
        Failure::Call(CallError::Disconnected { reason: DisconnectReason::Refused(_), .. })
    );
    assert!(refused, "{error:?}");
    assert!(error_chain(&error).contains("FatalConnectionException"), "{}", error_chain(&error));
}

#[tokio::test]
async fn silent_close_is_reported_with_possible_causes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            // Reads the whole first write, so that the close is not a reset.
            let _ = socket.read(&mut [0; 4096]).await;
        }
    });
    let discovery = FixedDiscovery::new(Some(ServerName::new("127.0.0.1", port, 1)), None);
    let table = Client::new(config(), discovery).table("t".parse().unwrap());
    let error = table.with_timeout(Duration::from_millis(300)).get(&get("a")).await.unwrap_err();
    assert!(
        error_chain(&error).contains("does not accept the connection header"),
        "{}",
        error_chain(&error)
    );
}

#[tokio::test]
async fn refused_connect_is_an_error_at_the_operation_timeout() {
    // Bound to reserve the port, but not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let discovery = FixedDiscovery::new(Some(ServerName::new("127.0.0.1", port, 1)), None);
    let table = Client::new(config(), discovery).table("t".parse().unwrap());
    let error = table.with_timeout(Duration::from_millis(200)).get(&get("a")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Call(CallError::Connect { .. })), "{error:?}");
    assert!(!error.in_doubt);
}

#[tokio::test]
async fn unknown_meta_server_is_an_error_at_the_operation_timeout() {
    let table = Client::new(config(), FixedDiscovery::default()).table("t".parse().unwrap());
    let error = table.with_timeout(Duration::from_millis(50)).get(&get("a")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Discovery(_)), "{error:?}");
}

#[tokio::test]
async fn many_callers_share_a_connection_and_wait_for_permits() {
    let mut config = config();
    config.max_calls = 4;
    config.max_call_bytes = 2_000;
    let cluster = FakeCluster::start(1).await;
    let name = cluster.create_table("t", &[]);
    config.connections_per_server = 1;
    let table = Arc::new(Client::new(config, cluster.discovery()).table(name));
    let tasks: Vec<_> = (0..200)
        .map(|at| {
            let table = Arc::clone(&table);
            tokio::spawn(
                async move { table.mutate(put(&format!("r{at}"), &"v".repeat(300))).await },
            )
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    // One for hbase:meta and one for data.
    assert_eq!(cluster.connections(), 2);
    assert_eq!(cluster.calls("Mutate"), 200);
}

#[tokio::test]
async fn request_over_the_byte_limit_is_sent_alone() {
    let mut config = config();
    config.max_call_bytes = 100;
    let (_cluster, table) = start_with(config).await;
    table.mutate(put("a", &"v".repeat(1_000))).await.unwrap();
    assert_eq!(value(&table.get(&get("a")).await.unwrap()).len(), 1_000);
}

#[tokio::test]
async fn dropped_call_keeps_the_connection() {
    let (cluster, table) = start().await;
    table.mutate(put("a", "1")).await.unwrap();
    let connections = cluster.connections();
    cluster.inject(InjectedFault::once("Get", FaultKind::Delay(Duration::from_millis(30))));
    let dropped = tokio::time::timeout(Duration::from_millis(5), table.get(&get("a"))).await;
    assert!(dropped.is_err());
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "1");
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "1");
    assert_eq!(cluster.connections(), connections);
}

#[tokio::test]
async fn idle_connection_is_closed_and_reopened() {
    let mut config = config();
    config.idle_timeout = Duration::from_millis(10);
    let (cluster, table) = start_with(config).await;
    table.mutate(put("a", "1")).await.unwrap();
    let connections = cluster.connections();
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "1");
    assert_eq!(cluster.connections(), connections + 1);
}

#[tokio::test]
async fn in_doubt_is_kept_over_later_attempts() {
    let (cluster, table) = start().await;
    table.mutate(put("a", "1")).await.unwrap();
    let refuse = || exception("DoNotRetryIOException", "no");
    cluster.inject(InjectedFault::once("Mutate", FaultKind::CloseAfter(3)));
    cluster.inject(InjectedFault::once("Mutate", refuse()));
    let error = table.mutate(put("a", "2")).await.unwrap_err();
    assert!(error.in_doubt && error.class() == Some(ExceptionClass::Permanent), "{error:?}");
    cluster.inject(InjectedFault::once("Multi", FaultKind::CloseAfter(3)));
    cluster.inject(InjectedFault::once("Multi", refuse()));
    let results = table.batch(vec![put("a", "3").into(), get("a").into()]).await;
    assert!(results[0].as_ref().unwrap_err().in_doubt);
    assert!(!results[1].as_ref().unwrap_err().in_doubt);
    cluster.inject(InjectedFault::once("Get", FaultKind::CloseAfter(3)));
    cluster.inject(InjectedFault::once("Get", refuse()));
    assert!(!table.get(&get("a")).await.unwrap_err().in_doubt);
}

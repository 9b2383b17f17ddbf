use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
};
use tsd_protocol::BuildInfo;
use tsd_storage::{Fault, Operation, StorageError};

use super::harness::{Tsd, config, engine_config, read_to_end, with_limits};
use crate::{Limits, ServerConfig, ServerMode};

#[tokio::test]
async fn valid_points_have_no_reply_and_are_stored() {
    let tsd = Tsd::start().await;
    let sent =
        b"put m 1356998400 42 host=a\nput m 1356998401 4.5 host=a\r\nput m 1356998402 1 host=b\n";
    assert_eq!(tsd.exchange(sent).await, "");
    tsd.engine.drain_writes().await;
    assert_eq!(tsd.get("/api/suggest?type=tagv").await.line(), r#"200 ["a","b"]"#);
}

#[tokio::test]
async fn each_bad_point_gets_its_line() {
    let tsd = Tsd::start().await;
    let cases = [
        ("put", "illegal argument: not enough arguments (need least 4, got 0)"),
        ("put m 1 1", "illegal argument: not enough arguments (need least 4, got 3)"),
        ("put  1 1 a=b", "illegal argument: empty metric name"),
        ("put m x 1 a=b", "invalid value: Invalid character 'x' in x"),
        ("put m  1 a=b", "invalid value: Empty string"),
        ("put m - 1 a=b", "invalid value: Just a sign, no value: -"),
        ("put m 00000000000000000001 1 a=b", "invalid value: Value too long: 00000000000000000001"),
        ("put m 9999999999999999999 1 a=b", "invalid value: Overflow in 9999999999999999999"),
        ("put m 0 1 a=b", "illegal argument: invalid timestamp: 0"),
        ("put m -5 1 a=b", "illegal argument: invalid timestamp: -5"),
        ("put m 1  a=b", "illegal argument: empty value"),
        ("put m 1 1 a", "illegal argument: invalid tag: a"),
        ("put m 1 1 a=b=c", "illegal argument: invalid tag: a=b=c"),
        ("put m 1 1 =b", "illegal argument: invalid tag: =b"),
        ("put m 1 1 a=", "illegal argument: invalid tag: a="),
        ("put m 1 1 a=b a=c", "illegal argument: duplicate tag: a=c, tags={a=b}"),
        ("put m 1 NaN a=b", "invalid value: Invalid character 'N' in NaN"),
        ("put m 1 0x10 a=b", "invalid value: Invalid character 'x' in 0x10"),
        ("put m 1 12e a=b", "invalid value: For input string: \"12e\""),
        (
            "put m 1 1e999 a=b",
            "illegal argument: value is NaN or Infinite: Infinity for metric=m timestamp=1",
        ),
        (
            "put m 10000000000000 42 a=b",
            "illegal argument: bad timestamp=10000000000000 when trying to add value=[42]/0 to \
             metric=m, tags={a=b}",
        ),
        ("put m 1 1  ", "illegal argument: Need at least one tag (metric=m, tags={})"),
        (
            "put m 1 1 a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1",
            "illegal argument: Too many tags: 9 maximum allowed: 8, tags: {a=1, b=1, c=1, d=1, \
             e=1, f=1, g=1, h=1, i=1}",
        ),
        ("put m! 1 1 a=b", "illegal argument: Invalid metric name (\"m!\"): illegal character: !"),
        (
            "put m 1 1 a!=b",
            "illegal argument: Invalid tag name with value [b] (\"a!\"): illegal character: !",
        ),
        (
            "put m 1 1 a=b!",
            "illegal argument: Invalid tag value with key [a] (\"b!\"): illegal character: !",
        ),
    ];
    let sent: String = cases.iter().map(|(line, _)| format!("{line}\n")).collect();
    let replies = tsd.exchange(sent.as_bytes()).await;
    let expected: Vec<String> = cases.iter().map(|(_, text)| format!("put: {text}")).collect();
    assert_eq!(replies.lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn names_that_must_not_be_created_are_named() {
    let mut engine = engine_config();
    engine.uids.auto_create_metrics = false;
    engine.uids.auto_create_tagks = false;
    let tsd = Tsd::start_with(config(), engine).await;
    assert_eq!(
        tsd.exchange(b"put m 1 1 a=b\n").await,
        "put: unknown metric: No such name for 'metrics': 'm'\n"
    );
    tsd.get("/api/uid/assign?metric=m").await;
    assert_eq!(
        tsd.exchange(b"put m 1 1 a=b\n").await,
        "put: unknown metric: No such name for 'tagk': 'a'\n"
    );
}

#[tokio::test]
async fn storage_failures_are_reported_if_enabled() {
    for (enabled, expected) in [(true, "put: HBase error: the row is too large\n"), (false, "")] {
        let config = ServerConfig { telnet_return_errors: enabled, ..config() };
        let tsd = Tsd::start_with(config, engine_config()).await;
        tsd.exchange(b"put m 1 1 a=b\n").await;
        tsd.engine.drain_writes().await;
        tsd.storage.script(
            Operation::Put,
            [Fault::Error(StorageError::Rejected("the row is too large".into()))],
        );
        assert_eq!(tsd.exchange(b"put m 2 1 a=b\n").await, expected);
        let stats = tsd.exchange(b"stats\n").await;
        let line = stats.lines().find(|line| line.contains("hbase_errors")).unwrap();
        assert!(line.starts_with("tsd.rpc.errors ") && line.contains(" 1 type="), "{line}");
    }
}

#[tokio::test]
async fn commands_reply_as_in_opentsdb() {
    let build = BuildInfo {
        version: "1.2.3".into(),
        short_revision: "abcdef0".into(),
        repo_status: "MINT".into(),
        built_at_secs: 1_356_998_400,
        user: "me".into(),
        host: "box".into(),
        repo: "/src".into(),
        ..BuildInfo::default()
    };
    let tsd = Tsd::start_with(ServerConfig { build, ..config() }, engine_config()).await;
    let replies = tsd
        .exchange(
            b"version\nhelp\ndropcaches\nstatus\nbogus x\n\nVersion\nhistogram\nrollup\n\
              rollup 1h-sum m 1 1 a=b\nhistogram m 1 0,1=2 a=b\nexit\nversion\n",
        )
        .await;
    insta::assert_snapshot!(replies, @r"
    net.opentsdb.tools 1.2.3 built at revision abcdef0 (MINT)
    Built on 2013/01/01 00:00:00 +0000 by me@box:/src
    available commands: stats dropcaches version status exit help put rollup histogram diediedie 
    Caches dropped.
    ok
    unknown command: bogus.  Try `help'.
    unknown command: .  Try `help'.
    unknown command: Version.  Try `help'.
    histogram: illegal argument: Histogram storage has not been enabled. Check the 'tsd.core.histograms.config' configuration.
    rollup: illegal argument: not enough arguments (need least 7, got 0)
    rollup: illegal argument: No rollup or aggregations were configured
    histogram: illegal argument: Histogram storage has not been enabled. Check the 'tsd.core.histograms.config' configuration.
    ");
}

#[tokio::test]
async fn disabled_commands_are_unknown() {
    let config = ServerConfig { mode: ServerMode::ReadOnly, no_diediedie: true, ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    insta::assert_snapshot!(tsd.exchange(b"put m 1 1 a=b\ndiediedie\nhelp\n").await, @r"
    unknown command: put.  Try `help'.
    unknown command: diediedie.  Try `help'.
    available commands: stats dropcaches version status exit help 
    ");
}

#[tokio::test]
async fn diediedie_requests_a_stop() {
    let tsd = Tsd::start().await;
    assert_eq!(tsd.exchange(b"diediedie\n").await, "Cleaning up and exiting now.\n");
    tsd.server.stop_requested().await;
}

#[tokio::test]
async fn replies_keep_the_order_of_the_lines() {
    let tsd = Tsd::start().await;
    let replies = tsd.exchange(b"nope\nput\nstatus\nput m 1 x a=b\nnope2\nstatus\n").await;
    insta::assert_snapshot!(replies, @r"
    unknown command: nope.  Try `help'.
    put: illegal argument: not enough arguments (need least 4, got 0)
    ok
    put: invalid value: Invalid character 'x' in x
    unknown command: nope2.  Try `help'.
    ok
    ");
}

#[tokio::test]
async fn lines_may_be_split_over_reads() {
    let tsd = Tsd::start().await;
    let mut stream = tsd.connect().await;
    stream.set_nodelay(true).unwrap();
    for piece in ["vers", "ion\nput m 1", "356998400 1 a=b\nst", "atus\r", "\n"] {
        stream.write_all(piece.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
    }
    stream.shutdown().await.unwrap();
    let replies = read_to_end(&mut stream).await;
    assert!(replies.ends_with("\nok\n"), "{replies}");
    assert_eq!(replies.lines().count(), 3);
}

/// Issue 37: depending on its packets, such a line was accepted or closed the connection.
#[tokio::test]
async fn a_line_that_is_too_long_gets_one_error_and_the_rest_goes_on() {
    let tsd = Tsd::start().await;
    let long = "v".repeat(1 << 20);
    let replies = tsd
        .exchange(format!("{long}\nput m 1 1 a={long}\nstatus {long}\r\nput fine 1356998400 1 a=b\nstatus\n{long}").as_bytes())
        .await;
    let reason =
        "the line is longer than 16384 bytes (tsd.network.max_line_length) and was skipped";
    let expected = format!(
        "error: {reason}\nput: illegal argument: {reason}\nerror: {reason}\nok\nerror: {reason}\n"
    );
    assert_eq!(replies, expected);
    tsd.engine.drain_writes().await;
    assert_eq!(tsd.get("/api/suggest?type=metrics").await.line(), r#"200 ["fine"]"#);
    let stats = tsd.exchange(b"stats\n").await;
    let line = stats.lines().find(|line| line.contains("illegal_arguments")).unwrap();
    assert!(line.contains(" 1 type="), "{line}");
}

#[tokio::test]
async fn a_line_may_be_as_long_as_the_limit() {
    let limits = Limits { telnet_line_bytes: 64, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let point = |length: usize| format!("put m 1356998400 1 a={}\n", "b".repeat(length - 21));
    assert_eq!(tsd.exchange(point(64).as_bytes()).await, "");
    assert_eq!(
        tsd.exchange(point(65).as_bytes()).await,
        "put: illegal argument: the line is longer than 64 bytes (tsd.network.max_line_length) and was skipped\n"
    );
}

/// Sends these packets; returns the replies and the stored points.
async fn replies_and_points(packets: &[&[u8]]) -> (String, String) {
    let limits = Limits { telnet_line_bytes: 64, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine_config()).await;
    let mut stream = tsd.connect().await;
    stream.set_nodelay(true).unwrap();
    for packet in packets {
        stream.write_all(packet).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stream.shutdown().await.unwrap();
    let replies = read_to_end(&mut stream).await;
    tsd.engine.drain_writes().await;
    let found = tsd.get("/api/query?start=1356998400&end=1356998500&m=sum:m{a=*}").await;
    (replies, found.text())
}

/// Issue 37: the replies do not depend on how input is cut into packets.
#[tokio::test]
async fn points_and_replies_do_not_depend_on_how_the_input_is_cut() {
    let long = "x".repeat(70);
    let lines = [
        "put m 1356998401 1 a=b",
        "put m 1356998402 2 a=c\r",
        "put m 1356998403 x a=b",
        "nonsense",
        "status",
        "",
        &format!("put m 1356998404 4 a={long}"),
        &format!("status {long} put m 1356998405 5 a=b"),
        &format!("{long}{long}\rstatus"),
        &"y".repeat(64),
    ];
    let mut seed = 0x9E37_79B9_u64;
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    for _ in 0..12 {
        let mut input = String::from("put m 1356998400 7 a=b\n");
        for _ in 0..12 {
            input.push_str(lines[below(lines.len())]);
            input.push('\n');
        }
        // The last line may have no end.
        input.push_str(lines[below(lines.len())]);
        let bytes = input.as_bytes();
        let whole = replies_and_points(&[bytes]).await;
        assert!(whole.1.contains("1356998400"), "{}", whole.1);
        for _ in 0..2 {
            let mut cuts: Vec<usize> = (0..8).map(|_| below(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let packets: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            assert_eq!(replies_and_points(&packets).await, whole, "{input:?} cut at {cuts:?}");
        }
    }
}

#[tokio::test]
async fn noise_gets_replies_and_the_server_keeps_working() {
    let tsd = Tsd::start().await;
    let mut noise: Vec<u8> =
        (0..20_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    noise[0] = 0xff;
    for at in (0..noise.len()).step_by(700) {
        noise[at] = b'\n';
    }
    tsd.exchange(&noise).await;
    assert_eq!(tsd.exchange(b"status\n").await, "ok\n");
    tsd.no_connections().await;
}

#[tokio::test]
async fn error_lines_of_a_client_that_never_reads_are_dropped() {
    let tsd = Tsd::start().await;
    // A small receive buffer, so that a few megabytes of error text exceed all buffers.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(tsd.server.local_addr()).await.unwrap();
    let bad = "put m 1 x a=b\n".repeat(10_000);
    for _ in 0..15 {
        stream.write_all(bad.as_bytes()).await.unwrap();
    }
    stream.write_all(b"put fine 1356998400 1 a=b\n").await.unwrap();
    while tsd.get("/api/suggest?type=metrics&q=fine").await.text() != r#"["fine"]"# {}
    let stats = tsd.exchange(b"stats\n").await;
    let line = stats.lines().find(|l| l.contains("socket_writes_blocked")).unwrap();
    let dropped: u64 = line.split(' ').nth(2).unwrap().parse().unwrap();
    assert!(dropped > 0, "{line}");
    let mut some = [0; 64];
    stream.read_exact(&mut some).await.unwrap();
    assert!(some.starts_with(b"put: invalid value: "));
}

#[tokio::test]
async fn stats_have_opentsdbs_names_and_the_host() {
    let config = ServerConfig { stats_with_port: true, ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    let stats = tsd.exchange(b"stats\n").await;
    let port = tsd.server.local_addr().port();
    for line in stats.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[0].starts_with("tsd."), "{line}");
        words[1].parse::<u32>().unwrap();
        words[2].parse::<i64>().unwrap();
        assert!(line.ends_with(&format!("host=box port={port}")), "{line}");
    }
    assert!(stats.contains("tsd.connectionmgr.connections "));
    assert!(stats.contains("tsd.uid.cache-size "));
    assert!(stats.contains(" 1 type=open host=box"));
}

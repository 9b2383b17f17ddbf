//! A panic of a thread of the store ends the process. Each test runs itself in a child process.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use super::*;

const CHILD: &str = "WAL_PANIC_CHILD";

/// True in the child process. The parent runs the test in a child and checks how it ends.
fn is_child(test: &str, cause: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        return true;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tests::thread_panics::{test}"), "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success(), "{log}");
    let line = log.lines().find(|line| line.contains("the process ends"));
    let line = line.unwrap_or_else(|| panic!("no line with the cause: {log}"));
    assert!(line.contains("ERROR") && line.contains(cause), "{line}");
    assert!(!log.contains("a zombie"), "{log}");
    false
}

/// Waits until the process ends.
async fn wait_for_the_end() -> ! {
    tokio::time::sleep(Duration::from_secs(30)).await;
    eprintln!("a zombie");
    std::process::exit(0)
}

static CLOCK_IS_BROKEN: AtomicBool = AtomicBool::new(false);

fn breaking_clock() -> i64 {
    assert!(!CLOCK_IS_BROKEN.load(Ordering::Relaxed), "the clock is broken");
    clock()
}

#[tokio::test]
async fn panic_of_the_committer_ends_the_process_with_its_cause() {
    let test = "panic_of_the_committer_ends_the_process_with_its_cause";
    if !is_child(test, "wal-committer") {
        return;
    }
    let config = WalConfig { clock: breaking_clock, ..lazy() };
    let (store, _) = open(&FaultyDisk::new(1), config).await.unwrap();
    put(&store, b"a", b"1").await.unwrap();
    CLOCK_IS_BROKEN.store(true, Ordering::Relaxed);
    assert!(put(&store, b"b", b"2").await.is_err(), "a waiting caller gets an error");
    wait_for_the_end().await;
}

#[tokio::test]
async fn panic_of_the_flusher_ends_the_process_with_its_cause() {
    let test = "panic_of_the_flusher_ends_the_process_with_its_cause";
    if !is_child(test, "the disk has gone mad") {
        return;
    }
    let disk = FaultyDisk::new(1);
    let (store, _) = open(&disk, lazy()).await.unwrap();
    put(&store, b"a", b"1").await.unwrap();
    disk.panic_on_remove();
    assert!(store.flush().await.is_err(), "a waiting caller gets an error");
    wait_for_the_end().await;
}

//! The commands of "Quick start from a keytab" in docs/hbase-secure.md, as they stand, with the files of the cluster.

use std::{
    env, fs,
    net::TcpStream,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use cluster::Cluster;
use tokio::task::block_in_place;
use tsd_testkit::bench_binary;

use crate::{
    TSDB, TestResult,
    programs::{PATIENCE, Watched, one_line},
};

const PAGE: &str = include_str!("../../docs/hbase-secure.md");
const HEADING: &str = "## Quick start from a keytab";
/// The address that the page uses.
const ADDRESS: &str = "127.0.0.1:4242";
/// The command that starts the daemon, which is a block of its own.
const DAEMON: &str = "tsdb tsd --config opentsdb.conf";

/// Runs the section in a directory with the files that it expects.
pub(crate) fn run(cluster: &Cluster) -> TestResult<String> {
    let directory = tempfile::tempdir()?;
    let place = directory.path();
    let client = cluster.client_files();
    fs::create_dir_all(place.join("hbase"))?;
    for file in ["hbase-site.xml", "core-site.xml"] {
        fs::copy(client.directory().join(file), place.join("hbase").join(file))?;
    }
    fs::copy(client.keytab(), place.join("tsdb.keytab"))?;
    fs::copy(client.krb5_conf(), place.join("krb5.conf"))?;
    fs::create_dir(place.join("bin"))?;
    symlink(fs::canonicalize(bench_binary(TSDB))?, place.join("bin/tsdb"))?;
    block_in_place(|| {
        await_free_port()?;
        let begun = Instant::now();
        let mut daemon = None;
        let mut outputs = Vec::new();
        for block in blocks() {
            if block.trim() == DAEMON {
                let mut started = Watched::start(shell(place, &block), &place.join("daemon.log"))?;
                started.await_texts(&["ready to serve"])?;
                daemon = Some(started);
                continue;
            }
            let output = shell(place, &block).output()?;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            if !output.status.success() {
                return Err(format!("{}: {}", one_line(&block), one_line(&text)).into());
            }
            outputs.push(text);
        }
        let outputs = outputs.join("\n");
        for expected in ["Kerberos as tsdb", "204 No Content", "\"metric\":\"sys.load\""] {
            if !outputs.contains(expected) {
                return Err(format!("{expected:?} is not in: {}", one_line(&outputs)).into());
            }
        }
        daemon.ok_or("the section does not start a daemon")?;
        Ok(format!("from the keytab to the first point in {:.1} s", begun.elapsed().as_secs_f64()))
    })
}

/// The shell blocks of the section.
fn blocks() -> Vec<String> {
    let section = PAGE.split_once(HEADING).map(|(_, rest)| rest).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in section.lines() {
        match (&mut block, line.trim()) {
            (None, "```sh") => block = Some(String::new()),
            (Some(_), "```") => blocks.extend(block.take()),
            (Some(text), _) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

/// A shell that stops at the first command that fails.
fn shell(place: &Path, commands: &str) -> Command {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = std::iter::once(place.join("bin")).chain(env::split_paths(&path));
    let mut command = Command::new("bash");
    // The daemon replaces the shell, so that a signal ends it.
    let commands = commands.replace(DAEMON, &format!("exec {DAEMON}"));
    command.args(["-euo", "pipefail", "-c", &commands]).current_dir(place);
    command.env("PATH", env::join_paths(places).unwrap_or(path)).env("HOME", place);
    command.env_remove("KRB5_CONFIG").env_remove("KRB5CCNAME");
    command
}

/// Another test may use the port, too.
fn await_free_port() -> TestResult<()> {
    let begun = Instant::now();
    while TcpStream::connect(ADDRESS).is_ok() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{ADDRESS}, which the page uses, is taken").into());
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

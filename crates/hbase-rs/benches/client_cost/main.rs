//! CPU cost of the client: puts, scans and gets against a server that stores nothing.
//!
//! The server is a second process with one region that acknowledges every batch and returns
//! precomputed scan responses, so that all CPU time of this process is the client's. The network and
//! HBase are not measured.
//!
//! `cargo bench -p hbase-rs --bench client_cost -- [millions of cells] [part of a name]`

mod server;

use std::{
    collections::VecDeque,
    error::Error,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Instant,
};

use hbase_rs::{
    Action, BufferConfig, Client, ClientConfig, Get, Put, Scan, ServerName, Table,
    discovery::FixedDiscovery,
};

type BenchResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Mutations per batch.
const BATCH: usize = 1_000;

/// Maximum number of unacknowledged batches.
const MAX_PENDING: usize = 32;

/// Concurrent gets.
const GETS: usize = 32;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> BenchResult<()> {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    if arguments.first().is_some_and(|one| one == "serve") {
        return server::serve().await;
    }
    let millions: usize = arguments.first().map_or(Ok(4), |text| text.parse())?;
    let selected = arguments.get(1).cloned().unwrap_or_default();
    let cells = millions * 1_000_000;
    let server = ServerProcess::start()?;
    let name = ServerName::new("127.0.0.1", server.port, 1);
    let client = Client::new(ClientConfig::new("bench"), FixedDiscovery::new(Some(name), None));
    let table = client.table("t".parse()?);
    table.prefetch().await?;
    println!("{:30} {:>9} {:>12} {:>14}", "", "millions", "M a second", "cpu-s a million");
    for cells_a_row in [1, 6] {
        let name = format!("buffered, {cells_a_row} cells a put");
        if name.contains(&selected) {
            measure(&name, cells, buffered(&table, cells, cells_a_row)).await?;
        }
    }
    if "batches, 1 cell a put".contains(&selected) {
        measure("batches, 1 cell a put", cells / 2, batches(&table, cells / 2)).await?;
    }
    for cells_a_row in [1, 10, 100] {
        let name = format!("scan, {cells_a_row} cells a row");
        if name.contains(&selected) {
            measure(&name, cells, scan(&table, cells, cells_a_row)).await?;
        }
    }
    if "gets, 32 at once".contains(&selected) {
        measure("gets, 32 at once", cells / 40, gets(&table, cells / 40)).await?;
    }
    Ok(())
}

/// Puts through a `BufferedMutator`.
async fn buffered(table: &Table, cells: usize, cells_a_row: usize) -> BenchResult<()> {
    let writer = table.buffered(BufferConfig::default());
    let mut pending = VecDeque::new();
    for first in (0..cells / cells_a_row).step_by(BATCH) {
        let mut batch = writer.batch(BATCH, BATCH * cells_a_row * 64);
        for row in first..first + BATCH {
            let key = row_key(row);
            for at in 0..cells_a_row as u16 {
                batch.put(&key, b"t", &at.to_be_bytes(), 1, &42_u32.to_be_bytes())?;
            }
        }
        if pending.len() == MAX_PENDING
            && let Some(first) = pending.pop_front()
        {
            first.await?;
        }
        pending.push_back(writer.submit(batch).await?);
    }
    for receipt in pending {
        receipt.await?;
    }
    Ok(())
}

/// Puts in sequential batches.
async fn batches(table: &Table, cells: usize) -> BenchResult<()> {
    for first in (0..cells).step_by(10_000) {
        let actions: Result<Vec<Action>, _> =
            (first..first + 10_000).map(|row| put(row).map(Action::from)).collect();
        for outcome in table.batch(actions?).await {
            outcome?;
        }
    }
    Ok(())
}

async fn scan(table: &Table, cells: usize, cells_a_row: usize) -> BenchResult<()> {
    // The server returns as many rows as the limit says.
    let limit = (cells / cells_a_row).try_into()?;
    let scan = Scan::all().per_call(cells_a_row.try_into()?, 2 << 20).limit(limit);
    let mut rows = table.scan(scan);
    let (mut received, mut bytes) = (0, 0);
    while let Some(row) = rows.next().await {
        for cell in row?.row.cells() {
            received += 1;
            bytes += cell.value.len() + cell.qualifier.len();
        }
    }
    if received == cells && bytes == cells * 6 {
        return Ok(());
    }
    Err(format!("{received} cells of {cells}").into())
}

async fn gets(table: &Table, gets: usize) -> BenchResult<()> {
    let table = Arc::new(table.clone());
    let tasks: Vec<_> = (0..GETS)
        .map(|task| {
            let table = Arc::clone(&table);
            tokio::spawn(async move {
                for row in (task..gets).step_by(GETS) {
                    table.get(&Get::try_new(row_key(row).to_vec())?).await?;
                }
                BenchResult::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Row key of the length that OpenTSDB uses for two tags.
fn row_key(number: usize) -> [u8; 19] {
    let mut key = [0; 19];
    let (_, end) = key.split_at_mut(11);
    end.copy_from_slice(&number.to_be_bytes());
    key
}

fn put(row: usize) -> Result<Put, hbase_rs::errors::RequestError> {
    Put::try_new(row_key(row).to_vec())?.cell(b"t", b"\0\0", 1, &42_u32.to_be_bytes())
}

async fn measure(
    name: &str,
    count: usize,
    work: impl Future<Output = BenchResult<()>>,
) -> BenchResult<()> {
    let (start, cpu) = (Instant::now(), cpu_seconds()?);
    work.await?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    let millions = count as f64 / 1e6;
    println!("{name:30} {millions:9.2} {:12.2} {:14.3}", millions / seconds, cpu / millions);
    Ok(())
}

/// CPU time of this process in seconds.
fn cpu_seconds() -> BenchResult<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no process name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    // Clock ticks: hundredths of a second on Linux.
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

/// The server process; dropping this value kills it.
struct ServerProcess {
    process: Child,
    port: u16,
}

impl ServerProcess {
    fn start() -> BenchResult<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        Ok(Self { process, port: line.trim().parse()? })
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

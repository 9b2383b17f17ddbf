//! Shows progress and findings of a copy, and writes its state file every ten seconds.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write as _},
    mem,
};

use anyhow::Context;
use tsd_storage::Table;
use tsd_tools::{CopiedRange, CopiedRows, CopyObserver};

use super::state_file::{CopyState, StateFile};
use crate::{
    args::CopyArgs,
    console::{BYTES, Console},
    tell,
};

/// Maximum printed findings of a table; all findings are counted.
const MAX_PRINTED: u64 = 20;

/// Numbers of findings by table.
type FindingCounts = BTreeMap<String, u64>;

/// Prints findings and progress, and writes the state.
pub(super) struct CopyProgress {
    pub(super) console: Console,
    inner: Mutex<Inner>,
}

struct Inner {
    state: CopyState,
    file: Option<StateFile>,
    findings_file: Option<BufWriter<File>>,
    found: FindingCounts,
    /// Copied by this process.
    cells: u64,
    bytes: u64,
}

impl CopyProgress {
    /// The progress of a copy with its state in `file`, or of a comparison.
    pub(super) fn new(
        args: &CopyArgs,
        state: Option<CopyState>,
        file: Option<StateFile>,
    ) -> anyhow::Result<Self> {
        let findings = args.findings.as_ref().map(|path| {
            File::create(path).with_context(|| format!("the findings {}", path.display()))
        });
        let state = state.unwrap_or_default();
        if let Some(file) = &file {
            file.write(&state)?;
        }
        let inner = Inner {
            state,
            file,
            findings_file: findings.transpose()?.map(BufWriter::new),
            found: BTreeMap::new(),
            cells: 0,
            bytes: 0,
        };
        Ok(Self { console: Console::new("copy", args.json, true), inner: Mutex::new(inner) })
    }

    /// Writes the state at the end of the copy. Fails if this or an earlier write failed.
    pub(super) fn end(&self, is_whole: bool) -> anyhow::Result<()> {
        let inner = &mut *self.inner.lock();
        inner.state.is_complete = is_whole;
        self.console.keep(inner.write_state());
        self.console.close()
    }

    /// Ends the progress and the file of findings. Returns the copied rows by table, including earlier runs, and the
    /// numbers of findings by table.
    pub(super) fn close(&self) -> anyhow::Result<(BTreeMap<String, CopiedRows>, FindingCounts)> {
        let inner = &mut *self.inner.lock();
        if let Some(mut file) = inner.findings_file.take() {
            file.flush().context("the findings")?;
        }
        self.console.close()?;
        Ok((mem::take(&mut inner.state.tables), mem::take(&mut inner.found)))
    }
}

impl Inner {
    fn write_state(&self) -> anyhow::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.write(&self.state))
    }
}

impl CopyObserver for CopyProgress {
    fn found(&self, table: &Table, text: &str) {
        let count = {
            let inner = &mut *self.inner.lock();
            if let Some(file) = &mut inner.findings_file {
                self.console.keep(writeln!(file, "{table}: {text}").context("the findings"));
            }
            let count = inner.found.entry(table.to_string()).or_default();
            *count += 1;
            *count
        };
        if count <= MAX_PRINTED {
            self.console.suspend(|| tell!("tsdb: {table}: {text}"));
        }
        if count == MAX_PRINTED + 1 {
            let hint = "further findings are only counted; --findings FILE gets all";
            self.console.suspend(|| tell!("tsdb: {table}: {hint}"));
        }
    }

    fn advanced(&self, range: &CopiedRange<'_>, copied: &CopiedRows, done: f64) {
        let inner = &mut *self.inner.lock();
        inner.cells += copied.cells;
        inner.bytes += copied.bytes;
        inner.state.tables.entry(range.table.to_string()).or_default().add(copied);
        inner.state.ranges.insert(range.name.to_owned(), range.progress.clone());
        let amounts = [(inner.cells, "cells"), (inner.bytes, BYTES)];
        if self.console.show(Some(done), &amounts, "") {
            self.console.keep(inner.write_state());
        }
    }
}

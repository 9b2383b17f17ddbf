//! The background thread of LSM compaction.
//!
//! A failed step removes its partial outputs and is retried, each time after a longer pause.
//! Without enough disk space for a step, deleted entries are removed from single files instead
//! ([`crate::reclaim`]). A damaged input of a step is replaced before the next step
//! ([`crate::repair`]).

use std::{
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use lsm_tree::{
    AbstractTree, AnyTree,
    compaction::{Choice, CompactionStrategy, Leveled},
};
use tsd_files::spawn_critical;
use tsd_storage::StorageError;

use crate::{
    compaction_signal::{CompactionSignal, StepFailure},
    reclaim::{is_space_low, reclaim},
    repair::is_damage,
    table::TableStore,
};

/// L0 runs that trigger a compaction.
const L0_COMPACTION_RUNS: u8 = 8;
/// Pause after the first failed step of a table; each further failure doubles it.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause; does not apply to a lack of disk space, which may end at any time.
const MAX_RETRY_PAUSE: Duration = Duration::from_mins(5);

/// Owner of the thread; dropping it stops the thread after the current step.
#[derive(Debug)]
pub(crate) struct Compactor {
    signal: Arc<CompactionSignal>,
    thread: Option<JoinHandle<()>>,
}

impl Compactor {
    pub(crate) fn start(
        tables: Vec<Arc<TableStore>>,
        signal: Arc<CompactionSignal>,
    ) -> std::io::Result<Self> {
        let thread_signal = Arc::clone(&signal);
        let thread = spawn_critical("lsm-compactor", move || run(&tables, &thread_signal))?;
        Ok(Self { signal, thread: Some(thread) })
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.signal.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread ends the process.
            let _ = thread.join();
        }
    }
}

fn run(tables: &[Arc<TableStore>], signal: &CompactionSignal) {
    loop {
        let mut state = signal.lock();
        while !state.requested && !state.stopped {
            let retry_at = state.failures.values().map(|failure| failure.retry_at).min();
            let pause = retry_at.map(|at| at.saturating_duration_since(Instant::now()));
            match pause {
                Some(Duration::ZERO) => break,
                Some(pause) => {
                    signal.changed.wait_for(&mut state, pause);
                }
                None => signal.changed.wait(&mut state),
            }
        }
        if state.stopped {
            return;
        }
        state.requested = false;
        drop(state);
        for table in tables {
            while !signal.is_stopped() && is_due(table, signal) && step(table, signal) {}
        }
    }
}

/// False while the table pauses after a failure.
fn is_due(table: &TableStore, signal: &CompactionSignal) -> bool {
    signal.lock().failures.get(&table.name).is_none_or(|f| f.retry_at <= Instant::now())
}

/// Repairs damaged files of the tree, or runs its most urgent compaction; returns true if there may
/// be more to do.
fn step(table: &TableStore, signal: &CompactionSignal) -> bool {
    let before = version_id(table);
    let repairs = table.has_suspects();
    let mut result = if repairs { table.repair() } else { compact(table) };
    let mut changed = result.is_ok() && (repairs || version_id(table) != before);
    let lacks_space = matches!(result, Err(StorageError::DiskFull)) || is_space_low(table);
    if !changed && lacks_space {
        match reclaim(table) {
            // The step may succeed now.
            Ok(true) => (changed, result) = (true, Ok(())),
            Ok(false) => {}
            Err(error) => result = Err(error),
        }
    }
    // The next step repairs the file.
    let found_damage = !repairs && table.has_suspects();
    let mut state = signal.lock();
    match result {
        Ok(()) => {
            state.failures.remove(&table.name);
        }
        Err(_) if found_damage => {}
        Err(error) => {
            table.metrics.compaction_errors.increment(1);
            let last = state.failures.get(&table.name).map(|failure| failure.pause);
            if last.is_none() {
                tracing::warn!(table = %table.name, %error, "LSM compaction failed");
            }
            let pause = match (&error, last) {
                (StorageError::DiskFull, _) | (_, None) => RETRY_PAUSE,
                (_, Some(last)) => (last * 2).min(MAX_RETRY_PAUSE),
            };
            let retry_at = Instant::now() + pause;
            state.failures.insert(table.name.clone(), StepFailure { error, pause, retry_at });
        }
    }
    if changed && !repairs {
        state.steps += 1;
    }
    drop(state);
    signal.changed.notify_all();
    changed || found_damage
}

fn compact(table: &TableStore) -> Result<(), StorageError> {
    let tree = table.tree();
    // Readers own a version of the tree, not a sequence number: only the newest cells are needed.
    let strategy = || Leveled::default().with_l0_threshold(L0_COMPACTION_RUNS);
    // The inputs that the step will choose, in case one is damaged.
    #[expect(clippy::default_trait_access, reason = "the tree does not export the type")]
    let state = Default::default();
    let choice = strategy().choose(&tree.current_version(), tree.tree_config(), &state);
    // Held until the step ends, so that the log does not use the space of its outputs.
    let _permit = table.space().promise(output_bytes(&tree, &choice))?;
    let compacting = table.compacting.lock();
    let result = tree.compact(Arc::new(strategy()), table.seqno.get());
    // Before another write can remove files that are not part of a version.
    table.version_changed();
    drop(compacting);
    match result {
        Ok(()) => {}
        Err(error) => {
            table.note_partial_outputs();
            if is_damage(&error)
                && let Choice::Merge(input) | Choice::Move(input) = choice
            {
                table.suspect_inputs(input.table_ids);
            }
            remove_partial_outputs(table);
            return Err(table.failed("compacting")(error));
        }
    }
    // Partial outputs of an ingestion that failed meanwhile.
    if table.has_partial_outputs() {
        remove_partial_outputs(table);
    }
    Ok(())
}

/// Most bytes that a step may write.
fn output_bytes(tree: &AnyTree, choice: &Choice) -> u64 {
    let Choice::Merge(input) = choice else { return 0 };
    let version = tree.current_version();
    let inputs = version.iter_tables().filter(|file| input.table_ids.contains(&file.id()));
    inputs.map(|file| file.metadata.file_size).sum()
}

fn remove_partial_outputs(table: &TableStore) {
    let writer = table.writer();
    let compacting = table.compacting.lock();
    table.remove_partial_outputs(&writer, &compacting);
}

/// Changes with every effective step.
fn version_id(table: &TableStore) -> u64 {
    table.tree().current_version().id()
}

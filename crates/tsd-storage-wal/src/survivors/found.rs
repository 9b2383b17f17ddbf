//! The survivor files that a start finds.

use std::io;

use super::{NEW_FILE, read, remove_if_present, survivor_name, survivors_in, write_empty};
use crate::{
    files::LogDir,
    log::FoundState,
    report::{Damage, LostRange},
};

/// Survivor files that exist, and survivor files that must exist.
#[derive(Debug)]
pub(crate) struct Survivors {
    intact: Vec<u64>,
    lost: Vec<u64>,
    /// Files that are already flushed, or not recorded yet.
    unused: Vec<u64>,
    /// Bytes of the intact files.
    pub(crate) bytes: u64,
}

impl Survivors {
    /// Reads and checks all files without any change.
    ///
    /// Without the state of the log, every existing file may have unflushed rows.
    pub(crate) fn find(dir: &dyn LogDir, state: FoundState) -> io::Result<Self> {
        let present = survivors_in(dir)?;
        let (expected, unused): (Vec<u64>, Vec<u64>) = match state {
            FoundState::Valid(state) => {
                let expected = numbers(state.survivors);
                let unused = present.into_iter().filter(|n| !expected.contains(n)).collect();
                (expected, unused)
            }
            FoundState::Missing | FoundState::Damaged => (present, Vec::new()),
        };
        let mut found = Self { intact: Vec::new(), lost: Vec::new(), unused, bytes: 0 };
        for number in expected {
            match read::<io::Error>(dir, number, |_, _, _| Ok(()))? {
                Some(size) => {
                    found.intact.push(number);
                    found.bytes += size.bytes;
                }
                None => found.lost.push(number),
            }
        }
        Ok(found)
    }

    /// Numbers of the files whose rows must be flushed, in order.
    pub(crate) fn intact(&self) -> impl Iterator<Item = u64> + '_ {
        self.intact.iter().copied()
    }

    /// First and last number of these files.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        self.intact.first().copied().zip(self.intact.last().copied())
    }

    /// Missing and damaged files.
    pub(crate) fn lost(&self, dir: &dyn LogDir) -> Vec<LostRange> {
        let lost = self.lost.iter().map(|number| LostRange {
            file: dir.path().join(survivor_name(*number)),
            offset: 0,
            bytes: 0,
            what: Damage::Survivors,
            first_sequence: None,
            records: None,
            since_ms: None,
        });
        lost.collect()
    }

    /// Removes unneeded files, and renames damaged files whose loss is accepted.
    pub(crate) fn clean_up(&self, dir: &dyn LogDir) -> io::Result<()> {
        for name in self.unused.iter().map(|number| survivor_name(*number)) {
            remove_if_present(dir, &name)?;
        }
        for name in self.lost.iter().map(|number| survivor_name(*number)) {
            match dir.rename(&name, &format!("{name}.damaged")) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        remove_if_present(dir, NEW_FILE)?;
        // The state of the log names only the first and the last file.
        for number in numbers(self.range()) {
            if !self.intact.contains(&number) {
                write_empty(dir, number)?;
            }
        }
        dir.sync()
    }
}

fn numbers(range: Option<(u64, u64)>) -> Vec<u64> {
    range.map(|(first, last)| (first..=last).collect()).unwrap_or_default()
}

//! Arguments of `tsdb fsck`.

use std::path::PathBuf;

use clap::Args;
use tsd_tools::FsckOptions;

use super::overrides::{DamageArgs, Overrides, per_second};
use crate::config::{Config, ConfigError};

/// Arguments of `tsdb fsck`.
#[expect(clippy::struct_excessive_bools, reason = "independent options, as in OpenTSDB")]
#[derive(Debug, Args)]
pub(crate) struct FsckArgs {
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    damage: DamageArgs,
    /// Check the whole table
    #[arg(long)]
    pub(crate) full_scan: bool,
    /// Write repairs; the options below need this one
    #[arg(long)]
    fix: bool,
    /// Make all repairs below, without --last-write-wins
    #[arg(long)]
    fix_all: bool,
    /// Write all points of a row as one column
    #[arg(long)]
    compact: bool,
    /// Of several points of an instant, keep the one that was written first
    #[arg(long)]
    resolve_duplicates: bool,
    /// Of several points of an instant, keep the one that was written last [tsd.storage.fix_duplicates]
    #[arg(long)]
    last_write_wins: bool,
    /// Delete rows with a UID that has no name
    #[arg(long)]
    delete_orphans: bool,
    /// Delete columns that no version of OpenTSDB writes
    #[arg(long)]
    delete_unknown_columns: bool,
    /// Delete points whose value cannot be read
    #[arg(long)]
    delete_bad_values: bool,
    /// Delete rows with an invalid key
    #[arg(long)]
    delete_bad_rows: bool,
    /// Delete compacted columns that cannot be split
    #[arg(long)]
    delete_bad_compacts: bool,
    /// Accepted for OpenTSDB's scripts, without effect: the check always waits for its repairs
    #[arg(long)]
    sync: bool,
    /// Key ranges to read at once; twice the processors by default
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Maximum rows per second
    #[arg(long, value_name = "ROWS", value_parser = per_second)]
    pub(crate) rate: Option<f64>,
    /// File of the check's progress; removed when the check is complete
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Print the counters as JSON, and findings to standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// START [END] FUNC METRIC [TAGK=TAGV ...]: the rows to check
    #[arg(value_name = "WORD", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
}

impl FsckArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let config = self.overrides.load_tool("tsdb fsck without --log-level", "warn")?;
        Ok(self.damage.apply(config))
    }

    /// The repairs to make.
    pub(crate) const fn options(&self) -> FsckOptions {
        let all = self.fix_all;
        FsckOptions {
            fix: self.fix || all,
            compact: self.compact || all,
            resolve_duplicates: self.resolve_duplicates || all,
            last_write_wins: self.last_write_wins,
            delete_orphans: self.delete_orphans || all,
            delete_unknown_columns: self.delete_unknown_columns || all,
            delete_bad_values: self.delete_bad_values || all,
            delete_bad_rows: self.delete_bad_rows || all,
            delete_bad_compacts: self.delete_bad_compacts || all,
        }
    }
}

//! Arguments of `tsdb copy`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tsd_tools::CopiedKind;

use super::overrides::per_second;

/// Arguments of `tsdb copy`.
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// Source: a data directory, a ZooKeeper quorum host[:port],...[/znode], or a configuration file
    #[arg(long, value_name = "PLACE")]
    pub(crate) from: String,
    /// Target, named like the source; a missing data directory is created
    #[arg(long, value_name = "PLACE")]
    pub(crate) to: String,
    /// Setting of the source, such as tsd.storage.salt.width=1; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) from_set: Vec<(String, String)>,
    /// Setting of the target; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) to_set: Vec<(String, String)>,
    /// Copy only this metric; * and ? stand for any characters; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) metric: Vec<String>,
    /// Copy only rows of this time and later, as whole rows
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) start: Option<String>,
    /// Copy only rows up to this time
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub(crate) end: Option<String>,
    /// Copy only these tables
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',')]
    pub(crate) tables: Vec<TableKind>,
    /// Rebuild keys from names, with the target's own UIDs; always on if salting or UID widths differ
    #[arg(long)]
    pub(crate) rekey: bool,
    /// Copy only cells written since a time, or since the start of the last copy (`last`)
    #[arg(long, value_name = "TIME", conflicts_with = "compare")]
    pub(crate) since: Option<String>,
    /// Seconds to go back before `--since last`, for clock skew and rows that daemons hold
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
    pub(crate) margin: u32,
    /// Compare both places without copying
    #[arg(long)]
    pub(crate) compare: bool,
    /// Replace rows of the target that differ, and delete extra ones; nothing else may write meanwhile
    #[arg(long, requires = "compare")]
    pub(crate) repair: bool,
    /// Compare both places after the copy
    #[arg(long, conflicts_with_all = ["compare", "dry_run"])]
    pub(crate) verify: bool,
    /// Read everything without writing
    #[arg(long, conflicts_with = "compare")]
    pub(crate) dry_run: bool,
    /// Maximum cells per second
    #[arg(long, value_name = "CELLS", value_parser = per_second)]
    pub(crate) rate: Option<f64>,
    /// Maximum bytes per second
    #[arg(long, value_name = "BYTES", value_parser = per_second)]
    pub(crate) byte_rate: Option<f64>,
    /// Key ranges to copy at once; twice the processors by default
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// File of the copy's progress; next to the data directory by default
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<PathBuf>,
    /// Ignore the progress of an earlier copy
    #[arg(long)]
    pub(crate) restart: bool,
    /// File for all findings; standard error shows only the first
    #[arg(long, value_name = "FILE")]
    pub(crate) findings: Option<PathBuf>,
    /// Open embedded stores with a damaged write-ahead log, and lose the records that the error lists
    #[arg(long)]
    pub(crate) accept_damage: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// error, warn, info, debug, trace or off, or directives such as `info,tsd_engine=debug`
    #[arg(long, value_name = "LEVEL", default_value = "error")]
    pub(crate) log_level: String,
    /// text or json
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}

/// Kinds of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableKind {
    /// Names and UIDs
    Uid,
    /// Points, annotations and histograms
    Data,
    /// Rollups and pre-aggregates
    Rollup,
    /// Meta objects of series
    Meta,
    /// Trees
    Tree,
}

impl TableKind {
    pub(crate) const fn kind(self) -> CopiedKind {
        match self {
            Self::Uid => CopiedKind::Uid,
            Self::Data => CopiedKind::Data,
            Self::Rollup => CopiedKind::Rollup,
            Self::Meta => CopiedKind::Meta,
            Self::Tree => CopiedKind::Tree,
        }
    }
}

/// A word that is not a setting.
#[derive(Debug, thiserror::Error)]
enum SettingError {
    #[error("expected KEY=VALUE")]
    NoPair,
    #[error("there is no key {0}; `tsdb config list` lists all")]
    UnknownKey(String),
}

fn setting(text: &str) -> Result<(String, String), SettingError> {
    let (key, value) = text.split_once('=').ok_or(SettingError::NoPair)?;
    let key = key.trim();
    if crate::config::keys::find(key).is_none() {
        return Err(SettingError::UnknownKey(key.to_owned()));
    }
    Ok((key.to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Copy {
        #[command(flatten)]
        args: CopyArgs,
    }

    fn parse(text: &str) -> Result<CopyArgs, String> {
        let words = ["copy", "--from", "a", "--to", "b"].into_iter().chain(text.split_whitespace());
        Copy::try_parse_from(words).map(|copy| copy.args).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_as_they_are_meant() {
        let args =
            parse("--from-set tsd.storage.salt.width=1 --tables uid,data --rate 1e3").unwrap();
        assert_eq!(args.from_set, [("tsd.storage.salt.width".to_owned(), "1".to_owned())]);
        let kinds: Vec<CopiedKind> = args.tables.iter().map(|table| table.kind()).collect();
        assert_eq!(kinds, [CopiedKind::Uid, CopiedKind::Data]);
        assert_eq!(
            (args.rate, args.margin, args.log_level.as_str()),
            (Some(1_000.0), 3_600, "error")
        );
        assert_eq!(parse("--start -5 --metric a --metric b").unwrap().metric, ["a", "b"]);
    }

    #[test]
    fn mistakes_and_contradictions_are_refused_with_their_reason() {
        for (text, expected) in [
            ("--from-set salt", "expected KEY=VALUE"),
            ("--to-set no.such=1", "there is no key no.such"),
            ("--rate 0", "expected a number above 0"),
            ("--byte-rate inf", "expected a number above 0"),
            ("--threads 0", "0 is not in 1..=65535"),
            ("--tables points", "possible values: uid, data, rollup, meta, tree"),
            ("--repair", "--compare"),
            ("--compare --since last", "cannot be used with"),
            ("--compare --verify", "cannot be used with"),
            ("--compare --dry-run", "cannot be used with"),
            ("--verify --dry-run", "cannot be used with"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

//! `tsdb scan`: prints rows as they are stored, and deletes them.
//!
//! The command reads the store itself, because a daemon's HTTP API has no rows. While a daemon has the embedded store
//! open, the command fails with an error that says what to do.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write as _},
    os::{
        fd::AsFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _},
    },
    process::ExitCode,
};

use anyhow::ensure;
use rustix::fs::{OFlags, fcntl_getfl};
use tsd_model::Timestamp;
use tsd_tools::{DumpError, DumpOptions, DumpReport, DumpSink, dump_rows};

use crate::{
    args::ScanArgs,
    data_directory::explain_use,
    query::{self, ParsedArgs},
    store::Purpose,
    tell,
    tool::{failed, prepare, with_engine},
};

/// Runs the command. The exit status is 1 if a row or column could not be printed.
pub(crate) fn main(args: &ScanArgs) -> ExitCode {
    match run(args) {
        Ok(report) => {
            if args.delete {
                tell!("tsdb: {} rows deleted", report.deleted_rows);
            }
            if report.unreadable > 0 {
                let kept = if args.delete { "; their rows were not deleted" } else { "" };
                tell!("tsdb: {} rows or columns are not readable{kept}", report.unreadable);
            }
            ExitCode::from(u8::from(report.unreadable > 0))
        }
        Err(error) => failed(&error),
    }
}

fn run(args: &ScanArgs) -> anyhow::Result<DumpReport> {
    let parsed = query::parse(&args.words)?;
    let (config, settings) = prepare(args.config()?)?;
    let query = rows_of(&parsed, &query::clock(&settings.zone_name))?;
    let options = DumpOptions { import_format: args.import || args.delete, delete: args.delete };
    // The standard library's handle is not used, because its writes to a closed descriptor succeed.
    let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    if args.delete {
        ensure!(
            !was_closed(&out)?,
            "standard output is closed, so the lines of the deleted rows would be lost; \
             > /dev/null deletes without them"
        );
    }
    let scanned = with_engine(&config, &settings, Purpose::Query, async |open| {
        let mut lines = Lines(BufWriter::new(out));
        match dump_rows(&open.engine, &query, options, &mut lines).await {
            Ok(report) => Ok(report),
            // The reader of the pipe, such as `head`, has closed it.
            Err(DumpError::Write(error))
                if error.kind() == io::ErrorKind::BrokenPipe && !options.delete =>
            {
                let _ = lines.0.into_parts();
                Ok(DumpReport::default())
            }
            Err(error) => Err(error.into()),
        }
    });
    scanned.map_err(|error| explain_use(error, way_out(args.delete)))
}

/// The query whose rows are scanned. Without an end time it reaches the end of the table, not the present.
fn rows_of(parsed: &ParsedArgs, clock: &tsd_query::Clock) -> anyhow::Result<tsd_query::Query> {
    let mut query = parsed.query.clone().validate(clock)?;
    if parsed.query.end.is_none() {
        query.end_ms = Timestamp::MAX_SECS * 1_000;
    }
    query.zone = clock.zone.clone();
    Ok(query)
}

/// True if standard output was closed when the process began. The runtime then opens /dev/null instead, for reading
/// and writing; a shell's `> /dev/null` is only for writing.
fn was_closed(out: &File) -> io::Result<bool> {
    let (file, null) = (out.metadata()?, fs::metadata("/dev/null")?);
    let is_null = file.file_type().is_char_device() && file.rdev() == null.rdev();
    Ok(is_null && fcntl_getfl(out)? & OFlags::RWMODE == OFlags::RDWR)
}

/// Advice if a daemon has the store open.
const fn way_out(delete: bool) -> &'static str {
    if delete {
        "the command deletes rows only while no daemon has the store open; the daemon itself deletes by query, \
         where tsd.http.query.allow_delete is set"
    } else {
        "the command reads rows from the files, not from a daemon; scan a copy of the store \
         (`tsdb snapshot`, then `tsdb restore`), or stop the daemon"
    }
}

/// Lines on standard output.
struct Lines(BufWriter<File>);

impl DumpSink for Lines {
    fn write(&mut self, lines: &str) -> io::Result<()> {
        self.0.write_all(lines.as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    fn unreadable(&mut self, what: &str) {
        tell!("tsdb: not readable: {what}");
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn without_an_end_all_later_rows_are_scanned() {
        let query = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let parsed = query::parse(&words).unwrap();
            rows_of(&parsed, &tsd_query::Clock::utc(1_600_000_000_000)).unwrap()
        };
        assert_eq!(query("1356998400 sum m").end_ms, i64::from(u32::MAX) * 1_000);
        assert_eq!(query("1356998400 1356998500 sum m").end_ms, 1_356_998_500_000);
        assert_eq!(query("1356998400 now sum m").end_ms, 1_600_000_000_000);
    }
}

//! `tsdb uid` and `tsdb mkmetric`: names and their UIDs, with the arguments of OpenTSDB's command.
//!
//! Output and exit status are OpenTSDB's, because scripts read them.

mod command;
mod from_daemon;
mod fsck;
mod meta;
mod output;
mod status;
mod tree;

use std::{io::Write, process::ExitCode};

use tsd_engine::{EngineHandle, UidKind};

use self::{
    command::{IdTooLargeError, UidCommand, UidFlags},
    output::UidOutput,
    status::{FAILED, NOT_CLOSED, NOT_DELETED, NOT_FOUND, USAGE, fail},
};
use crate::{
    args::{MkmetricArgs, UidArgs, UidLocation},
    store::Purpose,
    tell,
    tool::{NotClosed, by_daemon_or_store, prepare, with_engine},
};

/// Runs `tsdb uid`.
pub(crate) fn main(args: &UidArgs) -> ExitCode {
    let flags = UidFlags {
        id_width: args.id_width.map(usize::from),
        ignore_case: args.ignore_case,
        json: args.location.json,
        verbose: args.location.verbose,
        stops_on_signals: true,
    };
    ExitCode::from(match UidCommand::parse(&args.words) {
        Ok(command) => run(&command, flags, &args.location),
        Err(error) => refuse(&error),
    })
}

/// Runs `tsdb mkmetric`.
pub(crate) fn make_metrics(args: &MkmetricArgs) -> ExitCode {
    let command = UidCommand::Assign { kind: UidKind::Metric, names: args.names.clone() };
    let flags = UidFlags { json: args.location.json, ..UidFlags::default() };
    ExitCode::from(run(&command, flags, &args.location))
}

fn refuse(error: &command::UsageError) -> u8 {
    tell!("tsdb: {error}\n{}", command::USAGE);
    USAGE
}

fn run(command: &UidCommand, flags: UidFlags, location: &UidLocation) -> u8 {
    run_on_store(command, flags, location).unwrap_or_else(|error| {
        tell!("tsdb: {error:#}");
        if error.is::<NotClosed>() { NOT_CLOSED } else { FAILED }
    })
}

fn run_on_store(
    command: &UidCommand,
    flags: UidFlags,
    location: &UidLocation,
) -> anyhow::Result<u8> {
    let config = location.overrides.load_verbose(location.verbose, "tsdb uid without --verbose")?;
    let (config, settings) = prepare(config)?;
    let by_daemon = async |mut client| {
        let mut out = std::io::stdout();
        let mut out = UidOutput::new(&mut out, flags.json);
        let status = from_daemon::execute(&mut client, command, flags, &mut out).await?;
        Ok(out.status(status))
    };
    let on_store = || {
        with_engine(&config, &settings, Purpose::Query, async |open| {
            let mut out = std::io::stdout();
            let mut out = UidOutput::new(&mut out, flags.json);
            let status = execute(&open.engine, command, flags, &mut out).await;
            Ok(out.status(status))
        })
    };
    if location.url.is_none() && !from_daemon::is_possible(command) {
        return on_store();
    }
    let what = "reading and assigning names";
    by_daemon_or_store(location.url.as_deref(), what, by_daemon, on_store)
}

/// Runs `tsdb uid` with these words on an open store; returns its exit status.
pub async fn uid(engine: &EngineHandle, words: &[String], out: &mut (dyn Write + Send)) -> u8 {
    match UidCommand::parse(words) {
        Ok(command) => {
            let flags = UidFlags::default();
            let mut out = UidOutput::new(out, flags.json);
            let status = execute(engine, &command, flags, &mut out).await;
            out.status(status)
        }
        Err(error) => refuse(&error),
    }
}

async fn execute(
    engine: &EngineHandle,
    command: &UidCommand,
    flags: UidFlags,
    out: &mut UidOutput<'_>,
) -> u8 {
    if let Err(error) = check_width(engine, command, flags) {
        tell!("tsdb: {error}");
        return USAGE;
    }
    match command {
        UidCommand::Grep { kind, pattern } => grep(engine, *kind, pattern, flags, out).await,
        UidCommand::Assign { kind, names } => assign(engine, *kind, names, out).await,
        UidCommand::Rename { kind, old, new } => {
            match engine.rename_uid(*kind, old, new).await {
                Ok(()) => out.renamed(*kind, old, new),
                Err(error) => return fail(&error, FAILED),
            }
            0
        }
        UidCommand::Delete { kind, name } => {
            match engine.delete_uid(*kind, name).await {
                Ok(uid) => out.deleted(*kind, name, uid.as_bytes()),
                Err(error) => return fail(&error, NOT_DELETED),
            }
            0
        }
        UidCommand::MetaSync => meta::sync(engine, flags, out).await,
        UidCommand::MetaPurge => meta::purge(engine, flags, out).await,
        UidCommand::Fsck(options) => fsck::fsck(engine, *options, flags, out).await,
        UidCommand::TreeSync => tree::sync(engine, out).await,
        UidCommand::TreePurge { tree, definition } => {
            tree::purge(engine, tree, *definition, out).await
        }
        UidCommand::LookUp { kind, word } => look_up(engine, *kind, word, flags, out).await,
    }
}

/// The width on the command line is not the width of the stored UIDs.
#[derive(Debug, thiserror::Error)]
#[error("--idwidth {given} contradicts the store, whose UIDs of {kind} have {width} bytes")]
struct IdWidthError {
    given: usize,
    kind: UidKind,
    width: usize,
}

/// Fails if the given width contradicts the width of the UIDs that the command would write or delete.
fn check_width(
    engine: &EngineHandle,
    command: &UidCommand,
    flags: UidFlags,
) -> Result<(), IdWidthError> {
    let (Some(given), Some(kind)) = (flags.id_width, command.changes()) else { return Ok(()) };
    let width = kind.width(&engine.config().schema);
    if given == width {
        return Ok(());
    }
    Err(IdWidthError { given, kind, width })
}

async fn grep(
    engine: &EngineHandle,
    kind: Option<UidKind>,
    pattern: &str,
    flags: UidFlags,
    out: &mut UidOutput<'_>,
) -> u8 {
    let flagged = if flags.ignore_case { format!("(?i){pattern}") } else { pattern.to_owned() };
    let pattern = match tsd_query::compile_pattern(&flagged) {
        Ok(pattern) => pattern,
        Err(error) => {
            tell!("tsdb: {error}");
            return USAGE;
        }
    };
    let mut any = false;
    let mut list = out.list();
    let listed = engine
        .uids()
        .list(
            kind,
            |name| pattern.is_match(name),
            |mapping| {
                any = true;
                list.add(&mapping)
            },
        )
        .await;
    list.end();
    match listed {
        Ok(()) if any => 0,
        Ok(()) => NOT_FOUND,
        Err(error) => fail(&error.into(), FAILED),
    }
}

async fn assign(
    engine: &EngineHandle,
    kind: UidKind,
    names: &[String],
    out: &mut UidOutput<'_>,
) -> u8 {
    let mut list = out.list();
    let mut status = 0;
    for name in names {
        match engine.uids().get_or_assign(kind, name).await {
            Ok(uid) => {
                list.add(&tsd_engine::StoredMapping {
                    kind,
                    name: name.clone(),
                    uid: bytes::Bytes::copy_from_slice(uid.as_bytes()),
                    is_counter: false,
                });
            }
            Err(error) => {
                status = fail(&error, FAILED);
                break;
            }
        }
    }
    list.end();
    status
}

async fn look_up(
    engine: &EngineHandle,
    kind: Option<UidKind>,
    word: &str,
    flags: UidFlags,
    out: &mut UidOutput<'_>,
) -> u8 {
    let found = match word.parse::<i64>() {
        Ok(id) => find_id(engine, kind, id, flags).await,
        Err(_) => Ok(engine.uids().mappings_of_name(kind, word).await),
    };
    let found = match found {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return fail(&error.into(), FAILED),
        Err(too_large) => {
            tell!("{too_large}");
            return NOT_FOUND;
        }
    };
    out.found(&found, kind, word)
}

/// Mappings of a UID that is given as a number, with the width of each kind. The outer error means that the number
/// fits no width.
async fn find_id(
    engine: &EngineHandle,
    kind: Option<UidKind>,
    id: i64,
    flags: UidFlags,
) -> Result<Result<Vec<tsd_engine::StoredMapping>, tsd_engine::StorageError>, IdTooLargeError> {
    let mut found = Vec::new();
    let mut too_large = None;
    let mut fits = false;
    for of in UidKind::ALL.into_iter().filter(|of| kind.is_none_or(|kind| kind == *of)) {
        let width = flags.id_width.unwrap_or_else(|| of.width(&engine.config().schema));
        match command::id_bytes(id, width) {
            Ok(uid) => {
                fits = true;
                match engine.uids().mappings_of_uid(Some(of), &uid).await {
                    Ok(mappings) => found.extend(mappings),
                    Err(error) => return Ok(Err(error)),
                }
            }
            Err(error) => too_large = Some(error),
        }
    }
    match too_large {
        Some(error) if !fits => Err(error),
        _ => Ok(Ok(found)),
    }
}

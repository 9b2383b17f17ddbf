//! The `tsdb` command: configuration, wiring, and OpenTSDB's sub-commands.
//!
//! The only crate that names concrete backends. It is a library so that tests can run a daemon in
//! their own process.

// Both panic where nobody reads.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod authentication;
mod cluster;
pub mod config;
mod config_tool;
mod copy;
mod daemon;
mod daemon_client;
mod data_directory;
mod error_text;
mod followed_file;
mod fsck;
#[cfg(test)]
mod git_revision;
mod hbase_stats;
mod import;
mod limits_file;
mod logging;
pub mod memory_limit;
mod node;
mod open_files;
mod output;
mod password;
mod properties_file;
mod quarantine;
mod query;
mod restore;
mod retention_file;
mod scan;
mod search;
mod snapshot;
mod store;
mod table;
mod transfer_bar;
mod uid;
mod user;
mod verify;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, error::ErrorKind};
use tracing::warn;
use tsd_engine::MetaTracking;

use crate::{
    args::{Cli, Command, ImportArgs, QueryArgs, TableArgs, TableCommand, TsdArgs},
    config::{Config, Settings},
    daemon_client::DaemonClient,
    data_directory::DataDirectoryError,
    error_text::error_text,
    node::OpenEngine,
    output::{print_lines, tell},
    query::{GraphTarget, QueryOutput},
    store::Purpose,
};

pub use import::{ImportError, ImportOptions, Imported, StopSignal, import};
pub use node::Node;
pub use uid::uid;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let first = std::env::args_os().nth(1);
            let first = first.as_ref().map(|first| first.to_string_lossy());
            return refuse(&error, first.as_deref());
        }
    };
    if let Err(error) = daemon_client::set_user(cli.user.as_deref()) {
        tell!("tsdb: {}", error_text(&error));
        return ExitCode::from(1);
    }
    let result = match cli.command {
        Command::Tsd(args) => tsd(&args),
        Command::Import(args) => import_files(&args),
        Command::Query(args) => print_query(&args),
        Command::Scan(args) => return scan::main(&args),
        Command::Search(args) => return search::main(&args),
        Command::Table(args) => tables(&args),
        Command::Quarantine(args) => quarantine::run(&args),
        Command::Verify(args) => return verify::main(&args),
        Command::Fsck(args) => return fsck::main(&args),
        Command::Copy(args) => return copy::main(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Uid(args) => return uid::main(&args),
        Command::Mkmetric(args) => return uid::make_metrics(&args),
        Command::Config(args) => return config_tool::main(&args),
        Command::User(args) => user::run(&args),
        Command::Version => print_lines(&version::text()).map_err(Into::into),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell!("tsdb: {}", error_text(&error));
            ExitCode::from(exit_status(&error))
        }
    }
}

/// What OpenTSDB's script prints for a command that it does not know, and what else there is.
const COMMANDS: &str = "\
Valid commands: fsck, import, mkmetric, query, tsd, scan, search, uid, version
Further commands: cluster, config, copy, help, quarantine, restore, snapshot, table, user, verify
";

/// Prints why a command line is invalid, in OpenTSDB's words and in those of the parser. The exit status is 2, but
/// 1 for an unknown command, as in OpenTSDB.
fn refuse(error: &clap::Error, first: Option<&str>) -> ExitCode {
    use clap::error::ContextKind;
    let word = |kind| match error.get(kind)? {
        clap::error::ContextValue::String(word) => Some(word.clone()),
        clap::error::ContextValue::Strings(words) => words.first().cloned(),
        _ => None,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        _ if first.is_none_or(|first| !is_command(first)) => {
            tell!("tsdb: error: unknown command '{}'", first.unwrap_or_default());
            if let Some(similar) = word(ContextKind::SuggestedSubcommand) {
                tell!("a similar command is {similar}");
            }
            tell!("usage: tsdb <command> [args]");
            let _ = print_lines(COMMANDS);
            return ExitCode::from(1);
        }
        ErrorKind::UnknownArgument => {
            if let Some(option) = word(ContextKind::InvalidArg) {
                tell!("Invalid usage.  Unrecognized option {option}");
            }
        }
        ErrorKind::InvalidValue | ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            // Of an option with a value that is not allowed there is no such text.
            if let Some(option) = word(ContextKind::InvalidArg)
                && word(ContextKind::InvalidValue).is_none_or(|value| value.is_empty())
            {
                let option = option.split(' ').next().unwrap_or_default();
                tell!("Invalid usage.  Missing argument for {option}");
            }
        }
        _ => {}
    }
    let _ = error.print();
    match error.kind() {
        ErrorKind::InvalidSubcommand
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => ExitCode::from(1),
        _ => ExitCode::from(2),
    }
}

/// True for the first word of a command line that the parser knows.
fn is_command(word: &str) -> bool {
    let command = Cli::command();
    word == "help"
        || ["-h", "--help", "-V", "--version"].contains(&word)
        || command.get_subcommands().any(|command| command.get_name() == word)
}

/// The store failed when a tool had done its work.
#[derive(Debug, thiserror::Error)]
#[error("the store failed at the end; what the log holds is replayed when it is opened again")]
struct NotClosed;

/// 2 if the store failed during an import or the query is invalid, as in OpenTSDB; 128 and the number
/// of the signal that stopped an import, as a shell has it; else 1.
fn exit_status(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<ImportError>() {
        Some(ImportError::Store { .. }) => 2,
        Some(ImportError::Stopped { signal, .. }) => signal.exit_status(),
        _ if error.is::<query::QueryArgsError>() || error.is::<NotClosed>() => 2,
        _ => 1,
    }
}

fn tsd(args: &TsdArgs) -> anyhow::Result<()> {
    let (config, settings) = prepare(args.config()?)?;
    daemon::run(&config, &settings, || args.config())
}

fn import_files(args: &ImportArgs) -> anyhow::Result<()> {
    let mut config = args.config()?;
    // An import waits for full queues without a deadline.
    config.set_flag("tsdb import", "tsd.storage.write.deadline", i32::MAX.to_string());
    let (config, settings) = prepare(config)?;
    let options = ImportOptions {
        skip_errors: args.skip_errors,
        allow_out_of_order: settings.import.allow_out_of_order || args.spool,
        is_spool: args.spool,
        settle_new_series: settings.import.names_may_be_refused,
    };
    let by_daemon = |client: DaemonClient| {
        anyhow::ensure!(
            !args.auto_metric,
            "--auto-metric has no effect on a running daemon, whose configuration decides"
        );
        runtime()?.block_on(async {
            import::import_to_daemon(client, &args.paths, options).await?;
            Ok(())
        })
    };
    if let Some(url) = &args.url {
        return by_daemon(DaemonClient::new(url)?);
    }
    let tool = async |open: &OpenEngine| {
        import::import_until_signal(&open.engine, &args.paths, options).await?;
        Ok(())
    };
    match with_engine(&config, &settings, Purpose::Import { create: args.create }, tool) {
        Err(error) => by_daemon(daemon_in_the_way(error, "importing")?),
        done => done,
    }
}

fn print_query(args: &QueryArgs) -> anyhow::Result<()> {
    let parsed = query::parse(&args.words)?;
    let graph = args.graph.as_deref().map(|base| GraphTarget::new(base, args.sixel)).transpose()?;
    let output = match &graph {
        Some(graph) => QueryOutput::Graph(graph),
        None if args.json => QueryOutput::Json,
        None => QueryOutput::Lines,
    };
    let (config, settings) = prepare(args.config()?)?;
    let clock = query::clock(&settings.zone_name);
    let by_daemon = |mut client: DaemonClient| {
        runtime()?.block_on(query::print_from_daemon(&mut client, &parsed, &clock, output))
    };
    if let Some(url) = &args.url {
        return by_daemon(DaemonClient::new(url)?);
    }
    let tool = async |open: &OpenEngine| query::print(&open.engine, &parsed, &clock, output).await;
    match with_engine(&config, &settings, Purpose::Query, tool) {
        Err(error) => by_daemon(daemon_in_the_way(error, "querying")?),
        done => done,
    }
}

/// The daemon that has the data directory open, if that is why a tool could not open it; else the
/// error.
fn daemon_in_the_way(error: anyhow::Error, what: &str) -> anyhow::Result<DaemonClient> {
    let Some(DataDirectoryError::InUse { path, owner, url: Some(url) }) = error.downcast_ref()
    else {
        return Err(error);
    };
    tell!("tsdb: {} is in use by {owner}: {what} through {url}", path.display());
    Ok(DaemonClient::new(url)?)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Runtime::new()?)
}

fn tables(args: &TableArgs) -> anyhow::Result<()> {
    let (config, settings) = prepare(args.config()?)?;
    let mut out = std::io::stdout();
    tokio::runtime::Runtime::new()?.block_on(async {
        match &args.command {
            TableCommand::Create(args) => table::create(&config, &settings, args, &mut out).await,
            TableCommand::Status(_) => table::status(&config, &settings, &mut out).await,
        }
    })
}

/// Validates the configuration, starts logging, and logs the warnings.
fn prepare(config: Config) -> anyhow::Result<(Config, Settings)> {
    let settings = Settings::from_config(&config)?;
    logging::start(&settings.log);
    for warning in config.warnings() {
        warn!("{warning}");
    }
    Ok((config, settings))
}

/// Runs a tool on the store, without a server.
fn with_engine(
    config: &Config,
    settings: &Settings,
    purpose: Purpose,
    tool: impl AsyncFnOnce(&OpenEngine) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut settings = settings.clone();
        // Tools do not write meta data, as in OpenTSDB.
        settings.engine.meta_tracking = MetaTracking::Off;
        let open = OpenEngine::open(config, &settings, purpose).await?;
        let result = tool(&open).await;
        let closed = open.close(settings.shutdown_timeout).await;
        result.and(closed.map_err(|error| error.context(NotClosed)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_listed() {
        let listed: Vec<&str> = COMMANDS.split([',', ':', '\n']).map(str::trim).collect();
        for command in Cli::command().get_subcommands() {
            assert!(listed.contains(&command.get_name()), "{}", command.get_name());
        }
    }
}

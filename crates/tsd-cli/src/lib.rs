//! The `tsdb` command: configuration, wiring, and OpenTSDB's sub-commands.
//!
//! The only crate that names concrete backends. It is a library so that tests can run a daemon in
//! their own process.

mod args;
pub mod config;
mod daemon;
mod data_directory;
mod hbase_stats;
mod import;
mod limits_file;
mod logging;
mod node;
mod open_files;
mod properties_file;
mod query;
mod store;
mod table;
mod version;

use std::process::ExitCode;

use clap::{Parser, error::ErrorKind};
use tracing::warn;
use tsd_engine::MetaTracking;

use crate::{
    args::{Cli, Command, ImportArgs, QueryArgs, TableArgs, TableCommand, TsdArgs},
    config::{Config, Settings},
    node::OpenEngine,
    store::Purpose,
};

pub use import::{ImportError, ImportOptions, Imported, import};
pub use node::Node;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.command {
        Command::Tsd(args) => tsd(&args),
        Command::Import(args) => import_files(&args),
        Command::Query(args) => print_query(&args),
        Command::Table(args) => tables(&args),
        Command::Version => {
            print!("{}", version::build_facts().render_text());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tsdb: {error:#}");
            ExitCode::from(exit_status(&error))
        }
    }
}

/// Exit status of an invalid command line: 2, but 1 for an unknown command, as in OpenTSDB.
fn refuse(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        ErrorKind::InvalidSubcommand
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => ExitCode::from(1),
        _ => ExitCode::from(2),
    }
}

/// 2 if the store failed during an import or the query is invalid, as in OpenTSDB; else 1.
fn exit_status(error: &anyhow::Error) -> u8 {
    let store_failed =
        matches!(error.downcast_ref::<ImportError>(), Some(ImportError::Store { .. }));
    if store_failed || error.is::<query::QueryArgsError>() { 2 } else { 1 }
}

fn tsd(args: &TsdArgs) -> anyhow::Result<()> {
    let (config, settings) = prepare(args.config()?)?;
    daemon::run(&config, &settings)
}

fn import_files(args: &ImportArgs) -> anyhow::Result<()> {
    let mut config = args.config()?;
    // An import waits for full queues without a deadline.
    config.set_flag("tsdb import", "tsd.storage.write.deadline", i32::MAX.to_string());
    let (config, settings) = prepare(config)?;
    let options = ImportOptions {
        skip_errors: args.skip_errors,
        allow_out_of_order: settings.import.allow_out_of_order,
        settle_new_series: settings.import.names_may_be_refused,
    };
    with_engine(&config, &settings, Purpose::Import { create: args.create }, async |open| {
        import(&open.engine, &args.paths, options).await?;
        Ok(())
    })
}

fn print_query(args: &QueryArgs) -> anyhow::Result<()> {
    let parsed = query::parse(&args.words)?;
    let (config, settings) = prepare(args.config()?)?;
    let clock = query::clock(&settings.zone_name);
    with_engine(&config, &settings, Purpose::Query, async |open| {
        query::print(&open.engine, &parsed, &clock, args.graph.as_deref()).await
    })
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
        result.and(closed)
    })
}

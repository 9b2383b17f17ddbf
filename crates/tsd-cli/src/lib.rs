//! The `tsdb` command: configuration, wiring, and OpenTSDB's sub-commands.
//!
//! This is the only crate that names concrete backends. It is a library so that tests can run a daemon in their own
//! process.

// Both macros panic if nobody reads the output.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod authentication;
mod cluster;
mod columns;
pub mod config;
mod config_tool;
mod configuration_error;
mod console;
mod copy;
mod daemon;
mod daemon_client;
mod daemon_tls;
mod daemon_url;
mod data_directory;
mod error_text;
mod followed_file;
mod fsck;
#[cfg(test)]
mod git_revision;
mod hbase_stats;
mod health;
mod import;
mod json_fields;
mod krb5_environment;
mod limits_file;
mod logging;
pub mod memory_limit;
mod node;
mod open_files;
mod output;
mod package_files;
mod password;
mod percent_encoding;
mod port_tls;
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
mod terminal;
mod tool;
mod uid;
mod user;
mod verify;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};
use tokio::runtime::Runtime;

use crate::{
    args::{Cli, Command, ImportArgs, QueryArgs, TableCommand, TsdArgs},
    output::{print_lines, tell},
    query::{GraphTarget, QueryOutput},
    store::Purpose,
    terminal::color_choice,
    tool::{by_daemon_or_store, failed, failed_daemon, prepare, prepare_daemon, with_engine},
};

pub use console::StopSignal;
pub use import::{ImportError, ImportOptions, Imported, import};
pub use node::Node;
pub use uid::uid;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let matches = Cli::command().color(color_choice()).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let first = std::env::args_os().nth(1);
            let first = first.as_ref().map(|first| first.to_string_lossy());
            return refuse(&error, first.as_deref());
        }
    };
    if let Err(error) = daemon_client::set_user(cli.user.as_deref()) {
        return failed(&error);
    }
    daemon_tls::set_files(cli.ca, cli.cert.zip(cli.key));
    let result = match cli.command {
        Command::Tsd(args) => {
            return tsd(&args).map_or_else(|error| failed_daemon(&error), |()| ExitCode::SUCCESS);
        }
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
        Command::User(args) => return user::main(&args),
        Command::Health(args) => health::run(&args),
        Command::Completions(args) => package_files::completions(args.shell),
        Command::Man(args) => package_files::manual_pages(&args.directory),
        Command::Version => print_lines(&version::text()).map_err(Into::into),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// The text of OpenTSDB's script for an unknown command, and the further commands.
const COMMANDS: &str = "\
Valid commands: fsck, import, mkmetric, query, tsd, scan, search, uid, version
Further commands: cluster, config, copy, health, help, quarantine, restore, snapshot, table, user, verify
";

/// Prints why a command line is invalid, with OpenTSDB's text and the parser's text; the help for an empty one. The
/// exit status is 1 without a command or for an unknown one, as in OpenTSDB, else 2.
fn refuse(error: &clap::Error, first: Option<&str>) -> ExitCode {
    use clap::error::ContextKind;
    let word = |kind| match error.get(kind)? {
        clap::error::ContextValue::String(word) => Some(word.clone()),
        clap::error::ContextValue::Strings(words) => words.first().cloned(),
        _ => None,
    };
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let Some(first) = first else {
        // As git does: the help is the result, and a script that lost its arguments sees a failure.
        let _ = print_lines(&Cli::command().render_help().to_string());
        return ExitCode::from(1);
    };
    match error.kind() {
        _ if !is_command(first) => {
            tell!("tsdb: error: unknown command '{first}'");
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
            // OpenTSDB has no text for an option with a wrong value.
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

fn tsd(args: &TsdArgs) -> anyhow::Result<()> {
    let (config, settings) = prepare_daemon(args.config()?)?;
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
        as_opentsdb: args.as_opentsdb,
        settle_new_series: settings.import.names_may_be_refused,
    };
    let by_daemon = async |client| {
        anyhow::ensure!(
            !args.auto_metric,
            "--auto-metric has no effect on a running daemon, whose configuration decides"
        );
        anyhow::ensure!(
            !args.as_opentsdb,
            "--as-opentsdb has no effect on a running daemon, which stores all digits of a value: stop the daemon, \
             or import without the flag"
        );
        anyhow::ensure!(
            !args.stats,
            "--stats has no effect on a running daemon, whose statistics /api/stats shows"
        );
        import::import_to_daemon(client, &args.paths, options, args.json).await?;
        Ok(())
    };
    by_daemon_or_store(args.url.as_deref(), "importing", by_daemon, || {
        let purpose = Purpose::Import { create: args.create };
        with_engine(&config, &settings, purpose, async |open| {
            let import = import::import_until_signal;
            import(&open.engine, &args.paths, options, args.json, args.stats).await?;
            Ok(())
        })
    })
}

fn print_query(args: &QueryArgs) -> anyhow::Result<()> {
    let request = query::parse_request(&args.words, args.back_scan)?;
    let graph = args.graph.as_deref().map(GraphTarget::new);
    let output = match &graph {
        Some(graph) => QueryOutput::Graph(graph),
        None if args.json => QueryOutput::Json,
        None if args.csv => QueryOutput::Csv,
        None => QueryOutput::Lines,
    };
    request.check_output(output)?;
    let (config, settings) = prepare(args.config()?)?;
    let clock = query::clock(&settings.zone_name);
    let by_daemon = async |client| query::print_from_daemon(client, &request, &clock, output).await;
    by_daemon_or_store(args.url.as_deref(), "querying", by_daemon, || {
        with_engine(&config, &settings, Purpose::Query, async |open| {
            query::print(&open.engine, &request, &clock, output).await
        })
    })
}

fn tables(command: &TableCommand) -> anyhow::Result<()> {
    let (_, settings) = prepare(command.config()?)?;
    let mut out = std::io::stdout();
    Runtime::new()?.block_on(async {
        match command {
            TableCommand::Create(args) => table::create(&settings, args, &mut out).await,
            TableCommand::Status(_) => table::status(&settings, &mut out).await,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_listed() {
        let listed: Vec<&str> = COMMANDS.split([',', ':', '\n']).map(str::trim).collect();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(listed.contains(&command.get_name()), "{}", command.get_name());
        }
    }
}

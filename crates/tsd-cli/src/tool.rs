//! The common steps of sub-commands: they load the configuration, open the store or find its daemon, and return the
//! exit status.

use std::{io::IsTerminal as _, process::ExitCode};

use tokio::runtime::Runtime;
use tracing::{info, warn};
use tsd_engine::MetaTracking;

use crate::{
    config::{Config, Settings},
    configuration_error::{WRONG_CONFIGURATION, is_configuration_error},
    console::Stopped,
    daemon_client::DaemonClient,
    data_directory::DataDirectoryError,
    error_text::error_text,
    import::ImportError,
    krb5_environment, logging,
    node::OpenEngine,
    output::tell,
    query::QueryArgsError,
    store::Purpose,
};

/// The store failed after the tool had done its work.
#[derive(Debug, thiserror::Error)]
#[error("the store failed at the end; the next start replays the rows in its log")]
pub(crate) struct NotClosed;

/// Prints why a command failed; returns its exit status.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    failed_with(error, 1)
}

/// The exit status of a check: 0 if it found nothing, 1 if it did; as [`failed`], but at least 2, if it failed.
pub(crate) fn checked(result: anyhow::Result<bool>) -> ExitCode {
    match result {
        Ok(is_clean) => ExitCode::from(u8::from(!is_clean)),
        Err(error) => failed_with(&error, 2),
    }
}

/// Prints why a daemon failed; returns its exit status.
pub(crate) fn failed_daemon(error: &anyhow::Error) -> ExitCode {
    failed_with(error, if is_configuration_error(error) { WRONG_CONFIGURATION } else { 1 })
}

/// Prints why a command failed. The exit status is 2 if the store failed during an import or the query is invalid, as
/// in OpenTSDB; 128 plus the number of the signal that stopped it, as in a shell; else `other`.
fn failed_with(error: &anyhow::Error, other: u8) -> ExitCode {
    tell!("tsdb: {}", error_text(error));
    ExitCode::from(match (error.downcast_ref(), error.downcast_ref()) {
        (Some(ImportError::Stopped { signal, .. }), _) | (_, Some(Stopped { signal, .. })) => {
            signal.exit_status()
        }
        (Some(ImportError::Store { .. }), _) => 2,
        _ if error.is::<QueryArgsError>() || error.is::<NotClosed>() => 2,
        _ => other,
    })
}

/// Validates the configuration, passes krb5.conf on, starts logging, and warns if the tool may open another store than the file intends.
/// The daemon logs all other warnings.
pub(crate) fn prepare(config: Config) -> anyhow::Result<(Config, Settings)> {
    let settings = Settings::from_config(&config)?;
    krb5_environment::set(&settings.storage.hbase)?;
    logging::start(&settings.log);
    if let Some(warning) = config.embedded_by_default() {
        warn!("{warning}");
    }
    Ok((config, settings))
}

/// Validates the configuration of a daemon, passes krb5.conf on, starts logging, and logs warnings about the configuration.
pub(crate) fn prepare_daemon(config: Config) -> anyhow::Result<(Config, Settings)> {
    let settings = Settings::from_config(&config)?;
    krb5_environment::set(&settings.storage.hbase)?;
    logging::start(&settings.log);
    for warning in config.warnings().iter().chain(&settings.storage.hbase.warnings) {
        warn!("{warning}");
    }
    let without_effect = config.without_effect();
    if !without_effect.is_empty() {
        info!("{}", without_effect.join("; "));
    }
    Ok((config, settings))
}

/// Runs a tool on the store, without a server.
pub(crate) fn with_engine<T>(
    config: &Config,
    settings: &Settings,
    purpose: Purpose,
    tool: impl AsyncFnOnce(&OpenEngine) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    Runtime::new()?.block_on(async {
        let mut settings = settings.clone();
        // Tools do not write meta data, as in OpenTSDB.
        settings.engine.meta_tracking = MetaTracking::Off;
        let open = OpenEngine::open(config, &settings, purpose).await?;
        let result = tool(&open).await;
        let closed = open.close(settings.shutdown_timeout).await;
        result.and_then(|done| closed.map(|()| done).map_err(|error| error.context(NotClosed)))
    })
}

/// Threads for a run over a whole table: twice the processors, as in OpenTSDB.
pub(crate) fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| processors.get() * 2)
}

/// Runs a tool through the daemon at the URL, if given; else on the store, or through the daemon that has it open.
pub(crate) fn by_daemon_or_store<T>(
    url: Option<&str>,
    what: &str,
    by_daemon: impl AsyncFnOnce(DaemonClient) -> anyhow::Result<T>,
    on_store: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let daemon = match url {
        Some(url) => DaemonClient::new(url)?,
        None => match on_store() {
            Err(error) => daemon_in_the_way(error, what)?,
            done => return done,
        },
    };
    Runtime::new()?.block_on(by_daemon(daemon))
}

/// The daemon that has the data directory open, if that is why the tool could not open it; else the error.
fn daemon_in_the_way(error: anyhow::Error, what: &str) -> anyhow::Result<DaemonClient> {
    let Some(DataDirectoryError::InUse { path, owner, url: Some(url) }) = error.downcast_ref()
    else {
        return Err(error);
    };
    // A script gets the same result either way.
    if std::io::stderr().is_terminal() {
        tell!("tsdb: {} is in use by {owner}: {what} through {url}", path.display());
    }
    Ok(DaemonClient::new(url)?)
}

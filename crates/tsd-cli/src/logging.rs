//! Logging: one line per event, to standard error.

use std::{
    io::{self, IsTerminal},
    sync::OnceLock,
};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, reload, util::SubscriberInitExt};

use crate::config::{LogFormat, LogSettings};

/// Replaces the filter of the running subscriber.
type SetFilter = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

static SET_FILTER: OnceLock<SetFilter> = OnceLock::new();

/// Starts logging for the process. A second call has no effect.
pub(crate) fn start(settings: &LogSettings) {
    let filter = EnvFilter::try_new(&settings.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let registry = tracing_subscriber::registry().with(filter);
    let started = match settings.format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    // An error means that a subscriber is already installed.
    if started.is_ok() {
        let _ = SET_FILTER.set(Box::new(move |filter| handle.reload(filter)));
    }
}

/// Applies another level. No effect before [`start`].
pub(crate) fn set_level(level: &str) -> anyhow::Result<()> {
    if let Some(set) = SET_FILTER.get() {
        set(EnvFilter::try_new(level)?)?;
    }
    Ok(())
}

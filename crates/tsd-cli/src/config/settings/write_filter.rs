//! Settings of the time series filter. The engine opens its file.

use std::path::PathBuf;

use crate::config::{Config, ConfigError, plugins};

/// Key of the file of rules.
pub(crate) const RULES_FILE: &str = "tsd.timeseriesfilter.rules_file";

/// The file of rules; `None` if the filter is off.
pub(super) fn filter_rules(config: &Config) -> Result<Option<PathBuf>, ConfigError> {
    if plugins::selected(config, "tsd.timeseriesfilter.plugin").is_none() {
        return Ok(None);
    }
    let path = config.required(RULES_FILE, "expected the path of a file")?;
    Ok(Some(path.into()))
}

//! Tells errors of the configuration from other errors of a start.
//!
//! A supervisor restarts a daemon that failed, since a disk or HBase may come back. A wrong configuration stays wrong
//! until somebody edits it, so it has an exit status of its own.

use hbase_rs::{discovery::DiscoveryError, errors::SecurityError};
use tsd_cluster_log::OpenLogError;
use tsd_engine::StartError;
use tsd_server::BindError;
use tsd_tls::TlsFileError;

use crate::{
    config::{ConfigError, UnusableConfiguration},
    data_directory::DataDirectoryError,
    store::LogOwnerError,
};

/// Exit status of a daemon with a wrong configuration: `EX_CONFIG` of `sysexits.h`.
pub(crate) const WRONG_CONFIGURATION: u8 = 78;

/// True if the next start would fail too, until somebody changes the configuration or a file that it names.
pub(crate) fn is_configuration_error(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<ConfigError>()
            || cause.is::<UnusableConfiguration>()
            || cause.is::<SecurityError>()
            || cause.is::<TlsFileError>()
            || cause.downcast_ref().is_some_and(is_of_directory)
            || cause.downcast_ref().is_some_and(is_of_port)
            || cause.downcast_ref().is_some_and(is_of_cluster)
            || matches!(cause.downcast_ref(), Some(StartError::Filter(_)))
            || matches!(cause.downcast_ref(), Some(LogOwnerError::OtherCluster { .. }))
            || matches!(cause.downcast_ref(), Some(DiscoveryError::InvalidQuorum { .. }))
    })
}

/// The key layout of the directory is another one. A missing directory has the error of the key that names it.
const fn is_of_directory(error: &DataDirectoryError) -> bool {
    matches!(error, DataDirectoryError::Contradiction { .. } | DataDirectoryError::Missing(_))
}

/// A port that is in use may become free; a wrong key does not.
const fn is_of_port(error: &BindError) -> bool {
    matches!(error, BindError::NoAddress | BindError::NoSuchZone { .. })
}

/// A name in use becomes free when the other node stops.
const fn is_of_cluster(error: &OpenLogError) -> bool {
    matches!(error, OpenLogError::Name(_) | OpenLogError::Settings(_))
}

#[cfg(test)]
mod tests {
    use std::{io, path::PathBuf};

    use anyhow::Context as _;

    use super::*;
    use crate::config::Config;

    fn wrong_key() -> ConfigError {
        Config::default().bad_value("tsd.network.port", "expected a port")
    }

    fn in_use() -> io::Error {
        io::ErrorKind::AddrInUse.into()
    }

    #[test]
    fn wrong_settings_are_errors_of_the_configuration_also_behind_a_context() {
        let path = PathBuf::from("data");
        let contradiction = DataDirectoryError::Contradiction {
            path,
            key: "tsd.storage.salt.width",
            wanted: 1,
            stored: 0,
        };
        for error in [
            anyhow::Error::new(wrong_key()),
            anyhow::Error::new(DataDirectoryError::Missing(wrong_key())),
            anyhow::Error::new(contradiction),
            anyhow::Error::new(BindError::NoAddress),
            anyhow::Error::new(BindError::NoSuchZone { name: "x".into() }),
            anyhow::Error::new(OpenLogError::Settings(vec!["x".into()])),
            anyhow::Error::new(UnusableConfiguration::new("x".into())),
        ] {
            assert!(is_configuration_error(&error), "{error:?}");
            assert!(is_configuration_error(&error.context("cannot start").context("outer")));
        }
    }

    #[test]
    fn failures_that_may_pass_are_not() {
        let address = ([127, 0, 0, 1], 1).into();
        let io = DataDirectoryError::Io { path: PathBuf::from("data"), source: in_use() };
        for error in [
            anyhow::Error::new(BindError::Listen { address, source: in_use() }),
            anyhow::Error::new(io),
            anyhow::Error::new(in_use()),
            anyhow::anyhow!("some data was not written"),
        ] {
            assert!(!is_configuration_error(&error), "{error:?}");
        }
        let failed: anyhow::Result<()> = Err(in_use()).context("cannot open the store");
        assert!(failed.is_err_and(|error| !is_configuration_error(&error)));
    }
}

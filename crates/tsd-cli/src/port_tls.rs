//! Starts TLS on the port: opens and follows its files.

use std::sync::Arc;

use tsd_engine::FileProblems;
use tsd_server::PortTls;
use tsd_tls::{PemFile, ServerFiles, ServerTls, TlsFileError};

use crate::{
    config::{Config, ConfigError, TLS_CERTIFICATE, TLS_CLIENT_CA, TLS_KEY, TlsSettings},
    followed_file::{FileFollower, FollowedFile, FollowedPath, OpenFilesError},
};

/// Name of the files, for the log, the health and the metric.
const WHAT: &str = "certificates of the port";

/// Opens the files, and follows them.
pub(crate) fn start(
    config: &Config,
    settings: &TlsSettings,
    problems: FileProblems,
) -> Result<(Arc<PortTls>, FileFollower), ConfigError> {
    let mut paths =
        vec![FollowedPath::public(&settings.certificate), FollowedPath::secret(&settings.key)];
    paths.extend(settings.client_ca.as_deref().map(FollowedPath::public));
    let parser = {
        let settings = settings.clone();
        move |texts: &[String]| parse(&settings, texts)
    };
    let opened = FollowedFile::open_all(paths, WHAT, &parser);
    let (files, tls) = opened.map_err(|error| explain(config, settings, error))?;
    let tls = Arc::new(PortTls::new(tls, settings.is_required));
    let target = Arc::clone(&tls);
    let apply = move |tls| target.replace(tls);
    let follower = files.that_expires().follow_all(problems, parser, apply);
    Ok((tls, follower))
}

fn parse(settings: &TlsSettings, texts: &[String]) -> Result<ServerTls, TlsFileError> {
    let file = |at: usize, path| PemFile::new(path, texts.get(at).map_or("", String::as_str));
    let files = ServerFiles {
        certificate: file(0, &settings.certificate),
        key: file(1, &settings.key),
        client_ca: settings.client_ca.as_ref().map(|path| file(2, path)),
    };
    ServerTls::try_new(&files, settings.options)
}

/// Names the setting of the file.
fn explain(
    config: &Config,
    settings: &TlsSettings,
    error: OpenFilesError<TlsFileError>,
) -> ConfigError {
    match error {
        OpenFilesError::Read { at, error } => {
            let key = [TLS_CERTIFICATE, TLS_KEY, TLS_CLIENT_CA]
                .get(at)
                .copied()
                .unwrap_or(TLS_CERTIFICATE);
            config.bad_value(key, error)
        }
        OpenFilesError::Parse(error) => {
            let key = if error.path() == settings.certificate {
                TLS_CERTIFICATE
            } else if error.path() == settings.key {
                TLS_KEY
            } else {
                TLS_CLIENT_CA
            };
            config.bad_value(key, error)
        }
    }
}

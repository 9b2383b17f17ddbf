//! TLS of the port. Only a daemon opens the files, because a tool may not be allowed to read the key.

use std::path::PathBuf;

use tsd_tls::{ClientAuth, LeastVersion, ServerOptions};

use crate::config::{Config, ConfigError};

/// Key of the file of the certificate.
pub(crate) const TLS_CERTIFICATE: &str = "tsd.tls.certificate";
/// Key of the file of the private key.
pub(crate) const TLS_KEY: &str = "tsd.tls.key";
/// Key of the file of the authorities of client certificates.
pub(crate) const TLS_CLIENT_CA: &str = "tsd.tls.client_ca";
const CLIENT_AUTH: &str = "tsd.tls.client_auth";
const REQUIRED: &str = "tsd.tls.required";

/// TLS of the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// File of the certificate.
    pub certificate: PathBuf,
    /// File of the private key.
    pub key: PathBuf,
    /// File of the authorities of client certificates, if clients show certificates.
    pub client_ca: Option<PathBuf>,
    /// Settings that are not files.
    pub options: ServerOptions,
    /// Refuses plain clients of other hosts.
    pub is_required: bool,
}

/// TLS of the port; `None` if it is off.
pub(super) fn tls(config: &Config) -> Result<Option<TlsSettings>, ConfigError> {
    let is_required = config.bool(REQUIRED);
    let client_auth = match config.text(CLIENT_AUTH) {
        Some("optional") => ClientAuth::Optional,
        Some("required") => ClientAuth::Required,
        _ => ClientAuth::None,
    };
    let Some(certificate) = config.non_empty(TLS_CERTIFICATE) else {
        let depends = [
            (TLS_KEY, config.non_empty(TLS_KEY).is_some()),
            (TLS_CLIENT_CA, config.non_empty(TLS_CLIENT_CA).is_some()),
            (CLIENT_AUTH, client_auth != ClientAuth::None),
            (REQUIRED, is_required),
        ];
        return match depends.into_iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => {
                Err(config
                    .bad_value(key, format!("it needs TLS on the port; set {TLS_CERTIFICATE}")))
            }
            None => Ok(None),
        };
    };
    let key =
        config.required(TLS_KEY, "expected the file of the private key of tsd.tls.certificate")?;
    let client_ca = match (client_auth, config.non_empty(TLS_CLIENT_CA)) {
        (ClientAuth::None, Some(_)) => {
            let text = format!(
                "no client is asked for a certificate; set {CLIENT_AUTH}, or unset this key"
            );
            return Err(config.bad_value(TLS_CLIENT_CA, text));
        }
        (ClientAuth::None, None) => None,
        (_, Some(file)) => Some(file.into()),
        (_, None) => {
            let text = "expected the file of the authorities of client certificates, for tsd.tls.client_auth";
            return Err(config.bad_value(TLS_CLIENT_CA, text));
        }
    };
    let least_version = match config.text("tsd.tls.min_version") {
        Some("1.3") => LeastVersion::Tls13,
        _ => LeastVersion::Tls12,
    };
    Ok(Some(TlsSettings {
        certificate: certificate.into(),
        key: key.into(),
        client_ca,
        options: ServerOptions { client_auth, least_version },
        is_required,
    }))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::config::Settings;

    #[test]
    fn settings_that_need_others_name_them() {
        for (values, named, expected) in [
            (&[(TLS_KEY, "k")][..], TLS_KEY, "set tsd.tls.certificate"),
            (&[(REQUIRED, "true")], REQUIRED, "set tsd.tls.certificate"),
            (&[(CLIENT_AUTH, "optional")], CLIENT_AUTH, "set tsd.tls.certificate"),
            (&[(TLS_CERTIFICATE, "c")], TLS_KEY, "expected the file of the private key"),
            (
                &[(TLS_CERTIFICATE, "c"), (TLS_KEY, "k"), (TLS_CLIENT_CA, "a")],
                TLS_CLIENT_CA,
                "set tsd.tls.client_auth",
            ),
            (
                &[(TLS_CERTIFICATE, "c"), (TLS_KEY, "k"), (CLIENT_AUTH, "required")],
                TLS_CLIENT_CA,
                "expected the file of the authorities",
            ),
            (&[(CLIENT_AUTH, "maybe")], CLIENT_AUTH, "none, optional, required"),
            (&[("tsd.tls.min_version", "1.1")], "tsd.tls.min_version", "1.2, 1.3"),
        ] {
            let error = Settings::with(values).unwrap_err();
            assert!(error.starts_with(named) && error.contains(expected), "{error}");
        }
        assert_eq!(Settings::with(&[]).unwrap().tls, None);
        let all = [
            (TLS_CERTIFICATE, "c"),
            (TLS_KEY, "k"),
            (CLIENT_AUTH, "optional"),
            (TLS_CLIENT_CA, "a"),
            ("tsd.tls.min_version", "1.3"),
            (REQUIRED, "true"),
        ];
        let tls = Settings::with(&all).unwrap().tls.unwrap();
        assert!(tls.is_required && tls.client_ca == Some("a".into()));
        assert_eq!(tls.options.client_auth, ClientAuth::Optional);
        assert_eq!(tls.options.least_version, LeastVersion::Tls13);
    }
}

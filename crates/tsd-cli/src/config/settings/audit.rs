//! Settings of the audit log.

use std::time::Duration;

use tsd_server::AuditConfig;

use crate::config::{Config, ConfigError};

/// Key of the file.
pub(crate) const AUDIT_FILE: &str = "tsd.audit.file";

/// Settings of the audit log; `None` if it is off.
pub(super) fn audit(config: &Config) -> Result<Option<AuditConfig>, ConfigError> {
    const REQUIRED: &str = "tsd.audit.required";
    let required = config.bool(REQUIRED);
    let Some(file) = config.non_empty(AUDIT_FILE) else {
        return if required {
            Err(config.bad_value(REQUIRED, format!("a required audit log needs {AUDIT_FILE}")))
        } else {
            Ok(None)
        };
    };
    let max_age: u64 = config.int("tsd.audit.max_age");
    Ok(Some(AuditConfig {
        file: file.into(),
        max_bytes: config.int("tsd.audit.max_bytes"),
        max_age: (max_age > 0).then(|| Duration::from_secs(max_age)),
        keep: config.int("tsd.audit.keep"),
        required,
    }))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::config::Settings;

    #[test]
    fn an_audit_log_has_a_file_and_a_required_one_needs_it() {
        assert_eq!(Settings::with(&[]).unwrap().audit, None);
        let file = ("tsd.audit.file", "/var/log/audit.json");
        let audit = Settings::with(&[file, ("tsd.audit.max_age", "0")]).unwrap().audit.unwrap();
        assert_eq!((audit.max_age, audit.keep, audit.required), (None, 30, false));
        let audit = Settings::with(&[file, ("tsd.audit.required", "true")]).unwrap().audit.unwrap();
        assert_eq!((audit.max_age, audit.required), (Some(Duration::from_hours(24)), true));
        let error = Settings::with(&[("tsd.audit.required", "true")]).unwrap_err();
        assert!(error.contains("a required audit log needs tsd.audit.file"), "{error}");
    }
}

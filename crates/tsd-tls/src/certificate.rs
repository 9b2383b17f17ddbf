//! Facts of a certificate that rustls does not tell: when it expires, and whose it is.

use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_cert::{
    Certificate,
    der::{DateTime, Decode},
    ext::pkix::{SubjectAltName, name::GeneralName},
};

/// Maximum bytes of the name of a client.
const MAX_NAME_BYTES: usize = 128;

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateValidity {
    not_before: DateTime,
    not_after: DateTime,
}

impl CertificateValidity {
    /// Parses a certificate; `None` if it is malformed.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(certificate).ok()?;
        let validity = certificate.tbs_certificate().validity();
        Some(Self {
            not_before: validity.not_before.to_date_time(),
            not_after: validity.not_after.to_date_time(),
        })
    }

    /// Time of expiry since 1970.
    #[must_use]
    pub fn not_after(&self) -> Duration {
        self.not_after.unix_duration()
    }

    /// Why the certificate is not valid at this time; `None` if it is valid.
    pub(crate) fn problem_at(&self, now: SystemTime) -> Option<String> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let Self { not_before, not_after } = self;
        if now > not_after.unix_duration() {
            return Some(format!("the certificate expired at {not_after}; renew it"));
        }
        (now < not_before.unix_duration()).then(|| {
            format!(
                "the certificate is not valid before {not_before}; is the clock of this host right?"
            )
        })
    }
}

/// The name of a client by its certificate: the first URI, DNS name or e-mail address of the subject alternative
/// names, else the common name. `None` without a name that a user can have.
#[must_use]
pub fn client_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let certificate = certificate.tbs_certificate();
    let (_, alternative) = certificate.get_extension::<SubjectAltName>().ok()?.unwrap_or_default();
    let first = alternative.0.iter().find_map(|name| match name {
        GeneralName::UniformResourceIdentifier(name)
        | GeneralName::DnsName(name)
        | GeneralName::Rfc822Name(name) => Some(name.as_str().to_owned()),
        _ => None,
    });
    let name = match first {
        Some(name) => name,
        None => certificate.subject().common_name().ok()??.value().into_owned(),
    };
    let is_word = !name.is_empty() && !name.contains(|c: char| c.is_control() || c.is_whitespace());
    (is_word && name.len() <= MAX_NAME_BYTES).then_some(name)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use super::*;
    use crate::PemFile;

    fn certificate(name: &str) -> CertificateDer<'static> {
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/tls"));
        PemFile::read(&data.join(name)).unwrap().certificates().unwrap().remove(0)
    }

    #[test]
    fn a_client_has_an_alternative_name_or_a_common_name() {
        for (file, name) in [
            ("one/node.pem", "localhost"),
            // Its only alternative name is an address.
            ("one/elsewhere.pem", "elsewhere"),
            ("one/nameless.pem", "nameless"),
            ("two/ca.pem", "two"),
        ] {
            assert_eq!(client_name(&certificate(file)).as_deref(), Some(name), "{file}");
        }
    }

    #[test]
    fn a_certificate_is_valid_for_a_time() {
        let at = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        let validity = CertificateValidity::of(&certificate("one/expired.pem")).unwrap();
        assert_eq!(validity.not_after().as_secs(), 978_307_200);
        assert_eq!(validity.problem_at(at(978_307_200)), None);
        assert!(validity.problem_at(at(978_307_201)).unwrap().contains("expired at 2001-01-01"));
        let early = validity.problem_at(at(946_684_799)).unwrap();
        assert!(early.contains("not valid before 2000-01-01T00:00:00Z"), "{early}");
    }

    #[test]
    fn malformed_certificates_have_neither_name_nor_time() {
        let whole = certificate("one/node.pem");
        for cut in 0..whole.len() {
            let part = CertificateDer::from(whole.get(..cut).unwrap());
            assert_eq!((client_name(&part), CertificateValidity::of(&part)), (None, None), "{cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.to_vec();
            *changed.get_mut(at).unwrap() ^= 0xff;
            let changed = CertificateDer::from(changed);
            let _ = (client_name(&changed), CertificateValidity::of(&changed));
        }
    }
}

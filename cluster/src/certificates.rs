//! Certificates of a cluster: an authority of its own, and certificates that clients and servers must accept or
//! refuse.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    error::ClusterError,
    java,
    tools::{self, Tool},
};

/// A certificate with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Of masters, region servers and ZooKeeper: `localhost` and 127.0.0.1.
    Server,
    /// Of a client on this host. HBase looks for the client's host in it.
    Client,
    /// Of a host that does not exist, by the same authority.
    OtherHost,
    /// Of this host, by another authority.
    OtherAuthority,
    /// Of this host, by the same authority, valid until the end of 2020.
    Expired,
}

impl Certificate {
    const ALL: [Self; 5] =
        [Self::Server, Self::Client, Self::OtherHost, Self::OtherAuthority, Self::Expired];

    const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::OtherHost => "other-host",
            Self::OtherAuthority => "other-authority",
            Self::Expired => "expired",
        }
    }

    const fn alternative_names(self) -> &'static str {
        match self {
            Self::OtherHost => "DNS:elsewhere.test",
            _ => "DNS:localhost,IP:127.0.0.1",
        }
    }

    /// First and last second of its validity.
    const fn validity(self) -> [&'static str; 2] {
        match self {
            Self::Expired => ["20200101000000Z", "20201231235959Z"],
            _ => ["20200101000000Z", "20491231235959Z"],
        }
    }

    const fn authority(self) -> Authority {
        match self {
            Self::OtherAuthority => Authority::Other,
            _ => Authority::Own,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Authority {
    Own,
    Other,
}

impl Authority {
    const fn name(self) -> &'static str {
        match self {
            Self::Own => "ca",
            Self::Other => "other-ca",
        }
    }
}

/// The directory of the certificates of a cluster.
///
/// A PEM file has certificate and key; a PKCS #12 store has the same and the authority, with
/// [`Self::PASSWORD`].
#[derive(Clone, Debug)]
pub struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// Password of all stores.
    pub const PASSWORD: &str = "cluster";

    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf() }
    }

    /// The certificate of the authority, as PEM.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.file(Authority::Own.name(), "pem")
    }

    /// The certificate of an authority that issued no certificate of a server, as PEM.
    #[must_use]
    pub fn other_authority(&self) -> PathBuf {
        self.file(Authority::Other.name(), "pem")
    }

    /// The certificate of the authority as a PKCS #12 trust store of Java.
    #[must_use]
    pub fn trust_store(&self) -> PathBuf {
        self.file("truststore", "p12")
    }

    /// A certificate and its key, as PEM.
    #[must_use]
    pub fn pem(&self, certificate: Certificate) -> PathBuf {
        self.file(certificate.name(), "pem")
    }

    /// A certificate, its key and the authority, as PKCS #12.
    #[must_use]
    pub fn store(&self, certificate: Certificate) -> PathBuf {
        self.file(certificate.name(), "p12")
    }

    /// Makes all files with `openssl`, and the trust store with the `keytool` of this Java.
    pub(crate) fn create(&self, java: &Path) -> Result<(), ClusterError> {
        self.issue_all()?;
        self.make_trust_store(java)
    }

    fn issue_all(&self) -> Result<(), ClusterError> {
        let issued = self.directory.join("issued");
        fs::create_dir_all(&issued).map_err(ClusterError::file("create", &issued))?;
        self.write("authority.conf", AUTHORITY_CONF)?;
        self.write("index.txt", "")?;
        for authority in [Authority::Own, Authority::Other] {
            self.issue_authority(authority)?;
        }
        Certificate::ALL.into_iter().try_for_each(|certificate| self.issue(certificate))
    }

    fn issue_authority(&self, authority: Authority) -> Result<(), ClusterError> {
        let name = authority.name();
        let subject = format!("/CN=cluster {name}");
        let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
        let mut arguments = vec!["req", "-x509", "-days", "7300", "-subj", &subject];
        arguments.extend(NEW_KEY);
        arguments.extend(["-keyout", &key, "-out", &certificate]);
        arguments.extend(["-addext", "keyUsage=critical,keyCertSign,cRLSign"]);
        self.openssl(&arguments)
    }

    fn issue(&self, certificate: Certificate) -> Result<(), ClusterError> {
        let (name, authority) = (certificate.name(), certificate.authority().name());
        let file = |extension: &str| format!("{name}.{extension}");
        let [key, request, extensions, pem, store] = ["key", "csr", "ext", "pem", "p12"].map(file);
        let subject = format!("/CN={name}");
        let mut arguments = vec!["req", "-new", "-subj", &subject];
        arguments.extend(NEW_KEY);
        arguments.extend(["-keyout", &key, "-out", &request]);
        self.openssl(&arguments)?;

        let names = certificate.alternative_names();
        self.write(
            &extensions,
            &format!(
                "basicConstraints = CA:FALSE\nkeyUsage = critical,digitalSignature\n\
                 extendedKeyUsage = serverAuth,clientAuth\nsubjectAltName = {names}\n"
            ),
        )?;
        let [first, last] = certificate.validity();
        let (issuer, issuer_key) = (format!("{authority}.pem"), format!("{authority}.key"));
        let mut arguments = vec!["ca", "-batch", "-notext", "-config", "authority.conf"];
        arguments.extend(["-cert", &issuer, "-keyfile", &issuer_key, "-in", &request]);
        arguments.extend(["-out", &pem, "-extfile", &extensions]);
        arguments.extend(["-startdate", first, "-enddate", last]);
        self.openssl(&arguments)?;

        let password = format!("pass:{}", Self::PASSWORD);
        let mut arguments = vec!["pkcs12", "-export", "-in", &pem, "-inkey", &key];
        arguments.extend(["-certfile", &issuer, "-name", name, "-out", &store]);
        arguments.extend(["-passout", &password]);
        self.openssl(&arguments)?;

        // A PEM store has the key too.
        let read = |name: &str| {
            let path = self.directory.join(name);
            fs::read_to_string(&path).map_err(ClusterError::file("read", path))
        };
        let both = read(&pem)? + &read(&key)?;
        self.write(&pem, &both)
    }

    fn make_trust_store(&self, java: &Path) -> Result<(), ClusterError> {
        let keytool = java::tool(java, "keytool")
            .ok_or_else(|| ClusterError::NoKeytool { java: java.to_path_buf() })?;
        let store = self.trust_store();
        let mut arguments: Vec<OsString> = Vec::new();
        arguments.extend(["-importcert", "-noprompt", "-alias", "ca"].map(Into::into));
        arguments.extend(["-storetype", "PKCS12", "-storepass", Self::PASSWORD].map(Into::into));
        arguments.extend(["-file".into(), self.authority().into()]);
        arguments.extend(["-keystore".into(), store.into()]);
        self.run(&keytool, arguments)
    }

    fn openssl(&self, arguments: &[&str]) -> Result<(), ClusterError> {
        let command = tools::find("openssl").ok_or(ClusterError::NoOpenssl)?;
        self.run(&command, arguments.iter().map(Into::into).collect())
    }

    fn run(&self, command: &Path, arguments: Vec<OsString>) -> Result<(), ClusterError> {
        let (environment, directory) = (Vec::new(), self.directory.as_path());
        let tool = Tool { command, arguments, environment, directory, input: "" };
        tool.run().map(|_| ())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), ClusterError> {
        let path = self.directory.join(name);
        fs::write(&path, text).map_err(ClusterError::file("write", path))
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("{name}.{extension}"))
    }
}

/// Options of `openssl req` for a new key on the curve P-256, not encrypted.
const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/// `openssl ca` can issue a certificate for a time in the past, `openssl x509` cannot.
const AUTHORITY_CONF: &str = "\
[ca]
default_ca = authority
[authority]
database = index.txt
new_certs_dir = issued
default_md = sha256
unique_subject = no
rand_serial = yes
policy = policy
[policy]
commonName = supplied
";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tempfile::TempDir;

    use super::*;

    /// What `openssl verify` says of a certificate for a host.
    fn verify(certificates: &Certificates, certificate: Certificate, host: &str) -> String {
        let command = tools::find("openssl").unwrap();
        let tool = Tool {
            command: &command,
            arguments: vec![
                "verify".into(),
                "-CAfile".into(),
                certificates.authority().into(),
                "-verify_hostname".into(),
                host.into(),
                certificates.pem(certificate).into(),
            ],
            environment: Vec::new(),
            directory: Path::new("/"),
            input: "",
        };
        tool.run().unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn each_certificate_fails_for_its_reason_only() {
        let directory = TempDir::new().unwrap();
        let certificates = Certificates::new(directory.path());
        certificates.issue_all().unwrap();
        for (certificate, host, verdict) in [
            (Certificate::Server, "localhost", ": OK"),
            (Certificate::Client, "localhost", ": OK"),
            (Certificate::OtherHost, "elsewhere.test", ": OK"),
            (Certificate::OtherHost, "localhost", "hostname mismatch"),
            (Certificate::OtherAuthority, "localhost", "unable to get local issuer certificate"),
            (Certificate::Expired, "localhost", "certificate has expired"),
        ] {
            let found = verify(&certificates, certificate, host);
            assert!(found.to_lowercase().contains(&verdict.to_lowercase()), "{found}");
            assert!(certificates.store(certificate).is_file());
        }
        assert!(fs::read_to_string(certificates.pem(Certificate::Client)).unwrap().contains("KEY"));
    }
}

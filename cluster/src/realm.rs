//! The realm of a cluster: configuration, database, principals and keytabs of an MIT KDC.
//!
//! The KDC itself is a process of the cluster ([`Node::Kdc`](crate::Node::Kdc)). All files are in one directory. The tools
//! of MIT Kerberos are called directly on the database, so no administration server runs.
//!
//! `hbase-gss` starts a KDC of its own for its tests: this crate depends on it through `hbase-rs`, and its tests need a
//! `krb5.conf` each and no cluster.

use std::{
    ffi::OsString,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{error::ClusterError, security::Kerberos, tools};

/// Password of the database, whose keys protect nothing but tests.
const DATABASE_PASSWORD: &str = "cluster";

/// A Kerberos realm for tests: its files, and changes to its principals.
#[derive(Clone, Debug)]
pub struct Realm {
    directory: PathBuf,
    kerberos: Kerberos,
    port: u16,
}

impl Realm {
    /// The realm with this directory, whose KDC listens on `port` of the loopback interface.
    pub(crate) fn new(directory: &Path, kerberos: &Kerberos, port: u16) -> Self {
        Self { directory: directory.to_path_buf(), kerberos: kerberos.clone(), port }
    }

    /// Writes the configuration, and creates the database with all principals and keytabs. Replaces
    /// an existing realm.
    pub(crate) fn create(&self) -> Result<(), ClusterError> {
        let database = self.database();
        if self.directory.exists() {
            fs::remove_dir_all(&self.directory)
                .map_err(ClusterError::file("remove", &self.directory))?;
        }
        fs::create_dir_all(&database).map_err(ClusterError::file("create", &database))?;
        write(&self.krb5_conf(), &krb5_conf(&self.kerberos, self.port))?;
        write(&self.kdc_conf(), &self.kdc_conf_text())?;
        let realm = self.kerberos.realm.as_str();
        let arguments = ["create", "-s", "-r", realm, "-P", DATABASE_PASSWORD];
        self.run("kdb5_util", &arguments, "")?;
        let lifetime = self.kerberos.ticket_lifetime.as_secs();
        let mut queries = String::new();
        for name in [Kerberos::HBASE, Kerberos::ZOOKEEPER] {
            let _ = writeln!(queries, "addprinc -randkey {}", self.principal(name));
        }
        for name in [Kerberos::USER, Kerberos::GUEST] {
            let principal = self.principal(name);
            let _ =
                writeln!(queries, "addprinc -randkey -maxlife \"{lifetime} seconds\" {principal}");
        }
        for name in [Kerberos::HBASE, Kerberos::ZOOKEEPER, Kerberos::USER, Kerberos::GUEST] {
            let _ = writeln!(queries, "{}", self.export(name));
        }
        self.administer(&queries)?;
        for name in [Kerberos::HBASE, Kerberos::ZOOKEEPER, Kerberos::USER, Kerberos::GUEST] {
            // kadmin.local exits with 0 even if a query failed.
            let file = self.keytab(name);
            fs::metadata(&file).map_err(ClusterError::file("find", &file))?;
        }
        Ok(())
    }

    /// The `krb5.conf` of clients and servers. It looks no name up in DNS, and talks to the KDC by TCP.
    #[must_use]
    pub fn krb5_conf(&self) -> PathBuf {
        self.directory.join("krb5.conf")
    }

    /// Keytab of a user or service: [`Kerberos::USER`], [`Kerberos::GUEST`], [`Kerberos::HBASE`],
    /// [`Kerberos::ZOOKEEPER`].
    #[must_use]
    pub fn keytab(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.keytab"))
    }

    /// Principal of a user or service, with its realm.
    #[must_use]
    pub fn principal(&self, name: &str) -> String {
        self.kerberos.principal(name)
    }

    /// Name of the realm.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.kerberos.realm
    }

    /// Address of the KDC, as `127.0.0.1:PORT`.
    #[must_use]
    pub fn kdc_address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Gives a user or service a new key and replaces its keytab. Tickets for the former key of a service
    /// are refused from then on; running servers read the new keytab by themselves.
    ///
    /// # Errors
    ///
    /// If the tools of the KDC fail.
    pub fn rekey(&self, name: &str) -> Result<(), ClusterError> {
        let file = self.keytab(name);
        let new = file.with_extension("new");
        let _ = fs::remove_file(&new);
        let principal = self.principal(name);
        self.administer(&format!("ktadd -k {} {principal}\n", new.display()))?;
        fs::rename(&new, &file).map_err(ClusterError::file("replace", &file))
    }

    /// Sets the longest lifetime of a user's tickets, in whole seconds. Tickets handed out before keep
    /// theirs.
    ///
    /// # Errors
    ///
    /// If the tools of the KDC fail.
    pub fn set_ticket_lifetime(&self, name: &str, lifetime: Duration) -> Result<(), ClusterError> {
        let (seconds, principal) = (lifetime.as_secs(), self.principal(name));
        self.administer(&format!("modprinc -maxlife \"{seconds} seconds\" {principal}\n"))
            .map(|_| ())
    }

    /// Gets a ticket from the KDC by the keytab of a user or service, into a credential cache file. A
    /// `lifetime`, in whole seconds, asks for less than the longest one.
    ///
    /// # Errors
    ///
    /// If the KDC does not run, or `kinit` fails.
    pub fn kinit(
        &self,
        name: &str,
        cache: &Path,
        lifetime: Option<Duration>,
    ) -> Result<(), ClusterError> {
        let mut arguments: Vec<OsString> = vec!["-k".into(), "-t".into(), self.keytab(name).into()];
        arguments.extend(["-c".into(), cache.into()]);
        if let Some(lifetime) = lifetime {
            arguments.extend(["-l".into(), format!("{}s", lifetime.as_secs()).into()]);
        }
        arguments.push(self.principal(name).into());
        self.run_with("kinit", arguments, "").map(|_| ())
    }

    /// The command line of the KDC in the foreground.
    pub(crate) fn kdc_command(&self) -> Result<KdcCommand, ClusterError> {
        let arguments = ["-n", "-r", self.name()];
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        Ok((tool("krb5kdc")?, arguments, self.environment()))
    }

    fn database(&self) -> PathBuf {
        self.directory.join("kdc")
    }

    fn kdc_conf(&self) -> PathBuf {
        self.database().join("kdc.conf")
    }

    fn kdc_conf_text(&self) -> String {
        let (realm, address) = (self.name(), self.kdc_address());
        let database = self.database();
        let database = database.display();
        let longest = self.kerberos.ticket_lifetime.max(Duration::from_hours(24)).as_secs();
        format!(
            "[kdcdefaults]\n  kdc_listen = {address}\n  kdc_tcp_listen = {address}\n\
             [realms]\n  {realm} = {{\n    database_name = {database}/principal\n    \
             key_stash_file = {database}/stash\n    max_life = {longest}s\n    \
             supported_enctypes = aes256-cts:normal aes128-cts:normal\n  }}\n\
             [logging]\n  kdc = STDERR\n"
        )
    }

    /// The query that writes a keytab.
    fn export(&self, name: &str) -> String {
        format!("ktadd -k {} {}", self.keytab(name).display(), self.principal(name))
    }

    /// Runs queries of kadmin, a line each.
    fn administer(&self, queries: &str) -> Result<String, ClusterError> {
        self.run("kadmin.local", &["-r", self.name()], queries)
    }

    fn run(
        &self,
        name: &'static str,
        arguments: &[&str],
        input: &str,
    ) -> Result<String, ClusterError> {
        self.run_with(name, arguments.iter().map(Into::into).collect(), input)
    }

    fn run_with(
        &self,
        name: &'static str,
        arguments: Vec<OsString>,
        input: &str,
    ) -> Result<String, ClusterError> {
        let command = tool(name)?;
        let environment = self.environment();
        let directory = &self.directory;
        tools::Tool { command: &command, arguments, environment, directory, input }.run()
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("KRB5_CONFIG", self.krb5_conf().into()), ("KRB5_KDC_PROFILE", self.kdc_conf().into())]
    }
}

/// A command, its arguments and its environment.
pub(crate) type KdcCommand = (PathBuf, Vec<String>, Vec<(&'static str, OsString)>);

/// Path of a tool of MIT Kerberos.
fn tool(name: &'static str) -> Result<PathBuf, ClusterError> {
    tools::find(name).ok_or(ClusterError::NoKdc { tool: name })
}

fn write(path: &Path, text: &str) -> Result<(), ClusterError> {
    fs::write(path, text).map_err(ClusterError::file("write", path))
}

fn krb5_conf(kerberos: &Kerberos, port: u16) -> String {
    let realm = &kerberos.realm;
    let lifetime = kerberos.ticket_lifetime.as_secs();
    format!(
        "[libdefaults]\n  default_realm = {realm}\n  dns_lookup_kdc = false\n  \
         dns_lookup_realm = false\n  dns_canonicalize_hostname = false\n  rdns = false\n  \
         udp_preference_limit = 1\n  ticket_lifetime = {lifetime}s\n\
         [realms]\n  {realm} = {{\n    kdc = 127.0.0.1:{port}\n  }}\n\
         [domain_realm]\n  localhost = {realm}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_have_realm_and_port() {
        let mut kerberos = Kerberos::new();
        kerberos.realm = "HADOOP.COM".into();
        kerberos.ticket_lifetime = Duration::from_secs(20);
        let realm = Realm::new(Path::new("/d"), &kerberos, 88);
        let text = krb5_conf(&kerberos, 88);
        for line in ["default_realm = HADOOP.COM", "kdc = 127.0.0.1:88", "ticket_lifetime = 20s"] {
            assert!(text.lines().any(|found| found.trim() == line), "{line} in {text}");
        }
        let text = realm.kdc_conf_text();
        for line in ["kdc_tcp_listen = 127.0.0.1:88", "database_name = /d/kdc/principal"] {
            assert!(text.lines().any(|found| found.trim() == line), "{line} in {text}");
        }
        assert_eq!(realm.keytab("tsdb"), Path::new("/d/tsdb.keytab"));
    }
}

//! MIT's KDC on a port of loopback, and the principals of its realm.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, Error},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Name of the realm.
pub const REALM: &str = "LAB.TEST";

const PROGRAMS: &[&str] = &["krb5kdc", "kdb5_util", "kadmin.local", "kinit"];
/// Installs them on Debian and Ubuntu.
const INSTALLER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cluster/install-kdc.sh");

/// A running KDC. It stops when dropped, and its directory is removed.
#[derive(Debug)]
pub(super) struct Kdc {
    directory: PathBuf,
    port: u16,
    process: Child,
}

/// Returns the KDC that tests share, or nothing if the programs are missing.
pub(super) fn shared() -> io::Result<Option<Arc<Kdc>>> {
    static RUNNING: Mutex<Weak<Kdc>> = Mutex::new(Weak::new());
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kdc) = running.upgrade() {
        return Ok(Some(kdc));
    }
    if !is_installed() && !install() {
        return Ok(None);
    }
    let kdc = Arc::new(Kdc::start()?);
    *running = Arc::downgrade(&kdc);
    Ok(Some(kdc))
}

fn is_installed() -> bool {
    PROGRAMS.iter().all(|program| {
        let path = search_path();
        env::split_paths(&path).any(|directory| directory.join(program).is_file())
    })
}

/// The servers are in a directory that users do not have in their path.
fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin");
    path
}

/// Installs the programs where that is possible. Returns whether they are there now.
fn install() -> bool {
    let installed = Command::new(INSTALLER)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    installed.is_ok_and(|status| status.success()) && is_installed()
}

/// Variables for the programs and the library.
pub(super) fn environment(directory: &Path, configuration: &Path) -> Vec<(&'static str, OsString)> {
    vec![
        ("KRB5_CONFIG", configuration.into()),
        ("KRB5_KDC_PROFILE", directory.join("kdc.conf").into()),
        ("KRB5CCNAME", directory.join("no-default-cache").into()),
        ("KRB5_CLIENT_KTNAME", directory.join("no-default-keytab").into()),
        ("KRB5RCACHENAME", "none:".into()),
        ("PATH", search_path()),
    ]
}

impl Kdc {
    fn start() -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = env::temp_dir().join(format!("hbase-gss-{}-{number}", process::id()));
        fs::create_dir_all(&directory)?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let d = directory.display();
        fs::write(
            directory.join("kdc.conf"),
            format!(
                "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n\
                 [realms]\n {REALM} = {{\n  database_name = {d}/principal\n  key_stash_file = {d}/stash\n  \
                 max_life = 10h\n  supported_enctypes = aes256-cts:normal\n }}\n\
                 [logging]\n kdc = FILE:{d}/kdc.log\n"
            ),
        )?;
        write_configuration(&directory.join("krb5.conf"), port)?;
        let realm = Realm::of(&directory, &directory.join("krb5.conf"));
        realm.run("kdb5_util", ["create", "-s", "-r", REALM, "-P", "throw-away"])?;
        let process = realm
            .command("krb5kdc")
            .args(["-n", "-r", REALM])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut kdc = Self { directory, port, process };
        for _ in 0..600 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(kdc);
            }
            if let Some(status) = kdc.process.try_wait()? {
                return Err(Error::other(format!("krb5kdc ended with {status}")));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(Error::other("krb5kdc does not listen"))
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a configuration of its own for a test.
    pub(super) fn configuration(&self, test: &str) -> io::Result<PathBuf> {
        let file = self.directory.join(format!("{}.conf", test.replace("::", "-")));
        write_configuration(&file, self.port)?;
        Ok(file)
    }
}

impl Drop for Kdc {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Names are taken as they are, and a KDC is asked by TCP at once.
fn write_configuration(file: &Path, port: u16) -> io::Result<()> {
    let text = format!(
        "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
         dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n\
         [realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
    );
    // A reader sees the old or the new text.
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)
}

/// The realm of a test.
#[derive(Clone, Debug)]
pub struct Realm {
    directory: PathBuf,
    configuration: PathBuf,
}

impl Realm {
    pub(super) fn of(directory: &Path, configuration: &Path) -> Self {
        Self { directory: directory.to_owned(), configuration: configuration.to_owned() }
    }

    /// Path of a file in the directory of the realm, which all tests share: begin it with the name of the test.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Adds a principal. Its tickets are good for this number of seconds, at most.
    pub fn add(&self, principal: &str, ticket_seconds: u32) -> io::Result<()> {
        self.admin(&format!("addprinc -randkey -maxlife \"{ticket_seconds} seconds\" {principal}"))
    }

    /// Gives a principal a new key, and adds the key to a keytab.
    pub fn rekey(&self, principal: &str, keytab: &Path) -> io::Result<()> {
        self.admin(&format!("ktadd -k {} {principal}", keytab.display()))
    }

    /// Adds a principal with tickets of ten hours, and writes its key to a new keytab.
    pub fn keytab(&self, principal: &str, name: &str) -> io::Result<PathBuf> {
        self.add(principal, 36_000)?;
        let file = self.file(name);
        self.rekey(principal, &file)?;
        Ok(file)
    }

    /// Gets tickets with a keytab and writes them to a cache.
    pub fn kinit(&self, principal: &str, keytab: &Path, cache: &Path) -> io::Result<()> {
        let file = OsStr::new("-t");
        let arguments =
            [OsStr::new("-k"), file, keytab.as_os_str(), OsStr::new("-c"), cache.as_os_str()];
        self.run("kinit", arguments.into_iter().chain([OsStr::new(principal)]))
    }

    /// Lets this test's process look for the KDC at another port of loopback.
    pub fn move_kdc(&self, port: u16) -> io::Result<()> {
        write_configuration(&self.configuration, port)
    }

    /// Runs a command of `kadmin.local`.
    fn admin(&self, query: &str) -> io::Result<()> {
        let errors = self.run("kadmin.local", ["-r", REALM, "-q", query]);
        errors.map_err(|e| Error::other(format!("{query}: {e}")))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.envs(environment(&self.directory, &self.configuration));
        command.env("KRB5_CONFIG", self.directory.join("krb5.conf"));
        command
    }

    fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> io::Result<()> {
        let output = self.command(program).args(arguments).stdin(Stdio::null()).output()?;
        // `kadmin.local -q` reports failures on standard error and ends with 0.
        let errors = String::from_utf8_lossy(&output.stderr);
        let failed = errors.lines().any(|line| line.contains("while "));
        if output.status.success() && !failed {
            return Ok(());
        }
        Err(Error::other(format!("{program}: {}: {errors}", output.status)))
    }
}

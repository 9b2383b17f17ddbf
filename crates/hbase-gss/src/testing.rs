//! Kerberos inside tests: a KDC on loopback and the server's side of a context.
//!
//! The library reads its configuration from the environment, which a test must not change in a process with
//! threads. [`with_realm`] therefore runs the body of a test in a process of its own.

mod acceptor;
mod kdc;

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

pub use self::{
    acceptor::Acceptor,
    kdc::{REALM, Realm},
};

/// Names the directory of the realm to the process of a test.
const DIRECTORY: &str = "HBASE_GSS_TEST_REALM";

/// Runs the body of the test with this full name, such as `module::fact`, in a process whose configuration is
/// of a realm with a running KDC.
///
/// Tests that run at the same time share the KDC. If MIT's KDC is missing and cannot be installed, the test is
/// skipped with a message.
///
/// # Panics
///
/// If the KDC does not start, or the body panics.
pub fn with_realm(test: &str, body: impl FnOnce(&Realm)) {
    if let Some(directory) = env::var_os(DIRECTORY) {
        let configuration = env::var_os("KRB5_CONFIG").map(PathBuf::from).unwrap_or_default();
        return body(&Realm::of(Path::new(&directory), &configuration));
    }
    let kdc = match kdc::shared() {
        Ok(Some(kdc)) => kdc,
        Ok(None) => {
            println!("skipped: needs krb5kdc, kadmin.local and kinit");
            return;
        }
        Err(e) => panic!("no KDC: {e}"),
    };
    let configuration = kdc.configuration(test).unwrap_or_else(|e| panic!("no configuration: {e}"));
    let output = env::current_exe().and_then(|program| {
        Command::new(program)
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, kdc.directory())
            .envs(kdc::environment(kdc.directory(), &configuration))
            .output()
    });
    let output = output.unwrap_or_else(|e| panic!("cannot run {test}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test} failed:\n{text}\n{errors}");
    // A wrong name would select no test, and pass.
    assert!(text.contains("1 passed"), "{test} did not run:\n{text}\n{errors}");
}

//! Passes `java.security.krb5.conf` on to the Kerberos library, which takes its configuration from `KRB5_CONFIG`.
//!
//! Only a process without other threads may set a variable of its own environment, and safe Rust offers no way to do
//! that. So the process replaces itself with the same program and the variable. It keeps its process id, arguments and
//! directory, so supervisors and relative paths are not affected.

use std::{
    env, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::anyhow;

use crate::config::HBaseSettings;

/// The library's variable.
const VARIABLE: &str = "KRB5_CONFIG";
/// This program, also after its file was replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Sets the variable if Kerberos is used, krb5.conf is configured and the variable is not set. Then the process starts
/// again, and this function does not return. Call it before threads are started and before input is read.
pub(crate) fn set(hbase: &HBaseSettings) -> anyhow::Result<()> {
    match needed(hbase, env::var_os(VARIABLE).is_some()) {
        None => Ok(()),
        Some(file) => {
            let error = start_again(file);
            Err(anyhow!(
                "cannot start again with {VARIABLE}={0}: {error}; set the variable {VARIABLE} before the start",
                file.display()
            ))
        }
    }
}

/// The configured krb5.conf, if this process lacks the variable and needs it.
fn needed(hbase: &HBaseSettings, is_set: bool) -> Option<&Path> {
    hbase.krb5_conf.as_deref().filter(|_| !is_set && hbase.cluster.uses_kerberos())
}

/// Replaces the process. Returns only if that fails.
fn start_again(krb5_conf: &Path) -> io::Error {
    // The link names a file that does not exist after an update of the program.
    let program = env::current_exe().ok().filter(|path| path.exists());
    let mut arguments = env::args_os();
    let mut command = Command::new(program.unwrap_or_else(|| PathBuf::from(THIS_PROGRAM)));
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(VARIABLE, krb5_conf).exec()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{io::Write as _, process::Stdio};

    use super::*;
    use crate::config::Settings;

    /// Variable of the process that the test starts.
    const CHILD: &str = "TSDB_TEST_KRB5_CHILD";

    const KERBEROS: [(&str, &str); 5] = [
        ("tsd.storage.hbase.zk_quorum", "zk1"),
        ("hbase.security.auth.enable", "true"),
        ("hbase.security.authentication", "kerberos"),
        ("hbase.kerberos.regionserver.principal", "hbase/_HOST@R"),
        ("java.security.krb5.conf", "relative/krb5.conf"),
    ];

    fn settings(values: &[(&str, &str)]) -> HBaseSettings {
        Settings::with(values).unwrap().storage.hbase
    }

    #[test]
    fn only_kerberos_without_the_variable_needs_it() {
        let kerberos = settings(&KERBEROS);
        assert_eq!(needed(&kerberos, false), Some(Path::new("relative/krb5.conf")));
        assert_eq!(needed(&kerberos, true), None);
        let [quorum, _, kind, principal, krb5_conf] = KERBEROS;
        assert_eq!(needed(&settings(&[quorum, kind, principal, krb5_conf]), false), None);
        let [on_hbase @ .., _] = &KERBEROS;
        assert_eq!(needed(&settings(on_hbase), false), None);
    }

    /// Runs this test again in a process of its own, which replaces itself.
    #[test]
    fn the_process_starts_again_with_the_variable() {
        if env::var_os(CHILD).is_some() {
            let file = env::var_os(VARIABLE);
            let pid = std::process::id();
            writeln!(io::stdout(), "pid {pid} {VARIABLE}={:?}", file.unwrap_or_default()).unwrap();
            set(&settings(&KERBEROS)).unwrap();
            writeln!(io::stdout(), "done in {}", env::current_dir().unwrap().display()).unwrap();
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", "--test-threads=1"]);
        command.arg("krb5_environment::tests::the_process_starts_again_with_the_variable");
        command.env(CHILD, "1").env_remove(VARIABLE).current_dir(directory.path());
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        for expected in [
            format!("pid {pid} {VARIABLE}=\"\""),
            format!("pid {pid} {VARIABLE}=\"relative/krb5.conf\""),
            format!("done in {}", directory.path().canonicalize().unwrap().display()),
        ] {
            assert_eq!(text.matches(&expected).count(), 1, "{expected}: {text}");
        }
    }
}

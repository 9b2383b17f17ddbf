//! Runs command-line tools of the system.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::error::ClusterError;

/// Directories of administrators' tools, which are often missing in `PATH`.
const ADMINISTRATORS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/lib/mit/sbin"];

/// Path of a tool.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = ADMINISTRATORS.iter().map(PathBuf::from);
    env::split_paths(&path).chain(more).map(|place| place.join(name)).find(|file| file.is_file())
}

/// A tool with its arguments.
#[derive(Debug)]
pub(crate) struct Tool<'a> {
    pub(crate) command: &'a Path,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    pub(crate) directory: &'a Path,
    /// Text for its standard input.
    pub(crate) input: &'a str,
}

impl Tool<'_> {
    /// Runs the tool to its end; returns its output and error output.
    pub(crate) fn run(&self) -> Result<String, ClusterError> {
        let what = || self.command.file_name().unwrap_or(OsStr::new("?")).display().to_string();
        let spawn = |source| ClusterError::Spawn { what: what(), source };
        let mut child = Command::new(self.command)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(spawn)?;
        if let Some(mut stdin) = child.stdin.take() {
            // Fails if the tool has exited; its status tells why.
            let _ = stdin.write_all(self.input.as_bytes());
        }
        let output = child.wait_with_output().map_err(spawn)?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            Ok(text)
        } else {
            Err(ClusterError::Tool { what: what(), output: text })
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn shell(script: &str) -> Result<String, ClusterError> {
        let command = find("sh").unwrap();
        let tool = Tool {
            command: &command,
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("WORD", "b".into())],
            directory: Path::new("/"),
            input: "a\n",
        };
        tool.run()
    }

    #[test]
    fn output_and_failure_are_returned() {
        assert_eq!(shell("read -r a; echo $a$WORD; echo c >&2").unwrap(), "ab\nc\n");
        let error = shell("echo reason >&2; exit 1").unwrap_err().to_string();
        assert!(error.contains("sh failed") && error.contains("reason"), "{error}");
        assert_eq!(find("no-such-tool"), None);
    }
}

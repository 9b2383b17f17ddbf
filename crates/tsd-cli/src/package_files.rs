//! `tsdb completions` and `tsdb man`: files of a package, from the definition of the command line.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{args::Cli, output::print_lines};

/// Name of the program in the files.
const PROGRAM: &str = "tsdb";

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    print_lines(&completions_of(shell)?)?;
    Ok(())
}

fn completions_of(shell: Shell) -> anyhow::Result<String> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut text);
    Ok(String::from_utf8(text)?)
}

/// Writes a manual page for the program and one for each command.
pub(crate) fn manual_pages(directory: &Path) -> anyhow::Result<()> {
    clap_mangen::generate_to(Cli::command(), directory)
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    #[test]
    fn completions_have_commands_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions_of(shell).unwrap();
            for word in ["quarantine", "auto-metric", "cluster"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn every_command_in_the_help_has_a_manual_page() {
        let directory = tempfile::tempdir().unwrap();
        manual_pages(directory.path()).unwrap();
        let page = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(page("tsdb.1").contains("tsdb tsd"));
        let daemon = page("tsdb-tsd.1");
        assert!(daemon.contains("tsd.network.port") && daemon.contains("78"), "{daemon}");
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(page(&format!("tsdb-{}.1", command.get_name())).contains(".TH"));
        }
        assert!(manual_pages(&directory.path().join("missing")).is_err());
    }
}

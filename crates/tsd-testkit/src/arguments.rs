//! The command line of a bench.

use std::{env, str::FromStr, vec};

/// Reads the options of a bench in order; a wrong option panics with its name.
///
/// ```
/// # let mut rounds = 3;
/// # let mut arguments = tsd_testkit::Arguments::new(["--bench", "--rounds", "1_000"]);
/// while let Some(option) = arguments.next_option() {
///     match option.as_str() {
///         "--rounds" => rounds = arguments.number(),
///         _ => arguments.unknown(),
///     }
/// }
/// # assert_eq!(rounds, 1_000);
/// ```
#[derive(Debug)]
pub struct Arguments {
    remaining: vec::IntoIter<String>,
    /// The option returned last.
    option: String,
}

impl Arguments {
    /// The arguments of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::new(env::args().skip(1))
    }

    /// The given arguments.
    pub fn new(arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let remaining: Vec<_> = arguments.into_iter().map(Into::into).collect();
        Self { remaining: remaining.into_iter(), option: String::new() }
    }

    /// The next option; skips `--bench`, which cargo passes to every bench.
    pub fn next_option(&mut self) -> Option<String> {
        let option = self.remaining.find(|argument| argument != "--bench")?;
        option.clone_into(&mut self.option);
        Some(option)
    }

    /// The value of the option returned last.
    pub fn text(&mut self) -> String {
        self.remaining.next().unwrap_or_else(|| panic!("{} needs a value", self.option))
    }

    /// The value of the option returned last as a number; `_` may group its digits.
    pub fn number<T: FromStr>(&mut self) -> T {
        let text = self.text().replace('_', "");
        text.parse().unwrap_or_else(|_| panic!("{} needs a number", self.option))
    }

    /// Rejects the option returned last.
    pub fn unknown(&self) -> ! {
        panic!("unknown option {}", self.option)
    }
}

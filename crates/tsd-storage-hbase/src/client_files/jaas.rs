//! JAAS files: sections with the login modules of Java programs.
//!
//! ```text
//! Client {
//!   com.sun.security.auth.module.Krb5LoginModule required
//!   useKeyTab=true keyTab="/etc/tsdb.keytab" principal="tsdb@LAB.TEST";
//! };
//! ```
//!
//! Java needs quotes around a value with a `/` or `@`; here a value ends at white space or `;`.

mod tokens;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use self::tokens::{Token, TokenError, Tokens};
use super::{ClientFileError, Variables, read_text};

/// End of the class name of Kerberos's login module, in any package.
const KERBEROS: &str = "Krb5LoginModule";
/// Words that say whether a module must succeed.
const FLAGS: [&str; 4] = ["required", "requisite", "sufficient", "optional"];

/// A JAAS file.
#[derive(Clone, Debug)]
pub struct JaasFile {
    path: PathBuf,
    sections: Vec<JaasSection>,
}

/// A section of a JAAS file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JaasSection {
    /// Its name, which a program asks for.
    pub name: String,
    /// Line of the name, from 1.
    pub line: usize,
    /// Its login modules, in the order of the file.
    pub modules: Vec<JaasModule>,
}

/// A login module of a section.
#[derive(Clone, PartialEq, Eq)]
pub struct JaasModule {
    /// Java class of the module.
    pub class: String,
    /// `required`, `requisite`, `sufficient` or `optional`.
    pub flag: String,
    /// Line of the class, from 1.
    pub line: usize,
    options: BTreeMap<String, String>,
}

impl JaasFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not a JAAS file.
    pub fn read(path: &Path) -> Result<Self, ClientFileError> {
        Self::parse(path, &read_text(path)?)
    }

    /// Parses the text of the file `path`.
    ///
    /// # Errors
    ///
    /// If the text is not a JAAS file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ClientFileError> {
        let sections =
            parse_sections(&mut Tokens::new(text)).map_err(|error| ClientFileError::Invalid {
                path: path.to_owned(),
                line: error.line,
                problem: error.problem,
            })?;
        Ok(Self { path: path.to_owned(), sections })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The section of this name.
    ///
    /// # Errors
    ///
    /// If the file has no such section. The error names the sections that exist.
    pub fn section(&self, name: &str) -> Result<&JaasSection, ClientFileError> {
        self.sections.iter().find(|section| section.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.sections.iter().map(|section| &*section.name).collect();
            ClientFileError::NoSection {
                path: self.path.clone(),
                section: name.to_owned(),
                existing: if names.is_empty() { "no section".to_owned() } else { names.join(", ") },
            }
        })
    }

    /// The first Kerberos login module of a section.
    ///
    /// # Errors
    ///
    /// If the section has only other modules.
    pub fn kerberos<'a>(
        &self,
        section: &'a JaasSection,
    ) -> Result<&'a JaasModule, ClientFileError> {
        section.kerberos().ok_or_else(|| {
            let classes: Vec<&str> = section.modules.iter().map(|module| &*module.class).collect();
            let found =
                if classes.is_empty() { "no module".to_owned() } else { classes.join(", ") };
            let name = &section.name;
            self.invalid(section.line, format!("section {name} has {found}; expected a {KERBEROS}"))
        })
    }

    /// An error of a line of this file.
    #[must_use]
    pub fn invalid(&self, line: usize, problem: String) -> ClientFileError {
        ClientFileError::Invalid { path: self.path.clone(), line, problem }
    }
}

impl JaasSection {
    /// The first Kerberos login module, if there is one.
    #[must_use]
    pub fn kerberos(&self) -> Option<&JaasModule> {
        self.modules.iter().find(|module| module.class.rsplit('.').next() == Some(KERBEROS))
    }
}

impl JaasModule {
    /// An option with its variables (`${user.home}`) replaced; `None` if it is missing or empty. A variable that is
    /// not known stays as it is.
    #[must_use]
    pub fn option(&self, name: &str, variables: Variables<'_>) -> Option<String> {
        let value = self.options.get(name)?;
        let mut replaced = String::with_capacity(value.len());
        let mut rest = value.as_str();
        while let Some((before, inner)) = rest.split_once("${") {
            let Some((variable, after)) = inner.split_once('}') else { break };
            replaced.push_str(before);
            match (variable, variables(variable)) {
                ("/", _) => replaced.push('/'),
                (_, Some(found)) => replaced.push_str(&found),
                (_, None) => {
                    replaced.push_str("${");
                    replaced.push_str(variable);
                    replaced.push('}');
                }
            }
            rest = after;
        }
        replaced.push_str(rest);
        Some(replaced).filter(|text| !text.is_empty())
    }

    /// True if an option is `true`, in any case.
    #[must_use]
    pub fn is_true(&self, name: &str) -> bool {
        self.options.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

/// Options may be passwords, so only their names are shown.
impl fmt::Debug for JaasModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JaasModule")
            .field("class", &self.class)
            .field("flag", &self.flag)
            .field("line", &self.line)
            .field("options", &self.options.keys())
            .finish()
    }
}

fn parse_sections(tokens: &mut Tokens<'_>) -> Result<Vec<JaasSection>, TokenError> {
    let mut sections: Vec<JaasSection> = Vec::new();
    while let Some((line, token)) = tokens.next()? {
        let name = token.into_text().map_err(|found| {
            TokenError::new(line, format!("expected the name of a section, found {found}"))
        })?;
        if let Some(first) = sections.iter().find(|section| section.name == name) {
            let problem = format!("section {name} exists already in line {}", first.line);
            return Err(TokenError::new(line, problem));
        }
        tokens.expect('{', "after the name of a section")?;
        let mut modules = Vec::new();
        while let Some(module) = parse_module(tokens)? {
            modules.push(module);
        }
        tokens.expect(';', "after the } of a section")?;
        sections.push(JaasSection { name, line, modules });
    }
    Ok(sections)
}

/// The next login module; `None` at the end of the section.
fn parse_module(tokens: &mut Tokens<'_>) -> Result<Option<JaasModule>, TokenError> {
    const CLASS: &str = "the class of a login module, or }";
    let (class_line, token) = tokens.needed(CLASS)?;
    if token == Token::Symbol('}') {
        return Ok(None);
    }
    let class = token
        .into_text()
        .map_err(|found| TokenError::new(class_line, format!("expected {CLASS}, found {found}")))?;
    let (flag_line, token) = tokens.needed("a flag")?;
    let found = token.to_string();
    let flag = token.into_text().unwrap_or_default().to_ascii_lowercase();
    if !FLAGS.contains(&flag.as_str()) {
        let problem = format!("expected {} after {class}, found {found}", FLAGS.join(", "));
        return Err(TokenError::new(flag_line, problem));
    }
    let mut options = BTreeMap::new();
    loop {
        const OPTION: &str = "an option, or ; after the last option";
        let (line, token) = tokens.needed(OPTION)?;
        if token == Token::Symbol(';') {
            return Ok(Some(JaasModule { class, flag, line: class_line, options }));
        }
        let name = token
            .into_text()
            .map_err(|found| TokenError::new(line, format!("expected {OPTION}, found {found}")))?;
        tokens.expect('=', &format!("after the option {name}"))?;
        let (line, token) = tokens.needed("a value")?;
        let value = token.into_text().map_err(|found| {
            TokenError::new(line, format!("expected a value of {name}, found {found}"))
        })?;
        options.insert(name, value);
    }
}

#[cfg(test)]
mod tests;

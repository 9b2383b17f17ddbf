//! Properties of Hadoop configuration files.
//!
//! The rules are Hadoop's: a later file overrides an earlier one except properties that are `final`, names are
//! trimmed, a property without a value does not count, and `${name}` is replaced when a property is read. Hadoop keeps
//! the text of an unknown variable; here it is an error, because no setting works with that text.

mod variables;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use roxmltree::{Document, Node, ParsingOptions};

use super::{ClientFileError, Variables, read_text};

/// Maximum nodes of a file.
const MAX_NODES: u32 = 200_000;
/// Namespace of elements that include another file.
const XINCLUDE: &str = "http://www.w3.org/2001/XInclude";

/// The properties of one or several files.
#[derive(Clone, Default)]
pub struct SiteProperties {
    properties: BTreeMap<String, Raw>,
    files: Vec<PathBuf>,
}

/// A property as the file has it.
#[derive(Clone)]
struct Raw {
    value: String,
    is_final: bool,
    /// Index of the file.
    file: usize,
    line: usize,
}

/// A property with its variables replaced.
#[derive(Clone, PartialEq, Eq)]
pub struct SiteProperty {
    /// The value without white space at its ends.
    pub value: String,
    /// The file.
    pub path: PathBuf,
    /// Line of the property, from 1.
    pub line: usize,
}

impl SiteProperties {
    /// Reads a file, or `core-site.xml` and then `hbase-site.xml` of a directory. The directory may lack
    /// `core-site.xml`.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or is not a Hadoop configuration file.
    pub fn read(path: &Path) -> Result<Self, ClientFileError> {
        let mut site = Self::default();
        if !path.is_dir() {
            site.add(path, &read_text(path)?)?;
            return Ok(site);
        }
        let [core, hbase] = ["core-site.xml", "hbase-site.xml"].map(|name| path.join(name));
        if !hbase.exists() {
            return Err(ClientFileError::NoSiteFile { path: path.to_owned() });
        }
        if core.exists() {
            site.add(&core, &read_text(&core)?)?;
        }
        site.add(&hbase, &read_text(&hbase)?)?;
        Ok(site)
    }

    /// Adds the properties of a file, which override earlier ones.
    ///
    /// # Errors
    ///
    /// If the text is not a Hadoop configuration file.
    pub fn add(&mut self, path: &Path, text: &str) -> Result<(), ClientFileError> {
        let lines = Lines::new(text);
        let invalid =
            |line, problem| ClientFileError::Invalid { path: path.to_owned(), line, problem };
        let options =
            ParsingOptions { allow_dtd: true, nodes_limit: MAX_NODES, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(|error| {
            let problem = format!("{error}; expected XML, as Hadoop's configuration files are");
            invalid(error.pos().row as usize, problem)
        })?;
        let root = document.root_element();
        if root.tag_name().name() != "configuration" {
            let found = root.tag_name().name();
            let problem = format!("expected the element <configuration>, found <{found}>");
            return Err(invalid(lines.line_of(root), problem));
        }
        let file = self.files.len();
        self.files.push(path.to_owned());
        for element in root.descendants().filter(Node::is_element) {
            if element.tag_name().namespace() == Some(XINCLUDE) {
                let href = element.attribute("href").unwrap_or_default();
                let problem = format!(
                    "includes {href:?} (XInclude), which is not supported; copy the properties of \
                     that file into this one"
                );
                return Err(invalid(lines.line_of(element), problem));
            }
            if element.has_tag_name("property")
                && let Some((name, value, is_final)) = parse_property(element)
            {
                self.set(name, Raw { value, is_final, file, line: lines.line_of(element) });
            }
        }
        Ok(())
    }

    fn set(&mut self, name: String, property: Raw) {
        if self.properties.get(&name).is_none_or(|earlier| !earlier.is_final) {
            self.properties.insert(name, property);
        }
    }

    /// The files, in the order in which they were added.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns a property with its variables replaced; `None` if no file has it or its value is empty.
    ///
    /// A variable is `env.NAME`, optionally with a default (`env.NAME:-default`), a variable of the process such as
    /// `user.home`, or another property.
    ///
    /// # Errors
    ///
    /// If a variable is unknown, or the value refers to itself.
    pub fn get(
        &self,
        name: &str,
        variables: Variables<'_>,
    ) -> Result<Option<SiteProperty>, ClientFileError> {
        let Some(raw) = self.properties.get(name) else { return Ok(None) };
        let path = self.files.get(raw.file).cloned().unwrap_or_default();
        let property = |name: &str| self.properties.get(name).map(|other| other.value.as_str());
        match variables::replaced(&raw.value, property, variables) {
            Ok(value) if value.trim().is_empty() => Ok(None),
            Ok(value) => {
                Ok(Some(SiteProperty { value: value.trim().to_owned(), path, line: raw.line }))
            }
            Err(error) => Err(ClientFileError::Invalid {
                path,
                line: raw.line,
                problem: format!("{name} {error}"),
            }),
        }
    }
}

/// Values may be passwords.
impl fmt::Debug for SiteProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteProperties")
            .field("files", &self.files)
            .field("properties", &self.properties.len())
            .finish()
    }
}

/// The value may be a password.
impl fmt::Debug for SiteProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SiteProperty({} line {})", self.path.display(), self.line)
    }
}

/// Name, value and `final` of a property, which are elements or attributes. `None` without a name or a value.
fn parse_property(property: Node<'_, '_>) -> Option<(String, String, bool)> {
    let part = |tag: &str| {
        let elements = property.children().filter(|child| child.has_tag_name(tag));
        let texts = elements.map(text_of).next_back();
        texts.or_else(|| property.attribute(tag).map(str::to_owned))
    };
    let name = part("name")?.trim().to_owned();
    let is_final = part("final").is_some_and(|text| text.trim() == "true");
    (!name.is_empty()).then_some((name, part("value")?, is_final))
}

/// The text of an element, without comments.
fn text_of(element: Node<'_, '_>) -> String {
    element.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

/// Offsets at which the lines of a text begin, so that the line of a node is found without reading the text again.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at + 1).collect())
    }

    /// Line of a node, from 1.
    fn line_of(&self, node: Node<'_, '_>) -> usize {
        self.0.partition_point(|begin| *begin <= node.range().start) + 1
    }
}

#[cfg(test)]
mod tests;
